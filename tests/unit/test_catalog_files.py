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

"""A wrong catalogue file is named, with every fault, and costs nothing but itself."""

import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.catalog import schema
from cyborg_ext_drivers.errors import CatalogError
from tests.cards import identity

ADDRESS = PciAddress(0, 0x3B, 0, 0)
T4 = '{id: "10de:1eb8", kind: GPU, model: T4, name: Tesla T4}'
OWN = '{id: "10de:fff0", kind: GPU, model: OWN, name: My own card}'


def only_fault(loaded):
    (fault,) = loaded.faults
    return str(fault)


# What is wrong with a file


WRONG = {
    "duplicate key": (
        'devices:\n- id: "10de:fff0"\n  kind: GPU\n  name: A\n  name: B\n',
        ["line 5", "name", "twice"],
    ),
    "duplicate section": ("devices: []\nnever: []\ndevices: []\n", ["line 3", "devices", "twice"]),
    "id without quotes": (
        "vendors:\n  1002: AMD\n",
        ["line 2", "vendors", "1002 is no text; put it in quotes"],
    ),
    "subsystem without quotes": (
        'devices:\n- {id: "10de:fff0", kind: GPU, name: A}\n'
        '- {id: "10de:fff1",\n   subsystem: 1002:1234, kind: GPU, name: B, model: 4090}\n',
        ["line 4", "devices[1].model", "4090 is no text; put it in quotes"],
    ),
    "revision without quotes": (
        'devices:\n- {id: "10de:fff0", kind: GPU, name: A, revisions: {10: {model: A}}}\n',
        ["revisions", "10"],
    ),
    "unknown key": (
        'devices:\n- {id: "10de:fff0", kind: GPU, name: A}\n'
        '- {id: "10de:fff1", kind: GPU, name: A, modle: B}\n',
        ["line 3", "devices[1]", "modle"],
    ),
    "unknown section": ("device: []\n", ["line 1", "device"]),
    "missing key": ('devices:\n\n- {id: "10de:fff0", kind: GPU}\n', ["line 3", "name"]),
    "unknown kind": (
        'devices:\n- {id: "10de:fff0", kind: TPU, name: A}\n',
        ["line 2", "devices[0].kind", "TPU"],
    ),
    "upper-case id": (
        'devices:\n- {id: "10DE:FFF0", kind: GPU, name: A}\n',
        ["line 2", "devices[0].id", "10DE:FFF0"],
    ),
    "id with a newline": (
        "devices:\n- id: |\n    10de:fff0\n  kind: GPU\n  name: A\n",
        ["line 2", "devices[0].id"],
    ),
    "rule without a subject": (
        'never:\n- {vendor: "10de", code: integrated-gpu, what: A}\n',
        ["line 2", "never[0]", "an id, or a vendor and a class"],
    ),
    "unknown code": (
        'never:\n- {id: "10de:fff0", code: because, what: A}\n',
        ["line 2", "never[0].code", "because"],
    ),
    "section of another type": ("devices: {}\n", ["line 1", "devices"]),
    "id given twice": (
        f"devices:\n- {OWN}\n- {T4}\n- {OWN.replace('OWN', 'OTHER')}\n",
        ["line 4: devices[2]", "10de:fff0", "in line 2 already"],
    ),
    "subsystem given twice": (
        "devices:\n"
        '- {id: "10de:fff0", subsystem: "10de:0001", kind: GPU, model: A, name: A}\n'
        '- {id: "10de:fff0", kind: GPU, model: B, name: B}\n'
        '- {id: "10de:fff0", subsystem: "10de:0001", kind: GPU, model: C, name: C}\n',
        ["line 4: devices[2]", "10de:fff0 10de:0001", "in line 2 already"],
    ),
    "rule given twice": (
        'never:\n- {vendor: "10de", class: "03", code: integrated-gpu, what: A}\n'
        '- {vendor: "10de", class: "03", code: management-display, what: B}\n',
        ["line 3: never[1]", "in line 2 already"],
    ),
    "another kind than ours": (
        'devices:\n- {id: "10de:1eb8",\n   kind: FPGA, name: A}\n',
        ["line 3: devices[0].kind", "10de:1eb8 is of kind GPU and cannot become FPGA"],
    ),
    "no map": ("- a\n- b\n", ["line 1"]),
    "just a word": ("devices\n", ["line 1"]),
    "no YAML": ('devices:\n- {id: "10de:fff0"\n', ["line"]),
    "tab": ("devices:\n\t- x\n", ["line 2"]),
    "two documents": ("devices: []\n---\ndevices: []\n", ["line 2"]),
    "object": ("!!python/object/apply:os.system [echo]\n", ["line 1"]),
    "alias": ("x: &x {a: b}\ndevices: [*x]\n", ["aliases"]),
    "alias bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in itertools.pairwise("abcdefghi")
        ),
        ["aliases"],
    ),
    "nested without end": ("[" * 100_000, ["nesting"]),
    "nested deep": ("[" * 200 + "]" * 200, ["line 1", "nested more than 16 deep"]),
    "nested deep, in lines": (
        "".join(f"{' ' * n}a:\n" for n in range(200)),
        ["line 17", "nested more than 16 deep"],
    ),
    "number that takes a minute": (
        f"devices: 1{':1' * 400_000}\n",
        ["line 1", "more than 1000 characters"],
    ),
    "number that is too large": (f"devices: 1{':1' * 400}.5\n", ["too large"]),
    "empty number": ('memory: !!int ""\n', []),
    "number that is none": ("memory: !!float ''\n", []),
    "flag that is none": ("memory: !!bool perhaps\n", []),
    "date that is none": ("memory: !!timestamp today\n", []),
    "huge number": (f"devices: [{{id: 0x{'f' * 5000}}}]\n", ["more than 1000 characters"]),
    "larger than 1 MiB": ("#" * (1 << 20) + "\n", ["larger than 1 MiB"]),
    "no UTF-8": (b"vendors: {'10de': \xff}\n", ["line 1", "UTF-8"]),
    "binary": (b"\x00\x01\x02", []),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_named_and_costs_nothing_but_itself(load_catalog, tmp_path, text, said):
    loaded = load_catalog(a=f"devices: [{OWN}]", b=text, c='vendors: {"1234": LATER}')
    fault = only_fault(loaded)
    assert fault.startswith(str(tmp_path / "b.yaml"))
    for part in said:
        assert part in fault
    assert len(fault) < 1000
    assert loaded.product(identity("10de:fff0")).model == "OWN"
    assert loaded.vendor("1234") == "LATER"
    assert loaded.product(identity("10de:1eb8")).model == "T4"


