# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What is reported of cards that the options divide into vGPUs, whatever lives on them."""

import json
import shutil
import uuid

import pytest

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options, Selector
from cyborg_ext_drivers.report import contract
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.survey import Surveyor, Verdict
from cyborg_ext_drivers.testing import FakeHost

T4, A40, A100 = "0000:3b:00.0", "0000:41:00.0", "0000:c1:00.0"
HOSTS = {
    T4: "t4-on-vgpu-host-driver",
    A40: "a40-with-vgpu-on-virtual-functions",
    A100: "a100-in-mig-mode-with-vgpu",
}
A40_PARTS = [f"0000:41:{number >> 3:02x}.{number & 7}" for number in range(4, 12)]


def options(fake, *pairs, **more):
    types = tuple((PciAddress.parse(address), kind) for address, kind in pairs)
    return Options(host_root=str(fake.root), vgpu_types=types, **more)


class Agent:
    """What the agent tells Cyborg, discovery after discovery."""

    def __init__(self, fake, *pairs, **more):
        self.surveyor = Surveyor(options(fake, *pairs, **more))
        self.ledger = Ledger("compute-1", self.surveyor.options)
        self.host = Host(fake.root)

    def look(self):
        """Return the assessment of each accelerator, by address."""
        self.host = self.host.again()
        survey = self.surveyor.survey(self.host)
        return {str(each.address): each for each in survey.assessments}

    def discover(self):
        """Return the report of each card that Cyborg is told of, by address."""
        self.host = self.host.again()
        decisions = self.ledger.settle(self.surveyor.survey(self.host), self.host)
        return {str(each.assessment.address): each.report for each in decisions if each.report}


def codes(assessment):
    return {(str(f.code), str(f.address), str(f.severity)) for f in assessment.findings}


def handles(report):
    (deployable,) = report.deployables
    return [(kind, json.loads(info)) for kind, info in deployable.handles]


def test_a_card_before_ampere_is_one_device_with_as_many_handles_as_it_holds():
    with FakeHost.named(HOSTS[T4]) as fake:
        report = Agent(fake, (T4, "nvidia-223")).discover()[T4]
    assert contract.violations(report) == []
    (deployable,) = report.deployables
    assert deployable.name == f"compute-1_{T4}"
    assert deployable.num_accelerators == 8
    assert deployable.attributes == (
        ("rc", "VGPU"),
        *(
            (f"trait_{trait}", trait)
            for trait in (
                "OWNER_CYBORG",
                "CUSTOM_GPU_NVIDIA",
                "CUSTOM_NVIDIA_1EB8",
                "CUSTOM_NVIDIA_T4",
                "CUSTOM_NVIDIA_1EB8_T4_2B",
                "CUSTOM_GPU_PRODUCT_ID_1EB8",
            )
        ),
    )
    assert report.cpid_info == PciAddress.parse(T4).to_json()
    assert deployable.handles[7] == (
        "MDEV",
        '{"asked_type": "nvidia-223", "bus": "3b", "device": "00", "domain": "0000", '
        '"function": "0", "vgpu_mark": "nvidia-223_7"}',
    )


@pytest.mark.parametrize(
    ("named", "kind", "given"),
    [
        ([A40], "nvidia-557", A40_PARTS[:4]),
        ([A40], "nvidia-556", A40_PARTS[:6]),
        ([A40], "nvidia-560", A40_PARTS[:1]),
        (A40_PARTS[5:], "nvidia-557", A40_PARTS[5:]),
        ([A40_PARTS[7], A40_PARTS[2]], "nvidia-557", [A40_PARTS[2], A40_PARTS[7]]),
        ([A40, A40_PARTS[6]], "nvidia-558", A40_PARTS[:3]),
    ],
)
def test_from_ampere_on_the_handles_name_virtual_functions(named, kind, given):
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, *((address, kind) for address in named))
        assessments, reports = agent.look(), agent.discover()
    assert assessments.keys() == reports.keys() == {A40}
    assert assessments[A40].verdict is Verdict.REPORTED
    assert ("vfs-enabled", A40, "info") in codes(assessments[A40])
    assert ("mdev-ignored-by-nova", A40, "warning") in codes(assessments[A40])
    found = handles(reports[A40])
    assert reports[A40].deployables[0].name == f"compute-1_{A40}"
    assert [str(PciAddress.from_json(json.dumps(info))) for _, info in found] == given
    assert {(t, i["asked_type"], i["vgpu_mark"]) for t, i in found} == {("MDEV", kind, f"{kind}_0")}


