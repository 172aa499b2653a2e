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

"""udev gives names to people, for its own machine only, and may be missing."""

import logging
import subprocess
import sys

import pytest

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.pci import DEVICES
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.host.udev import Udev
from cyborg_ext_drivers.testing import FakeHost, UmockdevMissing
from tests import cards

T4 = PciAddress.parse(cards.T4)


@pytest.fixture
def fake():
    with FakeHost() as host:
        cards.add_t4(host, driver="nvidia")
        yield host


def test_a_copy_of_a_host_has_no_names(fake, monkeypatch):
    monkeypatch.delenv("UMOCKDEV_DIR", raising=False)
    udev = Host(fake.root).udev
    assert udev.names(T4) == (None, None)
    assert udev.changes() is None


def test_the_names_of_one_host_are_not_given_to_another(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("UMOCKDEV_DIR", str(tmp_path))
    assert Host(fake.root).udev.changes() is None


def test_a_machine_without_libudev_loses_names_and_nothing_else(fake, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "pyudev", None)
    monkeypatch.setenv("UMOCKDEV_DIR", str(fake.root))
    with caplog.at_level(logging.INFO):
        host = Host(fake.root)
        assert host.udev.changes() is None
    assert "udev cannot be asked" in caplog.text
    assert host.udev.names(T4) == (None, None)
    assert str(host.functions.get(T4).identity.id) == "10de:1eb8"


def test_the_running_machine_may_be_asked_for_a_function_that_it_lacks():
    udev = Udev(Tree("/"))
    absent = PciAddress(0xFFFFFFFF, 0xFF, 0x1F, 7)
    assert udev.names(absent) == (None, None)


SCRIPT = """
import sys
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.host import Host
udev = Host(sys.argv[1]).udev
assert udev.changes() is not None
t4 = PciAddress.parse("0000:3b:00.0")
print(*udev.names(t4), sep=", ")
print(*udev.names(PciAddress.parse("0000:99:00.0")), sep=", ")
"""


def test_the_host_that_umockdev_stands_in_for_has_names(fake):
    pytest.importorskip("pyudev")
    try:
        environment = fake.umockdev_environment()
    except UmockdevMissing as error:
        pytest.skip(str(error))
    # In a test bed of umockdev, uevent is where udev's own properties are.
    text = fake.path(f"{DEVICES}/{T4}/uevent").read_text()
    names = "ID_VENDOR_FROM_DATABASE=NVIDIA\nID_MODEL_FROM_DATABASE=TU104GL [Tesla T4]\n"
    fake.set_attribute(T4, "uevent", (text + names).encode())
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(fake.root)],
        env={**environment, "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "NVIDIA, TU104GL [Tesla T4]",
        "None, None",
    ]
