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

"""What is handed to Cyborg keeps the limits that Cyborg and Placement set."""

import dataclasses
import json

import pytest

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.families.base import AttachHandle, Deployable
from cyborg_ext_drivers.families.nvidia import NvidiaFamily
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.report import contract
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost
from tests.cards import T4, add_t4

HANDLE = ("PCI", '{"bus": "3b", "device": "00", "domain": "0000", "function": "0"}')
GOOD_PART = contract.DeployableReport(
    name=f"compute1_{T4}",
    driver_name="ext_nvidia_gpu_driver",
    attributes=(
        ("rc", "PGPU"),
        ("trait_OWNER_CYBORG", "OWNER_CYBORG"),
        ("trait_CUSTOM_NVIDIA_T4", "CUSTOM_NVIDIA_T4"),
    ),
    handles=(HANDLE,),
)
GOOD = contract.DeviceReport(
    type="GPU",
    vendor="10de",
    model="Tesla T4",
    std_board_info="{}",
    vendor_board_info="{}",
    cpid_info=HANDLE[1],
    deployables=(GOOD_PART,),
)


def device(**changes):
    return dataclasses.replace(GOOD, **changes)


def part(**changes):
    return device(deployables=(dataclasses.replace(GOOD_PART, **changes),))


def with_attributes(*attributes):
    return part(attributes=attributes)


@pytest.fixture
def fake():
    with FakeHost() as host:
        add_t4(host)
        yield host


def report_of(fake, hostname="compute1"):
    surveyor = Surveyor(families=(NvidiaFamily(),), checks=(), catalog=catalog.load())
    (assessment,) = surveyor.survey(Host(fake.root)).reported
    return contract.to_report(assessment.accelerator, assessment.deployables, hostname)


# A card


def test_a_card_as_cyborg_is_told_of_it(fake):
    report = report_of(fake)
    (deployable,) = report.deployables
    assert (report.type, report.vendor, report.model) == ("GPU", "10de", "Tesla T4")
    assert report.cpid_info == HANDLE[1]
    assert json.loads(report.std_board_info) == {
        "product_id": "1eb8",
        "controller": "3D controller",
        "class": "030200",
        "subsystem_id": "10de:12a2",
        "revision": "a1",
    }
    assert json.loads(report.vendor_board_info)["vendor"] == "NVIDIA"
    assert json.loads(report.vendor_board_info)["memory_mib"] > 0
    assert deployable.name == "compute1_0000:3b:00.0"
    assert deployable.driver_name == "ext_nvidia_gpu_driver"
    assert deployable.handles == (HANDLE,)
    assert deployable.num_accelerators == 1
    assert deployable.attributes[:3] == (
        ("rc", "PGPU"),
        ("trait_OWNER_CYBORG", "OWNER_CYBORG"),
        ("trait_CUSTOM_GPU_NVIDIA", "CUSTOM_GPU_NVIDIA"),
    )
    assert contract.violations(report) == []


def test_a_card_that_the_catalogue_does_not_know(fake):
    fake.add_function("0000:5e:00.0", vendor="10de", device="ffff", class_="030000")
    fake.remove_function(T4)
    report = report_of(fake)
    assert report.model == "NVIDIA ffff"
    assert json.loads(report.vendor_board_info) == {"vendor": "NVIDIA"}
    assert json.loads(report.std_board_info)["controller"] == "VGA compatible controller"
    assert contract.violations(report) == []


@pytest.mark.parametrize("driver", ["nvidia", "nouveau", None])
def test_the_report_of_a_card_does_not_depend_on_its_driver(fake, driver):
    before = report_of(fake)
    fake.unbind(T4)
    if driver:
        fake.bind(T4, driver)
    assert report_of(fake) == before


def test_there_are_as_many_accelerators_as_handles(fake):
    surveyor = Surveyor(families=(NvidiaFamily(),), checks=(), catalog=catalog.load())
    (assessment,) = surveyor.survey(Host(fake.root)).reported
    parts = tuple(AttachHandle(PciAddress(0, 0x3B, 0, number)) for number in range(4, 8))
    shared = Deployable(PciAddress.parse(T4), "VGPU", ("OWNER_CYBORG",), parts)
    report = contract.to_report(assessment.accelerator, (shared,), "compute1")
    (deployable,) = report.deployables
    assert deployable.num_accelerators == 4
    assert contract.violations(report) == []


# The limits


def test_a_good_report_breaks_no_limit():
    assert contract.violations(GOOD) == []