@pytest.mark.parametrize(
    ("kind", "trait", "number"),
    [
        ("nvidia-474", "CUSTOM_NVIDIA_20F1_A100_1_5C", 7),
        ("nvidia-477", "CUSTOM_NVIDIA_20F1_A100_7_40C", 1),
        ("nvidia-478", "CUSTOM_NVIDIA_20F1_A100_1_5CME", 1),
    ],
)
def test_types_that_mig_instances_back_have_traits_of_their_own(kind, trait, number):
    with FakeHost.named(HOSTS[A100]) as fake:
        report = Agent(fake, (A100, kind)).discover()[A100]
    (deployable,) = report.deployables
    assert (f"trait_{trait}", trait) in deployable.attributes
    assert deployable.num_accelerators == number


@pytest.mark.parametrize(
    ("card", "kind", "sibling", "parents"),
    [
        (T4, "nvidia-223", "nvidia-223", [T4] * 8),
        (T4, "nvidia-223", "nvidia-222", [T4] * 16),
        (T4, "nvidia-223", "nvidia-234", [T4]),
        (A40, "nvidia-557", "nvidia-557", A40_PARTS[4:]),
        (A40, "nvidia-557", "nvidia-563", A40_PARTS[:2]),
        (A40, "nvidia-557", "nvidia-556", A40_PARTS[2:]),
        (A100, "nvidia-474", "nvidia-478", ["0000:c1:00.7"]),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_the_report_is_the_same_whatever_lives_on_the_card(card, kind, sibling, parents, is_known):
    """Instances of the type or of a sibling; for an agent that starts meanwhile as well."""
    with FakeHost.named(HOSTS[card]) as fake:
        agent = Agent(fake, (card, kind))
        empty = agent.discover()
        made = []
        for parent in parents[:6]:
            fake.create_mediated_device(parent, sibling, str(uuid.uuid4()))
            made.append(fake)
            if not is_known:
                agent = Agent(fake, (card, kind))
            assert agent.discover() == empty
        assert ("mdev-in-use", parents[0], "info") in codes(agent.look()[card])
        left = fake.path(f"/sys/bus/pci/devices/{card}/mdev_supported_types/{kind}")
        if card == T4 and sibling != kind:
            assert (left / "available_instances").read_text() == "0\n"
        for name in sorted(fake.path("/sys/bus/mdev/devices").iterdir()):
            fake.remove_mediated_device(name.name)
            assert agent.discover() == empty
    assert empty[card].deployables[0].num_accelerators


def test_a_type_that_goes_from_the_list_while_instances_live_is_in_doubt():
    with FakeHost.named(HOSTS[T4]) as fake:
        agent = Agent(fake, (T4, "nvidia-223"))
        before = agent.discover()
        fake.create_mediated_device(T4, "nvidia-222", str(uuid.uuid4()))
        kinds = fake.path(f"/sys/bus/pci/devices/{T4}/mdev_supported_types")
        (kinds / "nvidia-223").rename(kinds / "nvidia-223-was-here")
        (reason,) = (f for f in agent.look()[T4].findings if f.is_blocker)
        assert str(reason.code) == "unreadable" and "lives on the card" in reason.message
        for _ in range(10):
            assert agent.discover() == before
        assert Agent(fake, (T4, "nvidia-223")).discover() == {}
        (kinds / "nvidia-223-was-here").rename(kinds / "nvidia-223")


@pytest.mark.parametrize("attribute", ["description", "name"])
@pytest.mark.parametrize("card, kind", [(T4, "nvidia-223"), (A40, "nvidia-557")])
def test_what_cannot_be_read_of_the_type_is_in_doubt(card, kind, attribute):
    parent = T4 if card == T4 else A40_PARTS[0]
    with FakeHost.named(HOSTS[card]) as fake:
        agent = Agent(fake, (card, kind))
        before = agent.discover()
        assert before
        fake.make_unreadable(parent, f"mdev_supported_types/{kind}/{attribute}")
        assert str(agent.look()[card].reason.code) == "unreadable"
        for _ in range(5):
            assert agent.discover() == before


@pytest.mark.parametrize(
    "description",
    ["", "num_heads=4", "max_instance=0", "max_instance=-1", "max_instance=99999", "max_instance="],
)
def test_a_description_that_gives_no_number_is_in_doubt(description):
    with FakeHost.named(HOSTS[T4]) as fake:
        agent = Agent(fake, (T4, "nvidia-223"))
        fake.set_attribute(T4, "mdev_supported_types/nvidia-223/description", description)
        reason = agent.look()[T4].reason
    assert str(reason.code) == "unreadable"
    assert "max_instance" in reason.message and "nvidia-223/description" in str(reason.evidence[0])


def parent_of_types(fake, address):
    return fake.path(f"/sys/bus/pci/devices/{address}/mdev_supported_types")


def test_a_virtual_function_without_its_list_yet_is_waited_for():
    """The driver has it, and writes the list some seconds later."""
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, (A40, "nvidia-557"))
        before = agent.discover()
        shutil.rmtree(parent_of_types(fake, A40_PARTS[0]))
        (reason,) = (f for f in agent.look()[A40].findings if f.is_blocker)
        assert str(reason.code) == "unreadable" and A40_PARTS[0] in reason.message
        for _ in range(5):
            assert agent.discover() == before
        assert Agent(fake, (A40, "nvidia-557")).discover() == {}


def test_a_virtual_function_without_a_driver_keeps_its_place_and_costs_no_other():
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, (A40, "nvidia-557"))
        before = agent.discover()
        fake.unbind(A40_PARTS[0])
        card = agent.look()[A40]
        assert ("vendor-driver-missing", A40_PARTS[0], "warning") in codes(card)
        assert [str(h.address) for h in card.deployables[0].handles] == A40_PARTS[1:4]
        assert agent.discover() == agent.discover() == before
        other = Agent(fake, (A40, "nvidia-557"))
        fewer = other.discover()[A40].deployables[0].handles
        fake.bind(A40_PARTS[0], "nvidia")
        assert other.discover() == before
    assert set(fewer) < set(before[A40].deployables[0].handles)


