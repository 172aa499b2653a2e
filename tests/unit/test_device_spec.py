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

"""Whose a function is by Nova's [pci] device_spec, by Nova's own rules.

Source: nova/pci/devspec.py, nova/pci/whitelist.py and Nova's guide to PCI passthrough.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.checks.device_spec import parse
from cyborg_ext_drivers.host.identity import PciId

T4 = PciId("10de", "1eb8")
CARD = PciAddress.parse("0000:3b:00.0")


def takes(spec, address=CARD, pci_id=T4, parent=None):
    """Return whether one value of the option, given as an object or a text, takes a function."""
    text = spec if isinstance(spec, str) else json.dumps(spec)
    if isinstance(address, str):
        address = PciAddress.parse(address)
    return any(each.matches(address, pci_id, parent) for each in parse(text))


# What the option may look like


def write_nova(root, *lines):
    (root / "etc/nova").mkdir(parents=True)
    (root / "etc/nova/nova.conf").write_text("\n".join(["[pci]", *lines, ""]))


def test_the_option_may_be_repeated_and_each_value_be_a_list(tmp_path):
    write_nova(
        tmp_path,
        'device_spec = {"address": "0000:3b:00.0"}',
        'device_spec = [{"product_id": "2235", "vendor_id": "10de"}, {"address": "0000:d8:*"}]',
        "passthrough_whitelist = []",
    )
    texts = conf.nova_device_specs(str(tmp_path))
    specs = [spec for text in texts for spec in parse(text)]
    assert len(specs) == 3
    for address, pci_id, wanted in (
        ("0000:3b:00.0", T4, True),
        ("0000:3b:00.1", T4, False),
        ("0000:3b:00.1", PciId("10de", "2235"), True),
        ("0000:d8:1f.7", T4, True),
    ):
        found = any(spec.matches(PciAddress.parse(address), pci_id) for spec in specs)
        assert found is wanted, address


def test_a_regular_expression_survives_the_configuration_file(tmp_path):
    write_nova(tmp_path, 'device_spec = {"address": {"bus": "^3[b-f]$", "function": "[0-3]"}}')
    (text,) = conf.nova_device_specs(str(tmp_path))
    assert takes(text) and not takes(text, "0000:3b:00.4") and not takes(text, "0000:a3:00.0")


def test_each_spec_remembers_the_value_that_it_stands_in():
    text = '[{"vendor_id": "10de"}, {"vendor_id": "1002"}]'
    assert [spec.text for spec in parse(text)] == [text, text]


@pytest.mark.parametrize("text", ["{}", "[{}]", '{"address": ""}', '{"address": null}'])
def test_what_names_nothing_takes_everything(text):
    assert takes(text)


def test_an_empty_list_takes_nothing():
    assert parse("[]") == ()


def test_tags_of_nova_do_not_matter():
    tags = {"physical_network": "net1", "trusted": "true", "managed": "no", "traits": "A,B"}
    assert takes({"address": "0000:3b:00.0", **tags})


# Ids


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        ({"vendor_id": "10de"}, True),
        ({"vendor_id": "10DE", "product_id": "1EB8"}, True),
        ({"vendor_id": "0x10de", "product_id": " 1eb8 "}, True),
        ({"vendor_id": "*", "product_id": "1eb8"}, True),
        ({"vendor_id": "10de", "product_id": " * "}, True),
        ({"vendor_id": "10de", "product_id": "*", "address": "*:*:*.*"}, True),
        ({"vendor_id": "1002"}, False),
        ({"vendor_id": "10de", "product_id": "1eb9"}, False),
        ({"vendor_id": "de"}, False),
        ({"vendor_id": "10de", "address": "0000:3c:00.0"}, False),
    ],
)
def test_ids_are_numbers_or_anything(ids, wanted):
    assert takes(ids) is wanted


# Addresses as a text


@pytest.mark.parametrize(
    ("address", "taken", "left"),
    [
        ("0000:3b:00.0", "0000:3b:00.0", "0000:3b:00.1"),
        ("0:3b:0.0", "0000:3b:00.0", "0000:3b:01.0"),
        ("3b:00.0", "0007:3b:00.0", "0000:3c:00.0"),
        ("*:3b:00.*", "0007:3b:00.7", "0000:3b:01.0"),
        ("*:*:*.0", "abcd:ef:1f.0", "0000:3b:00.1"),
        (":00.", "0001:ff:00.7", "0000:3b:01.0"),
        ("0a:", "0001:0a:1f.7", "0000:0b:00.0"),
        ("0001::", "0001:3b:00.0", "0000:3b:00.0"),
        (".0", "0001:3b:1f.0", "0000:3b:00.1"),
        ("00", "0000:3b:00.5", "0000:3b:01.0"),
        ("1f", "0000:3b:1f.5", "0000:1f:00.0"),
        ("0000:3b:00", "0000:3b:00.5", "0000:3b:01.0"),
        ("0000:3b:*.", "0000:3b:1f.5", "0000:3c:00.0"),
        (" 0000 : 3b : 00 . 0 ", "0000:3b:00.0", "0000:3b:00.1"),
        ("FFFF:FF:1F.7", "ffff:ff:1f.7", "ffff:ff:1f.6"),
    ],
)
def test_parts_of_an_address_may_be_anything_or_left_out(address, taken, left):
    assert takes({"address": address}, taken)
    assert not takes({"address": address}, left)


# Addresses as regular expressions


@pytest.mark.parametrize(
    ("address", "taken", "left"),
    [
        ({"bus": "3"}, "0000:3b:00.0", "0000:a3:00.0"),
        ({"domain": "00"}, "0007:3b:00.0", "0100:3b:00.0"),
        ({"domain": ".*", "bus": "3b|d8", "slot": "00", "function": "[0-3]"}, CARD, "0000:3b:00.4"),
        ({"function": "[0-3]"}, "abcd:ef:1f.3", "abcd:ef:1f.4"),
        ({"bus": ".*b$"}, "0000:3b:00.0", "0000:b3:00.0"),
    ],
)
def test_regular_expressions_match_from_the_start_only(address, taken, left):
    assert takes({"address": address}, taken)
    assert not takes({"address": address}, left)


def test_an_object_without_a_part_takes_everything():
    assert takes({"address": {}}) and takes({"address": {"func": "7"}})


# Virtual functions


VIRTUAL = PciAddress.parse("0000:3b:00.4")


@pytest.mark.parametrize(
    "address",
    [
        "0000:3b:00.0",
        "0:3b:0.0",
        {"domain": "0000", "bus": "3b", "slot": "00", "function": "0"},
    ],
)
def test_the_address_of_a_physical_function_takes_its_virtual_ones(address):
    assert takes({"address": address}, VIRTUAL, parent=CARD)
    assert not takes({"address": address}, VIRTUAL)
    other = PciAddress.parse("0000:d8:00.0")
    assert not takes({"address": address}, VIRTUAL, parent=other)


@pytest.mark.parametrize(
    "address",
    [
        "3b:00.0",
        "*:3b:00.0",
        "0000:3b:*.0",
        {"bus": "3b", "slot": "00", "function": "0"},
        {"domain": "0000", "bus": "3b", "slot": "00", "function": "[0]"},
        {"domain": "0", "bus": "3", "slot": "0", "function": "0"},
    ],
)
def test_a_pattern_is_no_address_of_a_physical_function(address):
    assert takes({"address": address})
    assert not takes({"address": address}, VIRTUAL, parent=CARD)


def test_virtual_functions_must_have_the_ids_as_well():
    spec = {"address": "0000:3b:00.0", "product_id": "1eb8"}
    assert takes(spec, VIRTUAL, T4, parent=CARD)
    assert not takes(spec, VIRTUAL, PciId("10de", "1eb9"), parent=CARD)


# What never matches


@pytest.mark.parametrize("spec", [{}, {"address": "*:*:*.*"}, {"address": {"domain": ".*"}}])
def test_a_domain_of_more_than_four_digits_is_never_taken(spec):
    assert not takes(spec, "10000:3b:00.0")
    assert takes(spec, "ffff:3b:00.0")


def test_the_name_of_a_network_interface_takes_none_of_our_devices():
    assert parse('{"devname": "ens1f0", "physical_network": "net1"}') == ()
    assert takes('[{"devname": "ens1f0"}, {"vendor_id": "10de"}]')


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7))
def test_every_address_takes_itself(domain, bus, device, function):
    address = PciAddress(domain, bus, device, function)
    assert takes({"address": str(address)}, address)
    assert takes({"address": f"{domain:x}:{bus:x}:{device:x}.{function}"}, address)
