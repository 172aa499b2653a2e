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

"""A read answers with a value, with absent or with an error, and never leaves the root."""

import os
import pathlib
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cyborg_ext_drivers.errors import Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host.directory import shown
from cyborg_ext_drivers.host.sysfs import Tree

CARD = "/sys/devices/pci0000:3a/0000:3b:00.0"
BUS = "/sys/bus/pci/devices"


def settles(content):
    """Say of a content that it stays as long as its directory, as an identity does."""
    return content.startswith(b"A=")


on_arbitrary_content = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


class Root:
    """A directory that stands for a host's root, filled by the host's paths."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def at(self, path):
        return self.path / path.lstrip("/")

    def file(self, path, content="x\n"):
        at = self.at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content if isinstance(content, bytes) else content.encode())

    def link(self, path, target):
        at = self.at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(target)

    def function(self, name, content="DRIVER=vfio-pci\n", below="pci0000:3a"):
        self.file(f"/sys/devices/{below}/{name}/uevent", content)
        self.link(f"{BUS}/{name}", f"../../../devices/{below}/{name}")

    @property
    def tree(self):
        return Tree(self.path)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "host").mkdir()
    return Root(tmp_path / "host")


@pytest.fixture
def outside(tmp_path):
    """What lies beside the root, and must never be seen."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    (tmp_path / "outside" / "uevent").write_text("DRIVER=secret\n")
    return tmp_path / "outside"


# Absent, unreadable, malformed


def test_a_file_is_read_without_the_white_space_around_it(root):
    root.file(f"{CARD}/vendor", "  0x10de \n")
    assert root.tree.directory(CARD).text("vendor") == "0x10de"
    assert root.tree.text(f"{CARD}/vendor") == "0x10de"


def test_what_is_absent_is_no_error(root):
    root.file(f"{CARD}/vendor")
    card = root.tree.directory(CARD)
    assert card.text("revision") is None
    assert card.data("revision") is None
    assert card.hexadecimal("revision", 2) is None
    assert card.integer("numa_node") is None
    assert card.flag("boot_vga") is None
    assert card.link("driver") is None
    assert card.head("config", 64) is None
    assert card.names("vfio-dev") is None


def test_a_directory_that_is_absent_answers_absent_to_everything(root):
    gone = root.tree.directory("/sys/devices/gone")
    assert gone.text("vendor") is None
    assert gone.link("driver") is None
    assert gone.names() is None
    assert gone.head("config", 64) is None


def test_a_file_that_cannot_be_opened_is_unreadable_and_not_absent(root):
    root.link(f"{CARD}/vendor", "vendor")
    card = root.tree.directory(CARD)
    for read in (
        card.text,
        card.data,
        card.integer,
        card.flag,
        lambda name: card.hexadecimal(name, 4),
        lambda name: card.head(name, 64),
    ):
        with pytest.raises(Unreadable) as caught:
            read("vendor")
        assert caught.value.path == f"{CARD}/vendor"
        assert "ELOOP" in caught.value.reason
        assert f"{CARD}/vendor cannot be read" in str(caught.value)


def test_a_directory_in_place_of_a_file_is_unreadable(root):
    root.file(f"{CARD}/vendor/inside")
    with pytest.raises(Unreadable, match="EISDIR"):
        root.tree.directory(CARD).text("vendor")


def test_a_file_in_place_of_a_directory_is_unreadable(root):
    root.file("/sys/devices")
    with pytest.raises(Unreadable, match="ENOTDIR"):
        root.tree.directory(CARD)
    root.file("/proc/driver")
    with pytest.raises(Unreadable, match="ENOTDIR"):
        root.tree.directory("/proc").names("driver")


def test_a_pipe_in_place_of_a_file_does_not_block(root):
    root.file(f"{CARD}/vendor")
    os.mkfifo(root.at(f"{CARD}/device"))
    with pytest.raises(ReadError):
        root.tree.directory(CARD).hexadecimal("device", 4)


def test_a_pipe_that_somebody_holds_open_does_not_block(root):
    root.file(f"{CARD}/vendor")
    os.mkfifo(root.at(f"{CARD}/device"))
    held = os.open(root.at(f"{CARD}/device"), os.O_RDWR)
    try:
        with pytest.raises(Unreadable, match="EAGAIN"):
            root.tree.directory(CARD).text("device")
    finally:
        os.close(held)


