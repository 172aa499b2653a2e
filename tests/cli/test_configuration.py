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

"""The command with options, and with some that cannot be used."""

import json
import subprocess

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost
from tests.cli.contract import long_json


def test_a_host_that_cannot_be_read_is_exit_code_2(diagnose, tmp_path):
    for argument in (tmp_path / "nothing", tmp_path):
        code, out, err = diagnose("host", "--host-root", argument)
        assert code == 2
        assert not out
        assert str(argument) in err or "/sys/bus/pci/devices" in err
        assert "Traceback" not in err
    code, _, err = diagnose("--fake", "two-t5")
    assert code == 2
    assert "two-t4" in err


@pytest.mark.parametrize(
    "text, told",
    [
        ("[ext_drivers]\nvfio_only = perhaps\n", "vfio_only"),
        ("[ext_drivers]\nexclude = gpu0\n", "exclude"),
        ("[ext_drivers]\nignore_findings = no-such-code\n", "ignore_findings"),
        ("[ext_drivers]\nextra_traits = 10de:* = GPU\n", "extra_traits"),
        ("[ext_drivers\n", "cyborg.conf:1"),
        ("nonsense\n", "cyborg.conf:1"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(text, told, diagnose, tmp_path):
    path = tmp_path / "cyborg.conf"
    path.write_text(text)
    code, _, err = diagnose("--fake", "two-t4", "--config-file", path)
    assert code == 2
    assert told in err
    assert "Traceback" not in err


def test_options_that_belong_to_cyborg_are_not_our_business(diagnose, tmp_path):
    path = tmp_path / "cyborg.conf"
    path.write_text("[DEFAULT]\nno_such_option = 1\nhost = node-7\n[database]\nx = y\n")
    code, rows = long_json(diagnose, "--fake", "two-t4", "--config-file", path)
    assert code == 0
    assert rows[0]["deployables"][0]["name"].startswith("node-7_0000:")


def test_the_options_of_the_host_that_is_looked_at_count(diagnose):
    with FakeHost.named("two-t4") as fake:
        first, second = (str(a.address) for a in Surveyor().survey(Host(fake.root)).reported)
        fake.write_file(
            "/etc/cyborg/cyborg.conf",
            "[agent]\nenabled_drivers = nvidia_gpu_driver\n"
            f"[ext_drivers]\nexclude = {first}\nextra_traits = {second} = CUSTOM_ROW_7\n",
        )
        spec = json.dumps({"address": second})
        fake.write_file("/etc/nova/nova.conf", f"[pci]\ndevice_spec = {spec}\n")
        code, rows = long_json(diagnose, "--host-root", fake.root)
    assert code == 1
    by_address = {row["address"]: row for row in rows}
    assert by_address[first]["reason"] == "excluded-by-config"
    assert by_address[second]["verdict"] == "reported"
    assert by_address[second]["traits"][-1] == "CUSTOM_ROW_7"
    assert {finding["code"] for finding in by_address[second]["findings"]} >= {
        "claimed-by-nova",
        "in-tree-driver-enabled",
        "driver-not-enabled",
    }


def test_vgpus_are_shown_as_they_are_reported_and_a_wrong_address_is_named(diagnose, tmp_path):
    path = tmp_path / "cyborg.conf"
    path.write_text(
        "[DEFAULT]\nhost = node-7\n[gpu_devices]\nenabled_vgpu_types = nvidia-223\n"
        "[vgpu_nvidia-223]\ndevice_addresses = 3b:00.0, 0000:5e:00.0\n"
    )
    code, rows = long_json(diagnose, "--fake", "t4-on-vgpu-host-driver", "--config-file", path)
    assert code == 0
    (row,) = rows
    assert {finding["code"] for finding in row["findings"]} >= {"mdev-ignored-by-nova"}
    (deployable,) = row["deployables"]
    assert deployable["resource_class"] == "VGPU" and deployable["num_accelerators"] == 8
    assert "CUSTOM_NVIDIA_1EB8_T4_2B" in row["traits"]
    _, _, said = diagnose("host", "--fake", "t4-on-vgpu-host-driver", "--config-file", path)
    assert "[vgpu_nvidia-223] device_addresses names 0000:5e:00.0" in said


def test_an_ignored_finding_stays_visible_and_no_longer_skips(diagnose, tmp_path):
    path = tmp_path / "cyborg.conf"
    path.write_text("[ext_drivers]\nignore_findings = console-device\n")
    _, before = long_json(diagnose, "--fake", "console-gpu")
    _, after = long_json(diagnose, "--fake", "console-gpu", "--config-file", path)
    (address,) = (row["address"] for row in before if row["reason"] == "console-device")
    (row,) = (row for row in after if row["address"] == address)
    assert row["verdict"] == "reported"
    assert [f["ignored"] for f in row["findings"] if f["code"] == "console-device"] == [True]


def test_a_copy_of_a_host_never_asks_the_nvml_of_this_machine(diagnose, tmp_path, monkeypatch):
    def _no_process(*_arguments, **_options):
        raise AssertionError("a process is started")

    path = tmp_path / "cyborg.conf"
    path.write_text("[ext_drivers]\nnvml_library = /usr/lib/libnvidia-ml.so.1\n")
    monkeypatch.setattr(subprocess, "Popen", _no_process)
    code, _, _ = diagnose("--fake", "hgx-h200", "--config-file", path)
    assert code in (0, 1)
