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

"""What is odd on a fake host can be seen, outlives other changes, and can be undone."""

import errno
import os
import stat

import pytest

from cyborg_ext_drivers.testing import FakeHost, Oddity, UnknownFunction
from cyborg_ext_drivers.testing._oddities import KINDS

CARD = "0000:3b:00.0"
OTHER = "0000:d8:00.0"
BUS = "/sys/bus/pci/devices"


@pytest.fixture
def fake():
    with FakeHost.named("two-t4") as host:
        yield host


def tree_of(fake):
    """Return everything below the root, without opening what might block."""
    found = {}
    for directory, names, files in os.walk(fake.root):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            mode = os.lstat(path).st_mode
            what = None
            if stat.S_ISLNK(mode):
                what = os.readlink(path)
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    what = file.read()
            found[path.removeprefix(str(fake.root))] = stat.S_IFMT(mode), what
    return found


def error_of(fake, path):
    """Return the error by its name when a file is opened and read without waiting."""
    try:
        descriptor = os.open(fake.path(path), os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return errno.errorcode[error.errno]
    try:
        os.read(descriptor, 1)
    except OSError as error:
        return errno.errorcode[error.errno]
    finally:
        os.close(descriptor)


def vendor(fake):
    return fake.path(f"{BUS}/{CARD}/vendor").read_bytes()


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("unreadable", "ELOOP"),
        ("absent", "ENOENT"),
        ("pipe", None),
        ("held-pipe", "EAGAIN"),
        ("socket", "ENXIO"),
        ("directory", "EISDIR"),
        ("loop", "ELOOP"),
        ("long-link", "ENAMETOOLONG"),
        ("link-outside", "ENOENT"),
    ],
)
def test_a_file_that_gives_an_error(fake, kind, error):
    fake.inject(Oddity.of(CARD, "vendor", kind))
    assert error_of(fake, f"{BUS}/{CARD}/vendor") == error
    assert error_of(fake, f"{BUS}/{OTHER}/vendor") is None


@pytest.mark.parametrize(
    ("oddity", "content"),
    [
        (Oddity.of(CARD, "vendor", "holds", "0x1002"), b"0x1002\n"),
        (Oddity.of(CARD, "vendor", "holds", b"\xff\xff"), b"\xff\xff"),
        (Oddity.of(CARD, "vendor", "empty"), b""),
        (Oddity.of(CARD, "vendor", "file"), b""),
        (Oddity.of(CARD, "vendor", "bare"), b"0x10de"),
        (Oddity.of(CARD, "vendor", "crlf"), b"0x10de\r\n"),
        (Oddity.of(CARD, "vendor", "upper"), b"0x10DE\n"),
        (Oddity.of(CARD, "vendor", "megabytes"), b"0x10de\n".ljust(2 << 20, b"\n")),
    ],
    ids=str,
)
def test_a_file_that_holds_something_else(fake, oddity, content):
    fake.inject(oddity)
    assert vendor(fake) == content
    fake.mend(oddity)
    assert vendor(fake) == b"0x10de\n"


def test_lines_that_are_missing(fake):
    fake.inject(Oddity.of(CARD, "uevent", "without", "DRIVER="))
    text = fake.path(f"{BUS}/{CARD}/uevent").read_text()
    assert "DRIVER" not in text and "PCI_ID=10DE:1EB8" in text
    assert fake.path(f"{BUS}/{CARD}/driver").is_symlink()


def test_links_out_of_the_root_end_beside_it(fake):
    for kind in ("link-outside", "absolute-link-outside"):
        for name, last in (("driver", "nvidia"), ("iommu_group", "27"), ("new", "new")):
            fake.inject(Oddity.of(CARD, name, kind))
            link = fake.path(f"{BUS}/{CARD}/{name}")
            assert os.path.realpath(link) == str(fake.outside / last)
            assert os.readlink(link).startswith("/") is kind.startswith("absolute")
    assert fake.root not in fake.outside.parents


@pytest.mark.parametrize("path", ["/sys/devices/pci0000:3a", "/sys/bus/pci", "/sys/kernel"])
def test_what_lies_outside_is_never_changed(fake, path):
    (fake.outside / path.rpartition("/")[2]).mkdir(parents=True)
    here = fake.outside / path.rpartition("/")[2]
    for below in ("0000:3a:00.0/0000:3b:00.0", "devices", "iommu_groups/27/devices"):
        (here / below).mkdir(parents=True)
    before = sorted(fake.outside.rglob("*"))
    fake.inject(Oddity("absolute-link-outside", path))
    fake.bind(CARD, "vfio-pci")
    fake.remove_function(CARD)
    fake.move_to_group(OTHER, 27)
    fake.mend(Oddity("absolute-link-outside", path))
    assert sorted(fake.outside.rglob("*")) == before
    fake.put_back(CARD)
    assert vendor(fake) == b"0x10de\n"


def test_the_entry_on_the_bus_and_the_directory_itself_are_two_things(fake):
    directory = os.path.realpath(fake.path(f"{BUS}/{CARD}")).removeprefix(str(fake.root))
    fake.inject(Oddity("absent", directory))
    assert fake.path(f"{BUS}/{CARD}").is_symlink() and not fake.path(directory).exists()
    fake.mend(Oddity("absent", directory))
    fake.inject(Oddity("absent", f"{BUS}/{CARD}"))
    assert not fake.path(f"{BUS}/{CARD}").is_symlink() and fake.path(directory).exists()