def test_an_attribute_has_at_most_one_page(root):
    root.file(f"{CARD}/fits", "a" * 4096)
    root.file(f"{CARD}/too_long", "a" * 4097)
    card = root.tree.directory(CARD)
    assert card.text("fits") == "a" * 4096
    with pytest.raises(Malformed) as caught:
        card.text("too_long")
    assert caught.value.value == "a" * 80 + "..."
    assert "at most 4096 bytes" in str(caught.value)


def test_binary_nonsense_is_no_text(root):
    root.file(f"{CARD}/vendor", b"\xff\xfe\x00\x10")
    with pytest.raises(Malformed) as caught:
        root.tree.directory(CARD).text("vendor")
    assert "\\xff\\xfe" in caught.value.value
    assert root.tree.directory(CARD).data("vendor") == b"\xff\xfe\x00\x10"


@pytest.mark.parametrize(
    ("content", "digits", "value"),
    [
        ("0x10de\n", 4, "10de"),
        ("10DE", 4, "10de"),
        ("0xa1", 2, "a1"),
        ("0x1", 2, "01"),
        ("0x030200", 6, "030200"),
        ("0x0", 4, "0000"),
    ],
)
def test_hexadecimal_numbers_get_their_digits(root, content, digits, value):
    root.file(f"{CARD}/id", content)
    assert root.tree.directory(CARD).hexadecimal("id", digits) == value


@pytest.mark.parametrize("content", ["", "0x", "0x10dg", "0x10de5", "-1", "0x1_0", "10 de"])
def test_what_is_no_hexadecimal_number_is_malformed(root, content):
    root.file(f"{CARD}/id", content)
    with pytest.raises(Malformed) as caught:
        root.tree.directory(CARD).hexadecimal("id", 4)
    assert caught.value.value == content
    assert "hexadecimal number of 4 digits" in str(caught.value)


@pytest.mark.parametrize("content", ["", "-", "--1", "1.0", "0x1", "१", "1 2", "+1"])
def test_what_is_no_decimal_number_is_malformed(root, content):
    root.file(f"{CARD}/numa_node", content)
    with pytest.raises(Malformed, match="decimal number"):
        root.tree.directory(CARD).integer("numa_node")


def test_decimal_numbers_may_be_negative(root):
    root.file(f"{CARD}/numa_node", "-1\n")
    assert root.tree.directory(CARD).integer("numa_node") == -1


@pytest.mark.parametrize(("content", "value"), [("0\n", False), ("1\n", True)])
def test_a_flag_is_0_or_1(root, content, value):
    root.file(f"{CARD}/boot_vga", content)
    assert root.tree.directory(CARD).flag("boot_vga") is value


@pytest.mark.parametrize("content", ["", "2", "Y", "01"])
def test_any_other_flag_is_malformed(root, content):
    root.file(f"{CARD}/boot_vga", content)
    with pytest.raises(Malformed, match="0 or 1"):
        root.tree.directory(CARD).flag("boot_vga")


contents = (
    st.binary(max_size=60)
    | st.text(max_size=20).map(str.encode)
    | st.from_regex(rb"\s*[-+]?(0[xX])?[0-9a-fA-F_]{0,9}\s*", fullmatch=True)
    | st.sampled_from([b"a" * 5000, b"1" * 4096, b"f" * 4096])
)


@on_arbitrary_content
@given(content=contents, digits=st.sampled_from([2, 4, 6]))
def test_any_content_is_a_hexadecimal_number_or_a_read_error(root, content, digits):
    root.file(f"{CARD}/id", content)
    try:
        value = root.tree.directory(CARD).hexadecimal("id", digits)
    except ReadError as error:
        assert str(error).startswith(f"{CARD}/id")
    else:
        assert len(value) == digits
        assert set(value) <= set("0123456789abcdef")
        assert int(value, 16) == int(content, 16)


@on_arbitrary_content
@given(content=contents)
def test_any_content_is_a_decimal_number_or_a_read_error(root, content):
    root.file(f"{CARD}/n", content)
    try:
        value = root.tree.directory(CARD).integer("n")
    except ReadError:
        return
    assert str(value).lstrip("-") == content.decode().strip().lstrip("-").lstrip("0") or value == 0


