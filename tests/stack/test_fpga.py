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

"""FPGA cards in front of the real conductor and the real Placement."""

import json

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg import context, objects
from cyborg.objects.extarq.fpga_ext_arq import FPGAExtARQ

from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.stack import NoValidHost, Stack

CARD, PART = "0000:3b:00.0", "0000:3b:00.1"
D5005 = {
    "vendor": "8086",
    "device": "0b2b",
    "class_": "120000",
    "sriov_totalvfs": 1,
    "sriov_offset": 1,
    "sriov_vf_device": "0b2c",
}
ALVEO = {"vendor": "10ee", "class_": "120000", "subsystem": "10ee:000e"}
AFU, OTHER_AFU = "d8424dc4a4a3c413f89e433683f9040b", "9aeffe5f84570612c000c9660d824272"
BASE, SHELL = "8" * 31 + "1", "7" * 31 + "2"


def function_trait(maker, id):
    return f"CUSTOM_FPGA_FUNCTION_ID_{maker}_{id.upper()}"


def asking_for(*traits):
    return [{"resources:FPGA": "1", **{f"trait:{each}": "required" for each in traits}}]


@pytest.fixture
def d5005():
    """A card whose port is on its virtual function."""
    with FakeHost() as fake:
        engine = {"interface_id": BASE, "ports": 1}
        fpga = {"engine": engine, "ports": [{"afu_id": AFU}]}
        fake.add_function(CARD, **D5005, driver="dfl-pci", fpga=fpga)
        fake.release_port(CARD, 0)
        fake.enable_virtual_functions(CARD, 1, driver="dfl-pci")
        yield fake


@pytest.fixture
def alveo():
    with FakeHost() as fake:
        xrt = {"interface_uuids": [BASE, SHELL], "logic_uuids": [BASE, SHELL]}
        fake.add_function(CARD, **ALVEO, device="5004", driver="xclmgmt", xrt=xrt)
        fake.add_function(PART, **ALVEO, device="5005", driver="xocl", xrt=xrt)
        yield fake


def stack_on(fake, driver):
    return Stack(drivers=[driver], options={"ext_drivers": {"host_root": str(fake.root)}})


def provider(stack):
    """Return the one provider after one more report, which the conductor took without an error."""
    stack.report()
    (found,) = stack.providers()
    errors = (line for line in stack.logs if line.startswith("ERROR"))
    # After programming the conductor deletes the trait of before twice: at once and at the report.
    assert not [line for line in errors if "Failed to delete trait record" not in line]
    return found


def programmed(bound, driver_name, function):
    """Let the conductor do what it does after programming (FPGAExtARQ.bind)."""
    admin = context.get_admin_context()
    request = objects.ExtARQ.get(admin, bound.request)
    FPGAExtARQ(admin, arq=request.arq)._update_placement(admin, function, driver_name)


def driver_name_of(stack):
    (device,) = stack.devices()
    (deployable,) = device.deployables
    return deployable.driver_name


@pytest.mark.parametrize(
    ("host", "driver", "model"),
    [
        ("d5005", "ext_intel_fpga_driver", "CUSTOM_INTEL_PAC_D5005"),
        ("alveo", "ext_xilinx_fpga_driver", "CUSTOM_XILINX_ALVEO_U250"),
    ],
)
def test_an_instance_gets_the_function_for_users(request, host, driver, model):
    fake = request.getfixturevalue(host)
    with stack_on(fake, driver) as stack:
        before = provider(stack)
        assert before.name == f"compute-1_{CARD}"
        assert before.inventories == {"FPGA": 1}
        (bound,) = stack.bind(asking_for(model))
        assert bound.info["bus"] == "3b" and bound.info["function"] == "1"
        fake.bind(PART, "vfio-pci")
        assert provider(stack).traits == before.traits
        with pytest.raises(NoValidHost):
            stack.bind(asking_for(model))
        stack.unbind([bound])
        stack.unbind(stack.bind(asking_for(model)))


@pytest.mark.parametrize("again", [False, True])
def test_the_function_that_the_conductor_writes_is_the_one_that_is_reported(d5005, again):
    with stack_on(d5005, "ext_intel_fpga_driver") as stack:
        assert function_trait("INTEL", AFU) in provider(stack).traits
        (bound,) = stack.bind(asking_for("CUSTOM_INTEL_PAC_D5005"))
        new = AFU if again else OTHER_AFU
        d5005.set_afu_id(CARD, 0, new)
        programmed(bound, driver_name_of(stack), new)
        for _ in range(3):
            found = provider(stack)
            functions = [each for each in found.traits if "FUNCTION_ID" in each]
            assert functions == [function_trait("INTEL", new)]
        stack.unbind([bound])
        stack.unbind(stack.bind(asking_for(function_trait("INTEL", new))))


def test_while_an_instance_hides_it_what_the_conductor_wrote_stays(d5005):
    with stack_on(d5005, "ext_intel_fpga_driver") as stack:
        provider(stack)
        (bound,) = stack.bind(asking_for("CUSTOM_INTEL_PAC_D5005"))
        d5005.set_afu_id(CARD, 0, OTHER_AFU)
        programmed(bound, driver_name_of(stack), OTHER_AFU)
        d5005.bind(PART, "vfio-pci")
        for _ in range(3):
            functions = [each for each in provider(stack).traits if "FUNCTION_ID" in each]
            assert functions == [function_trait("INTEL", OTHER_AFU)]
        d5005.bind(PART, "dfl-pci")
        functions = [each for each in provider(stack).traits if "FUNCTION_ID" in each]
        assert functions == [function_trait("INTEL", OTHER_AFU)]


def test_a_shell_that_was_flashed_is_the_function_of_an_alveo(alveo):
    other = "6" * 31 + "3"
    with stack_on(alveo, "ext_xilinx_fpga_driver") as stack:
        assert function_trait("XILINX", SHELL) in provider(stack).traits
        (bound,) = stack.bind(asking_for("CUSTOM_XILINX_ALVEO_U250"))
        alveo.set_xrt(CARD, logic_uuids=[BASE, other])
        programmed(bound, driver_name_of(stack), other)
        for _ in range(3):
            functions = [each for each in provider(stack).traits if "FUNCTION_ID" in each]
            assert functions == [function_trait("XILINX", other)]


def test_the_functions_of_a_board_are_providers_of_one_device():
    slot = CARD[:-1]
    with FakeHost() as fake:
        for number in (0, 1, 2, 4):
            fake.add_function(
                f"{slot}{number}",
                vendor="8086",
                device="bcce",
                class_="120000",
                subsystem="8086:1771",
                driver="vfio-pci" if number else "dfl-pci",
            )
        with stack_on(fake, "ext_intel_fpga_driver") as stack:
            stack.report()
            (device,) = stack.devices()
            assert len(device.deployables) == 3
            names = {each.name for each in stack.providers()}
            assert names == {f"compute-1_{slot}{number}" for number in (1, 2, 4)}
            bound = [stack.bind(asking_for("CUSTOM_INTEL_N6001"))[0] for _ in range(3)]
            assert sorted(each.info["function"] for each in bound) == ["1", "2", "4"]
            stack.unbind(bound)
            assert not [line for line in stack.logs if line.startswith("ERROR")]
            assert json.loads(device.cpid_info)["function"] == "0"
