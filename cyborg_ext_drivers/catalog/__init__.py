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

"""What a PCI id means: the project's own data, other packages' and the operator's additions.

The package's files lie beside this module; those of other packages in the directories that
their entry points ``cyborg_ext_drivers.catalog`` name; the operator's in ``catalog_dir``
(default ``/etc/cyborg/ext_catalog.d``).  The operator's win over all, other packages' over
ours.  A file that is not ours and breaks the schema is left out as a whole, with an error that
names it, and costs nothing but itself.

Lookup: an entry with a matching subsystem wins over one without.  An id that has
entries with subsystems only, none of them matching, is a known id but an unknown product.
An exact id in ``never`` beats ``devices``, which beats a class rule in ``never``.

Next stop: :mod:`cyborg_ext_drivers.families.base`.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.catalog import _installed
from cyborg_ext_drivers.errors import CatalogError
from cyborg_ext_drivers.host.identity import Identity, PciId
from cyborg_ext_drivers.host.text import UnusableFile, read_text

__all__ = ["Catalog", "Layer", "PackagedLayer", "Product", "Rule", "files_in", "load"]

_NO_SUBSYSTEM = PciId("0000", "0000")
_SECTIONS = ("vendors", "sources", "devices", "companions", "never")
_VENDOR = re.compile(r'^  "([0-9a-f]{4})": (\w+)$', re.MULTILINE)
_DECODER = json.JSONDecoder()
#: An operator's file is small; anything larger is a mistake or an attack.
MOST_BYTES = 1 << 20


class Product(NamedTuple):
    """What one PCI id (and subsystem, and revision) is: ``Tesla T4``."""

    kind: str
    #: The canonical model token, ``T4``; ``None`` where the ids do not name one product.
    model: str | None
    #: The maker's name for it, for people's eyes.
    name: str
    is_integrated: bool = False
    #: Which of a card's functions it is: pf, vf, mgmt, user, golden or function; ``None`` where
    #: nothing is said, as for cards of one function.
    role: str | None = None
    #: The device id of the other one of ``mgmt`` and ``user``.
    pair_device: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    memory_mib: int | None = None
    #: Whether the id is known for other subsystems only.
    is_undecided: bool = False

    @property
    def is_virtual(self) -> bool:
        """Whether the id is one of virtual functions only."""
        return self.role == "vf"


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
    #: Ids of bridges; a function that hangs below one of them is meant by no such rule.
    unless_below: tuple[str, ...] = ()
    #: What an operator does about it; ``None`` where nothing is to be done.
    remedy: str | None = None

    def matches(self, identity: Identity) -> bool:
        """Return whether a function is one of these, its address apart."""
        return (
            self.id in (None, str(identity.id))
            and self.subsystem in (None, str(identity.subsystem))
            and self.vendor in (None, identity.id.vendor)
            and identity.pci_class.code.startswith(self.pci_class or "")
        )

    def is_for(self, address: PciAddress, above: Callable[[], Iterable[PciId]]) -> bool:
        """Return whether it is for a function that it matches, there where it is.

        :param above: gives the ids of the bridges above the function; asked only if need be.
        """
        if self.address not in (None, str(address)):
            return False
        return not self.unless_below or not any(str(each) in self.unless_below for each in above())


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
        sections = _sections(text)
        rules = {name: _read(sections.get(name, "")) for name in ("companions", "never")}
        vendors = dict(_VENDOR.findall(sections.get("vendors", "")))
        super().__init__(path, {**rules, "vendors": vendors})
        self._text = sections.get("devices", "")
        self._read: dict[str, list[dict]] = {}

    def entries(self, pci_id: str | None = None) -> list[dict]:
        """Return the entries of one id, or all, in the order of the file."""
        if pci_id is None:
            return _read(self._text)
        if pci_id not in self._read:
            self._read[pci_id] = _read(self._text, f'"id": "{pci_id}"')
        return self._read[pci_id]


class Catalog:
    """All catalogue files of a host: the operator's, then other packages', then our own."""

    def __init__(self, layers: Iterable[Layer], faults: Iterable[CatalogError] = ()):
        self._layers = tuple(layers)
        #: The files that were left out, and why; none of them is our own.
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

    def kind(self, identity: Identity) -> str | None:
        """Return GPU, FPGA, AICHIP or NIC, ``None`` for an id that no file knows."""
        product = self.product(identity)
        return product.kind if product else None

    def physical_function_of(self, identity: Identity) -> Identity | None:
        """Return what the card of a virtual function is, ``None`` when the id does not tell.

        The ids that it does not share with its physical function stand in ``pf_device``.
        """
        entries = (each for layer in self._layers for each in layer.entries(str(identity.id)))
        entry = next(entries, None)
        device = entry and entry.get("pf_device", identity.id.device)
        if not isinstance(device, str):
            # No such id, or several physical functions have it.
            return None
        return identity._replace(id=PciId(identity.id.vendor, device))

    def vendor(self, vendor_id: str) -> str | None:
        """Return a vendor's name as it stands in traits, ``None`` when not known."""
        names = (layer.vendors.get(vendor_id) for layer in self._layers)
        return next((name for name in names if name), None)

    def exclusion(
        self,
        identity: Identity,
        address: PciAddress,
        above: Callable[[], Iterable[PciId]] = tuple,
    ) -> Rule | None:
        """Return why a function is never reported, ``None`` when nothing forbids it.

        :param above: gives the ids of the bridges above the function, for the few rules that
            go by them; what it raises is raised.
        """
        if identity not in self._exclusions:
            self._exclusions[identity] = tuple(self._exclusions_of(identity))
        rules = self._exclusions[identity]
        return next((rule for rule in rules if rule.is_for(address, above)), None)

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
    """Return the package's catalogue below other packages' and the operator's from *directory*.

    Other packages are taken in the order of their entry points' names, files in the order of
    theirs; a later one wins.
    """
    bundled = packaged()
    faults: list[CatalogError] = []
    others = _layers(_files_of_others(faults), bundled, faults)
    below = [*others, *bundled]
    return Catalog([*_layers(_files_of(directory, faults), below, faults), *below], faults)


