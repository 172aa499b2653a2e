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

"""A driver that programs FPGAs: what it believes of what it is asked, and what it says."""

import json
import sys

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")

from cyborg.common import exception
from cyborg.conf import CONF

from cyborg_ext_drivers.address import InvalidAddress
from cyborg_ext_drivers.drivers import IntelFpgaDriver, XilinxFpgaDriver
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.report import images, privileged
from cyborg_ext_drivers.report.programming import FPGADriver, ProgrammingError
from cyborg_ext_drivers.report.tools import ToolFailed
from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing._cyborg import Configuration, write_configuration
from tests.fpga_images import BITSTREAM, GBS, IP_LAYOUT, SECURE_UPDATE, Tools, container

D5005 = {"domain": "0000", "bus": "3b", "device": "00", "function": "0"}
CONTROL_PATH = {"cpid_type": "PCI", "cpid_info": D5005}
# Runs as privsep-helper does, without sudo; nobody may ask for capabilities that he lacks.
HELPER = f"{sys.executable} -c 'from oslo_privsep.daemon import helper_main; helper_main()'"


@pytest.fixture
def configured(tmp_path):
    """Cyborg's configuration, for a host without cards."""
    file = tmp_path / "cyborg.conf"
    with FakeHost() as fake, Configuration():
        options = {
            "DEFAULT": {"host": "compute-1"},
            "ext_drivers": {"host_root": fake.root, "program_timeout": 30},
            privileged.context.cfg_section: {
                "capabilities": "",
                "helper_command": f"{HELPER} --config-file {file}",
            },
        }
        write_configuration(file, options)
        CONF(["--config-file", str(file)], project="cyborg")
        yield CONF


@pytest.fixture
def in_process():
    """Whatever runs with other rights runs here, with those of the tests."""
    privileged.context.set_client_mode(False)
    yield
    privileged.context.set_client_mode(True)


@pytest.fixture
def daemon():
    """What runs with other rights runs in a daemon of privsep's."""
    yield privileged.context
    privileged.context.stop()


@pytest.fixture
def makers(tmp_path, monkeypatch):
    makers = Tools(tmp_path / "bin")
    for name in ("fpgaconf", "fpgasupdate", "xbmgmt"):
        makers.add(name)
    monkeypatch.setenv("PATH", f"{makers.directory}:/usr/bin:/bin")
    return makers


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "0d1bd5b1-6bd5-4d4c-92ee-8b0ba6bdc3d5k2v9.gbs"
    path.write_bytes(GBS)
    return path


def test_the_class_is_found_by_its_vendor_beside_those_of_cyborg(configured):
    from cyborg.accelerator.drivers.fpga.intel.driver import IntelFPGADriver
    from cyborg.accelerator.drivers.fpga.xilinx.driver import XilinxFPGADriver

    assert type(FPGADriver.create("INTEL")) is IntelFpgaDriver
    assert type(FPGADriver.create("XILINX")) is XilinxFpgaDriver
    assert type(FPGADriver.create("intel")) is IntelFPGADriver
    assert type(FPGADriver.create("0x8086")) is IntelFPGADriver
    assert type(FPGADriver.create("xilinx")) is XilinxFPGADriver
    with pytest.raises(LookupError):
        FPGADriver.create("Intel")


def test_it_is_a_driver_like_the_others_besides(configured):
    driver = IntelFpgaDriver()
    assert driver.discover() == []
    assert driver.update("control path", "image path") is False
    assert driver.get_stats() == {}


@pytest.mark.parametrize(
    "info",
    [D5005, json.dumps(D5005), {**D5005, "bus": "3B"}, {**D5005, "domain": "0x0", "id": 7}],
)
def test_a_card_is_programmed(configured, in_process, makers, image, info):
    control_path = {"cpid_type": "PCI", "cpid_info": info, "uuid": "ignored"}
    assert IntelFpgaDriver().program(control_path, str(image)) is True
    assert makers.called("fpgaconf")[:2] == ["--bus", "0x3b"]
    assert makers.image("fpgaconf") == GBS