PATHS = {
    "a file": f"{BUS}/{CARD}/vendor",
    "a link": f"{BUS}/{CARD}/driver",
    "a folder": f"{BUS}/{CARD}/power",
    "a file below": f"{BUS}/{CARD}/power/runtime_status",
    "nothing": f"{BUS}/{CARD}/physfn",
    "on the bus": f"{BUS}/{CARD}",
    "a directory": "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0",
    "a bridge": "/sys/devices/pci0000:3a/0000:3a:00.0",
    "a group": "/sys/kernel/iommu_groups/27",
    "a listing": "/sys/kernel/iommu_groups/27/devices",
    "the bus": BUS,
    "of the host": "/proc/cmdline",
    "given": "/etc/nova/nova.conf",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_whatever_is_odd_outlives_other_changes_and_is_undone(fake, path):
    fake.write_file("/etc/nova/nova.conf", "[pci]")
    # A driver stays registered, and so does its module.
    fake.bind(OTHER, "nouveau")
    fake.bind(OTHER, "nvidia")
    before = tree_of(fake)
    for kind in KINDS:
        oddity = Oddity(kind, path, "x")
        fake.inject(oddity)
        odd = tree_of(fake)
        fake.bind(OTHER, "nouveau")
        fake.write_file("/etc/nova/nova.conf", "[other]")
        fake.write_file("/etc/nova/nova.conf", "[pci]")
        fake.bind(OTHER, "nvidia")
        assert tree_of(fake) == odd
        fake.mend(oddity)
        assert tree_of(fake) == before


def test_one_oddity_takes_the_place_of_another(fake):
    first, second = Oddity.of(CARD, "vendor", "pipe"), Oddity.of(CARD, "vendor", "empty")
    fake.inject(first)
    fake.inject(second)
    fake.mend(first)
    assert vendor(fake) == b""
    fake.mend(second)
    assert vendor(fake) == b"0x10de\n"


def test_a_file_in_a_folder_that_is_odd_itself_waits_for_its_turn(fake):
    before = tree_of(fake)
    folder = Oddity.of(CARD, "power", "socket")
    below = Oddity.of(CARD, "power/runtime_status", "empty")
    fake.inject(below)
    fake.inject(folder)
    fake.mend(folder)
    assert fake.path(f"{BUS}/{CARD}/power/runtime_status").read_bytes() == b""
    fake.mend(below)
    assert tree_of(fake) == before


def test_what_is_odd_goes_with_its_function(fake):
    fake.inject(Oddity.of(CARD, "vendor", "held-pipe"))
    fake.remove_function(CARD)
    with pytest.raises(UnknownFunction):
        fake.inject(Oddity.of(CARD, "vendor", "empty"))
    fake.put_back(CARD)
    assert vendor(fake) == b"0x10de\n"


def test_a_function_can_come_and_go(fake):
    before = tree_of(fake)
    for _ in range(3):
        fake.remove_function("0000:3a:00.0")
        assert not fake.path(f"{BUS}/{CARD}").is_symlink()
        fake.put_back("0000:3a:00.0")
        assert tree_of(fake) == before
    with pytest.raises(UnknownFunction):
        fake.put_back("0000:3a:00.0")


def test_a_host_can_go_back_to_what_it_was(fake):
    fake.inject(Oddity.of(OTHER, "vendor", "pipe"))
    before = tree_of(fake)
    with fake.undone():
        fake.mend(Oddity.of(OTHER, "vendor", "pipe"))
        fake.inject(Oddity.of(CARD, "new", "held-pipe"))
        fake.remove_function(OTHER)
        fake.bind(CARD, "vfio-pci")
        fake.move_to_group(CARD, 0)
        fake.set_iommu("amd")
    assert tree_of(fake) == before


def test_what_is_odd_below_a_directory_that_comes_and_goes_is_laid_again(fake):
    for kind in ("holds", "socket"):
        oddity = Oddity(kind, "/sys/kernel/iommu_groups/64/name", "odd")
        fake.inject(oddity)
        for iommu in ("none", "vfio-noiommu", "intel", "none", "intel"):
            fake.set_iommu(iommu)
        assert fake.path(oddity.path).exists()
        fake.mend(oddity)
        assert not fake.path(oddity.path).exists()


def test_what_is_odd_may_be_so_from_the_beginning():
    fake = FakeHost.named("two-t4")
    fake.inject(Oddity.of(CARD, "vendor", "empty"))
    with fake:
        assert vendor(fake) == b""


def test_an_oddity_can_be_written_down_and_played_again():
    oddity = Oddity.of(CARD, "vendor", "holds", b"\xff")
    assert eval(repr(oddity)) == oddity
    assert str(oddity) == rf"holds b'\xff' at {BUS}/{CARD}/vendor"


def test_what_is_not_odd_is_named():
    with pytest.raises(ValueError, match="'strange' is nothing odd; there is unreadable, absent"):
        Oddity.of(CARD, "vendor", "strange")


def test_pipes_are_let_go_with_the_host():
    before = len(os.listdir("/proc/self/fd"))
    with FakeHost.named("two-t4") as fake:
        fake.inject(Oddity.of(CARD, "vendor", "held-pipe"))
        fake.inject(Oddity.of(OTHER, "power", "held-pipe"))
        assert len(os.listdir("/proc/self/fd")) == before + 2
        fake.inject(Oddity.of(CARD, "vendor", "empty"))
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(os.listdir("/proc/self/fd")) == before
