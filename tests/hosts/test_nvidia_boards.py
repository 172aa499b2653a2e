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

"""Cards on HGX boards and Grace, vGPUs of NVIDIA's driver, secure streams and links."""

import json

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.contract import to_report, violations
from cyborg_ext_drivers.survey import Surveyor, Verdict
from cyborg_ext_drivers.testing import FakeHost, Oddity

CARD = "0000:18:00.0"
CONFIGURATION = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
VIRTUAL = [f"0000:18:00.{number}" for number in (4, 5, 6, 7)]
OF_THE_CARD = (
    "OWNER_CYBORG",
    "CUSTOM_GPU_NVIDIA",
    "CUSTOM_NVIDIA_26B9",
    "CUSTOM_NVIDIA_L40S",
)
OLDER = "CUSTOM_GPU_PRODUCT_ID_26B9"


def look(fake, **options):
    survey = Surveyor(Options(host_root=str(fake.root), **options)).survey(Host(fake.root))
    return {str(each.address): each for each in survey.assessments}


def offer(fake):
    return look(fake, report_vendor_vfio=True)[CARD]


def found(assessment):
    return {(str(each.code), str(each.severity)) for each in assessment.findings}


def finding(assessment, code):
    (only,) = (each for each in assessment.findings if each.code.name == code)
    return only


def handles(assessment):
    (deployable,) = assessment.deployables
    return [str(handle.address) for handle in deployable.handles]


def set_type(fake, function, text):
    fake.set_attribute(function, "nvidia/current_vgpu_type", text)


# vGPUs that NVIDIA's driver serves


def test_functions_with_a_type_are_the_handles_of_one_card():
    with FakeHost.named("l40s-vgpu-types-set") as fake:
        card = offer(fake)
    assert card.verdict is Verdict.REPORTED
    (deployable,) = card.deployables
    assert deployable.resource_class == "VGPU"
    assert deployable.traits == (*OF_THE_CARD, "CUSTOM_NVIDIA_26B9_VGPU_1150", OLDER)
    assert handles(card) == VIRTUAL
    assert ("vendor-vfio-not-attachable", "warning") in found(card)
    report = to_report(card.accelerator, card.deployables, "compute-1")
    assert not violations(report)
    assert report.deployables[0].handles[0][1] == json.dumps(
        {"bus": "18", "device": "00", "domain": "0000", "function": "4"}
    )


def test_by_default_nothing_of_such_a_card_is_offered():
    with FakeHost.named("l40s-vgpu-types-set") as fake:
        card = look(fake)[CARD]
    assert card.verdict is Verdict.SKIPPED and card.reason.code.name == "vfs-enabled"
    assert "4 of 4 have a type (1150)" in finding(card, "vgpu-framework").message


def test_what_could_be_created_is_told_with_names_whatever_the_driver_prints():
    with FakeHost.named("l40s-vgpu-types-unset") as fake:
        for _ in range(2):
            message = finding(look(fake)[CARD], "vgpu-framework").message
            assert "0 of 4 have a type" in message
            assert "1145 (NVIDIA L40S-1B), 1150 (NVIDIA L40S-2Q)" in message
            set_type(fake, VIRTUAL[0], "0")


def test_on_a_full_card_nothing_could_be_created_and_only_the_one_is_offered():
    with FakeHost.named("l40s-full-of-one-vgpu") as fake:
        card = offer(fake)
    assert handles(card) == VIRTUAL[:1]
    assert "nothing could be created" in finding(card, "vgpu-framework").message
    unset = [each for each in card.findings if each.code.name == "vgpu-type-unset"]
    assert [str(each.address) for each in unset] == VIRTUAL[1:]
    assert {str(each.severity) for each in unset} == {"warning"}


def test_the_name_of_a_type_that_comes_and_goes_changes_no_report():
    with FakeHost.named("l40s-vgpu-types-set") as fake:
        before = offer(fake).deployables
        for text in ("1150 : NVIDIA L40S-2Q\n", "ID : vGPU Name\n", ""):
            fake.set_attribute(VIRTUAL[1], "nvidia/creatable_vgpu_types", text)
            assert offer(fake).deployables == before


def test_another_type_is_another_trait():
    with FakeHost.named("l40s-vgpu-types-set") as fake:
        for each in VIRTUAL:
            set_type(fake, each, "1145")
        (deployable,) = offer(fake).deployables
    assert "CUSTOM_NVIDIA_26B9_VGPU_1145" in deployable.traits
    assert "CUSTOM_NVIDIA_26B9_VGPU_1150" not in deployable.traits