def test_every_type_is_one_of_cyborgs():
    constants = pytest.importorskip("cyborg.common.constants")
    assert set(contract.DEVICE_TYPES) <= set(constants.DEVICE_TYPE)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (device(type="TPU"), "the type 'TPU' is none of Cyborg's"),
        (device(vendor=""), "vendor is empty"),
        (device(vendor="v" * 256), "vendor has 256 characters"),
        (device(model=""), "model is empty"),
        (device(model="m" * 256), "more than Cyborg's 255"),
        (device(cpid_info=""), "cpid_info is empty"),
        (device(cpid_info="c" * 256), "cpid_info has 256 characters"),
        (device(deployables=()), "no deployable"),
        (part(name=""), "the deployable's name is empty"),
        (part(name="n" * 201), "the deployable's name has 201 characters"),
        (part(driver_name=""), "driver_name is empty"),
        (part(driver_name="d" * 101), "driver_name has 101 characters"),
        (part(handles=()), "has no attach handle"),
        (part(handles=(HANDLE, HANDLE)), "the same attach handle twice"),
        (part(handles=(("PCI", ""),)), "attach_info is empty"),
        (part(handles=(("PCI", "h" * 256),)), "attach_info has 256 characters"),
        (part(attributes=()), "no resource class"),
        (with_attributes(("trait_CUSTOM_A", "CUSTOM_A")), "no resource class"),
        (with_attributes(("rc", "PGPU"), ("rc", "VGPU")), "no resource class"),
        (
            with_attributes(("rc", "PGPU"), *[("trait_CUSTOM_A", "CUSTOM_A")] * 2),
            "an attribute twice",
        ),
        (with_attributes(("rc", "VCPU")), "the resource class 'VCPU'"),
        (with_attributes(("rc", "CUSTOM_lower")), "the resource class 'CUSTOM_lower'"),
        (with_attributes(("rc", "PGPU\n")), "the resource class"),
        (with_attributes(("rc", "CUSTOM_" + "X" * 249)), "the resource class"),
        (with_attributes(("rc", "PGPU"), ("numa_node", "1")), "'numa_node' is neither rc nor"),
        (with_attributes(("rc", "PGPU"), ("trait0", "CUSTOM_A")), "'trait0' is neither"),
        (with_attributes(("rc", "PGPU"), ("trait_A", "CUSTOM_A")), "'trait_A' is neither"),
        (with_attributes(("rc", "PGPU"), ("trait_HW_X", "HW_X")), "'HW_X' is no trait"),
        (
            with_attributes(("rc", "PGPU"), ("trait_OWNER_NOVA", "OWNER_NOVA")),
            "'OWNER_NOVA' is no trait",
        ),
        (
            with_attributes(("rc", "PGPU"), ("trait_CUSTOM_a", "CUSTOM_a")),
            "'CUSTOM_a' is no trait",
        ),
        (
            with_attributes(
                ("rc", "PGPU"), *[(f"trait_CUSTOM_{'X' * 249}", f"CUSTOM_{'X' * 249}")]
            ),
            "is no trait",
        ),
    ],
)
def test_each_limit(report, said):
    (violation,) = contract.violations(report)
    assert said in violation


@pytest.mark.parametrize(
    "report",
    [
        device(vendor="v" * 255, model="m" * 255, cpid_info="c" * 255),
        part(name="n" * 200, driver_name="d" * 100),
        part(handles=(("PCI", "h" * 255), ("PCI", "i" * 255))),
        *(with_attributes(("rc", name)) for name in ("FPGA", "GPU", "VGPU", "CUSTOM_AICHIP")),
        with_attributes(("rc", "CUSTOM_" + "X" * 248)),
        with_attributes(("rc", "PGPU"), (f"trait_CUSTOM_{'X' * 248}", f"CUSTOM_{'X' * 248}")),
        *(device(type=name) for name in contract.DEVICE_TYPES),
    ],
)
def test_what_just_keeps_to_the_limits(report):
    assert contract.violations(report) == []


def test_all_that_is_wrong_is_said_at_once():
    report = device(type="TPU", model="", deployables=(dataclasses.replace(GOOD_PART, handles=()),))
    assert len(contract.violations(report)) == 3


def test_a_long_text_is_not_shown_in_full():
    (violation,) = contract.violations(device(model="m" * 5000))
    assert len(violation) < 200


def test_a_host_with_a_name_too_long_for_a_provider_is_told_so(fake):
    (violation,) = contract.violations(report_of(fake, hostname="h" * 200))
    assert "the deployable's name has 213 characters" in violation


def test_the_same_function_in_two_deployables_is_given_twice():
    # Cyborg would hand one function to two instances, or match both to one provider.
    both = (GOOD_PART, GOOD_PART)
    assert contract.violations(device(deployables=both)) != []
    other = dataclasses.replace(GOOD_PART, name="compute1_other")
    assert contract.violations(device(deployables=(GOOD_PART, other))) != []


@pytest.mark.parametrize("attach_type", ["pci", ""])
def test_a_type_of_handle_that_cyborg_does_not_have_is_a_violation(attach_type):
    assert contract.violations(part(handles=((attach_type, HANDLE[1]),))) != []


# Cyborg's objects


def test_every_field_of_cyborgs_objects_is_set():
    pytest.importorskip("cyborg")
    from cyborg_ext_drivers.report import adapter

    def unset(thing):
        return {name for name in thing.fields if not thing.obj_attr_is_set(name)}

    whole = adapter.to_driver_device(GOOD)
    (deployable,) = whole.deployable_list
    parts = [whole, whole.controlpath_id, deployable]
    parts += [*deployable.attribute_list, *deployable.attach_handle_list]
    assert [unset(thing) for thing in parts] == [set()] * len(parts)
    assert whole.controlpath_id.cpid_info == GOOD.cpid_info
    assert whole.stub is False
    assert deployable.num_accelerators == len(deployable.attach_handle_list) == 1
    assert [(a.key, a.value) for a in deployable.attribute_list] == list(GOOD_PART.attributes)
