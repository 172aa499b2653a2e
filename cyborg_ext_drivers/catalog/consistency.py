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

"""Whether catalogue files that belong together agree: ``catalog check``.

The schema sees one file and one entry at a time.  What can only be wrong between entries is
here: two products with one model, a virtual function whose physical function does not know it.
CI asks for the package's files (``tools/catalog_check.py``); nothing asks at run time.

Next stop: :mod:`cyborg_ext_drivers.families.base`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.catalog import schema
from cyborg_ext_drivers.catalog._yaml import Lines, compose
from cyborg_ext_drivers.errors import CatalogError

__all__ = ["faults", "promises_broken"]

# What tells one id of a product from its others: ", user function", " (passive)".
_DISTINCTION = re.compile(r",| \(")
_RULES = ("companions", "never")


class _Entry(NamedTuple):
    """One entry of a file, and where it stands."""

    path: str
    line: int
    data: dict[str, Any]

    @property
    def id(self) -> str:
        return self.data["id"]

    @property
    def vendor(self) -> str:
        return self.id.partition(":")[0]

    @property
    def role(self) -> str:
        return self.data.get("role", "pf")

    @property
    def models(self) -> set[str]:
        """The models that it can give, by itself or by the revision."""
        return {model for model, _ in self.products}

    @property
    def products(self) -> list[tuple[str, str]]:
        """The models that it can give, each with the name of what has it."""
        decided = [self.data, *self.data.get("revisions", {}).values()]
        name = self.data["name"]
        return [(each["model"], each.get("name", name)) for each in decided if "model" in each]

    def refers_to(self, key: str) -> tuple[str, ...]:
        """The ids that a key names, with the vendor."""
        named = self.data.get(key, ())
        devices = (named,) if isinstance(named, str) else named
        return tuple(f"{self.vendor}:{device}" for device in devices)

    def is_beside(self, other: "_Entry") -> bool:
        """Whether both can be of one card, by their subsystems."""
        mine, its = self.data.get("subsystem"), other.data.get("subsystem")
        return mine == its or None in (mine, its)

    def fault(self, sentence: str) -> str:
        return f"{self.path}: line {self.line}: {self} {sentence}"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.id, self.data.get("subsystem"))))


class _Files:
    """Catalogue files that each keep to the schema."""

    def __init__(self) -> None:
        self.devices: list[_Entry] = []
        #: Each id's entries.
        self.by_id: dict[str, list[_Entry]] = defaultdict(list)
        #: Companions and functions that are never reported; not all of them have an id.
        self.rules: list[tuple[str, _Entry]] = []
        #: Vendor id, name, and where it stands.
        self.vendors: list[tuple[str, str, str]] = []

    def add(self, path: str, text: str) -> None:
        """Take a file in.

        :raises CatalogError: when it breaks the schema.
        """
        document = schema.parse_checked(path, text)
        lines = Lines(compose(text))
        for vendor, name in (document.get("vendors") or {}).items():
            self.vendors.append((vendor, name, f"{path}: line {lines.of(('vendors', vendor))}"))
        for number, data in enumerate(document.get("devices") or ()):
            entry = _Entry(path, lines.of(("devices", number)), data)
            self.devices.append(entry)
            self.by_id[entry.id].append(entry)
        for section in _RULES:
            for number, data in enumerate(document.get(section) or ()):
                self.rules.append((section, _Entry(path, lines.of((section, number)), data)))

    def vendor_of(self, entry: _Entry) -> str:
        """Return the name that a card's traits have, its vendor id where there is none."""
        names = (name for vendor, name, _ in self.vendors if vendor == entry.vendor)
        return next(names, entry.vendor)


def faults(texts: Mapping[str, str]) -> list[str]:
    """Return all that is wrong with files that belong together, one sentence each.

    :param texts: what each file holds, by the path that the sentences are to name.
    """
    files = _Files()
    found: list[str] = []
    for path, text in texts.items():
        try:
            files.add(path, text)
        except CatalogError as error:
            found.extend(f"{path}: {fault}" for fault in error.faults)
    for check in (
        _vendors,
        _ids,
        _models,
        _names,
        _misleading_models,
        _virtual_functions,
        _physical_functions,
        _pairs,
        _rules,
    ):
        found.extend(check(files))
    return found


def promises_broken(before: str, now: str) -> list[str]:
    """Return the lines of a golden file that another version of it lacks.

    :param before: the lines that were promised; later ones may stand between them.
    """
    kept = set(now.splitlines())
    return [line for line in before.splitlines() if line not in kept]


def _vendors(files: _Files) -> Iterator[str]:
    """Yield each vendor without a name, and each with two."""
    names: dict[str, str] = {}
    for vendor, name, place in files.vendors:
        if names.setdefault(vendor, name) != name:
            yield f"{place}: {vendor} is called {name}, and {names[vendor]} elsewhere"
    unnamed = {entry.vendor: entry for entry in reversed(files.devices)}
    for vendor, entry in sorted(unnamed.items()):
        if vendor not in names:
            yield entry.fault(f"is of a vendor that has no name: add {vendor} to vendors")


def _ids(files: _Files) -> Iterator[str]:
    """Yield each id that two files have, and each that is of two kinds."""
    for first, *others in files.by_id.values():
        for other in others:
            if other.path != first.path:
                yield other.fault(f"has entries in {first.path} as well; keep an id in one file")
            if other.data["kind"] != first.data["kind"]:
                yield other.fault(
                    f"is of kind {other.data['kind']}, but of kind {first.data['kind']} "
                    f"in line {first.line}"
                )


