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

"""The schema of a catalogue file, and errors that name the line and the key.

A file maps PCI ids to what they are.  Top-level keys:

``vendors``
    PCI vendor id to the vendor's name in traits (``NVIDIA``).
``sources``
    Short name to where a fact was looked up; a comment at the end of an entry names it.
``devices``
    The accelerators.  ``id`` (and ``subsystem``, where that decides the product), ``kind``
    and ``name`` are needed.  ``model`` becomes a trait; it is left out where the id does
    not name one product, and then ``revisions`` may decide it by the PCI revision.
    A ``name`` is the product's, then what tells this id from the product's others after a
    comma or in brackets: ``Alveo U250, user function``.  ``integrated`` marks what is part of
    the processor and so never offered.
``companions``
    Functions that belong to a card and are none themselves.
``never``
    Functions that are not to be reported, with the finding code that says why.  What an
    operator may take for an accelerator, though its class is another, is a ``candidate`` and
    shown among them, with a ``remedy`` where there is one.  A rule with ``unless_below`` is not
    for functions that hang below a bridge of one of these ids.

The functions of one product name each other by ``role`` (``pf`` where nothing is said), with
device ids of the same vendor:

``pf``
    A whole card, and the physical function where it has virtual ones.  ``vf_device`` is the
    id that these have; it is the card's own where they share it.
``vf``
    A virtual function with an id of its own.  ``pf_device`` names the physical function, or
    several in a list.  It has the physical function's model.
``mgmt``, ``user``
    The function of a card that manages it and the one that is given away; ``pair_device`` of
    each is the other.
``golden``
    A card with the image that it came with from the factory, without a function to give away.
``function``
    Any other function of a card.

Within a file an id, or an id with a subsystem, stands once in a section.  An id that the package
knows keeps its kind; in an operator's file, so does one that a third party's package knows.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from cyborg_ext_drivers.catalog._yaml import Lines, compose, excesses, fault_of, parse
from cyborg_ext_drivers.errors import CatalogError

__all__ = ["SCHEMA", "parse", "parse_checked"]

_MODEL = {"type": "string", "pattern": r"^[A-Z0-9]+(-[A-Z0-9]+)*$(?!\n)", "maxLength": 64}
_NAME = {"type": "string", "minLength": 1, "maxLength": 120}
_VENDOR = {"type": "string", "pattern": r"^[0-9a-f]{4}$(?!\n)"}
_ID = {"type": "string", "pattern": r"^[0-9a-f]{4}:[0-9a-f]{4}$(?!\n)"}
_SOME_IDS = {"type": "array", "items": _ID, "minItems": 1, "uniqueItems": True}
_CLASS = {"type": "string", "pattern": "^[0-9a-f]{2}([0-9a-f]{2})?$"}
_REVISION = {
    "type": "object",
    "properties": {"model": _MODEL, "name": _NAME},
    "required": ["model"],
    "additionalProperties": False,
}
_DEVICE = {
    "type": "object",
    "properties": {
        "id": _ID,
        "subsystem": _ID,
        "kind": {"enum": ["GPU", "FPGA", "AICHIP", "NIC"]},
        "model": _MODEL,
        "name": _NAME,
        "role": {"enum": ["pf", "vf", "mgmt", "user", "golden", "function"]},
        "class": _CLASS,
        "revisions": {
            "type": "object",
            "propertyNames": {"type": "string", "pattern": r"^[0-9a-f]{2}$(?!\n)"},
            "additionalProperties": _REVISION,
        },
        "integrated": {"type": "boolean"},
        "architecture": _NAME,
        "compute_capability": {"type": "string", "pattern": r"^\d+\.\d+$"},
        "memory_mib": {"type": "integer", "minimum": 1},
        "sriov": {"type": "boolean"},
        "mig": {"type": "boolean"},
        "vgpu": {"type": "string"},
        # One, or several in a list.
        "pf_device": {**_VENDOR, "type": ["string", "array"], "items": _VENDOR, "minItems": 2},
        "vf_device": _VENDOR,
        "pair_device": _VENDOR,
    },
    "required": ["id", "kind", "name"],
    "additionalProperties": False,
}
_RULE = {
    "id": _ID,
    "subsystem": _ID,
    "vendor": _VENDOR,
    "class": _CLASS,
    "address": {"type": "string"},
    "what": _NAME,
}
_COMPANION = {
    "type": "object",
    "properties": _RULE,
    "anyOf": [{"required": ["id"]}, {"required": ["vendor", "class"]}],
    "required": ["what"],
    "additionalProperties": False,
}
_NEVER = {
    "type": "object",
    "properties": {
        **_RULE,
        "code": {"enum": ["not-an-accelerator", "management-display", "integrated-gpu"]},
        "candidate": {"type": "boolean"},
        "unless_below": _SOME_IDS,
        "remedy": _NAME,
    },
    "anyOf": [{"required": ["id"]}, {"required": ["vendor", "class"]}],
    "required": ["code", "what"],
    "additionalProperties": False,
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "vendors": {
            "type": "object",
            "propertyNames": _VENDOR,
            "additionalProperties": {"type": "string", "pattern": "^[A-Z0-9]+$"},
        },
        "sources": {"type": "object", "additionalProperties": _NAME},
        "devices": {"type": "array", "items": _DEVICE},
        "companions": {"type": "array", "items": _COMPANION},
        "never": {"type": "array", "items": _NEVER},
    },
    "additionalProperties": False,
}

# PyYAML lets what a wrong value of an explicit tag makes of it through: !!int "".
_OF_WRONG_VALUES = (
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    ArithmeticError,
    RecursionError,
)
# So much a person reads.
_MOST_FAULTS = 20
_MOST_OF_A_FAULT = 300


def parse_checked(
    path: str, text: str, kind_of: Callable[[str], str | None] = lambda pci_id: None
) -> dict[str, Any]:
    """Return what a catalogue file holds, after checking it against the schema.

    :param kind_of: gives the kind of an id that cannot be changed, ``None`` where it is free.
    :raises CatalogError: when it is no YAML or breaks the schema; names every fault, up to
        twenty.
    """
    document = None
    try:
        faults = list(itertools.islice(excesses(text), 1))
        if not faults:
            document = parse(text)
        if document is not None:
            lines = Lines(compose(text))
            faults = [*lines.duplicates, *_schema_faults(document, lines)]
            faults = faults or [*_repetitions(document, lines), *_kinds(document, lines, kind_of)]
    except yaml.YAMLError as error:
        faults = [fault_of(error)]
    except _OF_WRONG_VALUES as error:
        faults = [f"it is no YAML that can be used ({error})"]
    if faults:
        raise CatalogError(path, _shown(faults))
    return document or {}


def _shown(faults: list[str]) -> list[str]:
    """Return so many faults, and so much of each, as a person reads."""
    short = [
        f if len(f) <= _MOST_OF_A_FAULT else f"{f[:_MOST_OF_A_FAULT]}..."
        for f in faults[:_MOST_FAULTS]
    ]
    return [*short, "and more"] if len(faults) > _MOST_FAULTS else short


def _schema_faults(document: Any, lines: Lines) -> list[str]:
    # Only operators' and third parties' files are checked at run time; most hosts have none.
    import jsonschema

    validator = jsonschema.Draft202012Validator(SCHEMA)
    found = itertools.islice(validator.iter_errors(document), _MOST_FAULTS + 1)
    errors = sorted(found, key=lambda error: list(map(str, error.path)))
    return [
        f"line {lines.of(error.absolute_path)}: {error.json_path.removeprefix('$.')}: "
        f"{_plain(error)}"
        for error in errors
    ]


# What tells one entry from another; of two that have all in common, one would never be heard.
_SUBJECTS = {
    "devices": ("id", "subsystem"),
    "companions": ("id", "subsystem", "vendor", "class", "address"),
    "never": ("id", "subsystem", "vendor", "class", "address"),
}


def _repetitions(document: dict, lines: Lines) -> Iterator[str]:
    """Yield each entry for whose functions an entry before it stands already."""
    for section, keys in _SUBJECTS.items():
        first: dict[tuple, int] = {}
        for number, entry in enumerate(document.get(section) or ()):
            subject = tuple(entry.get(key) for key in keys)
            before = first.setdefault(subject, number)
            if before != number:
                named = " ".join(filter(None, subject))
                yield (
                    f"line {lines.of((section, number))}: {section}[{number}]: {named} stands "
                    f"in line {lines.of((section, before))} already"
                )


def _kinds(document: dict, lines: Lines, kind_of: Callable[[str], str | None]) -> Iterator[str]:
    """Yield each device whose kind is another than the one its id has."""
    for number, entry in enumerate(document.get("devices") or ()):
        known = kind_of(entry["id"])
        if known not in (None, entry["kind"]):
            # The family that takes the card, and what it reports it as, follow the kind.
            yield (
                f"line {lines.of(('devices', number, 'kind'))}: devices[{number}].kind: "
                f"{entry['id']} is of kind {known} and cannot become {entry['kind']}"
            )


def _plain(error: Any) -> str:
    if error.validator == "type" and error.validator_value == "string":
        return f"{error.instance!r} is no text; put it in quotes"
    if error.validator == "anyOf":
        return "it needs an id, or a vendor and a class"
    if error.validator == "pattern":
        return f"{error.instance!r} is not of the form {error.validator_value}"
    return error.message[:200]
