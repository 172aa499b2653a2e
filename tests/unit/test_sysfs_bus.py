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

"""One walk over a bus costs little, and a bad entry nothing but itself."""

import os

import pytest

from cyborg_ext_drivers.errors import Malformed, Unreadable
from tests.unit.tree import BUS, CARD, Root


def settles(content):
    """Say of a content that it stays as long as its directory, as an identity does."""
    return content.startswith(b"A=")


def test_one_file_of_each_entry(root):
    root.function("0000:3b:00.0", "A=1\n")
    root.function("0000:5e:00.0", "B=2\n", below="pci0000:5d/0000:5d:00.0")
    assert root.tree.read_each(BUS, "uevent", settles) == {
        "0000:3b:00.0": b"A=1\n",
        "0000:5e:00.0": b"B=2\n",
    }


def test_a_bad_entry_costs_nothing_but_itself(root, outside):
    root.function("0000:3b:00.0", "A=1\n")
    root.function("0000:3b:00.1", "a" * 5000)
    root.function("0000:3b:00.2")
    root.at(f"{CARD[:-1]}2/uevent").unlink()
    root.link(f"{CARD[:-1]}2/uevent", "uevent")
    root.function("0000:3b:00.3")
    root.at(f"{CARD[:-1]}3/uevent").unlink()
    root.link(f"{BUS}/0000:3b:00.4", "../../../devices/gone")
    root.link(f"{BUS}/0000:3b:00.5", outside)
    root.link(f"{BUS}/0000:3b:00.6", "../../../../../outside")
    root.link(f"{BUS}/0000:3b:00.7", "0000:3b:00.7")
    root.file(f"{BUS}/0000:3c:00.0")
    root.file(f"{BUS}/0000:3d:00.0/uevent", "C=3\n")
    root.file(f"{CARD[:-1]}8/uevent/inside")
    root.link(f"{BUS}/0000:3b:00.8", f"../../..{CARD[4:-1]}8")
    found = root.tree.read_each(BUS, "uevent", settles)
    assert found.pop("0000:3b:00.0") == b"A=1\n"
    assert found.pop("0000:3d:00.0") == b"C=3\n"
    assert isinstance(found.pop("0000:3b:00.1"), Malformed)
    absent = {"0000:3b:00.3", "0000:3b:00.4", "0000:3b:00.5"}
    assert {name for name, value in found.items() if value is None} == absent
    unreadable = {n for n, value in found.items() if isinstance(value, Unreadable)}
    assert unreadable == {
        "0000:3b:00.2",
        "0000:3b:00.6",
        "0000:3b:00.7",
        "0000:3b:00.8",
        "0000:3c:00.0",
    }


def test_a_pipe_on_the_bus_does_not_block_it(root):
    root.function("0000:3b:00.0", "A=1\n")
    root.function("0000:3b:00.1")
    root.at(f"{CARD[:-1]}1/uevent").unlink()
    os.mkfifo(root.at(f"{CARD[:-1]}1/uevent"))
    held = os.open(root.at(f"{CARD[:-1]}1/uevent"), os.O_RDWR)
    try:
        found = root.tree.read_each(BUS, "uevent", settles)
    finally:
        os.close(held)
    assert found["0000:3b:00.0"] == b"A=1\n"
    assert isinstance(found["0000:3b:00.1"], Unreadable)


def test_a_bus_that_is_absent_or_no_directory_is_unreadable(root):
    with pytest.raises(Unreadable, match="ENOENT"):
        root.tree.read_each(BUS, "uevent", settles)
    root.file(BUS)
    with pytest.raises(Unreadable) as caught:
        root.tree.read_each(BUS, "uevent", settles)
    assert caught.value.path == BUS


def test_an_entry_below_a_link_out_of_the_root_is_not_read(root, outside):
    (outside / "0000:3b:00.0").mkdir()
    (outside / "0000:3b:00.0" / "uevent").write_text("DRIVER=secret\n")
    root.link("/sys/devices/pci0000:3a", "../../../outside")
    root.link(f"{BUS}/0000:3b:00.0", "../../../devices/pci0000:3a/0000:3b:00.0")
    found = root.tree.read_each(BUS, "uevent", settles)
    assert isinstance(found["0000:3b:00.0"], Unreadable)