def _models(files: _Files) -> Iterator[str]:
    """Yield each model that stands for two products, or whose trait does."""
    first: dict[tuple[str, str], tuple[str, str, _Entry]] = {}
    for entry in files.devices:
        for model, name in entry.products:
            key = files.vendor_of(entry), traits.normalise(model)
            one, product, before = first.setdefault(key, (model, _product(name), entry))
            if one != model:
                yield entry.fault(f"has the model {model}, whose trait is the one of {one}")
            elif product != _product(name):
                yield entry.fault(
                    f"has the model {model} and the name {name!r}, but {before} in line "
                    f"{before.line} of {before.path} has that model and another name"
                )


def _names(files: _Files) -> Iterator[str]:
    """Yield each product that has two models."""
    first: dict[tuple[str, str], tuple[str, _Entry]] = {}
    for entry in files.devices:
        for model, name in entry.products:
            one, before = first.setdefault((entry.vendor, name), (model, entry))
            if one != model:
                yield entry.fault(
                    f"has the name {name!r} and the model {model}, but {before} in line "
                    f"{before.line} of {before.path} has that name and the model {one}"
                )


def _misleading_models(files: _Files) -> Iterator[str]:
    """Yield each model that reads like a product id, which is a trait of another card."""
    ids = {(files.vendor_of(entry), entry.id.partition(":")[2].upper()) for entry in files.devices}
    for entry in files.devices:
        for model in sorted(entry.models):
            if (files.vendor_of(entry), traits.normalise(model)) in ids:
                yield entry.fault(f"has the model {model}, which reads like a product id")


def _virtual_functions(files: _Files) -> Iterator[str]:
    """Yield each virtual function and its physical function that do not agree."""
    for entry in files.devices:
        named = entry.refers_to("pf_device")
        if entry.role != "vf":
            if named:
                yield entry.fault("has a pf_device and is no virtual function (role vf)")
            continue
        if not named:
            yield entry.fault("is a virtual function and names no physical one (pf_device)")
        for pf_id in named:
            yield from _disagreements(entry, pf_id, files)
        owners = [each for pf_id in named for each in _owners(entry, pf_id, files)]
        models = {model for owner in owners for model in owner.models}
        if owners and (entry.models - models or (models and not entry.models)):
            yield entry.fault(
                f"has the model {_listed(entry.models)}, but its physical function has "
                f"{_listed(models)}"
            )


def _owners(entry: _Entry, pf_id: str, files: _Files) -> list[_Entry]:
    candidates = files.by_id.get(pf_id, [])
    return [each for each in candidates if each.role == "pf" and each.is_beside(entry)]


def _disagreements(entry: _Entry, pf_id: str, files: _Files) -> Iterator[str]:
    owners = _owners(entry, pf_id, files)
    if not owners:
        yield entry.fault(f"names {pf_id} as its physical function, but no entry is one")
    elif not any(entry.id in owner.refers_to("vf_device") for owner in owners):
        yield entry.fault(f"names {pf_id} as its physical function, which does not name it")
    for owner in owners:
        if owner.data["kind"] != entry.data["kind"]:
            yield entry.fault(f"is not of the kind of {pf_id}, its physical function")


def _physical_functions(files: _Files) -> Iterator[str]:
    """Yield each card whose virtual functions are not known as its own."""
    for entry in files.devices:
        for vf_id in entry.refers_to("vf_device"):
            if entry.role != "pf":
                yield entry.fault("has a vf_device and is no physical function (role pf)")
            elif vf_id != entry.id and not any(
                each.role == "vf"
                and each.is_beside(entry)
                and entry.id in each.refers_to("pf_device")
                for each in files.by_id.get(vf_id, ())
            ):
                yield entry.fault(
                    f"names {vf_id} as its virtual function, but no entry of it names "
                    f"{entry.id} as its physical one"
                )


_PARTNERS = {"mgmt": "user", "user": "mgmt"}


def _pairs(files: _Files) -> Iterator[str]:
    """Yield each function for managing or use without the other one."""
    for entry in files.devices:
        named = entry.refers_to("pair_device")
        wanted = _PARTNERS.get(entry.role)
        if wanted is None:
            if named:
                yield entry.fault("has a pair_device and is neither of role mgmt nor user")
            continue
        if not named:
            yield entry.fault(f"has the role {entry.role} and no pair_device")
        for pair_id in named:
            partners = [each for each in files.by_id.get(pair_id, ()) if each.role == wanted]
            if not any(entry.id in each.refers_to("pair_device") for each in partners):
                yield entry.fault(
                    f"names {pair_id} as its other function, but no entry of it has the role "
                    f"{wanted} and names {entry.id}"
                )
            elif not any(each.models == entry.models for each in partners):
                yield entry.fault(f"has another model than {pair_id}, its other function")


def _rules(files: _Files) -> Iterator[str]:
    """Yield each rule that cannot be obeyed, and each card that one forbids by its id."""
    for section, rule in files.rules:
        address = rule.data.get("address")
        try:
            if address is not None:
                PciAddress.parse(address)
        except InvalidAddress as error:
            yield f"{rule.path}: line {rule.line}: {section}: {error}"
        if section == "never" and address is None:
            for entry in files.by_id.get(rule.data.get("id", ""), ()):
                if rule.data.get("subsystem") in (None, entry.data.get("subsystem")):
                    yield entry.fault(
                        f"is never reported, as line {rule.line} of {rule.path} (never) forbids it"
                    )


def _product(name: str) -> str:
    """Return a product's name without what tells one of its ids from another."""
    return traits.normalise(_DISTINCTION.split(name)[0])


def _listed(models: Iterable[str]) -> str:
    return " or ".join(sorted(models)) or "none"