def test_each_maker_has_its_tools(configured, in_process, makers, image):
    image.write_bytes(SECURE_UPDATE)
    assert IntelFpgaDriver().program(CONTROL_PATH, str(image))
    assert makers.called("fpgasupdate") == [str(image), "0000:3b:00.0"]
    image.write_bytes(container(BITSTREAM, IP_LAYOUT))
    assert XilinxFpgaDriver().program(CONTROL_PATH, str(image))
    assert makers.called("xbmgmt")[-2:] == ["--user", str(image)]


def test_a_relative_name_becomes_an_absolute_one(
    configured, in_process, makers, image, monkeypatch
):
    monkeypatch.chdir(image.parent)
    (image.parent / "--force").write_bytes(GBS)
    IntelFpgaDriver().program(CONTROL_PATH, "--force")
    assert makers.called("fpgaconf")[-1] == f"{image.parent}/--force"


@pytest.mark.parametrize("kind", ["MDEV", "pci", "", None, 1])
def test_a_control_path_of_another_type_is_refused_as_by_cyborg(configured, makers, image, kind):
    with pytest.raises(exception.InvalidType):
        IntelFpgaDriver().program({"cpid_type": kind, "cpid_info": D5005}, str(image))
    assert makers.called("fpgaconf") is None


@pytest.mark.parametrize(
    "info",
    [
        {**D5005, "bus": "--help"},
        {**D5005, "bus": "3b --force"},
        {**D5005, "device": "00; reboot"},
        {**D5005, "function": "0\n"},
        {**D5005, "function": "8"},
        {**D5005, "bus": "100"},
        {**D5005, "bus": ""},
        {**D5005, "bus": 59},
        {**D5005, "bus": None},
        {**D5005, "bus": ["3b"]},
        {**D5005, "bus": {1, 2}},
        {key: value for key, value in D5005.items() if key != "domain"},
        {},
        "0000:3b:00.0",
        "--device",
        "[" * 100000,
        ["3b"],
        b"{}",
        7,
        None,
    ],
    ids=lambda info: repr(info)[:40],
)
def test_nothing_but_an_address_reaches_a_tool(configured, in_process, makers, image, info):
    for driver, tool in ((IntelFpgaDriver(), "fpgaconf"), (XilinxFpgaDriver(), "xbmgmt")):
        with pytest.raises(ProgrammingError, match="is not a PCI address") as error:
            driver.program({"cpid_type": "PCI", "cpid_info": info}, str(image))
        assert len(error.value.message) <= 1500
        assert makers.called(tool) is None


@pytest.mark.parametrize("control_path", [None, "PCI", ["cpid_type"], {}, {"cpid_type": "PCI"}])
def test_what_is_no_control_path_is_refused(configured, in_process, image, control_path):
    with pytest.raises(ProgrammingError, match="no control path"):
        IntelFpgaDriver().program(control_path, str(image))


def test_a_domain_that_the_tools_would_cut_is_refused(configured, in_process, makers, image):
    control_path = {"cpid_type": "PCI", "cpid_info": {**D5005, "domain": "10000"}}
    with pytest.raises(ProgrammingError, match="no tool knows domains beyond ffff"):
        XilinxFpgaDriver().program(control_path, str(image))
    assert makers.called("xbmgmt") is None


def test_an_image_that_is_none_is_refused(configured, in_process, makers, image):
    image.write_bytes(b"")
    for path, reason in (
        (str(image), "it is empty"),
        (str(image.parent), "no regular file|Is a directory"),
        (f"{image}.gone", "No such file"),
        (f"{image}\0", "null"),
        ("", "no regular file|Is a directory"),
        (None, "no absolute path"),
    ):
        with pytest.raises(ProgrammingError, match=reason):
            IntelFpgaDriver().program(CONTROL_PATH, path)
    assert makers.called("fpgaconf") is None


