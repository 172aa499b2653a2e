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

"""What the driver of an FPGA shows: both layouts, ids of all spellings, and everything odd."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cyborg_ext_drivers.errors import Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host.fpga import FpgaView
from cyborg_ext_drivers.host.fpga_id import normalised
from cyborg_ext_drivers.host.pci import PciFunction
from tests.unit.tree import BUS

ADDRESS = "0000:3b:00.0"
CARD = f"{BUS}/{ADDRESS}"
AFU = "9aeffe5f84570612c000c9660d824272"
INTERFACE = "f64e598bea11517fa28e7bc65d885104"
DFL = f"{CARD}/fpga_region/region0"
OLD = f"{CARD}/fpga/intel-fpga-dev.0"
COMPAT_ID = "dfl-fme.0/dfl-fme-region.1/fpga_region/region1/compat_id"
on_arbitrary_content = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def view(root):
    return FpgaView(root.tree, CARD)


@pytest.fixture
def dfl(root):
    """A card of one port, as dfl-pci shows it."""
    root.file(f"{DFL}/dfl-fme.0/bitstream_id", "0x202000200000237\n")
    root.file(f"{DFL}/dfl-fme.0/ports_num", "1\n")
    root.file(f"{DFL}/{COMPAT_ID}", f"{INTERFACE}\n")
    root.file(f"{DFL}/dfl-port.0/id", "0\n")
    root.file(f"{DFL}/dfl-port.0/afu_id", f"{AFU}\n")
    return root


@pytest.fixture
def old(root):
    """The same card, as the driver of OPAE 1.x shows it."""
    root.file(f"{OLD}/intel-fpga-fme.0/bitstream_id", "0x202000200000237\n")
    root.file(f"{OLD}/intel-fpga-fme.0/ports_num", "1\n")
    root.file(f"{OLD}/intel-fpga-fme.0/pr/interface_id", f"{INTERFACE}\n")
    root.file(f"{OLD}/intel-fpga-port.0/id", "0\n")
    root.file(f"{OLD}/intel-fpga-port.0/afu_id", f"{AFU}\n")
    return root


@pytest.mark.parametrize("layout", ["dfl", "old"])
def test_both_layouts_tell_the_same(layout, request):
    card = view(request.getfixturevalue(layout))
    assert card.is_shown
    (engine,) = card.engines
    assert [each.id for each in engine.interface_ids] == [INTERFACE]
    assert (engine.bitstream_id, engine.ports_num) == ("0x202000200000237", 1)
    (port,) = card.ports
    assert (port.number, port.afu_id) == (0, AFU)


def test_a_function_has_a_view_of_its_own(dfl):
    function = PciFunction(dfl.tree, ADDRESS, None)
    assert function.fpga.is_shown
    assert [str(port) for port in function.fpga.ports] == [f"{DFL}/dfl-port.0"]


def test_each_value_has_a_path(dfl):
    card = view(dfl)
    assert card.engines[0].interface_ids[0].path == f"{DFL}/{COMPAT_ID}"
    assert card.ports[0].path_of("afu_id") == f"{DFL}/dfl-port.0/afu_id"


def test_without_a_driver_nothing_is_shown_and_nothing_is_wrong(root):
    root.file(f"{CARD}/vendor", "0x8086\n")
    card = view(root)
    assert not card.is_shown
    assert card.engines == card.ports == ()


def test_a_virtual_function_has_a_port_and_no_engine(root):
    root.file(f"{DFL}/dfl-port.3/afu_id", AFU)
    card = view(root)
    assert card.is_shown
    assert card.engines == ()
    assert card.ports[0].number is None


def test_a_card_whose_ports_are_released_has_an_engine_and_no_port(dfl):
    shutil.rmtree(dfl.at(f"{DFL}/dfl-port.0"))
    card = view(dfl)
    assert card.ports == ()
    assert card.engines[0].ports_num == 1


def test_what_the_driver_does_not_tell_is_absent(root):
    root.file(f"{DFL}/dfl-fme.0/uevent", "DRIVER=dfl-fme\n")
    root.file(f"{DFL}/dfl-port.0/uevent", "DRIVER=dfl-port\n")
    card = view(root)
    engine, port = card.engines[0], card.ports[0]
    assert (engine.interface_ids, engine.bitstream_id, engine.ports_num) == ((), None, None)
    assert (port.number, port.afu_id) == (None, None)


def test_numbers_are_compared_as_numbers(root):
    for number in (10, 2, 1):
        root.file(f"{DFL}/dfl-port.{number}/id", f"{number}\n")
    assert [port.number for port in view(root).ports] == [1, 2, 10]


def test_of_several_regions_each_id_is_told_once_in_their_order(root):
    for number, digit in ((10, "c"), (2, "b"), (1, "c")):
        region = f"dfl-fme.0/dfl-fme-region.{number}/fpga_region/region{number}"
        root.file(f"{DFL}/{region}/compat_id", digit * 31 + "0")
    ids = [each.id[0] for each in view(root).engines[0].interface_ids]
    assert ids == ["c", "b"]


def test_a_region_without_an_id_costs_nothing(dfl):
    dfl.file(f"{DFL}/dfl-fme.0/dfl-fme-region.0/fpga_region/region5/name", "x\n")
    dfl.file(f"{DFL}/dfl-fme.0/dfl-fme-region.7/uevent", "\n")
    assert [each.id for each in view(dfl).engines[0].interface_ids] == [INTERFACE]


def test_names_and_drivers_of_the_two_layouts_may_be_mixed(dfl):
    dfl.file(f"{DFL}/dfl-fme.0/uevent", "DRIVER=intel-fpga-fme\n")
    dfl.file(f"{DFL}/intel-fpga-port.4/afu_id", AFU)
    assert [port.path.rpartition("/")[2] for port in view(dfl).ports] == [
        "dfl-port.0",
        "intel-fpga-port.4",
    ]


def test_what_is_only_called_similarly_is_passed_over(root):
    root.file(f"{CARD}/fpga_region/regionX/dfl-port.0/afu_id", AFU)
    root.file(f"{DFL}/dfl-port.x/afu_id", AFU)
    root.file(f"{DFL}/xdfl-port.1/afu_id", AFU)
    assert view(root).ports == ()


def test_links_in_the_place_of_directories_are_followed_below_the_root(dfl):
    elsewhere = "/sys/devices/platform/dfl-port.9"
    dfl.file(f"{elsewhere}/afu_id", AFU)
    dfl.link(f"{DFL}/dfl-port.9", elsewhere)
    assert [port.afu_id for port in view(dfl).ports] == [AFU, AFU]


def test_links_out_of_the_root_are_not_followed(root, outside):
    (outside / "dfl-port.0").mkdir()
    (outside / "dfl-port.0" / "afu_id").write_text(AFU)
    root.file(f"{CARD}/vendor", "0x8086\n")
    root.link(f"{CARD}/fpga_region/region0", "../" * 8 + "../outside")
    with pytest.raises(Unreadable):
        _ = view(root).ports


@pytest.mark.parametrize(
    "text",
    [
        AFU,
        AFU.upper(),
        f"0x{AFU}\n",
        f"  {AFU}\t\n",
        "9aeffe5f-8457-0612-c000-c9660d824272",
        "9AEFFE5F-8457-0612-C000-C9660D824272\n",
    ],
)
def test_every_spelling_of_an_id_is_the_same_id(dfl, text):
    dfl.file(f"{DFL}/dfl-port.0/afu_id", text)
    assert view(dfl).ports[0].afu_id == AFU


@pytest.mark.parametrize(
    "text",
    [
        "0" * 32,
        "f" * 32,
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "",
        AFU[:-1],
        f"{AFU}0",
        AFU.replace("9", "g"),
        f"{AFU}\n{AFU}",
        "9aeffe5f8457-0612-c000-c9660d824272",
        b"\xff\xfe",
        b"\x00" * 32,
        "\u0669" * 32,
    ],
)
@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("dfl-port.0/afu_id", lambda card: card.ports[0].afu_id),
        (COMPAT_ID, lambda card: card.engines[0].interface_ids),
    ],
)
def test_what_is_no_id_is_malformed(dfl, file, read, text):
    dfl.file(f"{DFL}/{file}", text)
    with pytest.raises(Malformed) as caught:
        read(view(dfl))
    assert caught.value.path == f"{DFL}/{file}"
    assert caught.value.expected in (
        "text",
        "an id of 32 hexadecimal digits, neither all 0 nor all f",
    )


def test_what_cannot_be_read_is_neither_absent_nor_malformed(dfl):
    dfl.at(f"{DFL}/dfl-port.0/afu_id").unlink()
    dfl.link(f"{DFL}/dfl-port.0/afu_id", "afu_id")
    card = view(dfl)
    with pytest.raises(Unreadable, match="afu_id cannot be read: ELOOP"):
        _ = card.ports[0].afu_id
    assert [each.id for each in card.engines[0].interface_ids] == [INTERFACE]


@pytest.mark.parametrize("text", ["x", "0x1ffffffffffffffff", ""])
def test_numbers_that_are_none_are_malformed(dfl, text):
    dfl.file(f"{DFL}/dfl-fme.0/bitstream_id", text)
    dfl.file(f"{DFL}/dfl-fme.0/ports_num", text)
    (engine,) = view(dfl).engines
    with pytest.raises(Malformed):
        _ = engine.bitstream_id
    with pytest.raises(Malformed):
        _ = engine.ports_num


def test_a_file_in_the_place_of_a_directory_is_unreadable(root):
    root.file(DFL, "x\n")
    with pytest.raises(Unreadable):
        _ = view(root).ports


@given(st.one_of(st.text(), st.text("0123456789abcdefABCDEFx- \n", min_size=30, max_size=40)))
def test_a_text_is_an_id_of_32_digits_or_none(text):
    found = normalised(text)
    assert found is None or (
        len(found) == 32
        and set(found) <= set("0123456789abcdef")
        and len(set(found) - {"0"}) > 0
        and len(set(found) - {"f"}) > 0
    )


@given(st.uuids())
def test_every_uuid_is_an_id(uuid):
    wanted = None if uuid.int in (0, (1 << 128) - 1) else uuid.hex
    assert normalised(str(uuid)) == normalised(uuid.hex.upper()) == wanted


@on_arbitrary_content
@given(content=st.one_of(st.binary(max_size=80), st.sampled_from([b"0" * 32, b"9" * 5000])))
def test_any_content_is_an_id_or_an_error(dfl, content):
    dfl.file(f"{DFL}/dfl-port.0/afu_id", content)
    try:
        found = view(dfl).ports[0].afu_id
    except ReadError:
        return
    assert normalised(found) == found
