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

"""No read waits, none takes more than it can use, whatever lies in the place of a file."""

import os
import time

import pytest

from cyborg_ext_drivers.errors import EnumerationError, Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host._reading import _MOST_NAMES
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost, Oddity

CARD = "0000:3b:00.0"
OTHER = "0000:d8:00.0"
BUS = "/sys/bus/pci/devices"


@pytest.fixture
def fake():
    with FakeHost.named("two-t4") as host:
        yield host


def function(fake, address=CARD):
    return Host(fake.root).functions.get(address)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pipe", "ESPIPE"),
        ("held-pipe", "EAGAIN"),
        ("socket", "ENXIO"),
        ("directory", "EISDIR"),
        ("long-link", "ELOOP|ENAMETOOLONG"),
    ],
)
@pytest.mark.parametrize("name", ["numa_node", "config"])
def test_what_is_no_file_is_unreadable_at_once(fake, kind, words, name):
    fake.inject(Oddity.of(CARD, name, kind))
    started = time.monotonic()
    with pytest.raises(Unreadable, match=words):
        _ = function(fake).numa_node, function(fake).header
    assert time.monotonic() - started < 1


def test_an_empty_file_is_no_pipe(fake):
    fake.inject(Oddity.of(CARD, "resource", "empty"))
    assert function(fake).regions == ()
    fake.inject(Oddity.of(CARD, "resource", "pipe"))
    with pytest.raises(Unreadable):
        _ = function(fake).regions


def test_a_terminal_is_not_waited_for():
    primary, secondary = os.openpty()
    try:
        directory, _, name = os.ttyname(secondary).rpartition("/")
        with pytest.raises(Unreadable, match="EAGAIN"):
            Tree("/").directory(directory).text(name)
    finally:
        os.close(primary)
        os.close(secondary)


def test_of_megabytes_only_a_page_is_read(fake):
    fake.inject(Oddity.of(CARD, "vendor", "megabytes"))
    fake.inject(Oddity.of(CARD, "config", "megabytes"))
    directory = function(fake).directory
    with pytest.raises(Malformed, match="at most 4096 bytes"):
        directory.data("vendor")
    assert len(function(fake).header) == 64


def test_a_directory_of_more_entries_than_any_host_has_is_unreadable():
    with FakeHost(attributes="identity") as fake:
        parent = os.open(fake.path("/sys/module"), os.O_DIRECTORY)
        os.mknod("0", dir_fd=parent)
        for number in range(1, _MOST_NAMES):
            os.link("0", str(number), src_dir_fd=parent, dst_dir_fd=parent)
        os.close(parent)
        with pytest.raises(Unreadable, match="E2BIG"):
            Tree(fake.root).names("/sys/module")


@pytest.mark.parametrize("kind", ["link-outside", "absolute-link-outside", "loop", "file"])
@pytest.mark.parametrize("path", [BUS, "/sys/bus/pci", "/sys/bus", "/sys"])
def test_a_bus_that_is_no_directory_of_this_host_cannot_be_listed(fake, kind, path):
    last = path.rpartition("/")[2]
    below = BUS.removeprefix(path).strip("/")
    (fake.outside / last / below / "0000:5e:00.0").mkdir(parents=True)
    (fake.outside / last / below / "0000:5e:00.0/uevent").write_text(
        "PCI_CLASS=30200\nPCI_ID=10DE:20B5\nPCI_SUBSYS_ID=10DE:1533\n"
    )
    fake.inject(Oddity(kind, path))
    with pytest.raises(EnumerationError):
        _ = Host(fake.root).functions


@pytest.mark.parametrize(
    "target", ["../drivers/" + "a" * 256, b"../drivers/\xff", "../drivers/a\nb", "../\x1b[31mred"]
)
def test_a_link_to_what_has_no_printable_name_is_malformed(fake, target):
    link = fake.path(f"{BUS}/{CARD}/driver")
    link.unlink()
    os.symlink(target, os.fsencode(link))
    with pytest.raises(Malformed, match="link to a name") as caught:
        _ = function(fake).driver
    assert str(caught.value).isprintable()


def test_names_that_cannot_be_printed_are_escaped(fake):
    fake.path("/sys/kernel/iommu_groups/27/devices").mkdir(exist_ok=True)
    listing = os.fsencode(fake.path("/sys/kernel/iommu_groups/27/devices"))
    os.mkdir(listing + b"/\xff\n")
    os.mkdir(os.fsencode(fake.path(BUS)) + b"/\xff\n")
    host = Host(fake.root)
    assert host.iommu.group(27).members == (CARD, r"\xff")


@pytest.mark.parametrize("name", ["00000:3b:00.0", "00003b:3b:00.0"])
def test_an_address_with_needless_zeros_is_no_second_function(fake, name):
    entry = fake.path(f"{BUS}/{name}")
    entry.symlink_to(os.readlink(fake.path(f"{BUS}/{CARD}")))
    functions = Host(fake.root).functions
    assert functions.get(name) is None
    addresses = [each.address for each in functions]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("number", ["f" * 4000, "-1", "10000000000000000"])
def test_a_region_beyond_64_bits_is_malformed(fake, number):
    fake.set_attribute(CARD, "resource", f"0x0 {number} 0x20000200")
    with pytest.raises(ReadError, match="lines of 3 numbers"):
        _ = function(fake).regions


@pytest.mark.parametrize("name", ["power_state", "power/runtime_status"])
@pytest.mark.parametrize("value", ["", "D3", "asleep", "\x1b[2J"])
def test_a_power_state_that_the_kernel_never_says_is_malformed(fake, name, value):
    fake.set_attribute(CARD, name, value)
    with pytest.raises(Malformed, match="one of error, "):
        _ = function(fake).power_state, function(fake).runtime_status


def test_what_could_not_be_read_and_was_ignored_is_asked_for_again(fake):
    options = Options(host_root=str(fake.root), ignore_findings=frozenset({"unreadable"}))
    surveyor, host = Surveyor(options), Host(fake.root)
    fake.make_unreadable(CARD, "iommu_group")
    surveyor.survey(host)
    fake.make_readable(CARD, "iommu_group")
    fake.move_to_group(CARD, None)
    reasons = {str(a.address): a.reason for a in surveyor.survey(host.again()).assessments}
    assert str(reasons[CARD].code) == "no-iommu-group"