@pytest.mark.parametrize("is_there_first", [True, False])
def test_a_named_virtual_function_that_is_not_there_is_told_and_its_handle_held(is_there_first):
    named = [(address, "nvidia-557") for address in A40_PARTS[:3]]
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, *named)
        before = agent.discover() if is_there_first else None
        fake.remove_function(A40_PARTS[2])
        card = agent.look()[A40]
        assert ("vgpu-not-supported", A40_PARTS[2], "warning") in codes(card)
        if is_there_first:
            assert agent.discover() == agent.discover() == before
        assert agent.discover()[A40].deployables[0].num_accelerators == 2


@pytest.mark.parametrize(("card", "kind"), [(T4, "nvidia-223"), (A40, "nvidia-557")])
def test_a_type_that_is_not_offered_is_explained_while_instances_live_on_the_card(card, kind):
    with FakeHost.named(HOSTS[card]) as fake:
        parent = T4 if card == T4 else A40_PARTS[0]
        fake.create_mediated_device(parent, kind, str(uuid.uuid4()))
        found = Agent(fake, (card, "nvidia-999")).look()[card]
    assert found.verdict is Verdict.SKIPPED
    (told,) = (each for each in found.findings if str(each.code) == "vgpu-type-unknown")
    assert kind in told.remedy and "nvidia-999" in told.message


def test_an_excluded_virtual_function_makes_no_vgpu_and_one_of_novas_is_told():
    exclude = (Selector.parse(A40_PARTS[0]),)
    spec = json.dumps({"address": A40_PARTS[1]})
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, (A40, "nvidia-557"), exclude=exclude, nova_device_specs=(spec,))
        card = agent.look()[A40]
        everything = Agent(fake, (A40_PARTS[0], "nvidia-557"), exclude=exclude).look()[A40]
    assert A40_PARTS[0] not in [str(each.address) for each in card.deployables[0].handles]
    assert ("excluded-by-config", A40_PARTS[0], "info") in codes(card)
    assert ("claimed-by-nova", A40_PARTS[1], "warning") in codes(card)
    assert str(everything.reason.code) == "excluded-by-config"


@pytest.mark.parametrize("code", ["vgpu-type-unknown", "vgpu-types-mixed"])
def test_what_leaves_nothing_to_report_cannot_be_ignored(code):
    pairs = [(A40_PARTS[0], "nvidia-999")]
    if code == "vgpu-types-mixed":
        pairs = [(A40_PARTS[0], "nvidia-557"), (A40_PARTS[1], "nvidia-563")]
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, *pairs, ignore_findings=frozenset([code]))
        assert agent.discover() == {}
        assert str(agent.look()[A40].reason.code) == code


