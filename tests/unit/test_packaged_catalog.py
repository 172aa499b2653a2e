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

"""The catalogue that the package brings is right, entry by entry."""

import importlib.resources
import re

import pytest

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.catalog import consistency, schema
from cyborg_ext_drivers.host.identity import PciId
from tests.cards import identity

FILES = sorted(
    (
        file
        for file in importlib.resources.files(catalog).iterdir()
        if file.name.endswith((".yaml", ".yml"))
    ),
    key=lambda file: file.name,
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_file_keeps_to_the_schema(file):
    document = schema.parse_checked(file.name, file.read_text())
    assert document["sources"]
    assert document.get("vendors") or document.get("devices") or document.get("never")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_read_line_by_line_is_what_yaml_reads(file):
    text = file.read_text()
    lines = catalog.PackagedLayer(file.name, text)
    whole = catalog.Layer(file.name, schema.parse(text))
    assert lines.entries() == whole.entries()
    assert (lines.vendors, lines.companions, lines.never) == (
        whole.vendors,
        whole.companions,
        whole.never,
    )
    for entry in whole.entries():
        assert lines.entries(entry["id"]) == whole.entries(entry["id"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_source_of_each_entry_is_one_that_the_file_names(file):
    text = file.read_text()
    document = schema.parse(text)
    named = re.findall(r'^  - \{"id": .*"kind": .*\}  # (.+)$', text, re.MULTILINE)
    assert len(named) == len(document.get("devices", ()))
    for names in named:
        assert set(names.split(", ")) <= set(document["sources"]), names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_entries_are_sorted_and_each_stands_once(file):
    keys = [
        (entry["id"], entry.get("subsystem", ""))
        for entry in schema.parse(file.read_text()).get("devices", ())
    ]
    assert keys == sorted(keys)
    assert len(keys) == len(set(keys))


def test_the_files_agree():
    assert consistency.faults({file.name: file.read_text() for file in FILES}) == []


@pytest.mark.parametrize("vendor", ["10de", "1002", "8086", "10ee"])
def test_a_familys_cards_stand_in_one_file(vendor):
    files = {
        (entry["kind"], layer.path)
        for layer in catalog.packaged()
        for entry in layer.entries()
        if entry["id"].startswith(vendor)
    }
    assert files
    assert len({kind for kind, _ in files}) == len(files)


# What is part of a processor


@pytest.mark.parametrize(
    ("pci_id", "pci_class", "address", "code"),
    [
        # No list of Intel's integrated graphics is needed: they are at this address only.
        ("8086:ffff", "030000", "0000:00:02.0", "integrated-gpu"),
        ("8086:ffff", "038000", "0000:00:02.0", "integrated-gpu"),
        ("8086:ffff", "030000", "0000:03:00.0", None),
        # What has been given to a virtual machine may stand there, and is still a card.
        ("8086:56c0", "038000", "0000:00:02.0", None),
        ("8086:225d", "0b4000", "0000:03:00.0", None),
        ("8086:4940", "0b4000", "0000:6b:00.0", "not-an-accelerator"),
        ("10ee:903f", "070001", "0000:b1:00.0", "not-an-accelerator"),
    ],
)
def test_what_is_never_a_card(pci_id, pci_class, address, code):
    function = identity(pci_id, pci_class=pci_class)
    rule = catalog.load().exclusion(function, PciAddress.parse(address))
    assert (rule.code if rule else None) == code


@pytest.mark.parametrize(
    ("pci_id", "pci_class", "above", "code"),
    [
        ("1002:ffff", "030000", ["1022:14dd"], "integrated-gpu"),
        ("1002:ffff", "038000", [], "integrated-gpu"),
        ("1002:ffff", "030000", ["1022:1483", "1002:1478", "1002:1479"], None),
        ("1002:ffff", "120000", ["1022:14a5"], None),
        ("1002:67c4", "030000", ["8086:2030"], None),
    ],
)
def test_amds_graphics_without_a_switch_of_their_own_are_the_processors(
    pci_id, pci_class, above, code
):
    rule = catalog.load().exclusion(
        identity(pci_id, pci_class=pci_class),
        PciAddress(0, 5, 0, 0),
        lambda: [PciId(*each.split(":")) for each in above],
    )
    assert (rule.code if rule else None) == code


@pytest.mark.parametrize(
    ("pci_id", "pci_class"),
    [
        ("1002:ab30", "040300"),
        ("1002:7446", "0c0330"),
        ("1002:7444", "0c8000"),
        ("1002:1478", "060400"),
        ("1002:1479", "060400"),
        ("1022:1649", "108000"),
        ("8086:4f90", "040300"),
        ("8086:0d58", "020000"),
        ("15b3:c2d3", "080100"),
    ],
)
def test_companions_of_cards_and_processors(pci_id, pci_class):
    assert catalog.load().companion(identity(pci_id, pci_class=pci_class))


# Ids that stand for several products


@pytest.mark.parametrize(
    ("pci_id", "subsystem", "revision", "model"),
    [
        ("1002:744c", None, "c8", "RADEON-RX-7900-XTX"),
        ("1002:744c", None, "00", None),
        ("1002:740c", None, "01", None),
        # MI50 and MI60 share the revision too.
        ("1002:66a1", None, "02", None),
        ("1002:66a1", None, "06", "RADEON-PRO-VII"),
        ("1002:6860", "1002:6c75", "00", "RADEON-PRO-V320"),
        ("1002:6860", "1002:0c00", "00", "MI25"),
        ("8086:bcce", "8086:1771", None, "N6001"),
        ("8086:bcce", "8086:0001", None, None),
        ("8086:56b1", None, None, None),
        ("1e52:401e", "1e52:0014", None, "WORMHOLE-N300"),
        ("10de:20b0", "10de:1450", None, None),
        ("10de:20b0", "10de:144e", None, "A100-SXM4-40GB"),
    ],
)
def test_a_model_is_decided_or_left_out(pci_id, subsystem, revision, model):
    product = catalog.load().product(identity(pci_id, subsystem or "ffff:0001"), revision)
    assert product.model == model
