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

"""A read answers with a value, with absent or with an error."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cyborg_ext_drivers.errors import Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host.directory import shown
from tests.unit.tree import CARD

on_arbitrary_content = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


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


@pytest.mark.parametrize(
    "content", ["\x1c0", "\u2003" + "0x10de", "\u0663", "0x1_0", "+1", "-1", ""]
)
def test_what_python_alone_takes_for_a_number_is_none(root, content):
    root.file(f"{CARD}/id", content.encode())
    with pytest.raises(Malformed):
        root.tree.directory(CARD).hexadecimal("id", 4)
