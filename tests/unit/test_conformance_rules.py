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


"""What is judged of one report, one fault at a time."""

import copy

import pytest

from cyborg_ext_drivers.testing.conformance import rules
from cyborg_ext_drivers.testing.conformance.codes import CODES
from cyborg_ext_drivers.testing.conformance.record import UNSET

ADDRESS = '{"bus": "3b", "device": "00", "domain": "0000", "function": "0"}'
TRAIT = "CUSTOM_GPU_ACME"


def sound():
    part = {
        "name": "compute-1_0000:3b:00.0",
        "driver_name": "ACME",
        "num_accelerators": 1,
        "unset": [],
        "attributes": [("rc", "PGPU"), (f"trait_{TRAIT}", TRAIT)],
        "handles": [("PCI", ADDRESS)],
    }
    texts = dict.fromkeys(("vendor", "model", "std_board_info", "vendor_board_info"), "x")
    path = {"cpid_type": "PCI", "cpid_info": ADDRESS}
    return {**texts, **path, "type": "GPU", "stub": False, "deployables": [part]}


def judged(*devices):
    return {code for code, _ in rules.judge(list(devices), "compute-1", ("GPU", "FPGA"))}


def test_a_sound_report_breaks_nothing():
    assert judged(sound()) == set()


def of_device(**changes):
    return lambda device: device.update(changes)


def of_part(**changes):
    return lambda device: device["deployables"][0].update(changes)


def attributes(*more):
    return lambda device: device["deployables"][0]["attributes"].extend(more)


@pytest.mark.parametrize(
    "change, code",
    [
        (of_device(cpid_info=ADDRESS.replace(" ", "")), "cpid-spelling"),
        (of_device(cpid_info=ADDRESS.replace("3b", "3B")), "cpid-spelling"),
        (of_device(cpid_info="0000:3b:00.0"), "cpid-spelling"),
        (of_device(type="TPU"), "device-type-unknown"),
        (of_device(model="x" * 256), "text-too-long"),
        (of_device(vendor_board_info=UNSET), "field-unset"),
        (of_part(unset=["attribute_list"]), "field-unset"),
        (of_part(num_accelerators=2), "accelerators-unlike-handles"),
        (of_part(name="0000:3b:00.0"), "name-without-host"),
        (of_part(handles=[("PCI", ADDRESS.replace("00", "0x00", 1))]), "handle-spelling"),
        (of_part(handles=[("USB", ADDRESS)]), "attach-type-unknown"),
        (of_part(attributes=[]), "no-resource-class"),
        (of_part(attributes=[("rc", "PCI_DEVICE")]), "resource-class-not-nameable"),
        (attributes(("trait1", "CUSTOM_A")), "positional-trait-key"),
        (attributes(("numa_node", "1")), "attribute-becomes-trait"),
        (attributes(("rc", "PGPU")), "attribute-repeated"),
        (attributes(("trait_x", "CUSTOM_a")), "trait-form"),
        (attributes(("trait_x", "HW_GPU_API_VULKAN")), "trait-not-nameable"),
    ],
)
def test_each_fault_has_its_code_and_no_other(change, code):
    device = copy.deepcopy(sound())
    change(device)
    assert judged(device) == {code}
    assert CODES[code].consequence


def test_the_spelling_that_is_said_to_be_right_is_taken():
    wrong = '{"domain":"0","bus":"0x3B","device":"0","function":"0"}'
    found = rules.judge([{**sound(), "cpid_info": wrong}], "compute-1", ("GPU",))
    assert list(found) == [("cpid-spelling", f"{wrong} where the in-tree spelling is {ADDRESS}")]


def test_what_must_be_unique_is_named_when_it_is_not():
    assert judged(sound(), sound()) == {"cpid-repeated", "name-not-unique", "handle-repeated"}


def test_a_virtual_function_beside_its_physical_function_is_named():
    report, virtual = [sound()], ADDRESS.replace('"0"}', '"4"}')
    report[0]["deployables"][0]["handles"].append(("PCI", virtual))
    ((code, evidence),) = rules.together(report, {"0000:3b:00.4": "0000:3b:00.0"})
    assert code == "virtual-functions-beside-physical" and "0000:3b:00.4" in evidence
