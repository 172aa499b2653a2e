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

"""A host is read below its root, and never outside."""

import os

import pytest

from cyborg_ext_drivers.errors import Unreadable
from cyborg_ext_drivers.host.sysfs import Tree
from tests.unit.tree import BUS, CARD


def settles(content):
    """Say of a content that it stays as long as its directory, as an identity does."""
    return content.startswith(b"A=")


# Links and the root


def test_a_link_inside_the_root_is_followed(root):
    root.function("0000:3b:00.0")
    assert root.tree.directory(f"{BUS}/0000:3b:00.0").text("uevent") == "DRIVER=vfio-pci"


def test_an_absolute_link_is_taken_as_the_host_would_take_it(root):
    root.file(f"{CARD}/vendor", "0x10de")
    root.link(f"{BUS}/0000:3b:00.0", CARD)
    assert root.tree.directory(f"{BUS}/0000:3b:00.0").text("vendor") == "0x10de"


def test_an_absolute_link_in_mid_path_too(root):
    root.file(f"{CARD}/vendor", "0x10de")
    root.link("/sys/all", "/sys/devices")
    directory = root.tree.directory("/sys/all/pci0000:3a/0000:3b:00.0")
    assert directory.text("vendor") == "0x10de"
    assert directory.path_of("vendor") == "/sys/all/pci0000:3a/0000:3b:00.0/vendor"


def test_an_absolute_link_to_this_machines_directory_is_absent_in_the_root(root, outside):
    root.link("/sys/bus", outside)
    assert root.tree.directory("/sys/bus").text("secret") is None
    assert root.tree.text("/sys/bus/secret") is None


@pytest.mark.parametrize("steps", [3, 4, 9])
def test_a_relative_link_out_of_the_root_is_not_followed(root, outside, steps):
    root.link(f"{BUS}/0000:3b:00.0", "../" * (steps + 2) + "outside")
    with pytest.raises(Unreadable, match="out of the host's root"):
        root.tree.directory(f"{BUS}/0000:3b:00.0")
    assert isinstance(root.tree.read_each(BUS, "uevent", settles)["0000:3b:00.0"], Unreadable)


def test_a_file_that_is_a_link_is_never_followed(root, outside):
    root.file(f"{CARD}/vendor")
    root.link(f"{CARD}/device", outside / "secret")
    root.link(f"{CARD}/inside", "vendor")
    for name in ("device", "inside"):
        with pytest.raises(Unreadable, match="ELOOP"):
            root.tree.directory(CARD).text(name)


def test_links_in_a_circle_are_unreadable(root):
    root.link("/sys/a", "b")
    root.link("/sys/b", "a")
    with pytest.raises(Unreadable):
        root.tree.directory("/sys/a")
    root.link("/sys/c", "/sys/d")
    root.link("/sys/d", "/sys/c")
    with pytest.raises(Unreadable, match="circle"):
        root.tree.directory("/sys/c")


def test_a_root_that_is_itself_a_link_is_no_way_out(root, outside, tmp_path):
    root.file(f"{CARD}/vendor", "0x10de")
    root.link("/sys/out", "../../outside")
    (tmp_path / "alias").symlink_to(root.path)
    tree = Tree(tmp_path / "alias")
    assert not tree.is_live
    assert tree.directory(CARD).text("vendor") == "0x10de"
    with pytest.raises(Unreadable):
        tree.directory("/sys/out")


def test_a_root_that_only_begins_like_another_is_another(tmp_path):
    for name in ("host", "host2"):
        (tmp_path / name / "sys").mkdir(parents=True)
    (tmp_path / "host2" / "secret").write_text("secret")
    (tmp_path / "host" / "sys" / "out").symlink_to("../../host2")
    with pytest.raises(Unreadable):
        Tree(tmp_path / "host").directory("/sys/out")


# The running machine


def test_the_running_machine_is_read_as_it_is():
    tree = Tree("/")
    assert tree.is_live
    assert tree.text("/proc/sys/kernel/osrelease") == os.uname().release
    assert tree.directory("/sys/there/is/no/such/thing").text("vendor") is None
    assert tree.names("/proc/self/fd")


def test_a_change_on_the_running_machine_is_noticed_too(root):
    path = str(root.path)
    root.file("/vendor", "0x10de")
    root.link("/driver", "nvidia")
    tree = Tree("/")
    with tree.tracing() as trace:
        assert tree.directory(path).text("vendor") == "0x10de"
        assert tree.directory(path).link("driver") == "nvidia"
    assert trace.holds(tree.again().holds, {})
    root.file("/vendor", "0x1002")
    assert not trace.holds(tree.again().holds, {})
