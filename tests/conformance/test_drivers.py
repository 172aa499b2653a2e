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


"""The command, on real drivers: Cyborg's own have their faults, ours have none."""

import contextlib
import json
import shutil

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg_ext_drivers.cli.app import main as diagnose
from cyborg_ext_drivers.testing import UmockdevMissing, _umockdev
from cyborg_ext_drivers.testing.conformance import app
from cyborg_ext_drivers.testing.conformance.codes import CODES


@pytest.fixture(autouse=True)
def tools():
    try:
        _umockdev.environment("/")
    except UmockdevMissing as error:
        pytest.skip(str(error))
    if shutil.which("lspci") is None:
        pytest.skip("lspci is not on this machine; install the package pciutils")


@pytest.fixture
def conformance(capsys):
    def run(*arguments):
        code = app.main([*arguments, "-f", "json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def codes(rows):
    return {row["code"] for row in rows}


def test_the_faults_of_the_in_tree_nvidia_driver_are_found(conformance):
    code, rows = conformance("nvidia_gpu_driver", "--fake", "a2-with-virtual-functions")
    assert code == 1
    assert codes(rows) == {
        "positional-trait-key",
        "virtual-functions-beside-physical",
        "held-device-stops-report",
    }
    together = [row for row in rows if row["code"] == "virtual-functions-beside-physical"]
    assert together[0]["evidence"].startswith("0000:08:00.0 and its virtual function 0000:08:00.4")
    assert together[0]["consequence"] == CODES["virtual-functions-beside-physical"].consequence


def test_a_driver_without_a_resource_class_is_found(conformance):
    code, rows = conformance("huawei_ascend_driver", "--fake", app.DEFAULT_HOSTS[-1])
    assert code == 1
    assert {"no-resource-class", "report-fails"} <= codes(rows)


@pytest.mark.parametrize(
    "driver, host",
    [
        ("ext_nvidia_gpu_driver", "a2-with-virtual-functions"),
        ("ext_intel_fpga_driver", "pac-arria10"),
    ],
)
def test_our_own_conform(conformance, driver, host):
    assert conformance(driver, "--fake", host) == (0, [])


def test_a_snapshot_is_a_host_like_the_described_one(conformance, tmp_path, capsys):
    file = str(tmp_path / "host.tar.gz")
    assert diagnose(["snapshot", "save", file, "--fake", "a2-with-virtual-functions"]) == 0
    capsys.readouterr()
    code, rows = conformance("nvidia_gpu_driver", "--snapshot", file)
    assert code == 1
    assert "virtual-functions-beside-physical" in codes(rows)


def test_a_driver_that_cannot_be_tried_is_exit_code_2(conformance):
    code, rows = conformance("nvmf_spdk_driver", "--fake", "two-t4")
    assert (code, codes(rows)) == (2, {"not-tried"})


def test_a_machine_without_lspci_gets_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert app.main(["fake_driver", "--fake", "two-t4"]) == 2
    assert capsys.readouterr().err == (
        "cyborg-ext-conformance: lspci is not on this machine; install the package pciutils\n"
    )


def test_an_unknown_driver_gets_one_sentence(capsys):
    assert app.main(["nvidia_gpu_drivr"]) == 2
    assert "no driver is called 'nvidia_gpu_drivr'" in capsys.readouterr().err


def test_the_hosts_that_the_help_names_can_be_given():
    parsed = app._parser().parse_args(["x", "--fake", "cards-of-cyborgs-own-drivers"])
    (place,) = app._places(parsed, contextlib.ExitStack())
    assert place.name == "cards-of-cyborgs-own-drivers"