def test_two_types_on_one_card_are_not_offered_as_one():
    with FakeHost.named("l40s-vgpu-types-mixed") as fake:
        card = offer(fake)
    assert card.reason.code.name == "vendor-vfio-types-mixed"
    assert "1145, 1150" in card.reason.message
    assert [each.value for each in card.reason.evidence] == ["1145", "1150"]


@pytest.mark.parametrize("text", ["none", "-1", "1150 1145", "4294967296", "0x10", "\u0661"])
def test_a_type_that_is_no_number_leaves_the_card_in_doubt(text):
    with FakeHost.named("l40s-vgpu-types-set") as fake:
        set_type(fake, VIRTUAL[2], text)
        card = offer(fake)
        assert card.verdict is Verdict.SKIPPED
        assert any(each.code.name == "unreadable" for each in card.findings)
        # By default it is what it was: virtual functions are enabled.
        assert look(fake)[CARD].reason.code.name == "vfs-enabled"


def test_a_type_that_cannot_be_read_is_not_one_that_is_unset():
    with FakeHost.named("l40s-vgpu-types-set") as fake:
        fake.make_unreadable(VIRTUAL[0], "nvidia/current_vgpu_type")
        card = offer(fake)
    assert card.reason.code.name == "unreadable"
    assert "vgpu-type-unset" not in {code for code, _severity in found(card)}


@pytest.mark.parametrize("text", ["1145", "x : y", "1145 :", "1145 : A\x00B"])
def test_a_list_of_types_that_is_none_is_told_and_costs_the_offer_of_nothing_else(text):
    with FakeHost.named("l40s-vgpu-types-unset") as fake:
        fake.set_attribute(VIRTUAL[0], "nvidia/creatable_vgpu_types", text)
        card = look(fake)[CARD]
        fake.set_attribute(VIRTUAL[1], "nvidia/current_vgpu_type", "1145")
        offered = offer(fake)
    assert card.reason.code.name == "vfs-enabled"
    for each in (card, offered):
        assert str(finding(each, "unreadable").severity) == "info"
    assert handles(offered) == [VIRTUAL[1]]


def test_a_function_that_somebody_took_from_nvidia_is_none_of_the_handles():
    with FakeHost.named("l40s-vgpu-types-set") as fake:
        fake.bind(VIRTUAL[3], "vfio-pci")
        card = offer(fake)
    assert handles(card) == VIRTUAL[:3]
    (told,) = (each for each in card.findings if each.code.name == "vgpu-type-unset")
    assert str(told.address) == VIRTUAL[3] and "serves no vGPU of it" in told.message


def test_without_the_vgpu_driver_the_card_says_so_and_the_option_changes_nothing():
    with FakeHost.named("l40s-without-vgpu-driver") as fake:
        told = [finding(each, "vgpu-framework") for each in (look(fake)[CARD], offer(fake))]
    assert told[0] == told[1]
    assert "neither way" in told[0].message
    assert "disable them if the card is to be given away whole" in told[0].remedy


def test_a_host_with_mediated_devices_is_told_apart():
    with FakeHost.named("l40s-without-vgpu-driver") as fake:
        fake.set_attribute(VIRTUAL[0], "mdev_supported_types/nvidia-1145/name", "NVIDIA L40S-1B")
        told = finding(look(fake)[CARD], "vgpu-framework")
    assert "as mediated devices" in told.message
    assert str(told.evidence[0].path).endswith("0000:18:00.4/mdev_supported_types")


# Boards with NVSwitches

MODULE, A40, NVL = "0000:18:00.0", "0000:e1:00.0", "0000:e2:00.0"


def test_the_switches_of_the_board_are_the_evidence_and_none_of_them_is_offered():
    with FakeHost.named("hgx-h200") as fake:
        seen = look(fake)
    gpus = [each for each in seen.values() if each.verdict is Verdict.REPORTED]
    assert len(gpus) == 8
    for gpu in gpus:
        paths = [each.path for each in finding(gpu, "fabric-manager-needed").evidence]
        assert [path[-12:] for path in paths[:4]] == [f"0000:0{n}:00.0" for n in (5, 6, 7, 8)]
        assert paths[4] == CONFIGURATION
    assert "NVSwitch" in seen["0000:05:00.0"].reason.message


def test_a_pci_express_card_beside_the_board_needs_no_fabric_manager():
    with FakeHost.named("a40-beside-hgx-h200") as fake:
        seen = look(fake)
    assert ("fabric-manager-needed", "warning") in found(seen[MODULE])
    assert not found(seen[A40]) and not found(seen[NVL])