def test_an_entry_that_is_linked_twice_over_is_not_read_outside(root, outside):
    root.link("/sys/devices/pci0000:3a/0000:3b:00.0", "../../../../outside")
    root.link(f"{BUS}/0000:3b:00.0", "../../../devices/pci0000:3a/0000:3b:00.0")
    found = root.tree.read_each(BUS, "uevent", settles)
    assert isinstance(found["0000:3b:00.0"], Unreadable)


def test_a_bus_that_is_elsewhere_in_the_root_gives_no_way_out(tmp_path):
    # From /moved, ../../../devices is no longer the host's /sys/devices.
    root = Root(tmp_path / "below" / "host")
    root.function("0000:3b:00.0", "A=1\n")
    Root(tmp_path).file("/devices/pci0000:3a/0000:3b:00.0/uevent", "DRIVER=secret\n")
    root.at(BUS).rename(root.at("/moved"))
    root.link(BUS, "../../../moved")
    found = root.tree.read_each(BUS, "uevent", settles)
    assert isinstance(found["0000:3b:00.0"], Unreadable)


def test_a_directory_that_became_a_link_out_of_the_root_is_noticed_on_the_next_walk(root, outside):
    root.function("0000:3b:00.0", "A=1\n")
    tree = root.tree
    assert tree.read_each(BUS, "uevent", settles) == {"0000:3b:00.0": b"A=1\n"}
    root.at("/sys/devices/pci0000:3a").rename(outside / "pci0000:3a")
    root.link("/sys/devices/pci0000:3a", "../../../outside/pci0000:3a")
    found = tree.again().read_each(BUS, "uevent", settles)
    assert isinstance(found["0000:3b:00.0"], Unreadable)


def test_a_function_that_comes_and_goes_is_seen_on_the_next_walk(root):
    root.function("0000:3b:00.0", "A=1\n")
    tree = root.tree
    assert set(tree.read_each(BUS, "uevent", settles)) == {"0000:3b:00.0"}
    root.function("0000:3b:00.1", "B=2\n")
    assert tree.again().read_each(BUS, "uevent", settles)["0000:3b:00.1"] == b"B=2\n"
    root.at(f"{BUS}/0000:3b:00.0").unlink()
    assert set(tree.again().read_each(BUS, "uevent", settles)) == {"0000:3b:00.1"}


def _age(root):
    """Let the last change in the bus's directory be long ago."""
    os.utime(root.at(BUS), (1_700_000_000, 1_700_000_000))


def test_what_is_settled_stays_while_nothing_comes_or_goes(root):
    root.function("0000:3b:00.0", "A=1\n")
    root.function("0000:3b:00.1", "B=2\n")
    _age(root)
    tree = root.tree
    assert tree.read_each(BUS, "uevent", settles)["0000:3b:00.0"] == b"A=1\n"
    root.file(f"{CARD}/uevent", "A=3\n")
    root.file(f"{CARD[:-1]}1/uevent", "B=4\n")
    assert tree.again().read_each(BUS, "uevent", settles) == {
        "0000:3b:00.0": b"A=1\n",
        "0000:3b:00.1": b"B=4\n",
    }
    root.function("0000:3b:00.2", "A=5\n")
    assert tree.again().read_each(BUS, "uevent", settles) == {
        "0000:3b:00.0": b"A=3\n",
        "0000:3b:00.1": b"B=4\n",
        "0000:3b:00.2": b"A=5\n",
    }


def test_another_function_of_the_same_name_is_another(root):
    root.function("0000:3b:00.0", "A=1\n")
    _age(root)
    tree = root.tree
    assert tree.read_each(BUS, "uevent", settles) == {"0000:3b:00.0": b"A=1\n"}
    root.at(f"{BUS}/0000:3b:00.0").unlink()
    root.file("/sys/devices/pci0000:3a/other/uevent", "A=2\n")
    root.link(f"{BUS}/0000:3b:00.0", "../../../devices/pci0000:3a/other")
    assert tree.again().read_each(BUS, "uevent", settles) == {"0000:3b:00.0": b"A=2\n"}
