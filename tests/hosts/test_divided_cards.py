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

"""What becomes of cards with virtual functions, also when these do not fit."""

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options, Selector
from cyborg_ext_drivers.survey import Surveyor, Verdict
from cyborg_ext_drivers.testing import FakeHost, Oddity

CARD, NIC = "0000:05:00.0", "0000:06:00.0"
MI355X = {"vendor": "1002", "device": "75a3", "class_": "120000", "sriov_totalvfs": 8}
TRAITS = ("OWNER_CYBORG", "CUSTOM_GPU_AMD", "CUSTOM_AMD_75A3", "CUSTOM_AMD_MI355X")


@pytest.fixture
def fake():
    with FakeHost() as fake:
        fake.add_function(CARD, **MI355X, driver="amdgpu", iommu_group=40)
        yield fake


@pytest.fixture
def virtual(fake):
    """Four virtual functions, by name."""
    return [str(each) for each in fake.enable_virtual_functions(CARD, 4, device="75b3")]


def assessments(fake, **options):
    survey = Surveyor(Options(host_root=str(fake.root), **options)).survey(Host(fake.root))
    return {str(each.address): each for each in survey.assessments}


def offered(assessment):
    """Return the class, the handles and the traits of what is offered of a card."""
    assert assessment.verdict is Verdict.REPORTED
    (deployable,) = assessment.deployables
    handles = [str(handle.address) for handle in deployable.handles]
    return deployable.resource_class, handles, deployable.traits


def codes(assessment):
    return {(str(f.code), str(f.address), str(f.severity)) for f in assessment.findings}


def linked(fake, function, target):
    return fake.inject(Oddity.of(function, "physfn", "link", f"../{target}"))


def test_a_card_is_one_device_whether_it_is_divided_or_not(fake):
    assert offered(assessments(fake)[CARD]) == ("PGPU", [CARD], TRAITS)
    virtual = [str(each) for each in fake.enable_virtual_functions(CARD, 4, device="75b3")]
    found = assessments(fake)
    assert found.keys() == {CARD}
    assert offered(found[CARD]) == ("VGPU", virtual, TRAITS)
    assert codes(found[CARD]) == {("vfs-enabled", CARD, "info")}


def test_one_that_cannot_be_attached_is_left_out_and_said(fake, virtual):
    fake.bind(virtual[1], "pci-stub")
    fake.move_to_group(virtual[2], None)
    card = assessments(fake)[CARD]
    assert offered(card)[1] == [virtual[0], virtual[3]]
    assert codes(card) == {
        ("vfs-enabled", CARD, "info"),
        ("set-aside", virtual[1], "warning"),
        ("no-iommu-group", virtual[2], "warning"),
    }


def test_when_none_can_be_attached_the_card_is_skipped(fake, virtual):
    for each in virtual:
        fake.bind(each, "pci-stub")
    card = assessments(fake)[CARD]
    assert card.verdict is Verdict.SKIPPED
    assert str(card.reason).startswith(f"set-aside: {virtual[0]}: It is bound to pci-stub")
    assert ("vfs-enabled", CARD, "blocker") in codes(card)


def test_when_the_only_one_cannot_be_read_nothing_certain_is_against_the_card(fake):
    (only,) = fake.enable_virtual_functions(CARD, 1, device="75b3")
    fake.make_unreadable(only, "iommu_group")
    card = assessments(fake)[CARD]
    assert {str(f.code) for f in card.findings if f.is_blocker} == {"unreadable"}


def test_two_in_one_group_are_one_instances(fake, virtual):
    fake.move_to_group(virtual[1], fake.group_of(virtual[0]))
    card = assessments(fake)[CARD]
    assert offered(card)[1] == [virtual[0], virtual[2], virtual[3]]
    assert ("iommu-group-shared-accelerators", virtual[1], "warning") in codes(card)


def test_without_groups_of_their_own_the_driver_of_the_card_keeps_them(fake, virtual):
    for each in virtual:
        fake.move_to_group(each, 40)
    card = assessments(fake)[CARD]
    assert card.verdict is Verdict.SKIPPED
    assert ("iommu-group-shared", virtual[0], "blocker") in codes(card)