def test_a_module_on_a_board_without_switches_needs_none():
    with FakeHost.named("hgx-h200") as fake:
        for number in (5, 6, 7, 8):
            fake.remove_function(f"0000:0{number}:00.0")
        assert not found(look(fake)[MODULE])


def test_switches_that_come_later_are_seen_by_the_next_look():
    with FakeHost.named("hgx-h200") as fake:
        for number in (5, 6, 7, 8):
            fake.remove_function(f"0000:0{number}:00.0")
        surveyor, host = Surveyor(Options(host_root=str(fake.root))), Host(fake.root)
        assert not any(each.findings for each in surveyor.survey(host).reported)
        fake.put_back("0000:05:00.0")
        found_later = surveyor.survey(host.again()).reported
    assert all(finding(each, "fabric-manager-needed") for each in found_later)


@pytest.mark.parametrize("name", ["hgx-b200-bare-metal", "hgx-h100-shared-nvswitch"])
def test_what_the_fabric_manager_is_set_to_changes_the_warning_and_never_the_report(name):
    with FakeHost.named(name) as fake:
        seen = {}
        for text in (None, "FABRIC_MODE=0", "FABRIC_MODE=1", 'FABRIC_MODE="2"', "LOG_LEVEL=4"):
            fake.write_file(CONFIGURATION, text)
            gpus = [each for each in look(fake).values() if each.verdict is Verdict.REPORTED]
            seen[text] = (
                {code for each in gpus for code, _severity in found(each)},
                repr([each.deployables for each in gpus]),
            )
    assert len({report for _codes, report in seen.values()}) == 1
    is_told = {text: "fabric-manager-needed" in codes for text, (codes, _report) in seen.items()}
    assert is_told == {text: text != "FABRIC_MODE=1" for text in seen}


def test_a_configuration_as_long_as_the_packages_own_is_read_to_its_end():
    with FakeHost.named("hgx-h200") as fake:
        remarks = "# FABRIC_MODE=0 is for bare metal\n" * 400
        fake.write_file(CONFIGURATION, f"{remarks}FABRIC_MODE=1\nFABRIC_MODE_RESTART=0\n")
        assert not found(look(fake)[MODULE])


def test_a_mode_that_is_no_number_is_unreadable():
    with FakeHost.named("hgx-h200") as fake:
        fake.write_file(CONFIGURATION, "FABRIC_MODE=shared")
        card = look(fake)[MODULE]
    told = finding(card, "unreadable")
    assert CONFIGURATION in told.message
    # A warning rests on it and no more, so the card is reported all the same.
    assert str(told.severity) == "info" and card.reason is None


# Grace


def test_on_the_variant_driver_all_is_well_whatever_is_installed():
    with FakeHost.named("gb200-on-variant-driver") as fake:
        assert not any(found(each) for each in look(fake).values())


@pytest.mark.parametrize("driver", ["nvidia", "vfio-pci", "nvgrace_gpu_vfio_pci", None])
def test_the_driver_of_a_gpu_of_grace_changes_no_report(driver):
    with FakeHost.named("gh200-kernel-without-variant") as fake:
        before = [each.deployables for each in look(fake).values()]
        fake.unbind("0009:01:00.0") if driver is None else fake.bind("0009:01:00.0", driver)
        seen = look(fake)["0009:01:00.0"]
    assert [seen.deployables] == before
    is_well = driver == "nvgrace_gpu_vfio_pci"
    assert (("variant-driver-missing", "warning") in found(seen)) is not is_well


def test_where_no_modules_are_to_be_seen_nothing_is_said_of_them():
    with FakeHost.named("gh200-kernel-without-variant") as fake:
        fake.write_file("/lib/modules/6.6.0-64k/kernel/drivers/vfio/pci/vfio-pci.ko", None)
        assert not fake.path("/lib/modules/6.6.0-64k").exists()
        assert not found(look(fake)["0009:01:00.0"])


def test_the_node_of_each_gpus_memory_is_named_and_its_own_node_is_that_of_the_processor():
    with FakeHost.named("gb200-memory-as-nodes") as fake:
        seen = look(fake)
    nodes = {
        address: finding(each, "gpu-memory-node").message.split(" of the host")[0].split()[-1]
        for address, each in seen.items()
    }
    assert nodes == {
        "0008:01:00.0": "2",
        "0009:01:00.0": "10",
        "0018:01:00.0": "18",
        "0019:01:00.0": "26",
    }
    assert [each.function.numa_node for each in seen.values()] == [0, 0, 1, 1]
    for each in seen.values():
        told = finding(each, "gpu-memory-node")
        assert "no processors" in told.message
        assert told.evidence[1] == ("/sys/devices/system/node/has_cpu", "0-1")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Node: 2\nStatus: offline\n", None),
        ("Node: -1\nStatus: disabled\n", None),
        ("", None),
        ("nothing of the kind\n", "unreadable"),
        ("Node: two\nStatus: online\n", "unreadable"),
    ],
)
def test_what_the_driver_says_of_the_memory_is_taken_at_its_word(text, code):
    with FakeHost.named("gb200-memory-as-nodes") as fake:
        fake.write_file("/proc/driver/nvidia/gpus/0008:01:00.0/numa_status", text)
        seen = look(fake)["0008:01:00.0"]
    codes = {each for each, _severity in found(seen)}
    assert codes == ({code} if code else set())