def test_a_virtual_function_that_something_else_holds_is_left_out_and_said():
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, (A40, "nvidia-557"))
        before = agent.discover()
        fake.bind(A40_PARTS[0], "vfio-pci")
        card = agent.look()[A40]
        assert ("vendor-driver-missing", A40_PARTS[0], "warning") in codes(card)
        assert [str(h.address) for h in card.deployables[0].handles] == A40_PARTS[1:5]
        # An instance may have it: for a while the card is held.
        assert agent.discover() == agent.discover() == before
        assert agent.discover() != before


def test_the_driver_away_for_a_moment_changes_nothing():
    with FakeHost.named(HOSTS[T4]) as fake:
        agent = Agent(fake, (T4, "nvidia-223"))
        before = agent.discover()
        fake.unbind(T4)
        assert agent.discover() == before
        fake.bind(T4, "nvidia")
        assert agent.discover() == before


def test_virtual_functions_that_are_not_there_keep_the_card_from_being_given_whole():
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, (A40_PARTS[1], "nvidia-557"))
        fake.disable_virtual_functions(A40)
        card = agent.look()[A40]
        assert str(card.reason.code) == "vgpu-not-supported"
        assert agent.discover() == {}
        assert agent.surveyor.unmet(agent.host) == ()


def test_a_card_that_no_option_names_is_another_matter():
    with FakeHost.named(HOSTS[T4]) as fake:
        fake.add_function(
            "0000:5e:00.0", vendor="10de", device="1eb8", class_="030200", iommu_group=90
        )
        agent = Agent(fake, (T4, "nvidia-223"))
        reports = agent.discover()
    assert [(h[0], len(handles(r))) for r in reports.values() for h in handles(r)[:1]] == [
        ("MDEV", 8),
        ("PCI", 1),
    ]


def test_the_options_of_the_package_count_for_divided_cards_too():
    with FakeHost.named(HOSTS[A40]) as fake:

        def looked(**more):
            return Agent(fake, (A40, "nvidia-557"), **more).look()[A40]

        def some(*texts):
            return tuple(map(Selector.parse, texts))

        assert str(looked(exclude=some(A40)).reason.code) == "excluded-by-config"
        assert str(looked(include=some("10de:1eb8")).reason.code) == "excluded-by-config"
        assert looked(include=some("10de:2235")).verdict is Verdict.REPORTED
        assert looked(include=some(A40_PARTS[0])).verdict is Verdict.REPORTED
        assert looked(vfio_only=True).verdict is Verdict.REPORTED
        classes = ((Selector.parse(A40), "CUSTOM_VGPU_12Q"),)
        extra = ((Selector.parse(A40), ("CUSTOM_RACK_7",)),)
        (deployable,) = looked(resource_classes=classes, extra_traits=extra).deployables
        assert deployable.resource_class == "CUSTOM_VGPU_12Q"
        assert deployable.traits[-1] == "CUSTOM_RACK_7"
        fake.set_attribute(A40, "config", b"\xff" * 64)
        assert str(looked().reason.code) == "config-space-dead"


def test_neither_group_nor_companions_matter_where_the_host_keeps_the_card():
    with FakeHost.named(HOSTS[T4]) as fake:
        fake.move_to_group(T4, None)
        fake.remove_attribute(T4, "reset")
        assert Agent(fake, (T4, "nvidia-223")).look()[T4].verdict is Verdict.REPORTED
        assert Agent(fake).look()[T4].verdict is Verdict.SKIPPED


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("0000:5e:00.0", "no PCI function"),
        ("0000:06:00.0", "8086:1572 class 020000, no NVIDIA GPU"),
        ("0000:3b:00.1", "no PCI function"),
    ],
)
def test_an_address_without_a_card_is_named(address, words):
    with FakeHost.named(HOSTS[T4]) as fake:
        fake.add_function(
            "0000:06:00.0", vendor="8086", device="1572", class_="020000", iommu_group=90
        )
        agent = Agent(fake, (T4, "nvidia-223"), (address, "nvidia-222"))
        survey = agent.surveyor.survey(agent.host)
    (sentence,) = survey.unmet
    assert sentence.startswith(f"[vgpu_nvidia-222] device_addresses names {address}")
    assert words in sentence
    assert [str(each.address) for each in survey.reported] == [T4]


