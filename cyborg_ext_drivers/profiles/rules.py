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

"""What Cyborg's API takes as a device profile, and what it takes and cannot serve.

Sources: cyborg.api.controllers.v2.device_profiles, ``_validate_post_request`` (the same in
Cyborg 14 to 17), for what is refused; cyborg.api.controllers.v2.arqs and Placement's API
reference for what is taken and fails later, in front of a user.
"""

import enum
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.profiles.inventory import TWICE

RESOURCES, TRAIT, ACCEL = "resources:", "trait:", "accel:"
#: Cyborg takes these (constants.SUPPORT_RESOURCES) and all that begin with CUSTOM_.
CLASSES = ("FPGA", "GPU", "PGPU", "VGPU")
#: Cyborg's constants.ACCEL_SPECS.
ACCEL_KEYS = ("accel:bitstream_id", "accel:function_id")
# With match, as Cyborg uses it: $ also matches before a newline at the end.
_NAME = re.compile("^[a-zA-Z0-9-_]+$")
_MOST_NAME = 255
_PREFIXES = {
    "resource": RESOURCES,
    "resources": RESOURCES,
    "resource_class": RESOURCES,
    "trait": TRAIT,
    "traits": TRAIT,
    "accel": ACCEL,
    "accelerator": ACCEL,
}


class Level(str, enum.Enum):
    """What a problem does."""

    #: Cyborg's API answers with an error.
    REFUSED = "refused"
    #: Cyborg's API takes it, and no instance ever gets what it asks for.
    FAILS = "fails"
    #: It works, but not for long or not as it looks.
    WARNING = "warning"


class Problem(NamedTuple):
    """What is wrong with a profile."""

    code: str
    level: Level
    #: The group's number from 0, as Cyborg counts; ``None`` for the profile as a whole.
    group: int | None
    message: str
    remedy: str


class Group(NamedTuple):
    """What one group asks for, as far as it can be told."""

    number: int
    resources: dict[str, int]
    required: tuple[str, ...]
    forbidden: tuple[str, ...]
    accel: dict[str, Any]


def problems(profile: object) -> list[Problem]:
    """Return all that is wrong with a profile, ``{"name": ..., "groups": [...]}``."""
    if not isinstance(profile, Mapping):
        message = f"A profile is an object with name and groups, not {shown(profile)}"
        remedy = 'Write {"name": NAME, "groups": [{"resources:PGPU": "1"}]}'
        return [Problem("profile-not-an-object", Level.REFUSED, None, message, remedy)]
    return [
        *_of_name(profile.get("name")),
        *_of_description(profile.get("description")),
        *_of_uuid(profile.get("uuid")),
        *of_groups(profile.get("groups")),
    ]


def of_groups(groups: object) -> list[Problem]:
    """Return all that is wrong with the groups of a profile."""
    if isinstance(groups, Mapping) and groups:
        message = "The groups are an object where Cyborg takes a list of objects"
        remedy = "Put the object in brackets: [{...}]"
        return [Problem("groups-not-a-list", Level.REFUSED, None, message, remedy)]
    if not groups:
        message = "The profile has no groups"
        remedy = 'Write groups as a list: [{"resources:PGPU": "1"}]'
        return [Problem("groups-missing", Level.REFUSED, None, message, remedy)]
    if not isinstance(groups, list):
        message = f"The groups are {shown(groups)} where Cyborg takes a list of objects"
        remedy = 'Write the list itself: [{"resources:PGPU": "1"}]'
        return [Problem("groups-not-a-list", Level.REFUSED, None, message, remedy)]
    return [each for number, group in enumerate(groups) for each in _of_group(number, group)]


def read_group(number: int, group: object) -> Group:
    """Return what a group asks for; what cannot be told is left out."""
    resources: dict[str, int] = {}
    wanted: dict[str, list[str]] = {"required": [], "forbidden": []}
    accel: dict[str, Any] = {}
    for key, value in group.items() if isinstance(group, Mapping) else ():
        prefix, name = _split(key)
        count = _count(value)
        if prefix == RESOURCES and count is not None:
            resources[name] = count
        elif prefix == TRAIT and isinstance(value, str) and value in wanted:
            wanted[value].append(name)
        elif prefix == ACCEL:
            accel[str(key)] = value
    return Group(number, resources, tuple(wanted["required"]), tuple(wanted["forbidden"]), accel)