def test_a_dead_card_has_no_virtual_functions_to_give(fake, virtual):
    fake.set_attribute(CARD, "config", b"\xff" * 256)
    card = assessments(fake)[CARD]
    assert str(card.reason.code) == "config-space-dead"


@pytest.mark.parametrize("attribute", ["iommu_group", "physfn", "config"])
def test_what_cannot_be_read_of_one_is_said_of_the_card(fake, virtual, attribute):
    fake.make_unreadable(virtual[3], attribute)
    card = assessments(fake)[CARD]
    assert card.verdict is Verdict.SKIPPED and str(card.reason.code) == "unreadable"


def test_the_options_choose_cards_and_virtual_functions(fake, virtual):
    def chosen(**options):
        return assessments(fake, **options)[CARD]

    def some(*texts):
        return tuple(map(Selector.parse, texts))

    assert offered(chosen(exclude=some(virtual[0])))[1] == virtual[1:]
    assert offered(chosen(include=some(CARD)))[1] == virtual
    assert offered(chosen(include=some(virtual[2])))[1] == [virtual[2]]
    assert str(chosen(exclude=some("1002:75a3")).reason.code) == "excluded-by-config"
    fake.bind(virtual[3], "vfio-pci")
    assert offered(chosen(vfio_only=True))[1] == [virtual[3]]
    pairs = ((Selector.parse("1002:75a3"), "PGPU"), (Selector.parse(CARD), "CUSTOM_X"))
    assert offered(chosen(resource_classes=pairs))[0] == "PGPU"
    owned = chosen(nova_device_specs=(f'{{"address": "{virtual[0]}"}}',))
    assert ("claimed-by-nova", virtual[0], "warning") in codes(owned)


def test_a_card_that_is_to_be_divided_waits_for_its_virtual_functions(fake):
    options = {"vfs_expected": (Selector.parse("1002:75a3"),)}
    card = assessments(fake, **options)[CARD]
    assert str(card.reason.code) == "vfs-expected"
    fake.enable_virtual_functions(CARD, 2, device="75b3")
    assert offered(assessments(fake, **options)[CARD])[0] == "VGPU"


# What does not fit


def test_one_that_the_bus_does_not_have_is_no_handle(fake, virtual):
    fake.inject(Oddity.of(CARD, "virtfn3", "link", "../0000:05:1f.7"))
    card = assessments(fake)[CARD]
    assert offered(card)[1] == virtual[:3]
    assert ("vf-count-mismatch", "0000:05:1f.7", "warning") in codes(card)


def test_one_that_names_another_card_is_no_handle(fake, virtual):
    other = "0000:15:00.0"
    fake.add_function(other, **MI355X, driver="amdgpu", iommu_group=60)
    linked(fake, virtual[3], other)
    found = assessments(fake)
    assert found.keys() == {CARD, other}
    assert offered(found[CARD])[1] == virtual[:3]
    assert ("vf-count-mismatch", virtual[3], "warning") in codes(found[CARD])
    assert found[other].verdict is Verdict.SKIPPED
    assert str(found[other].reason.code) == "vf-count-mismatch"


@pytest.mark.parametrize("target", ["another vendor", "itself", "its neighbour"])
def test_one_that_cannot_be_what_it_says_is_a_finding(fake, virtual, target):
    fake.add_function(NIC, vendor="8086", device="1572", class_="020000", iommu_group=61)
    names = {"another vendor": NIC, "itself": virtual[3], "its neighbour": virtual[2]}
    linked(fake, virtual[3], names[target])
    found = assessments(fake)
    assert found.keys() <= {CARD, virtual[3]}
    assert virtual[3] not in offered(found[CARD])[1]


@pytest.mark.parametrize("count", ["99", "-1", "many"])
def test_what_sriov_numvfs_claims_counts_for_nothing(fake, virtual, count):
    fake.set_attribute(CARD, "sriov_numvfs", count)
    assert offered(assessments(fake)[CARD])[1] == virtual


