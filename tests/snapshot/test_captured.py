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

"""A host in memory answers as the same files on a disk would, errors and all."""

import errno
import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers.errors import EnumerationError, ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.snapshot.captured import Captured, CapturedTree

_NAMES = st.sampled_from(["a", "b", "c"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
_TARGETS = st.sampled_from(["a", "../a", "../../b", "../../../../x", "/a/b", "/c", "b/..", "./c"])
_ENTRIES = st.dictionaries(
    _PATHS, st.one_of(st.binary(max_size=4), _TARGETS, st.none()), max_size=8
)
_READS = (
    lambda directory, name: directory.data(name),
    lambda directory, name: directory.head(name, 2),
    lambda directory, name: directory.link(name),
    lambda directory, name: directory.has(name),
    lambda directory, name: sorted(directory.names(name) or ()),
    lambda directory, name: sorted(directory.names() or ()),
)


def _lay(root: pathlib.Path, entries) -> Captured:
    """Lay out the same in a directory and in memory; what lies in the way of another is left."""
    captured = Captured()
    for path, entry in sorted(entries.items()):
        real = root / path[1:]
        above = real.parent
        while above != root and not above.is_symlink():
            above = above.parent
        if above != root or real.is_symlink() or real.exists():
            continue
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            continue
        if entry is None:
            real.mkdir()
            captured.add_directory(path)
        elif isinstance(entry, bytes):
            real.write_bytes(entry)
            captured.add_file(path, entry)
        else:
            real.symlink_to(entry)
            captured.add_link(path, entry)
    return captured


def _answer(tree, read, path, name):
    try:
        return read(tree.directory(path), name)
    except ReadError as error:
        return type(error), str(error)


@given(entries=_ENTRIES, path=_PATHS, name=_NAMES)
def test_each_read_answers_as_on_the_disk(tmp_path_factory, entries, path, name):
    root = tmp_path_factory.mktemp("root")
    captured = _lay(root, entries)
    for read in _READS:
        on_disk = _answer(Tree(root), read, path, name)
        assert _answer(CapturedTree(captured), read, path, name) == on_disk


def test_a_failure_is_told_with_the_kernels_words():
    captured = Captured()
    captured.add_failure("/sys/a/vendor", errno.EIO)
    with pytest.raises(ReadError, match=r"/sys/a/vendor cannot be read: EIO \(Input/output error"):
        CapturedTree(captured).directory("/sys/a").data("vendor")


def test_a_directory_that_cannot_be_listed_may_have_files_that_can_be_read():
    captured = Captured()
    captured.add_directory("/sys/a", failure=errno.EACCES)
    captured.add_file("/sys/a/vendor", b"0x10de\n")
    directory = CapturedTree(captured).directory("/sys/a")
    assert directory.text("vendor") == "0x10de"
    with pytest.raises(ReadError, match="EACCES"):
        directory.names()


def test_below_a_directory_that_is_closed_nothing_can_be_read():
    captured = Captured()
    captured.add_failure("/sys/a", errno.EACCES, is_directory=True)
    directory = CapturedTree(captured).directory("/sys/a")
    for read in (lambda: directory.data("x"), lambda: directory.has("x"), directory.names):
        with pytest.raises(ReadError, match="EACCES"):
            read()


def test_names_stay_in_the_kernels_order_and_what_was_not_read_is_there():
    captured = Captured()
    captured.add_file("/sys/b/c", b"")
    captured.add_directory("/sys/b", names=["z", "c", "a"])
    directory = CapturedTree(captured).directory("/sys/b")
    assert directory.names() == ["z", "c", "a"]
    assert directory.has("z") and directory.data("z") is None


def test_a_path_that_is_none_is_refused():
    for path in ("sys", "/sys/../etc", "/sys//a"):
        with pytest.raises(ValueError, match="no absolute path"):
            Captured().add_file(path, b"")


class TestHostsInMemory:
    """A host of which a few files are known."""

    def test_its_functions_are_listed(self):
        captured = Captured()
        captured.add_link(
            "/sys/bus/pci/devices/0000:3b:00.0", "../../../devices/pci0000:3a/0000:3b:00.0"
        )
        captured.add_file(
            "/sys/devices/pci0000:3a/0000:3b:00.0/uevent",
            b"PCI_CLASS=30200\nPCI_ID=10DE:1EB8\nPCI_SUBSYS_ID=10DE:12A2\n",
        )
        (function,) = Host(tree=CapturedTree(captured)).functions
        assert str(function.identity.id) == "10de:1eb8"
        assert function.driver is None

    def test_without_a_bus_it_cannot_be_listed(self):
        with pytest.raises(EnumerationError, match="ENOENT"):
            _ = Host(tree=CapturedTree(Captured())).functions

    def test_it_is_looked_at_again_without_a_disk(self):
        host = Host(tree=CapturedTree(Captured())).again()
        assert host.kernel.release is None
        assert os.fspath(host.tree.root) == "captured:"
