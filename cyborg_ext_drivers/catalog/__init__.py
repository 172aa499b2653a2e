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

"""What a PCI id means: the project's own data and the operator's additions.

The package's files lie beside this module; the operator's in ``catalog_dir`` (default
``/etc/cyborg/ext_catalog.d``).  Theirs win.  A file of theirs that breaks the schema is
left out as a whole, with an error that names it, and costs nothing but itself.

Lookup: an entry with a matching subsystem wins over one without.  An id that has
entries with subsystems only, none of them matching, is a known id but an unknown product.
An exact id in ``never`` beats ``devices``, which beats a class rule in ``never``.

Next stop: :mod:`cyborg_ext_drivers.families.base`.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import CatalogError
from cyborg_ext_drivers.host.identity import Identity, PciId
from cyborg_ext_drivers.host.text import UnusableFile, read_text

__all__ = ["Catalog", "Layer", "PackagedLayer", "Product", "Rule", "load"]

_NO_SUBSYSTEM = PciId("0000", "0000")
_SECTION = re.compile(r"^(\w+):\n", re.MULTILINE)
_VENDOR = re.compile(r'^  "([0-9a-f]{4})": (\w+)$', re.MULTILINE)
_DECODER = json.JSONDecoder()
# An operator's file is small; anything larger is a mistake or an attack.
_MOST_BYTES = 1 << 20


class Product(NamedTuple):
    """What one PCI id (and subsystem, and revision) is: ``Tesla T4``."""

    kind: str
    #: The canonical model token, ``T4``; ``None`` where the ids do not name one product.
    model: str | None
    #: The maker's name for it, for people's eyes.
    name: str
    is_integrated: bool = False
    architecture: str | None = None
    compute_capability: str | None = None
    memory_mib: int | None = None
    #: Whether the id is known for other subsystems only.
    is_undecided: bool = False


class Rule(NamedTuple):
    """Functions that are no accelerators: why (a finding code) and what they are."""

    what: str
    code: str = "not-an-accelerator"
    id: str | None = None
    subsystem: str | None = None
    vendor: str | None = None
    pci_class: str | None = None
    address: str | None = None
    is_candidate: bool = False

    def matches(self, identity: Identity) -> bool:
        """Return whether a function is one of these, its address apart."""
        return (
            self.id in (None, str(identity.id))
            and self.subsystem in (None, str(identity.subsystem))
            and self.vendor in (None, identity.id.vendor)
            and identity.pci_class.code.startswith(self.pci_class or "")
        )


class Layer:
    """One catalogue file: what it says, and nothing of how it ranks against others."""

    def __init__(self, path: str, document: dict):
        self.path = path
        self.vendors: dict[str, str] = document.get("vendors") or {}
        self.companions = [_rule(entry) for entry in document.get("companions") or ()]
        self.never = [_rule(entry) for entry in document.get("never") or ()]
        self._devices: dict[str, list[dict]] = {}
        for entry in document.get("devices") or ():
            self._devices.setdefault(entry["id"], []).append(entry)

    def entries(self, pci_id: str | None = None) -> list[dict]:
        """Return the entries of one id, or all, in the order of the file."""
        if pci_id is not None:
            return self._devices.get(pci_id, [])
        return [entry for entries in self._devices.values() for entry in entries]

    def product(self, identity: Identity, revision: str | None) -> Product | None:
        """Return what this file knows of a function, ``None`` when it has no such id."""
        entries = self.entries(str(identity.id))
        if not entries:
            return None
        subsystem = str(identity.subsystem)
        exact = [entry for entry in entries if entry.get("subsystem") == subsystem]
        general = [entry for entry in entries if "subsystem" not in entry]
        is_told = identity.subsystem not in (None, _NO_SUBSYSTEM)
        if exact or (general and (is_told or len(general) == len(entries))):
            return _product((exact or general)[-1], revision)
        names = sorted({entry["name"] for entry in entries})
        return Product(entries[0]["kind"], None, " or ".join(names), is_undecided=True)


class PackagedLayer(Layer):
    """One of the package's files, of which only the lines that are asked for are read.

    Each entry stands on a line of its own and is JSON, so a host with cards of one model
    costs two or three lines and no YAML parser.  A test holds this against the YAML.
    """

    def __init__(self, path: str, text: str):
        self._sections = dict(zip(*[iter(_SECTION.split(text)[1:])] * 2))
        rules = {name: self._read(name, "") for name in ("companions", "never")}
        vendors = dict(_VENDOR.findall(self._sections.get("vendors", "")))
        super().__init__(path, {**rules, "vendors": vendors})

    def entries(self, pci_id: str | None = None) -> list[dict]:
        """Return the entries of one id, or all, in the order of the file."""
        return self._read("devices", f'"id": "{pci_id}"' if pci_id else "")

    def _read(self, section: str, start: str) -> list[dict]:
        lines = re.findall(
            rf"^  - (\{{{re.escape(start)}.*)$", self._sections.get(section, ""), re.MULTILINE
        )
        return [_DECODER.raw_decode(line)[0] for line in lines]


class Catalog:
    """All catalogue files of a host, the operator's before the package's."""

    def __init__(self, layers: Iterable[Layer], faults: Iterable[CatalogError] = ()):
        self._layers = tuple(layers)
        #: The operator's files that were left out, and why.
        self.faults = tuple(faults)
        self._products: dict[tuple[Identity, str | None], Product | None] = {}
        self._exclusions: dict[Identity, tuple[Rule, ...]] = {}
        self._companions: dict[Identity, Rule | None] = {}

    def product(self, identity: Identity, revision: str | None = None) -> Product | None:
        """Return what a function is, ``None`` for an id that no file knows."""
        key = (identity, revision)
        if key not in self._products:
            found = [layer.product(identity, revision) for layer in self._layers]
            known = [product for product in found if product]
            decided = (product for product in known if not product.is_undecided)
            self._products[key] = next(decided, known[0] if known else None)
        return self._products[key]

    def vendor(self, vendor_id: str) -> str | None:
        """Return a vendor's name as it stands in traits, ``None`` when not known."""
        names = (layer.vendors.get(vendor_id) for layer in self._layers)
        return next((name for name in names if name), None)

    def exclusion(self, identity: Identity, address: PciAddress) -> Rule | None:
        """Return why a function is never reported, ``None`` when nothing forbids it."""
        if identity not in self._exclusions:
            self._exclusions[identity] = tuple(self._exclusions_of(identity))
        rules = self._exclusions[identity]
        return next((rule for rule in rules if rule.address in (None, str(address))), None)

    def is_candidate(self, identity: Identity) -> bool:
        """Return whether an operator may take a function for an accelerator, which it is not."""
        return any(rule.is_candidate for rule in self._exclusions_of(identity))

    def _exclusions_of(self, identity: Identity) -> Iterator[Rule]:
        for layer in self._layers:
            yield from (rule for rule in layer.never if rule.id and rule.matches(identity))
            if layer.entries(str(identity.id)):
                return
        rules = (rule for layer in self._layers for rule in layer.never if not rule.id)
        yield from (rule for rule in rules if rule.matches(identity))

    def companion(self, identity: Identity) -> Rule | None:
        """Return what part of a card a function is, ``None`` when it is no companion."""
        if identity not in self._companions:
            rules = (rule for layer in self._layers for rule in layer.companions)
            self._companions[identity] = next((r for r in rules if r.matches(identity)), None)
        return self._companions[identity]

    def entries(self) -> Iterator[dict]:
        """Yield every entry of ``devices`` as it stands in its file."""
        for layer in self._layers:
            yield from layer.entries()


