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


"""Takes out of values of ``device_spec`` and of catalogue files what nobody asks them for.

Both mean for our checks and names what they meant, a refused one is refused, and what only an
operator's own words are (tags, networks, sources, comments) is replaced.

Next stop: :mod:`cyborg_ext_drivers.snapshot.redact`.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import yaml

from cyborg_ext_drivers.catalog.schema import SCHEMA, parse_checked
from cyborg_ext_drivers.checks import device_spec
from cyborg_ext_drivers.checks.device_spec import InvalidDeviceSpec
from cyborg_ext_drivers.errors import CatalogError

_IDS = ("vendor_id", "product_id")
_PARTS = ("domain", "bus", "slot", "function")
#: Tags of Nova's whose values tell of hardware and of scheduling (nova/pci/devspec.py).
_TOLD = frozenset(
    (
        *("resource_class", "traits", "managed", "live_migratable", "remote_managed", "trusted"),
        *("one_time_use", "dev_type"),
    )
)
#: Tags whose values name what is the operator's.
_PRIVATE = frozenset(("devname", "physical_network", "parent_ifname"))
_A_WORD = re.compile(r"[^\s{}\[\]\"':,]+")
# What stands for itself in a value that Nova refuses: ids, addresses, wildcards.
_OF_AN_ADDRESS = re.compile(r"(?:0[xX])?[0-9a-fA-F]{0,8}|[0-9a-fA-F]{2}\.[0-7*]|[*.]+")
_WORDS = _TOLD | _PRIVATE | {*_IDS, *_PARTS, "address", "true", "false", "null"}
_OF_NO_NUMBER = re.compile(r"\\.|\(\?[aiLmsux-]*|[g-zG-Z_]", re.DOTALL)
# A tag of numbers, true or false; the rest of the values Nova takes as texts.
_A_FLAG = re.compile(r"true|false|yes|no|on|off|[01]", re.IGNORECASE)
_A_NAME = re.compile(r"[A-Z][A-Z0-9_]*(?:\s*,\s*[A-Z][A-Z0-9_]*)*")


class _Pairs(list):
    """An object as it stands in the text, with what stands there twice."""


def spec(text: str, other: Callable[[str], str]) -> str:
    """Return a value of ``device_spec`` that takes the same functions and tells nothing else.

    :param other: gives what stands for a text of the operator's.
    """
    try:
        given = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return _refused(text, other)
    made = [_spec(each, other) for each in given] if _is_list(given) else _spec(given, other)
    if made == given:
        return text
    written = _dumped(made)
    # A regular expression or an id that is none tells why it is refused.
    return written if _is_refused(written) == _is_refused(text) else _refused(text, other)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and not isinstance(value, _Pairs)


def _spec(given: Any, other: Callable[[str], str]) -> Any:
    if not isinstance(given, _Pairs):
        return _hidden(given, other)
    made = _Pairs()
    last = dict(given)
    for key, value in given:
        # Of a key that stands there twice, the last counts.
        if value is not last[key]:
            continue
        known = key in _WORDS
        made.append((key if known else other(key), _value(key, value, other)))
    return made


def _value(key: str, value: Any, other: Callable[[str], str]) -> Any:
    if key in _IDS:
        return value if _is_id(value) else _hidden(value, other)
    if key == "address":
        if isinstance(value, _Pairs):
            return _Pairs((part, _part(part, each, other)) for part, each in value)
        is_address = isinstance(value, str) and all(
            _OF_AN_ADDRESS.fullmatch(word) for word in _A_WORD.findall(value)
        )
        return value if is_address else _hidden(value, other)
    if (
        key in _TOLD
        and isinstance(value, str)
        and (_A_FLAG.fullmatch(value) or _A_NAME.fullmatch(value) or value.startswith("type-"))
    ):
        return value
    return _hidden(value, other)


def _part(name: str, value: Any, other: Callable[[str], str]) -> Any:
    """Return a regular expression that matches the same numbers, whatever else it says."""
    if name not in _PARTS or not isinstance(value, str):
        return _hidden(value, other)
    # No number has such a letter, so one is as good as another.
    return _OF_NO_NUMBER.sub(lambda m: m[0] if m[0][0] in "\\(" else "x", value)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and bool(
        re.fullmatch(r"\s*(?:\*|(?:0[xX])?[0-9a-fA-F]{1,4})\s*", value)
    )


def _hidden(value: Any, other: Callable[[str], str]) -> Any:
    """Return a value of the same kind that says nothing; what is empty or a flag stays."""
    if value is None or isinstance(value, bool) or value in ("", 0):
        return value
    if isinstance(value, str):
        return value if _A_FLAG.fullmatch(value) else other(value)
    if isinstance(value, _Pairs):
        return _Pairs((other(key), _hidden(each, other)) for key, each in value)
    if isinstance(value, list):
        return [_hidden(each, other) for each in value]
    return other(str(value))


def _dumped(value: Any) -> str:
    def plain(each: Any) -> Any:
        if isinstance(each, _Pairs):
            return {key: plain(inner) for key, inner in each}
        return [plain(inner) for inner in each] if isinstance(each, list) else each

    return json.dumps(plain(value))


def _is_refused(text: str) -> bool:
    try:
        device_spec.parse(text)
    except InvalidDeviceSpec:
        return True
    return False


def _refused(text: str, other: Callable[[str], str]) -> str:
    """Return a value that Nova refuses as it refuses this one, with the words that it knows."""

    def word(match: re.Match) -> str:
        is_known = match[0] in _WORDS or _OF_AN_ADDRESS.fullmatch(match[0])
        return match[0] if is_known else other(match[0])

    made = _A_WORD.sub(word, text)
    return made if made == text or _is_refused(made) else other(text)


# Catalogue files


class _Span(NamedTuple):
    start: int
    end: int
    value: str


def catalogue(data: bytes, other: Callable[[str], str], text: Callable[[str], str]) -> bytes:
    """Return a catalogue file that says the same of PCI ids, or is left out as this one is.

    :param other: gives what stands for a text of the operator's.
    :param text: gives a text that people are shown without what is secret.
    """
    try:
        plain = data.decode()
        is_good = _is_good(plain)
    except UnicodeDecodeError:
        return b"\xff" + other(repr(data)).encode()
    made = _catalogue(plain, is_good, other, text)
    if made is None or _is_good(made) != is_good:
        # Nothing of it is used, so nothing of it is kept; who reads it is told of a fault.
        made = f"{other(plain)}: left out on the host\n"
    return made.encode()


def _is_good(text: str) -> bool:
    try:
        parse_checked("", text)
    except CatalogError:
        return False
    return True


def _catalogue(
    plain: str, is_good: bool, other: Callable[[str], str], text: Callable[[str], str]
) -> str | None:
    try:
        root = yaml.compose(plain, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if root is None:
        return "\n"
    kept = _without_comments(plain, root)
    for start, end, value in sorted(_spans(root, SCHEMA, is_good, other, text), reverse=True):
        # The end of a text of lines is the next one's beginning.
        line_end = "\n" if end > start and plain[end - 1] == "\n" else ""
        kept = kept[:start] + json.dumps(value, ensure_ascii=False) + line_end + kept[end:]
    return "".join(f"{line.rstrip()}\n" for line in kept.splitlines())


def _without_comments(plain: str, root: yaml.Node) -> str:
    """Return a text of the same length with blanks where comments are."""
    inside = bytearray(len(plain) + 1)
    for node in _scalars(root):
        start, end = node.start_mark.index, node.end_mark.index
        inside[start:end] = b"\1" * (end - start)
    made, at = list(plain), 0
    while (at := plain.find("#", at)) >= 0:
        end = plain.find("\n", at)
        end = len(plain) if end < 0 else end
        if not inside[at] and (not at or plain[at - 1].isspace()):
            made[at:end] = " " * (end - at)
            at = end
        else:
            at += 1
    return "".join(made)


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    for each in node.value if isinstance(node, yaml.CollectionNode) else ():
        for inner in each if isinstance(each, tuple) else (each,):
            yield from _scalars(inner)


def _spans(
    node: yaml.Node,
    schema: Any,
    is_good: bool,
    other: Callable[[str], str],
    text: Callable[[str], str],
    is_source: bool = False,
) -> Iterator[_Span]:
    """Yield what is written in other words: what no schema knows, and what only people read."""
    if isinstance(node, yaml.ScalarNode):
        said = node.value
        if schema is None or is_source:
            made = other(said) if said else said
        elif "pattern" in schema or "enum" in schema or node.tag != "tag:yaml.org,2002:str":
            made = said if is_good or re.fullmatch(r"[\w:.-]{0,20}", said) else other(said)
        else:
            made = text(said) if is_good else other(said)
        if made != said:
            yield _Span(node.start_mark.index, node.end_mark.index, made)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _spans(each, _items(schema), is_good, other, text, is_source)
    elif isinstance(node, yaml.MappingNode):
        known = (schema or {}).get("properties", {})
        rest = (schema or {}).get("additionalProperties")
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            inner = known.get(name) or (rest if isinstance(rest, dict) else None)
            source = is_source or (schema is SCHEMA and name == "sources")
            if isinstance(key, yaml.ScalarNode) and (inner is None or (is_source and name)):
                yield _Span(key.start_mark.index, key.end_mark.index, other(str(name)))
            yield from _spans(value, inner, is_good, other, text, source)


def _items(schema: Any) -> Any:
    return (schema or {}).get("items")
