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

"""Catalogue files of other packages: how they rank, and what a wrong one costs."""

import importlib
import itertools
from importlib.metadata import EntryPoint

import pytest
from stevedore import extension

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.catalog import _installed
from tests.cards import identity

OTHERS = """
vendors: {"acce": ACME}
devices:
- {id: "acce:0001", kind: FPGA, model: OTHERS, name: Of another package}
- {id: "10de:1eb8", kind: GPU, model: T4-OTHERS, name: Of another package}
"""
_numbers = itertools.count()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install packages with these files; they come in the order in which they are given."""
    monkeypatch.syspath_prepend(tmp_path)
    entry_points = []
    monkeypatch.setitem(
        extension.ExtensionManager.ENTRY_POINT_CACHE, _installed.NAMESPACE, entry_points
    )

    def run(value="", **files):
        package = f"package_of_another{next(_numbers)}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        for name, text in files.items():
            (tmp_path / package / f"{name}.yaml").write_text(text)
        importlib.invalidate_caches()
        name = f"n{len(entry_points)}"
        entry_points.append(EntryPoint(name, value or package, _installed.NAMESPACE))
        return tmp_path / package

    return run


@pytest.fixture
def own(tmp_path):
    """A directory for the operator's files."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def model(loaded, pci_id):
    return loaded.product(identity(pci_id)).model


def test_they_win_over_our_own_and_yield_to_the_operators(install, own):
    install(a=OTHERS)
    loaded = catalog.load(own)
    assert loaded.faults == ()
    assert (model(loaded, "acce:0001"), model(loaded, "10de:1eb8")) == ("OTHERS", "T4-OTHERS")
    assert loaded.vendor("acce") == "ACME"
    (own / "a.yaml").write_text('devices: [{id: "10de:1eb8", kind: GPU, model: MINE, name: A}]')
    loaded = catalog.load(own)
    assert (model(loaded, "acce:0001"), model(loaded, "10de:1eb8")) == ("OTHERS", "MINE")


def test_they_count_without_any_directory_of_the_operators(install, own):
    install(a=OTHERS)
    for directory in (None, own / "not-there"):
        assert model(catalog.load(directory), "acce:0001") == "OTHERS"


def test_of_two_the_later_name_wins(install):
    device = 'devices: [{{id: "acce:0001", kind: FPGA, model: {}, name: A}}]'
    install(b=device.format("B"), a=device.format("A"))
    assert model(catalog.load(), "acce:0001") == "B"
    install(a=device.format("LATER"))
    assert model(catalog.load(), "acce:0001") == "LATER"


def test_the_value_may_be_a_module_or_a_directory_without_modules(install):
    package = install(a=OTHERS)
    (package / "some_module.py").touch()
    (package / "files").mkdir()
    (package / "files" / "b.yaml").write_text(OTHERS.replace("acce:0001", "acce:0002"))
    importlib.invalidate_caches()
    install(value=f"{package.name}.some_module")
    install(value=f"{package.name}.files")
    loaded = catalog.load()
    assert loaded.faults == ()
    assert (model(loaded, "acce:0001"), model(loaded, "acce:0002")) == ("OTHERS", "OTHERS")


WRONG = {
    "no YAML": ("devices: [", "b.yaml: line 2: did not find"),
    "unknown key": ("devices:\n- {id: 1, kind: GPU, name: A}", "b.yaml: line 2: devices[0].id"),
    "kind of ours": (
        'devices: [{id: "10de:1eb8", kind: FPGA, name: A}]',
        "b.yaml: line 1: devices[0].kind: 10de:1eb8 is of kind GPU and cannot become FPGA",
    ),
}


@pytest.mark.parametrize("text, said", WRONG.values(), ids=WRONG)
def test_a_broken_file_is_named_and_costs_itself_alone(install, text, said):
    package = install(a=OTHERS, b=text)
    loaded = catalog.load()
    (fault,) = map(str, loaded.faults)
    assert fault.startswith(f"{package}/{said}")
    assert model(loaded, "acce:0001") == "OTHERS"


def test_the_operators_file_keeps_the_kind_that_they_know(install, own):
    install(a=OTHERS)
    (own / "a.yaml").write_text('devices: [{id: "acce:0001", kind: GPU, model: MINE, name: A}]')
    loaded = catalog.load(own)
    assert "acce:0001 is of kind FPGA and cannot become GPU" in str(loaded.faults[0])
    assert model(loaded, "acce:0001") == "OTHERS"


@pytest.mark.parametrize(
    "value, said",
    [
        ("not_there.at.all", "cannot be imported: No module named 'not_there'"),
        ("os:sep", "is no package or module with a directory"),
        ("sys", "is no package or module with a directory"),
    ],
)
def test_an_entry_point_that_leads_to_no_directory_is_named(install, value, said):
    install(value=value)
    install(a=OTHERS)
    loaded = catalog.load()
    (fault,) = map(str, loaded.faults)
    assert fault == f"cyborg_ext_drivers.catalog: n0 = {value}: {said}"
    assert model(loaded, "acce:0001") == "OTHERS"


def test_a_package_that_was_built_without_its_files_is_named(install):
    package = install()
    (fault,) = map(str, catalog.load().faults)
    assert fault == (
        f"cyborg_ext_drivers.catalog: n0 = {package.name}: no file in {package} ends in .yaml "
        "or .yml"
    )