def test_more_than_the_card_can_have_are_not_given_away(fake, virtual):
    fake.set_attribute(CARD, "sriov_totalvfs", "3")
    card = assessments(fake)[CARD]
    assert str(card.reason.code) == "vf-count-mismatch" and "4 virtual functions, of 3" in str(
        card.reason
    )


def test_virtual_functions_without_their_card_count_for_its_address(fake, virtual):
    for name in ("uevent", "vendor", "device", "class"):
        fake.make_unreadable(CARD, name)
    found = assessments(fake)
    assert found.keys() == {CARD}
    assert offered(found[CARD]) == ("VGPU", virtual, TRAITS)


def test_without_the_card_and_an_entry_for_them_nothing_is_guessed(fake):
    fake.enable_virtual_functions(CARD, 2, device="ffff")
    for name in ("uevent", "vendor", "device", "class"):
        fake.make_unreadable(CARD, name)
    found = assessments(fake)
    assert found.keys() == {CARD}
    assert str(found[CARD].reason.code) == "unreadable"


def test_the_virtualisation_driver_of_the_host_keeps_its_card(fake):
    fake.bind(CARD, "gim")
    assert str(assessments(fake)[CARD].reason.code) == "owned-by-host-driver"
    virtual = [str(each) for each in fake.enable_virtual_functions(CARD, 1, device="75b3")]
    assert offered(assessments(fake)[CARD])[1] == virtual


def test_an_integrated_processor_is_never_given_away_and_its_virtual_functions_are():
    graphics = "0000:00:02.0"
    with FakeHost() as fake:
        fake.add_function(
            graphics,
            vendor="8086",
            device="a7a8",
            class_="030000",
            driver="xe",
            boot_vga=1,
            iommu_group=0,
            sriov_totalvfs=7,
        )
        assert str(assessments(fake)[graphics].reason.code) == "integrated-gpu"
        virtual = [str(each) for each in fake.enable_virtual_functions(graphics, 2, offset=1)]
        assert virtual == ["0000:00:02.1", "0000:00:02.2"]
        assert offered(assessments(fake)[graphics])[:2] == ("VGPU", virtual)


def test_a_virtual_function_that_may_be_of_a_card_elsewhere_leaves_it_in_doubt(fake, virtual):
    for name in ("uevent", "vendor", "device", "class"):
        fake.make_unreadable(CARD, name)
    fake.make_unreadable(virtual[2], "physfn")
    assert str(assessments(fake)[CARD].reason.code) == "unreadable"


def test_a_link_to_another_card_takes_nothing_from_that_card(fake, virtual):
    other = "0000:15:00.0"
    fake.add_function(other, **MI355X, driver="amdgpu", iommu_group=60)
    fake.inject(Oddity.of(CARD, "virtfn3", "link", f"../{other}"))
    found = assessments(fake)
    assert offered(found[other]) == ("PGPU", [other], TRAITS)
    assert offered(found[CARD])[1] == virtual[:3]


def test_a_link_that_stands_twice_gives_one_handle(fake, virtual):
    fake.inject(Oddity.of(CARD, "virtfn3", "link", f"../{virtual[0]}"))
    assert offered(assessments(fake)[CARD])[1] == virtual[:3]


def test_a_card_that_would_be_a_virtual_function_is_not_given_away_with_its_own(fake, virtual):
    fake.inject(Oddity.of(CARD, "physfn", "link", "../0000:77:00.0"))
    handles = {
        str(handle.address)
        for each in assessments(fake).values()
        if each.verdict is Verdict.REPORTED
        for deployable in each.deployables
        for handle in deployable.handles
    }
    assert CARD not in handles


def test_what_was_ignored_is_not_remembered_for_good(fake, virtual):
    options = Options(host_root=str(fake.root), ignore_findings=frozenset({"unreadable"}))
    surveyor, host = Surveyor(options), Host(fake.root)
    fake.make_unreadable(virtual[0], "iommu_group")
    surveyor.survey(host)
    fake.make_readable(virtual[0], "iommu_group")
    fake.move_to_group(virtual[0], None)
    (card,) = surveyor.survey(host.again()).assessments
    assert offered(card)[1] == virtual[1:]