# Secure streams


def test_only_the_card_with_a_secure_stream_is_left_alone():
    with FakeHost.named("h200-with-secure-stream") as fake:
        seen = look(fake)
    told = seen["0000:17:00.0"].reason
    assert str(told.evidence[0]).startswith("/sys/class/tsm/tsm0/pci0000:17:stream0.0.0 = 0000:17")
    assert seen["0000:3d:00.0"].verdict is Verdict.REPORTED


def test_the_virtual_functions_of_such_a_card_are_left_alone_as_well():
    card = {"vendor": "1002", "device": "75a3", "class_": "120000", "sriov_totalvfs": 8}
    with FakeHost() as fake:
        fake.add_function("0000:05:00.0", **card, driver="amdgpu", iommu_group=40, tsm="tsm3")
        fake.enable_virtual_functions("0000:05:00.0", 2, device="75b3")
        assert look(fake)["0000:05:00.0"].reason.code.name == "confidential-computing"


def test_a_stream_in_the_kernels_first_spelling_is_one_and_other_links_are_none():
    with FakeHost.named("h200-with-secure-stream") as fake:
        manager = "/sys/devices/faux/tdx_host/tsm/tsm0"
        target = "../../../../pci0000:00/0000:3d:00.0"
        fake.inject(Oddity("link", f"{manager}/subsystem", target))
        assert look(fake)["0000:3d:00.0"].verdict is Verdict.REPORTED
        fake.inject(Oddity("link", f"{manager}/stream1.0.0", target))
        assert look(fake)["0000:3d:00.0"].reason.code.name == "confidential-computing"


# Links


def closer(fake, address="0000:17:00.0"):
    surveyor, host = Surveyor(Options(host_root=str(fake.root))), Host(fake.root)
    (card,) = (each for each in surveyor.survey(host).assessments if str(each.address) == address)
    return card, surveyor.look_closer(card, host)


def test_a_link_is_looked_at_only_for_who_asks_about_the_card():
    with FakeHost.named("a40-in-narrow-slot") as fake:
        card, looked_at = closer(fake)
    assert not card.findings
    assert found(looked_at) == {("link-degraded", "warning"), ("link-degraded", "info")}
    assert looked_at.verdict is card.verdict is Verdict.REPORTED


def test_no_survey_reads_a_link():
    names = ("current_link_width", "current_link_speed", "max_link_width", "max_link_speed")
    with FakeHost.named("a40-in-narrow-slot") as fake:
        for name in names:
            fake.make_unreadable("0000:17:00.0", name)
        card, looked_at = closer(fake)
    assert not card.findings
    assert {code for code, _severity in found(looked_at)} == {"unreadable"}
    assert looked_at.verdict is Verdict.REPORTED


def test_a_sleeping_card_is_left_asleep():
    with FakeHost.named("a40-in-narrow-slot") as fake:
        fake.bind("0000:17:00.0", "vfio-pci")
        for name in ("current_link_width", "current_link_speed"):
            fake.make_unreadable("0000:17:00.0", name)
        _card, looked_at = closer(fake)
    assert not looked_at.findings


def test_a_slot_with_fewer_lanes_than_the_card_is_told_as_what_it_is():
    with FakeHost.named("a40-in-narrow-slot") as fake:
        fake.add_function(
            "0000:16:00.0", vendor="8086", device="2030", class_="060400", driver="pcieport"
        )
        fake.set_attribute("0000:16:00.0", "max_link_width", "8")
        card = "0000:17:01.0"
        fake.add_function(
            card,
            vendor="10de",
            device="2235",
            class_="030200",
            driver="nvidia",
            iommu_group=33,
            parent="0000:16:00.0",
        )
        fake.set_attribute(card, "current_link_width", "8")
        _card, looked_at = closer(fake, card)
    told = finding(looked_at, "link-degraded")
    assert "all that its slot has (x8)" in told.message and "bifurcation" in told.remedy
