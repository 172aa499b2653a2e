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

"""A conclusion stands as long as all that was read for it does."""

import shutil

import pytest

from cyborg_ext_drivers.errors import Unreadable
from tests.unit.tree import BUS, CARD


@pytest.fixture
def card(root):
    """A card with one entry of each sort."""
    root.function("0000:3b:00.0")
    root.file(f"{CARD}/vendor", "0x10de\n")
    root.file(f"{CARD}/config", bytes(range(256)))
    root.link(f"{CARD}/driver", "../../../bus/pci/drivers/vfio-pci")
    root.file(f"{CARD}/vfio-dev/vfio0/dev")
    root.file(f"{CARD}/rescan")
    return root


def _look(tree):
    """Read something of every sort and return the trace of it."""
    with tree.tracing() as trace:
        directory = tree.directory(f"{BUS}/0000:3b:00.0")
        directory.text("vendor")
        directory.text("boot_vga")
        directory.link("driver")
        directory.link("physfn")
        directory.names()
        directory.names("vfio-dev")
        directory.head("config", 64)
        directory.has("reset")
        directory.has("rescan")
        tree.directory("/sys/class/iommu").names()
        tree.note("0000:3b:00.0", b"DRIVER=vfio-pci\n")
    return trace


UEVENTS = {"0000:3b:00.0": b"DRIVER=vfio-pci\n"}


def _replace_file(root):
    root.file(f"{CARD}/vendor", "0x1002\n")


def _remove_file(root):
    root.at(f"{CARD}/vendor").unlink()


def _make_file_unreadable(root):
    root.at(f"{CARD}/vendor").unlink()
    root.link(f"{CARD}/vendor", "vendor")


def _add_file(root):
    root.file(f"{CARD}/boot_vga", "1")


def _turn_link(root):
    root.at(f"{CARD}/driver").unlink()
    root.link(f"{CARD}/driver", "../../../bus/pci/drivers/nvidia")


def _remove_link(root):
    root.at(f"{CARD}/driver").unlink()


def _add_link(root):
    root.link(f"{CARD}/physfn", "../0000:3a:00.0")


def _link_becomes_file(root):
    root.at(f"{CARD}/driver").unlink()
    root.file(f"{CARD}/driver")


def _reset_appears(root):
    root.file(f"{CARD}/reset")


def _rescan_vanishes(root):
    root.at(f"{CARD}/rescan").unlink()


def _absent_directory_appears(root):
    root.at("/sys/class/iommu").mkdir(parents=True)


def _add_entry(root):
    root.file(f"{CARD}/something_else")


def _add_entry_below(root):
    root.file(f"{CARD}/vfio-dev/vfio1/dev")


def _remove_directory_below(root):
    root.at(f"{CARD}/vfio-dev").rename(root.at(f"{CARD}/renamed"))


def _change_head(root):
    root.file(f"{CARD}/config", b"\xff" * 256)


def _shorten_head(root):
    root.file(f"{CARD}/config", bytes(range(63)))


def _remove_directory(root):
    root.at(CARD).rename(root.path / "gone")


def _directory_becomes_link(root):
    root.at(CARD).rename(root.at("/sys/devices/moved"))
    root.at("/sys/devices/moved/vendor").write_text("0x1002\n")
    root.link(CARD, "../moved")


def _directory_becomes_link_out_of_the_root(root):
    root.at(CARD).rename(root.path.parent / "moved")
    root.link(CARD, "../../../../moved")


def _entry_links_to_its_double(root):
    shutil.copytree(root.at(CARD), root.at("/sys/devices/double"), symlinks=True)
    root.at(f"{BUS}/0000:3b:00.0").unlink()
    root.link(f"{BUS}/0000:3b:00.0", "../../../devices/double")


@pytest.mark.parametrize(
    "change",
    [
        _replace_file,
        _remove_file,
        _make_file_unreadable,
        _add_file,
        _turn_link,
        _remove_link,
        _add_link,
        _link_becomes_file,
        _reset_appears,
        _rescan_vanishes,
        _absent_directory_appears,
        _add_entry,
        _add_entry_below,
        _remove_directory_below,
        _change_head,
        _shorten_head,
        _remove_directory,
        _directory_becomes_link,
        _directory_becomes_link_out_of_the_root,
        _entry_links_to_its_double,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_what_was_read_holds_until_it_changes(card, change):
    tree = card.tree
    trace = _look(tree)
    assert trace.holds(tree.again().holds, UEVENTS)
    change(card)
    assert not trace.holds(tree.again().holds, UEVENTS)


def test_what_was_not_read_may_change(card):
    tree = card.tree
    trace = _look(tree)
    card.file(f"{CARD}/vfio-dev/vfio0/dev", "511:0")
    card.file(f"{CARD}/config", bytes(range(64)) + b"\xff" * 192)
    card.file("/proc/cmdline", "quiet")
    assert trace.holds(tree.again().holds, UEVENTS | {"0000:5e:00.0": b""})


@pytest.mark.parametrize("uevents", [{}, {"0000:3b:00.0": b"DRIVER=nvidia\n"}])
def test_what_the_bus_said_of_a_function_is_part_of_it(card, uevents):
    trace = _look(card.tree)
    assert not trace.holds(card.tree.holds, uevents)


def test_a_neighbour_that_was_not_there_is_part_of_it(card):
    tree = card.tree
    with tree.tracing() as trace:
        tree.note("0000:3b:00.1", None)
    assert trace.holds(tree.holds, UEVENTS)
    assert not trace.holds(tree.holds, UEVENTS | {"0000:3b:00.1": b"A=1\n"})


def test_what_could_not_be_read_never_holds(root):
    root.file(f"{CARD}/device")
    root.link(f"{CARD}/vendor", "vendor")
    tree = root.tree
    with tree.tracing() as trace, pytest.raises(Unreadable):
        tree.directory(CARD).text("vendor")
    assert not trace.holds(tree.again().holds, {})


def test_an_absolute_link_that_turns_is_noticed(root):
    root.file(f"{CARD}/vendor", "0x10de")
    root.file("/sys/devices/other/vendor", "0x1002")
    root.link("/sys/alias", CARD)
    tree = root.tree
    with tree.tracing() as trace:
        assert tree.directory("/sys/alias").text("vendor") == "0x10de"
    root.at("/sys/alias").unlink()
    root.link("/sys/alias", "/sys/devices/other")
    assert not trace.holds(tree.again().holds, {})


def test_an_absent_target_of_an_absolute_link_that_appears_is_noticed(root):
    root.link("/sys/alias", "/sys/devices/late")
    tree = root.tree
    with tree.tracing() as trace:
        assert tree.names("/sys/alias") is None
    assert trace.holds(tree.again().holds, {})
    root.file("/sys/devices/late/vendor")
    assert tree.again().names("/sys/alias") == ["vendor"]
    assert not trace.holds(tree.again().holds, {})


def test_traces_nest(card):
    tree = card.tree
    with tree.tracing() as outer:
        tree.directory(CARD).text("vendor")
        with tree.tracing() as inner:
            tree.directory(f"{CARD}/vfio-dev").names()
        tree.note("0000:5e:00.0", None)
    assert set(inner.directories) == {f"{CARD}/vfio-dev"}
    assert set(outer.directories) == {CARD, f"{CARD}/vfio-dev"}
    assert outer.functions == {"0000:5e:00.0": None} and inner.functions == {}