def shown(value: object) -> str:
    """Return a value for people, short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _of_name(name: object) -> Iterator[Problem]:
    remedy = "Name it with letters, digits, hyphens and underscores"
    if not name:
        yield Problem("name-missing", Level.REFUSED, None, "The profile has no name", remedy)
    elif not isinstance(name, str) or not _NAME.match(name):
        message = f"Cyborg takes no name like {shown(name)}"
        yield Problem("name-invalid", Level.REFUSED, None, message, remedy)
    elif name.endswith("\n") or len(name) > _MOST_NAME:
        message = f"The name has {len(name)} characters or ends in a newline"
        yield Problem("name-unusable", Level.FAILS, None, message, f"{remedy}, at most 255")


def _of_description(description: object) -> Iterator[Problem]:
    if description is not None and not isinstance(description, (str, int, float)):
        message = f"The description is {shown(description)}, no text"
        yield Problem("description-no-text", Level.REFUSED, None, message, "Write a text")


def _of_uuid(given: object) -> Iterator[Problem]:
    """Yield what Cyborg keeps although it answers HTTP 400, and then lists no profile any more."""
    if given is None:
        return
    try:
        uuid.UUID(given)  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError):
        message = f"The uuid is {shown(given)}, no UUID; kept, it breaks the list of all profiles"
        yield Problem("uuid-invalid", Level.REFUSED, None, message, "Leave it out")


def _of_group(number: int, group: object) -> Iterator[Problem]:
    if not isinstance(group, Mapping):
        message = f"The group is {shown(group)} where Cyborg takes an object"
        remedy = 'Write {"resources:PGPU": "1"}'
        yield Problem("group-not-an-object", Level.REFUSED, number, message, remedy)
        return
    for key, value in group.items():
        prefix, name = _split(key)
        if prefix == RESOURCES:
            yield from _of_resource(number, name, value)
        elif prefix == TRAIT:
            yield from _of_trait(number, name, value)
        elif prefix == ACCEL:
            yield from _of_accel(number, key, value)
        else:
            yield _of_other(number, key, group)
    if all(_split(key)[0] for key in group):
        yield from _of_whole_group(read_group(number, group))


def _of_other(number: int, key: object, group: Mapping) -> Problem:
    message = f"The key {shown(key)} begins with none of resources:, trait: and accel:"
    word = str(key).partition(":")[0].strip().lower()
    if word in ("name", "groups") or "groups" in group:
        remedy = "Give the list of groups alone, without the object around it"
    elif _PREFIXES.get(word) and ":" in str(key):
        remedy = f"Write {_PREFIXES[word]}{str(key).partition(':')[2].strip()}"
    elif str(key).startswith("CUSTOM_"):
        remedy = f"Write trait:{key}, or resources:{key} where it is a resource class"
    elif key in CLASSES:
        remedy = f"Write resources:{key}"
    else:
        remedy = "Write resources:CLASS, trait:CUSTOM_NAME or accel:NAME"
    return Problem("key-unknown", Level.REFUSED, number, message, remedy)


def _of_trait(number: int, name: str, value: object) -> Iterator[Problem]:
    if name == traits.OWNER_CYBORG:
        message = f"Cyborg reports {name} of every card, and takes no such trait in a profile"
        remedy = f"Leave trait:{name} out; traits that begin with CUSTOM_ tell cards apart"
        yield Problem("trait-not-custom", Level.REFUSED, number, message, remedy)
    elif not name.startswith("CUSTOM_"):
        message = f"Cyborg takes traits that begin with CUSTOM_ only, not {shown(name)}"
        remedy = "Leave it out, or name a CUSTOM_ trait that the card reports"
        yield Problem("trait-not-custom", Level.REFUSED, number, message, remedy)
    else:
        try:
            traits.check(name)
        except traits.InvalidTrait as error:
            remedy = "Name a trait that a host reports"
            yield Problem("trait-invalid", Level.FAILS, number, f"Placement: {error}", remedy)
    if not isinstance(value, str) or value not in ("required", "forbidden"):
        message = f"The value of trait:{name} is {shown(value)}, not required or forbidden"
        remedy = f'Write "trait:{name}": "required"'
        yield Problem("trait-value", Level.REFUSED, number, message, remedy)


def _of_resource(number: int, name: str, value: object) -> Iterator[Problem]:
    if name not in CLASSES and not name.startswith("CUSTOM_"):
        message = f"Cyborg knows no resource class {shown(name)}"
        remedy = f"Name one of {', '.join(CLASSES)}, or one that begins with CUSTOM_"
        yield Problem("resource-class-unknown", Level.REFUSED, number, message, remedy)
    elif not traits.is_resource_class(name):
        message = f"Placement takes no resource class {shown(name)}"
        remedy = "Write CUSTOM_ and then upper-case letters, digits and underscores"
        yield Problem("resource-class-invalid", Level.FAILS, number, message, remedy)
    remedy = f'Write "resources:{name}": "1"'
    try:
        count = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        message = f"{shown(value)} is no count of {name}"
        yield Problem("count-invalid", Level.REFUSED, number, message, remedy)
        return
    if isinstance(value, (bool, float)):
        message = f"Cyborg keeps {shown(value)} as a text, which is no count of {name} later"
        yield Problem("count-invalid-later", Level.FAILS, number, message, remedy)
    elif count < 1:
        message = f"{count} of {name} is less than one"
        yield Problem("count-not-positive", Level.FAILS, number, message, remedy)
    elif value != str(count):
        message = f"The count of {name} is {shown(value)}; Cyborg makes a text of it"
        remedy = f'Write "resources:{name}": "{count}"'
        yield Problem("count-spelling", Level.WARNING, number, message, remedy)


def _of_accel(number: int, key: str, value: object) -> Iterator[Problem]:
    if value is not None and not isinstance(value, (str, int, float)):
        message = f"The value of {key} is {shown(value)}, no text"
        yield Problem("accel-no-text", Level.REFUSED, number, message, "Write a text")
    if key not in ACCEL_KEYS:
        message = f"Cyborg ignores {shown(key)}"
        remedy = f"Leave it out, or write one of {', '.join(ACCEL_KEYS)}"
        yield Problem("accel-unknown", Level.WARNING, number, message, remedy)


def _of_whole_group(group: Group) -> Iterator[Problem]:
    number = group.number
    if not group.resources:
        message = "The group asks for no resource, so Cyborg makes no accelerator request for it"
        remedy = 'Add the resource class, such as "resources:PGPU": "1"'
        yield Problem("nothing-asked", Level.FAILS, number, message, remedy)
    if len(group.resources) > 1:
        message = f"One device has one resource class, not {' and '.join(group.resources)}"
        remedy = "Write one group for each class"
        yield Problem("several-classes", Level.FAILS, number, message, remedy)
    if TWICE in group.required:
        message = (
            f"For a group that requires {TWICE} Cyborg makes two accelerator requests for each "
            "unit, for the two functions of older cards"
        )
        remedy = "Require the card's model in its place, such as CUSTOM_XILINX_ALVEO_U250"
        level = Level.WARNING if "FPGA" in group.resources else Level.FAILS
        yield Problem("requests-doubled", level, number, message, remedy)
    if all(key in group.accel for key in ACCEL_KEYS):
        message = "The group names a bitstream and a function"
        yield Problem("two-images", Level.WARNING, number, message, "Leave one of them out")


def _split(key: object) -> tuple[str | None, str]:
    """Return prefix and name of a key; Cyborg takes spaces from the ends of the name."""
    for prefix in (RESOURCES, TRAIT, ACCEL):
        if isinstance(key, str) and key.startswith(prefix):
            return prefix, key.removeprefix(prefix).strip(" ")
    return None, ""


def _count(value: object) -> int | None:
    try:
        return max(int(value), 1)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
