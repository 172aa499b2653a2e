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
"""A description of a host, in YAML that people read: ids in quotes, texts of lines as lines.

Next stop: :mod:`cyborg_ext_drivers.snapshot.describe`.
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

# What YAML, or a reader, might take for a number or a time: ids, addresses, releases.
_LIKE_A_NUMBER = re.compile(r"[0-9a-fA-FxX:._+-]*")
_LONGEST_ROW = 100


class _Row(dict):
    """A map that is written in one line."""


class _Dumper(yaml.SafeDumper):
    """Writes the same text for the same values, without references."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: each value stands where it belongs."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None
    if "\n" in text and _is_plain(text):
        style = "|"
    elif _LIKE_A_NUMBER.fullmatch(text) or not text.isprintable():
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _is_plain(text: str) -> bool:
    """Return whether a text can be written line by line, with nothing to be escaped."""
    lines = text.split("\n")
    return all(line.isprintable() and line == line.strip(" ") for line in lines)


def _row(dumper: yaml.SafeDumper, row: _Row) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", row.items(), flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Row, _row)


def to_yaml(mapping: Mapping[str, Any]) -> str:
    """Return a description as YAML; the same description is the same text."""
    parts = [
        yaml.dump(
            {key: _shown(value)},
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            width=_LONGEST_ROW,
        )
        for key, value in mapping.items()
    ]
    heads = [part for key, part in zip(mapping, parts) if key not in ("host", "expected")]
    bodies = [part for key, part in zip(mapping, parts) if key in ("host", "expected")]
    return "\n".join(["".join(heads), *bodies])


def _shown(value: Any, depth: int = 0) -> Any:
    """Return a value with each short and simple map below the second level as one line."""
    if isinstance(value, list):
        return [_shown(each, depth + 1) for each in value]
    if not isinstance(value, Mapping):
        return value
    if depth > 1 and _is_short(value):
        return _Row(value)
    return {key: _shown(each, depth + 1) for key, each in value.items()}


def _is_short(value: Mapping[Any, Any]) -> bool:
    simple = all(
        each is None
        or isinstance(each, int | float)
        or (isinstance(each, str) and "\n" not in each)
        for each in value.values()
    )
    return bool(value) and simple and len(repr(dict(value))) < _LONGEST_ROW
