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
``companions``
    Functions that belong to a card and are none themselves.
``never``
    Functions that are not to be reported, with the finding code that says why.  What an
    operator may take for an accelerator, though its class is another, is a ``candidate`` and
    shown among them.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import yaml

from cyborg_ext_drivers.errors import CatalogError

_MODEL = {"type": "string", "pattern": r"^[A-Z0-9]+(-[A-Z0-9]+)*$(?!\n)", "maxLength": 64}
_NAME = {"type": "string", "minLength": 1, "maxLength": 120}
_VENDOR = {"type": "string", "pattern": r"^[0-9a-f]{4}$(?!\n)"}
_ID = {"type": "string", "pattern": r"^[0-9a-f]{4}:[0-9a-f]{4}$(?!\n)"}
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
        "role": {"enum": ["pf", "vf", "mgmt", "user", "function"]},
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
        "pf_device": _VENDOR,
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

# The schema's own values nest 5 deep and have up to 120 characters.  More than so much is a
# mistake or an attack: PyYAML recurses over nesting, and a number of a MiB takes it a minute.
_MOST_DEPTH = 16
_MOST_CHARACTERS = 1000
_MOST_FAULTS = 20
_MOST_OF_A_FAULT = 300

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str) -> Any:
    """Return what a trusted YAML text holds, fast; see :func:`parse_checked` for others."""
    return yaml.load(text, Loader=_Loader)


def parse_checked(path: str, text: str) -> dict[str, Any]:
    """Return what a catalogue file holds, after checking it against the schema.

    :raises CatalogError: when it is no YAML or breaks the schema; names every fault, up to
        twenty.
    """
    document = None
    try:
        faults = list(itertools.islice(_excesses(text), 1))
        if not faults:
            document = parse(text)
        if document is not None:
            lines = _Lines(yaml.compose(text, Loader=_Loader))
            faults = [*lines.duplicates, *_schema_faults(document, lines)]
    except yaml.YAMLError as error:
        faults = [_yaml_fault(error)]
    # PyYAML lets what a wrong value of an explicit tag makes of it through: !!int "".
    except _OF_WRONG_VALUES as error:
        faults = [f"it is no YAML that can be used ({error})"]
    if faults:
        raise CatalogError(path, _shown(faults))
    return document or {}


_OF_WRONG_VALUES = (
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    ArithmeticError,
    RecursionError,
)


def _excesses(text: str) -> Iterator[str]:
    """Yield what no catalogue file has and what it would be costly to read on for."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            yield f"line {line}: aliases (*name) are not allowed; write the value out"
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > _MOST_CHARACTERS:
            yield f"line {line}: a value has more than {_MOST_CHARACTERS} characters"
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MOST_DEPTH:
                yield f"line {line}: lists and maps are nested more than {_MOST_DEPTH} deep"
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _shown(faults: list[str]) -> list[str]:
    """Return so many faults, and so much of each, as a person reads."""
    short = [
        f if len(f) <= _MOST_OF_A_FAULT else f"{f[:_MOST_OF_A_FAULT]}..."
        for f in faults[:_MOST_FAULTS]
    ]
    return [*short, "and more"] if len(faults) > _MOST_FAULTS else short


def _yaml_fault(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark else problem


def _schema_faults(document: Any, lines: "_Lines") -> list[str]:
    # Only operators' files are checked at run time, and most hosts have none.
    import jsonschema

    validator = jsonschema.Draft202012Validator(SCHEMA)
    found = itertools.islice(validator.iter_errors(document), _MOST_FAULTS + 1)
    errors = sorted(found, key=lambda error: list(map(str, error.path)))
    return [
        f"line {lines.of(error.absolute_path)}: {error.json_path.removeprefix('$.')}: "
        f"{_plain(error)}"
        for error in errors
    ]


def _plain(error: Any) -> str:
    if error.validator == "type" and error.validator_value == "string":
        return f"{error.instance!r} is no text; put it in quotes"
    if error.validator == "anyOf":
        return "it needs an id, or a vendor and a class"
    if error.validator == "pattern":
        return f"{error.instance!r} is not of the form {error.validator_value}"
    return error.message[:200]


class _Lines:
    """Where in a YAML text each value stands, and which keys stand there twice."""

    def __init__(self, node: yaml.Node | None):
        self._root = node
        self.duplicates: list[str] = []
        self._search(node)

    def of(self, path) -> int:
        """Return the line, from 1, of the value at a path of keys and indexes."""
        node = self._root
        for step in path:
            child = self._child(node, step)
            if child is None:
                break
            node = child
        return node.start_mark.line + 1

    def _search(self, node: yaml.Node | None) -> None:
        if isinstance(node, yaml.SequenceNode):
            for child in node.value:
                self._search(child)
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen if isinstance(key.value, str) else False:
                    self.duplicates.append(
                        f"line {key.start_mark.line + 1}: {key.value}: the key stands there twice"
                    )
                seen.add(str(key.value))
                self._search(value)

    @staticmethod
    def _child(node: yaml.Node, step: Any) -> yaml.Node | None:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            return node.value[step]
        if isinstance(node, yaml.MappingNode):
            return next((value for key, value in node.value if key.value == str(step)), None)
        return None