def test_with_mediated_devices_on_it_a_card_is_not_given_whole():
    with FakeHost.named(HOSTS[T4]) as fake:
        agent = Agent(fake)
        assert agent.look()[T4].verdict is Verdict.REPORTED
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        fake.create_mediated_device(T4, "nvidia-223", first)
        fake.create_mediated_device(T4, "nvidia-223", second)
        reason = agent.look()[T4].reason
        assert str(reason.code) == "mdev-in-use"
        assert reason.message.startswith(f"2 mediated devices live on {T4}, of nvidia-223")
        fake.remove_mediated_device(first)
        fake.remove_mediated_device(second)
        assert agent.look()[T4].verdict is Verdict.REPORTED


@pytest.mark.parametrize(
    ("name", "trait"),
    [
        ("NVIDIA RTX Pro 6000 Blackwell DC-48C", "CUSTOM_NVIDIA_1EB8_DC_48C"),
        ("NVIDIA RTX6000-Ada-1Q", "CUSTOM_NVIDIA_1EB8_RTX6000_ADA_1Q"),
        ("nvidia-223", "CUSTOM_NVIDIA_1EB8_NVIDIA_223"),
        ("", "CUSTOM_NVIDIA_1EB8_NVIDIA_223"),
        ("GRID ---", "CUSTOM_NVIDIA_1EB8_NVIDIA_223"),
        ("GRID " + "x" * 300, "CUSTOM_NVIDIA_1EB8_NVIDIA_223"),
        ("GRID  T4-2B", "CUSTOM_NVIDIA_1EB8_T4_2B"),
        ("GRID t4.2b\u00e9", "CUSTOM_NVIDIA_1EB8_T4_2B"),
    ],
)
def test_a_name_of_any_form_gives_a_trait(name, trait):
    with FakeHost.named(HOSTS[T4]) as fake:
        fake.set_attribute(T4, "mdev_supported_types/nvidia-223/name", name)
        report = Agent(fake, (T4, "nvidia-223")).discover()[T4]
    assert contract.violations(report) == []
    assert (f"trait_{trait}", trait) in report.deployables[0].attributes


@pytest.mark.parametrize("attribute", ["config", "physfn", "numa_node"])
def test_what_cannot_be_read_of_one_card_costs_no_other(attribute):
    other = "0000:5e:00.0"
    with FakeHost.named(HOSTS[A40]) as fake:
        fake.add_function(
            other, vendor="10de", device="1eb8", class_="030200", driver="nvidia", iommu_group=90
        )
        agent = Agent(fake, (A40, "nvidia-557"), (other, "nvidia-223"))
        before = agent.discover()
        fake.make_unreadable(other, attribute)
        assert agent.look()[A40].verdict is Verdict.REPORTED
        assert agent.discover() == before


def test_a_virtual_function_whose_link_cannot_be_read_holds_its_own_card():
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, *((part, "nvidia-557") for part in A40_PARTS[:2]))
        before = agent.discover()
        assert [str(PciAddress.from_json(json.dumps(info))) for _, info in handles(before[A40])]
        fake.make_unreadable(A40_PARTS[1], "physfn")
        for _ in range(5):
            assert agent.discover() == before


def test_a_card_that_was_divided_is_not_given_whole_while_devices_live():
    with FakeHost.named(HOSTS[T4]) as fake:
        agent = Agent(fake, (T4, "nvidia-223"))
        before = agent.discover()
        name = str(uuid.uuid4())
        fake.create_mediated_device(T4, "nvidia-223", name)
        # The operator takes the options away and restarts the agent.
        entries, agent = agent.ledger.entries, Agent(fake)
        agent.ledger.entries = entries
        assert agent.discover() == before
        fake.remove_mediated_device(name)
        assert handles(agent.discover()[T4]) == [("PCI", json.loads(before[T4].cpid_info))]


def test_a_virtual_function_of_another_vendor_is_no_vgpu_of_the_card():
    with FakeHost.named(HOSTS[A40]) as fake:
        agent = Agent(fake, (A40, "nvidia-557"))
        whole = agent.discover()[A40].deployables[0].num_accelerators
        stranger = fake.path(f"/sys/bus/pci/devices/{A40_PARTS[0]}/uevent").read_text()
        other = stranger.replace("PCI_ID=10DE:", "PCI_ID=8086:")
        fake.set_attribute(A40_PARTS[0], "uevent", other)
        fake.set_attribute(A40_PARTS[0], "vendor", "0x8086\n")
        found = handles(Agent(fake, (A40, "nvidia-557")).discover().get(A40))
    given = [str(PciAddress.from_json(json.dumps(info))) for _, info in found]
    assert other != stranger and given and A40_PARTS[0] not in given
    assert whole == len(given)