def packaged() -> list[Layer]:
    """Return the files that the package brings; CI has checked them against the schema."""
    folder = os.path.dirname(__file__)
    names = sorted(name for name in os.listdir(folder) if name.endswith(".yaml"))
    return [PackagedLayer(name, _text_of(os.path.join(folder, name))) for name in names]


def _layers(
    paths: Iterable[str], below: Sequence[Layer], faults: list[CatalogError]
) -> list[Layer]:
    """Return the files that are right, a later one first."""
    layers: list[Layer] = []
    for path in paths:
        try:
            layers.insert(0, _checked(path, below))
        except CatalogError as error:
            faults.append(error)
    return layers


def _checked(path: str, below: Iterable[Layer]) -> Layer:
    """Return a file as a layer, checked against the schema and the files below it."""
    # Most hosts have no file of their own and need no YAML parser.
    from cyborg_ext_drivers.catalog import schema

    def kind_of(pci_id: str) -> str | None:
        kinds = (entry["kind"] for layer in below for entry in layer.entries(pci_id))
        return next(kinds, None)

    document = schema.parse_checked(path, _text_of(path), kind_of)
    try:
        return Layer(path, document)
    except InvalidAddress as error:
        raise CatalogError(path, [str(error)]) from None


def _files_of_others(faults: list[CatalogError]) -> Iterator[str]:
    for name, directories in _installed.directories(faults):
        files = [path for each in directories for path in _files_of(each, faults)]
        if not files:
            # As of a package that was built without its data.
            where = ", ".join(directories)
            faults.append(CatalogError(name, [f"no file in {where} ends in .yaml or .yml"]))
        yield from files


def _files_of(directory: str | os.PathLike | None, faults: list[CatalogError]) -> list[str]:
    if directory is None:
        return []
    try:
        return files_in(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        faults.append(CatalogError(str(directory), [f"cannot be listed: {error.strerror}"]))
        return []


def files_in(directory: str | os.PathLike) -> list[str]:
    """Return the paths of a directory's catalogue files; of two that say of one id the later wins.

    :raises OSError: when it cannot be listed.
    """
    names = sorted(os.listdir(directory))
    return [os.path.join(directory, name) for name in names if name.endswith((".yaml", ".yml"))]


def _sections(text: str) -> dict[str, str]:
    """Return the text below each of the top-level keys of a packaged file."""
    starts = {name: text.find(f"\n{name}:\n") for name in _SECTIONS}
    found = sorted((start, name) for name, start in starts.items() if start >= 0)
    ends = [start for start, _ in found[1:]] + [len(text)]
    return {name: text[start:end] for (start, name), end in zip(found, ends)}


def _read(section: str, start: str = "") -> list[dict]:
    """Return the entries of a section that begin so, in their order."""
    # str.find is many times as fast as a regular expression, and a look-up asks every file.
    mark = f"\n  - {{{start}"
    entries = []
    at = section.find(mark)
    while at >= 0:
        entry, at = _DECODER.raw_decode(section, at + len("\n  - "))
        entries.append(entry)
        at = section.find(mark, at)
    return entries


def _text_of(path: str) -> str:
    try:
        return read_text(path, MOST_BYTES)
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
        unless_below=tuple(entry.get("unless_below", ())),
        remedy=entry.get("remedy"),
    )


def _product(entry: dict, revision: str | None) -> Product:
    decided = (entry.get("revisions") or {}).get(revision, {})
    return Product(
        kind=entry["kind"],
        model=decided.get("model", entry.get("model")),
        name=decided.get("name", entry["name"]),
        is_integrated=entry.get("integrated", False),
        role=entry.get("role"),
        pair_device=entry.get("pair_device"),
        architecture=entry.get("architecture"),
        compute_capability=entry.get("compute_capability"),
        memory_mib=entry.get("memory_mib"),
    )