def test_a_failure_is_raised_in_a_form_that_the_conductor_can_log(
    configured, in_process, makers, image
):
    makers.add("fpgaconf", "echo 'Error: AFU is in use' >&2; exit 5")
    with pytest.raises(ProgrammingError) as error:
        IntelFpgaDriver().program(CONTROL_PATH, str(image))
    assert isinstance(error.value, (exception.CyborgException, ExtDriversError))
    assert str(error.value) == error.value.message
    assert error.value.message == (
        "The card at 0000:3b:00.0 was not programmed: fpgaconf ended with exit status 5; "
        "its last lines: Error: AFU is in use"
    )


def test_the_time_limit_is_an_option(configured, in_process, makers, image):
    configured.set_override("program_timeout", 1, group="ext_drivers")
    makers.add("fpgaconf", "echo begun; sleep 300")
    with pytest.raises(ProgrammingError, match="longer than program_timeout = 1 seconds.*begun"):
        IntelFpgaDriver().program(CONTROL_PATH, str(image))


class TestThePrivilegedSide:
    """It believes nothing that the agent has checked."""

    def test_a_daemon_calls_the_tool_and_tells_how_it_failed(
        self, configured, daemon, makers, image
    ):
        assert IntelFpgaDriver().program(CONTROL_PATH, str(image)) is True
        assert makers.called("fpgaconf")[-1] == str(image)
        makers.add("fpgaconf", "echo no such card; exit 5")
        with pytest.raises(ProgrammingError, match="exit status 5; its last lines: no such card"):
            IntelFpgaDriver().program(CONTROL_PATH, str(image))
        (makers.directory / "fpgaconf").unlink()
        with pytest.raises(ProgrammingError, match="no fpgaconf in .*install Intel's OPAE SDK"):
            IntelFpgaDriver().program(CONTROL_PATH, str(image))

    def test_a_daemon_refuses_what_the_agent_should_not_have_asked(
        self, configured, daemon, makers, image
    ):
        for address, path, kind in (
            ("--help", str(image), InvalidAddress),
            ("0000:3b:00.0 --force", str(image), InvalidAddress),
            ("10000:3b:00.0", str(image), InvalidAddress),
            ("0000:3b:00.0", "--force", images.UnusableImage),
            ("0000:3b:00.0", f"{image}.gone", images.UnusableImage),
        ):
            for entry in (privileged.program_intel, privileged.program_xilinx):
                with pytest.raises(kind):
                    entry(address, path, 30)
        assert makers.called("fpgaconf") is None
        assert makers.called("xbmgmt") is None

    def test_a_daemon_does_nothing_else(self, configured, daemon, makers, image):
        IntelFpgaDriver().program(CONTROL_PATH, str(image))
        for name in ("os.system", "cyborg_ext_drivers.report.privileged._program"):
            with pytest.raises(NameError, match="not exported"):
                daemon.channel.remote_call(name, ("true",), {}, None)

    def test_a_daemon_that_does_not_start_is_a_failure(self, configured, makers, image):
        group = privileged.context.cfg_section
        configured.set_override("helper_command", "/bin/false", group=group)
        with pytest.raises(ProgrammingError, match="the privileged helper failed: .*non-zero"):
            IntelFpgaDriver().program(CONTROL_PATH, str(image))
        assert makers.called("fpgaconf") is None

    @pytest.mark.parametrize("seconds", [0, -5, False])
    def test_there_is_always_a_time_limit(self, in_process, makers, image, seconds):
        makers.add("fpgaconf", "sleep 300")
        with pytest.raises(ToolFailed, match="longer than program_timeout = 1 seconds"):
            privileged.program_intel("0000:3b:00.0", str(image), seconds)

    @pytest.mark.parametrize("seconds", ["soon", float("nan"), float("inf"), None])
    def test_what_is_no_time_limit_calls_no_tool(self, in_process, makers, image, seconds):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            privileged.program_intel("0000:3b:00.0", str(image), seconds)
        assert makers.called("fpgaconf") is None