def load(directory: str | os.PathLike | None = None) -> Catalog:
    """Return the package's catalogue with the operator's files from *directory* on top.

    Files are taken in the order of their names; a later one wins.
    """
    bundled = packaged()
    layers: list[Layer] = []
    faults: list[CatalogError] = []
    for path in _files_of(directory, faults):
        try:
            layers.insert(0, _checked(path, bundled))
        except CatalogError as error:
            faults.append(error)
    return Catalog([*layers, *bundled], faults)


def packaged() -> list[Layer]:
    """Return the files that the package brings; CI has checked them against the schema."""
    folder = os.path.dirname(__file__)
    names = sorted(name for name in os.listdir(folder) if name.endswith(".yaml"))
    return [PackagedLayer(name, _text_of(os.path.join(folder, name))) for name in names]


def _checked(path: str, bundled: Iterable[Layer]) -> Layer:
    """Return an operator's file as a layer, checked against the schema and our own files."""
    # Most hosts have no file of their own and need no YAML parser.
    from cyborg_ext_drivers.catalog import schema

    def kind_of(pci_id: str) -> str | None:
        kinds = (entry["kind"] for layer in bundled for entry in layer.entries(pci_id))
        return next(kinds, None)

    document = schema.parse_checked(path, _text_of(path), kind_of)
    try:
        return Layer(path, document)
    except InvalidAddress as error:
        raise CatalogError(path, [str(error)]) from None


def _files_of(directory: str | os.PathLike | None, faults: list[CatalogError]) -> list[str]:
    if directory is None:
        return []
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    except OSError as error:
        faults.append(CatalogError(str(directory), [f"cannot be listed: {error.strerror}"]))
        return []
    return [os.path.join(directory, name) for name in names if name.endswith((".yaml", ".yml"))]


def _text_of(path: str) -> str:
    try:
        return read_text(path, _MOST_BYTES)
    except UnusableFile as error:
        raise CatalogError(path, [error.reason]) from None


def _rule(entry: dict) -> Rule:
    return Rule(
        what=entry["what"],
        code=entry.get("code", "not-an-accelerator"),
        id=entry.get("id"),
        subsystem=entry.get("subsystem"),
        vendor=entry.get("vendor"),
        pci_class=entry.get("class"),
        address=str(PciAddress.parse(entry["address"])) if "address" in entry else None,
        is_candidate=entry.get("candidate", False),
    )


def _product(entry: dict, revision: str | None) -> Product:
    decided = (entry.get("revisions") or {}).get(revision, {})
    return Product(
        kind=entry["kind"],
        model=decided.get("model", entry.get("model")),
        name=decided.get("name", entry["name"]),
        is_integrated=entry.get("integrated", False),
        architecture=entry.get("architecture"),
        compute_capability=entry.get("compute_capability"),
        memory_mib=entry.get("memory_mib"),
    )
