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

"""Profiles as people write them: JSON or YAML, one or many, with what the client would refuse.

``openstack accelerator device profile create NAME GROUPS`` takes the list of groups alone, as
JSON (cyborgclient.osc.v2.device_profile).  A file may hold that, a profile (an object with name
and groups), a list of profiles, or a library (``profiles``, as ``profile suggest --library``
writes it); so may what Cyborg's API answers.
"""

import collections
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from cyborg_ext_drivers.catalog import _yaml
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.profiles import rules
from cyborg_ext_drivers.profiles.rules import Level, Problem

_MOST_CHARACTERS = 4 << 20
_WRAPPERS = ("profiles", "device_profiles", "device_profile")
_ONE_GROUP = re.compile(r"(resources|trait|accel):[^=\s]+=")


class NoProfile(ExtDriversError, ValueError):
    """A text that holds no device profile."""

    def __init__(self, source: str, reason: str):
        self.source = source
        self.reason = reason
        super().__init__(source, reason)

    def __str__(self) -> str:
        return f"{self.source} holds no device profile: {self.reason}"


class Draft(NamedTuple):
    """A profile as somebody wrote it, with all that breaks a rule."""

    #: ``None`` for groups without a name, as the command takes them.
    name: str | None
    #: The groups as far as they can be told; whatever they are, if they cannot.
    groups: Any
    problems: tuple[Problem, ...]


def read(text: str, source: str, is_argument: bool = False) -> list[Draft]:
    """Return the profiles that a text holds.

    :param source: where it is from, for what is said of it.
    :param is_argument: it stands on the command line, where GROUPS of the client's would.
    :raises NoProfile: when it holds none.
    """
    if len(text) > _MOST_CHARACTERS:
        raise NoProfile(source, f"it has {len(text)} characters, more than {_MOST_CHARACTERS}")
    text = text.strip().removeprefix("\ufeff")
    found: list[Problem] = []
    value = _parsed(text, source, is_argument, found)
    drafts = [
        draft._replace(problems=(*found, *draft.problems)) for draft in _drafts(value, is_argument)
    ]
    if not drafts:
        raise NoProfile(source, f"it is {rules.shown(value)}")
    return drafts


def is_group(text: str) -> bool:
    """Return whether a text is one group as newer clients take it: ``resources:PGPU=1,...``."""
    return bool(_ONE_GROUP.match(text))


def groups_text(groups: Any) -> str:
    """Return groups as the client takes them, for a shell."""
    return shlex.quote(json.dumps(groups, default=str))


def _parsed(text: str, source: str, is_argument: bool, found: list[Problem]) -> Any:
    if not text:
        raise NoProfile(source, "it is empty")
    if len(text) > 1 and text[0] == text[-1] == "'" and "\n" not in text:
        text = text[1:-1]
        message = "The text stands in quotes that a shell would take away"
        found.append(_problem("quoted", message, "Leave out the quotes around it"))
    if is_group(text) and "\n" not in text:
        parts = (part.partition("=") for part in text.split(","))
        return [{key.strip(): value.strip() for key, _, value in parts}]
    repeated: list[str] = []

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        times = collections.Counter(key for key, _ in pairs)
        repeated.extend(rules.shown(key) for key, number in times.items() if number > 1)
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=object_of)
    except RecursionError:
        raise NoProfile(source, "it is nested too deep") from None
    except ValueError as error:
        value, repeated = _parsed_as_yaml(text, source, error)
        if is_argument or (text[0] in "[{" and "'" in text):
            message = f"It is no JSON ({error})"
            if "'" in text:
                message = "It is no JSON: JSON has double quotes where single ones stand"
            found.append(_problem("not-json", message, f"Write {groups_text(_groups_of(value))}"))
    for key in dict.fromkeys(repeated):
        message = f"{key} stands twice in an object, and the last one counts"
        found.append(Problem("key-twice", Level.WARNING, None, message, "Leave one out"))
    return value


def _parsed_as_yaml(text: str, source: str, error: ValueError) -> tuple[Any, list[str]]:
    """Return what a YAML text holds, and which keys stand twice where."""
    try:
        excess = next(_yaml.excesses(text), None)
        value = None if excess else _yaml.parse(text)
        repeated = [] if excess else _yaml.Lines(_yaml.compose(text)).repeated
    except yaml.YAMLError as fault:
        reason = f"it is neither JSON ({error}) nor YAML ({_yaml.fault_of(fault)})"
        raise NoProfile(source, reason) from None
    except (RecursionError, ValueError, TypeError, OverflowError) as fault:
        raise NoProfile(source, f"it is neither JSON ({error}) nor YAML ({fault})") from None
    if excess:
        raise NoProfile(source, excess)
    if not isinstance(value, (list, dict)):
        raise NoProfile(source, f"it is {rules.shown(value)}, neither an object nor a list")
    return value, [f"{rules.shown(key)} (line {line})" for line, key in repeated]


def _drafts(value: Any, is_argument: bool) -> Iterator[Draft]:
    if isinstance(value, Mapping):
        for wrapper in _WRAPPERS:
            if wrapper in value:
                inner = value[wrapper]
                for each in inner if isinstance(inner, list) else [inner]:
                    yield _profile(each)
                return
        if "groups" in value or "name" in value:
            yield _wrapped(value) if is_argument else _profile(value)
        elif value:
            message = "The groups are an object where Cyborg takes a list of objects"
            remedy = f"Put it in brackets: {groups_text([value])}"
            yield Draft(
                None,
                [value],
                (_problem("groups-not-a-list", message, remedy), *rules.of_groups([value])),
            )
    elif isinstance(value, list) and value:
        if any(isinstance(each, Mapping) and "groups" in each for each in value):
            for each in value:
                yield _profile(each)
        else:
            yield Draft(None, value, tuple(rules.of_groups(value)))


def _wrapped(value: Mapping) -> Draft:
    """Return what an object is where the client takes the list of groups alone."""
    draft = _profile({"name": "groups", **value})
    message = "The command takes the list of groups alone, without an object with name and groups"
    name = value.get("name") if isinstance(value.get("name"), str) else "NAME"
    remedy = (
        f"Run: openstack accelerator device profile create {shlex.quote(name)} "
        f"{groups_text(draft.groups) if draft.groups else 'GROUPS'}"
    )
    problem = _problem("groups-in-an-object", message, remedy)
    given = value.get("name")
    return Draft(
        given if isinstance(given, str) else None, draft.groups, (problem, *draft.problems)
    )


def _profile(value: Any) -> Draft:
    found = rules.problems(value)
    if not isinstance(value, Mapping):
        return Draft(None, [], tuple(found))
    groups = value.get("groups")
    if isinstance(groups, str):
        try:
            groups = json.loads(groups)
        except (ValueError, RecursionError):
            groups = []
        found += rules.of_groups(groups) if groups else []
    if isinstance(groups, Mapping):
        groups = [groups]
        found += rules.of_groups(groups)
    name = value.get("name")
    return Draft(name if isinstance(name, str) else None, groups, tuple(found))


def _groups_of(value: Any) -> Any:
    groups = value.get("groups", value) if isinstance(value, Mapping) else value
    return [groups] if isinstance(groups, Mapping) else groups


def _problem(code: str, message: str, remedy: str) -> Problem:
    return Problem(code, Level.REFUSED, None, message, remedy)