@on_arbitrary_content
@given(content=contents | st.sampled_from([b"0\n", b"1", b"1\n\n", b" 0"]))
def test_any_content_is_a_flag_or_a_read_error(root, content):
    root.file(f"{CARD}/f", content)
    try:
        value = root.tree.directory(CARD).flag("f")
    except ReadError:
        return
    assert content.strip() == (b"1" if value else b"0")


@given(st.binary(max_size=300))
def test_what_is_shown_of_nonsense_is_short_and_on_one_line(data):
    text = shown(data)
    assert len(text) <= 80 * 4 + 3
    assert text.isascii()
    assert text.isprintable()


# Heads, links, listings


def test_the_head_of_a_binary_file_is_as_long_as_asked_or_shorter(root):
    root.file(f"{CARD}/config", bytes(range(256)))
    card = root.tree.directory(CARD)
    assert card.head("config", 64) == bytes(range(64))
    assert card.head("config", 4) == bytes(range(4))
    assert card.head("config", 4096) == bytes(range(256))


def test_a_link_is_read_and_not_followed(root):
    root.file(f"{CARD}/vendor")
    root.link(f"{CARD}/driver", "../../../bus/pci/drivers/vfio-pci")
    root.link(f"{CARD}/iommu_group", "/nowhere/kernel/iommu_groups/27/")
    card = root.tree.directory(CARD)
    assert card.link("driver") == "vfio-pci"
    assert card.link("iommu_group") == "27"


def test_a_file_in_place_of_a_link_is_malformed(root):
    root.file(f"{CARD}/driver")
    with pytest.raises(Malformed, match="symbolic link"):
        root.tree.directory(CARD).link("driver")


def test_whether_an_entry_is_there_is_told_whatever_it_is(root):
    root.file(f"{CARD}/reset")
    root.link(f"{CARD}/driver", "nowhere")
    root.at(f"{CARD}/vfio-dev").mkdir()
    os.mkfifo(root.at(f"{CARD}/pipe"))
    card = root.tree.directory(CARD)
    assert all(map(card.has, ("reset", "driver", "vfio-dev", "pipe")))
    assert not card.has("remove")
    assert not root.tree.directory("/sys/devices/gone").has("reset")


def test_listings(root):
    root.file(f"{CARD}/vendor")
    root.file(f"{CARD}/vfio-dev/vfio0/dev")
    card = root.tree.directory(CARD)
    assert sorted(card.names()) == ["vendor", "vfio-dev"]
    assert card.names("vfio-dev") == ["vfio0"]
    assert root.tree.names(f"{CARD}/vfio-dev") == ["vfio0"]


def test_a_listing_below_does_not_follow_a_link(root, outside):
    root.file(f"{CARD}/vendor")
    root.link(f"{CARD}/vfio-dev", outside)
    with pytest.raises(Unreadable) as caught:
        root.tree.directory(CARD).names("vfio-dev")
    assert caught.value.path == f"{CARD}/vfio-dev"


def test_a_directory_prints_as_the_hosts_path(root):
    directory = root.tree.directory(CARD)
    assert str(directory) == CARD
    assert directory.path_of("vendor") == f"{CARD}/vendor"


def test_all_who_ask_one_tree_see_the_same(root):
    root.file(f"{CARD}/power_state", "D0")
    tree = root.tree
    assert tree.directory(CARD).text("power_state") == "D0"
    root.file(f"{CARD}/power_state", "D3cold")
    assert tree.directory(CARD).text("power_state") == "D0"
    assert tree.again().directory(CARD).text("power_state") == "D3cold"


def test_files_fetched_at_one_go_read_as_if_one_by_one(root):
    root.file(f"{CARD}/vendor", "0x10de")
    root.link(f"{CARD}/device", "device")
    card = root.tree.directory(CARD, fetch=("vendor", "device", "absent"))
    root.file(f"{CARD}/vendor", "0x1002")
    assert card.text("vendor") == "0x10de"
    assert card.text("absent") is None
    with pytest.raises(Unreadable, match="ELOOP"):
        card.text("device")


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


# A bus at a time


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


# Traces


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