def test_a_wrong_file_is_left_out_as_a_whole(load_catalog):
    loaded = load_catalog(mine=f"devices:\n- {OWN}\n- {{id: nonsense}}\n")
    assert loaded.faults
    assert loaded.product(identity("10de:fff0")) is None


def test_every_fault_of_a_file_is_named_at_once(load_catalog):
    text = 'devices:\n- {id: x, kind: GPU, name: A}\n- {id: "10de:fff0", kind: Y, name: B}\n'
    fault = only_fault(load_catalog(mine=text))
    assert "line 2: devices[0].id" in fault and "line 3: devices[1].kind" in fault


def test_of_very_many_faults_the_first_are_named(load_catalog):
    fault = only_fault(load_catalog(mine=f"devices: [{'1, ' * 1000}1]"))
    assert "devices[0]: 1 is not" in fault and fault.endswith("and more")
    assert len(fault) < 2000


def _pipe(path):
    os.mkfifo(path)


def _link_to_itself(path):
    path.symlink_to(path.name)


def _link_to_nothing(path):
    path.symlink_to("nothing")


def _device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkdir, _pipe, _device, _link_to_itself, _link_to_nothing])
def test_what_is_no_file_is_named_and_does_not_block(load_catalog, tmp_path, make):
    make(tmp_path / "b.yaml")
    loaded = load_catalog(a=f"devices: [{OWN}]")
    assert only_fault(loaded).startswith(str(tmp_path / "b.yaml"))
    assert loaded.product(identity("10de:fff0")).model == "OWN"


def test_a_directory_that_cannot_be_listed_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    loaded = catalog.load(tmp_path / "file")
    assert "cannot be listed" in only_fault(loaded)
    assert loaded.product(identity("10de:1eb8")).model == "T4"


# Any text at all


yaml_words = st.sampled_from(
    ["devices", "never", "vendors", "id", "kind", "GPU", '"10de:1eb8"', "10de", "1002", "model"]
    + ["name", "revisions", "!!int", "!!bool", "!!float", "!!null", "!!binary", "!!set", "!!str"]
    + ["!!timestamp", "!!omap", "&a", "*a", "<<", "?", ":", "-", "- ", ": ", "{", "}", "[", "]"]
    + [",", "\n", "\n  ", "#", "'", '"', "|", ">", "%YAML 1.1\n", "---\n", "...\n", "~", "=", "\t"]
    + ["0x", "0b", ".inf", "2001-01-01", "1:2", "\x00", "\ud800", "\x85", "€"]
)


@given(
    st.text() | st.lists(yaml_words, max_size=25).map(" ".join) | st.lists(yaml_words).map("".join)
)
def test_any_text_is_a_map_or_a_catalogue_error(text):
    try:
        document = schema.parse_checked("mine.yaml", text)
    except CatalogError as error:
        assert str(error).startswith("mine.yaml: ")
        assert error.faults and all(isinstance(fault, str) for fault in error.faults)
    else:
        assert isinstance(document, dict)
        layer = catalog.Layer("mine.yaml", document)
        assert len(layer.entries()) == len(document.get("devices") or ())


_hexadecimal = st.text("0123456789abcdef", min_size=4, max_size=4)
_ids = st.tuples(_hexadecimal, _hexadecimal).map(":".join)


@given(_ids, st.text("ABC019", min_size=1, max_size=9), st.none() | _ids)
def test_what_the_schema_takes_is_found_again(pci_id, model, subsystem):
    decides = f'subsystem: "{subsystem}", ' if subsystem else ""
    text = f'devices: [{{id: "{pci_id}", {decides}kind: GPU, model: "{model}", name: "{model}"}}]'
    layer = catalog.Layer("mine.yaml", schema.parse_checked("mine.yaml", text))
    known = catalog.Catalog([layer])
    assert known.product(identity(pci_id, subsystem)).model == model
    (entry,) = known.entries()
    assert entry["id"] == pci_id
