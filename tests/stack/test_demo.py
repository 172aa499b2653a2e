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

"""The demonstration: hosts in, tables out, and plain words where there is nothing to show."""

# The imports below stand after the check that they can succeed.
# ruff: noqa: E402

import pytest

for _name in ("cyborg", "placement"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: cyborg-ext-drivers[stack]")

from cyborg_ext_drivers.testing import demo, described_hosts
from cyborg_ext_drivers.testing.stack import AttachHandle, Deployable, Device, Provider

ADDRESS = '{"bus": "3b", "device": "00", "domain": "0000", "function": "0"}'


@pytest.fixture
def root(tmp_path):
    (tmp_path / "sys").mkdir()
    return tmp_path


def a_device(*traits, model="T4"):
    attributes = (("rc", "FPGA"), *((f"trait_{trait}", trait) for trait in traits))
    handles = (AttachHandle("PCI", ADDRESS, False),)
    deployable = Deployable("compute-1_0000:3b:00.0", "acme", 1, "uuid", attributes, handles)
    return Device("FPGA", "acme", model, "compute-1", ADDRESS, "{}", "{}", (deployable,), "uuid")


def test_a_directory_with_sys_is_a_host(root, capsys):
    status = demo.main([str(root), "--driver", "fake_driver", "--hostname", "gpu-9"])

    printed = capsys.readouterr()
    assert status == 0
    for text in (
        "0000:0c:00.0 | FPGA",
        "gpu-9_FakeDevice",
        "FPGA: 16",
        "CUSTOM_FAKE_DEVICE=required",
        "| Bound | TEST_PCI |",
    ):
        assert text in printed.out
    assert printed.err.startswith("Starting Cyborg and Placement")


def test_several_hosts_are_shown_one_after_the_other(root, capsys):
    status = demo.main([str(root), "--host-root", str(root), "--driver", "fake_driver"])

    assert status == 0
    assert capsys.readouterr().out.count("Devices in Cyborg") == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no-such-host", "--driver", "fake_driver"], "no-such-host"),
        (["/usr", "--driver", "fake_driver"], "no sys/ below /usr"),
        (["/no/such/file.yaml", "--driver", "fake_driver"], "/no/such/file.yaml"),
        (["/", "--driver", "fake_drver"], "there is fake_driver"),
    ],
)
def test_what_is_not_there_is_named(arguments, complaint, capsys):
    assert demo.main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_the_described_hosts_are_listed(capsys):
    assert demo.main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed if line[0] != " "] == described_hosts()
    assert all(len(line) <= 120 for line in listed)


def test_an_empty_report_points_to_the_diagnosis():
    text = demo.render(demo.Outcome([], [], {}, [], "", []), "no-accelerators")

    assert text.startswith("No accelerator is reported")
    assert text.endswith("cyborg-ext-diagnose --fake no-accelerators")


def test_long_values_stay_within_120_columns():
    devices = [a_device("CUSTOM_ACME", model="Very Fast " * 25)]
    trait = "CUSTOM_" + "LONG_" * 48
    provider = Provider("n" * 200, "uuid", None, (trait,), {"FPGA": 1}, {}, ())

    text = demo.render(demo.Outcome(devices, [provider], {"a": "b"}, [], "no reason", []), "two-t4")

    assert max(map(len, text.splitlines())) <= 120
    assert text.endswith("gets nothing: no reason")


@pytest.mark.parametrize(
    ("traits", "asked"),
    [
        (("OWNER_CYBORG", "CUSTOM_GPU_ACME", "CUSTOM_ACME_T4"), "CUSTOM_GPU_ACME"),
        # For this one Cyborg's API would ask for two attach handles.
        (("CUSTOM_FPGA_XILINX", "CUSTOM_XILINX_U250"), "CUSTOM_XILINX_U250"),
    ],
)
def test_the_profile_names_the_first_trait_that_it_can(traits, asked):
    group = demo.find_group([a_device(*traits)])

    assert group == {"resources:FPGA": "1", f"trait:{asked}": "required"}


def test_a_described_host_goes_all_the_way(capsys):
    assert demo.main(["two-t4", "--driver", "ext_nvidia_gpu_driver"]) == 0
    printed = capsys.readouterr().out
    assert "CUSTOM_NVIDIA_T4" in printed
    assert "| Bound | PCI " in printed
