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

import collections
import importlib.resources
import itertools
import re

import pytest

from cyborg_ext_drivers import catalog, traits
from cyborg_ext_drivers.catalog import schema

FILES = sorted(
    (
        file
        for file in importlib.resources.files(catalog).iterdir()
        if file.name.endswith((".yaml", ".yml"))
    ),
    key=lambda file: file.name,
)
ENTRIES = list(catalog.load().entries())


def _spelling(name):
    """Return a name without what a maker says one time and leaves out the next."""
    return traits.normalise(name.partition("(")[0])


def _names_by_model():
    names = collections.defaultdict(set)
    for entry in ENTRIES:
        vendor = entry["id"].partition(":")[0]
        decided = [entry, *entry.get("revisions", {}).values()]
        for each in decided:
            if "model" in each:
                names[vendor, each["model"]].add(_spelling(each.get("name", entry["name"])))
    return names


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


def test_no_two_files_speak_of_the_same_card():
    keys = [(entry["id"], entry.get("subsystem")) for entry in ENTRIES]
    assert [key for key, count in collections.Counter(keys).items() if count > 1] == []


def test_no_file_gives_a_vendor_another_name():
    names = collections.defaultdict(set)
    for layer in catalog.packaged():
        for vendor, name in layer.vendors.items():
            names[vendor].add(name)
    assert {vendor: found for vendor, found in names.items() if len(found) > 1} == {}


def test_every_vendor_of_a_card_has_a_name():
    loaded = catalog.load()
    vendors = {entry["id"].partition(":")[0] for entry in ENTRIES}
    assert {vendor for vendor in vendors if loaded.vendor(vendor) is None} == set()


def test_a_model_stands_for_one_product():
    shared = {model: names for model, names in _names_by_model().items() if len(names) > 1}
    assert shared == {}


def test_two_models_of_a_vendor_are_two_traits():
    by_trait = collections.defaultdict(set)
    for vendor, model in _names_by_model():
        by_trait[traits.custom(vendor, model)].add(model)
    assert {trait: models for trait, models in by_trait.items() if len(models) > 1} == {}


def test_no_model_reads_like_a_product_id():
    # CUSTOM_NVIDIA_1EB8 says the product id; a model spelt like an id of another card lies.
    ids = {tuple(entry["id"].upper().split(":")) for entry in ENTRIES}
    models = {(vendor.upper(), traits.normalise(model)) for vendor, model in _names_by_model()}
    assert models & ids == set()


def test_a_virtual_function_names_its_physical_function():
    devices = {entry["id"] for entry in ENTRIES if entry.get("role", "pf") == "pf"}
    for entry in ENTRIES:
        vendor = entry["id"].partition(":")[0]
        if entry.get("role") == "vf":
            assert "pf_device" in entry, entry
            assert f"{vendor}:{entry['pf_device']}" in devices, entry
        else:
            assert "pf_device" not in entry, entry


def test_ids_that_an_entry_refers_to_are_known():
    ids = {entry["id"] for entry in ENTRIES}
    for entry, key in itertools.product(ENTRIES, ("vf_device", "pair_device")):
        if key in entry:
            assert f"{entry['id'].partition(':')[0]}:{entry[key]}" in ids, entry


def test_no_card_is_forbidden_by_a_rule_that_its_entry_cannot_beat():
    exact = {(rule.id, rule.subsystem) for layer in catalog.packaged() for rule in layer.never}
    assert exact & {(entry["id"], entry.get("subsystem")) for entry in ENTRIES} == set()
