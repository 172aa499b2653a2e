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

"""What XRT's drivers show of an Alveo card, and everything odd about it."""

import errno
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cyborg_ext_drivers.errors import Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host.fpga_id import normalised
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.xrt import XrtView
from tests.unit.tree import BUS

ADDRESS = "0000:65:00.0"
CARD = f"{BUS}/{ADDRESS}"
BASE = "862c7020a250293e32036f19956669e5"
LOADED = "15fb8da17f5523ba8a3b1e5a0e3a2f6d"
VBNV = "xilinx_u250_gen3x16_xdma_shell_4_1"
on_arbitrary_content = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def view(root):
    return XrtView(root.tree, CARD)


@pytest.fixture
def managed(root):
    """The managing function, bound to xclmgmt and ready."""
    root.file(f"{CARD}/mgmt_pf", "")
    root.file(f"{CARD}/ready", "1\n")
    root.file(f"{CARD}/mfg", "0\n")
    root.file(f"{CARD}/interface_uuids", f"{BASE}\n{LOADED}\n")
    root.file(f"{CARD}/logic_uuids", f"{LOADED}\n")
    root.file(f"{CARD}/rom.m.25856/VBNV", f"{VBNV}\n")
    return root


def test_the_managing_function_tells_all(managed):
    card = view(managed)
    assert card.is_managed and card.is_shown and not card.is_user
    assert (card.is_ready, card.is_golden) == (True, False)
    assert card.shell == VBNV
    assert card.interface_uuids == (BASE, LOADED)
    assert card.logic_uuids == (LOADED,)


def test_the_user_function_prints_ready_in_hexadecimal(root):
    root.file(f"{CARD}/user_pf", "")
    root.file(f"{CARD}/ready", "0x1\n")
    root.file(f"{CARD}/rom.u.25857/VBNV", VBNV)
    card = view(root)
    assert card.is_user and card.is_shown and not card.is_managed
    assert (card.is_ready, card.is_golden) == (True, None)
    assert card.shell == VBNV


def test_a_function_has_a_view_of_its_own(managed):
    assert PciFunction(managed.tree, ADDRESS, None).xrt.shell == VBNV


def test_without_a_driver_nothing_is_shown_and_nothing_is_wrong(root):
    root.file(f"{CARD}/vendor", "0x10ee\n")
    card = view(root)
    assert not card.is_shown
    assert (card.is_ready, card.is_golden, card.shell) == (None, None, None)
    assert (card.interface_uuids, card.logic_uuids) == (None, None)


@pytest.mark.parametrize(
    ("text", "said"), [("0\n", False), ("1\n", True), ("0x0\n", False), ("0x1\n", True)]
)
def test_flags_are_decimal_or_hexadecimal(managed, text, said):
    managed.file(f"{CARD}/ready", text)
    managed.file(f"{CARD}/mfg", text)
    card = view(managed)
    assert card.is_ready is card.is_golden is said


@pytest.mark.parametrize("text", ["", "2", "yes", "0x", "-1", b"\xff"])
def test_other_flags_are_malformed(managed, text):
    managed.file(f"{CARD}/ready", text)
    with pytest.raises(Malformed, match="ready"):
        _ = view(managed).is_ready


def test_the_platform_may_stand_in_any_of_several_places(managed):
    managed.file(f"{CARD}/rom.m.256/name", "x\n")
    managed.file(f"{CARD}/rom.m.1024/VBNV", "")
    assert view(managed).shell == VBNV
    shutil.rmtree(managed.at(f"{CARD}/rom.m.25856"))
    assert view(managed).shell is None


@pytest.mark.parametrize("text", ["two words", "x" * 256, b"\x00", b"\xff"])
def test_a_platform_without_a_name_is_malformed(managed, text):
    managed.file(f"{CARD}/rom.m.25856/VBNV", text)
    with pytest.raises(Malformed, match="VBNV"):
        _ = view(managed).shell


def test_ids_keep_their_order_in_every_spelling(managed):
    dashed = f"{BASE[:8]}-{BASE[8:12]}-{BASE[12:16]}-{BASE[16:20]}-{BASE[20:]}"
    managed.file(f"{CARD}/logic_uuids", f"{LOADED.upper()}\n\n{dashed} \n")
    assert view(managed).logic_uuids == (LOADED, BASE)


def test_no_lines_are_no_ids(managed):
    managed.file(f"{CARD}/interface_uuids", "\n")
    assert view(managed).interface_uuids == ()


@pytest.mark.parametrize("line", ["0" * 32, "F" * 32, "x", BASE[1:]])
def test_a_line_that_is_no_id_is_malformed(managed, line):
    managed.file(f"{CARD}/interface_uuids", f"{BASE}\n{line}\n")
    with pytest.raises(Malformed, match="an id of 32 hexadecimal digits") as caught:
        _ = view(managed).interface_uuids
    assert caught.value.value == line


def answering(directory, monkeypatch, number):
    """Let the kernel refuse a read as a show routine can, and no file on a disk."""

    def read(name):
        raise Unreadable(directory.path_of(name), errno.errorcode[number], number)

    monkeypatch.setattr(type(directory), "text", lambda _self, name: read(name))


def test_the_kernels_word_for_no_metadata_is_no_error(managed, monkeypatch):
    card = view(managed)
    answering(managed.tree.directory(CARD), monkeypatch, errno.EINVAL)
    assert card.interface_uuids == card.logic_uuids == ()
    with pytest.raises(Unreadable):
        _ = card.is_ready


def test_every_other_refusal_is_one(managed, monkeypatch):
    card = view(managed)
    answering(managed.tree.directory(CARD), monkeypatch, errno.EIO)
    with pytest.raises(Unreadable):
        _ = card.interface_uuids


def test_a_pipe_in_the_place_of_the_file_is_not_taken_for_that_word(managed):
    managed.at(f"{CARD}/logic_uuids").unlink()
    os.mkfifo(managed.at(f"{CARD}/logic_uuids"))
    with pytest.raises(Unreadable, match="pipe"):
        _ = view(managed).logic_uuids


@on_arbitrary_content
@given(content=st.one_of(st.binary(max_size=80), st.text("0123456789abcdef\n-").map(str.encode)))
def test_any_content_is_ids_or_an_error(managed, content):
    managed.file(f"{CARD}/logic_uuids", content)
    try:
        found = view(managed).logic_uuids
    except ReadError:
        return
    assert all(normalised(id) == id for id in found)
