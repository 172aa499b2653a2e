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

"""An address may come in any spelling and leaves in one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers.address import InvalidAddress, PciAddress, is_sysfs_name
from cyborg_ext_drivers.errors import ExtDriversError

T4 = PciAddress(0, 0x3B, 0, 0)


def _addresses(largest_domain=0xFFFFFFFF):
    return st.builds(
        PciAddress,
        st.integers(0, largest_domain),
        st.integers(0, 0xFF),
        st.integers(0, 0x1F),
        st.integers(0, 7),
    )


@pytest.mark.parametrize(
    "text",
    [
        "0000:3b:00.0",
        "3b:00.0",
        "00000000:3B:00.0",
        "0:3b:0.0",
        "pci_0000_3b_00_0",
        "pci-0000:3b:00.0",
        "pci@0000:3b:00.0",
        " 0000:3b:00.0\n",
        '{"bus": "3b", "device": "00", "domain": "0000", "function": "0"}',
        '{"domain": "0x0000", "bus": "0x3B", "device": "0x0", "function": "0x0"}',
        '{"bus": "3b", "device": "0", "domain": "0", "function": "0", "physical_network": "a"}',
    ],
)
def test_each_tool_spells_the_same_card_in_its_own_way(text):
    assert PciAddress.parse(text) == T4


@given(_addresses())
def test_what_is_printed_reads_back(address):
    assert PciAddress.parse(str(address)) == address
    assert PciAddress.parse(address.to_json()) == address
    assert PciAddress.from_json(address.to_json()) == address


@given(_addresses(), st.booleans())
def test_every_other_spelling_reads_back(address, upper):
    domain, bus, device, function = (
        address.domain,
        address.bus,
        address.device,
        address.function,
    )
    spellings = [
        f"{domain:08x}:{bus:02x}:{device:02x}.{function:x}",
        f"{domain:x}:{bus:x}:{device:x}.{function:x}",
        f"pci-{address}",
        f"pci@{address}",
        f"pci_{domain:04x}_{bus:02x}_{device:02x}_{function:x}",
        json.dumps(
            {
                "domain": hex(domain),
                "bus": hex(bus),
                "device": hex(device),
                "function": hex(function),
            }
        ),
    ]
    for spelling in spellings:
        if upper:
            head = spelling[:4] if spelling.startswith("pci") else ""
            spelling = spelling if spelling[0] == "{" else head + spelling[len(head) :].upper()
        assert PciAddress.parse(spelling) == address


@given(_addresses(0xFFFF))
def test_the_json_text_is_the_one_of_the_in_tree_drivers(address):
    # cyborg.accelerator.common.utils.pci_str_to_json: the parts of the text, keys sorted.
    start, function = str(address).split(".")
    domain, bus, device = start.split(":")
    parts = {"domain": domain, "bus": bus, "device": device, "function": function}
    assert address.to_json() == json.dumps(parts, sort_keys=True)


def test_the_json_text_is_the_one_that_cyborg_itself_writes():
    utils = pytest.importorskip("cyborg.accelerator.common.utils")
    for text in ("0000:3b:00.0", "000a:ff:1f.7", "ffff:00:10.3"):
        assert PciAddress.parse(text).to_json() == utils.pci_str_to_json(text)


@given(_addresses(), _addresses())
def test_addresses_sort_by_number(one, other):
    def numbers(address):
        return (address.domain, address.bus, address.device, address.function)

    assert (one < other) == (numbers(one) < numbers(other))


def test_a_vmd_domain_sorts_after_a_narrow_one():
    texts = ["10000:00:00.0", "f000:00:00.0", "0000:3b:00.0"]
    assert [str(a) for a in sorted(map(PciAddress.parse, texts))] == texts[::-1]


@pytest.mark.parametrize(
    ("text", "is_wide"),
    [("ffff:00:00.0", False), ("10000:00:00.0", True), ("ffffffff:00:00.0", True)],
)
def test_more_than_four_digits_of_domain_are_wide(text, is_wide):
    address = PciAddress.parse(text)
    assert address.is_wide is is_wide
    assert str(address) == text


@given(st.text() | st.from_regex(r"[0-9a-f:._{}\" ]{0,40}", fullmatch=True))
def test_any_text_is_an_address_or_invalid(text):
    try:
        address = PciAddress.parse(text)
    except InvalidAddress as error:
        assert error.text == text or text.strip().startswith("{")
        assert repr(error.text) in str(error)
    else:
        assert PciAddress.parse(str(address)) == address


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(
    _json_values
    | st.dictionaries(st.sampled_from(["domain", "bus", "device", "function"]), _json_values)
)
def test_any_json_is_an_address_or_invalid(value):
    try:
        address = PciAddress.from_json(json.dumps(value))
    except InvalidAddress:
        return
    assert set(value) >= {"domain", "bus", "device", "function"}
    assert address.bus == int(value["bus"], 16)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "another form"),
        ("0000:3b:00", "another form"),
        ("0000:3b:00.0:1", "another form"),
        ("0000:3b:00.g", "another form"),
        ("-1:3b:00.0", "another form"),
        ("0000:3b:00.0x0", "another form"),
        ("٣b:00.0", "another form"),
        ("0000:3b:20.0", "device is larger than 0x1f"),
        ("0000:3b:00.8", "function is larger than 0x7"),
        ("000000000:3b:00.0", "another form"),
        ("{", "no JSON"),
        ('{"bus": "3b"}', "no text for domain, device, function"),
        ('{"bus": 59, "device": "0", "domain": "0", "function": "0"}', "no text for bus"),
        ('{"bus": "1ff", "device": "0", "domain": "0", "function": "0"}', "bus is larger"),
        ('{"bus": "", "device": "0", "domain": "0", "function": "0"}', "no hexadecimal"),
        ('{"bus": "+1", "device": "0", "domain": "0", "function": "0"}', "no hexadecimal"),
        (None, "no text"),
        (b"0000:3b:00.0", "no text"),
    ],
)
def test_what_is_wrong_with_an_address_is_said(text, reason):
    with pytest.raises(InvalidAddress) as caught:
        PciAddress.parse(text)
    assert reason in str(caught.value)
    assert "0000:3b:00.0" in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, ExtDriversError)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"3b:00.0"'])
def test_json_that_is_no_object_is_invalid(text):
    with pytest.raises(InvalidAddress, match="no JSON object"):
        PciAddress.from_json(text)


def test_json_that_nests_without_end_is_invalid():
    with pytest.raises(InvalidAddress):
        PciAddress.parse('{"bus":' * 100_000)


@pytest.mark.parametrize(
    ("numbers", "part"),
    [
        ((1 << 32, 0, 0, 0), "domain"),
        ((0, 256, 0, 0), "bus"),
        ((0, 0, 32, 0), "device"),
        ((0, 0, 0, 8), "function"),
        ((0, -1, 0, 0), "bus"),
    ],
)
def test_no_address_is_made_of_impossible_numbers(numbers, part):
    with pytest.raises(InvalidAddress, match=f"its {part} is outside"):
        PciAddress(*numbers)


def test_an_address_can_be_a_key_and_cannot_change():
    assert {T4: "card"}[PciAddress.parse("3b:00.0")] == "card"
    with pytest.raises(AttributeError):
        T4.bus = 1


@pytest.mark.parametrize("name", ["0000:3b:00.0", "10000:01:1f.7", "f000:00:00.0"])
def test_how_sysfs_names_a_function(name):
    assert is_sysfs_name(name) and str(PciAddress.parse(name)) == name


@pytest.mark.parametrize(
    "name", ["pci0000:3b", "3b:00.0", "0000:3B:00.0", "0000:3b:20.0", "0000:3b:00.8", "notes", ""]
)
def test_what_else_lies_there(name):
    assert not is_sysfs_name(name)
