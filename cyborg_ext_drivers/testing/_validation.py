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

"""Finds everything that is wrong with a description at once, each fault with its path.

First the form (:mod:`._schema`), then, where the form is right, what the schema cannot
say: addresses that are given twice or name no function.
"""

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cyborg_ext_drivers import errors
from cyborg_ext_drivers.testing import _schema

#: The steps from the top of a description to a value: keys and positions in lists.
Path = tuple[str | int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: ``host.functions[3].class: 12416 is not six ...``."""

    path: Path
    sentence: str
    line: int | None = None

    def __str__(self) -> str:
        where = f" (line {self.line})" if self.line else ""
        return f"{_printed(self.path)}: {self.sentence}{where}"


class DescriptionError(errors.ExtDriversError, ValueError):
    """A description of a host that breaks the schema; lists every fault."""

    def __init__(self, origin: str, faults: list[Fault]):
        #: The file, or "the description" for one that came from a program.
        self.origin = origin
        self.faults = tuple(faults)
        super().__init__(origin, self.faults)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.origin} describes no host:", *map(str, self.faults)])


def check_host(mapping: object, origin: str, line_of: Callable[[Path], int | None]) -> None:
    """Check a whole description.

    :raises DescriptionError: with all faults, in the order of the description.
    """
    faults = list(_formal_faults(_host_validator(), mapping))
    if not faults and isinstance(mapping, Mapping):
        faults = list(_contradictions(mapping))
    if faults:
        raise DescriptionError(
            origin, [dataclasses.replace(fault, line=line_of(fault.path)) for fault in faults]
        )


def check_function(mapping: Mapping[str, Any]) -> None:
    """Check the description of one function, as a builder call gives it.

    :raises DescriptionError: with all faults.
    """
    faults = list(_formal_faults(_function_validator(), mapping))
    faults = faults or list(_lone_contradictions(mapping, ()))
    if faults:
        raise DescriptionError(f"{mapping.get('address', 'the function')!s}", faults)


@functools.cache
def _host_validator():
    return _validator(_schema.DESCRIPTION)


@functools.cache
def _function_validator():
    return _validator(_schema.FUNCTION)


def _validator(schema: Mapping[str, Any]):
    # Imported late: it takes longer than everything else here, and only loading needs it.
    import jsonschema

    return jsonschema.Draft202012Validator(schema)


def _formal_faults(validator, mapping: object) -> Iterator[Fault]:
    found = validator.iter_errors(mapping)
    for error in sorted(found, key=lambda error: _in_order(error.absolute_path)):
        path = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            yield from _unknown_keys(path, error.instance, error.schema["properties"])
        else:
            yield Fault(path, _sentence(error))


def _in_order(path: Iterable[str | int]) -> list[str]:
    return [f"{step:09}" if isinstance(step, int) else step for step in path]


def _unknown_keys(path: Path, instance: Mapping, known: Mapping) -> Iterator[Fault]:
    for key in instance:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]}" if near else f"known are {', '.join(known)}"
            yield Fault((*path, key), f"the key is unknown; {hint}")


def _sentence(error) -> str:
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        key = next(key for key in missing if repr(key) in error.message)
        return f"the key {key} is missing"
    wanted = error.schema.get("description")
    return f"{_shown(error.instance)} is not {wanted}" if wanted else error.message


def _contradictions(mapping: Mapping[str, Any]) -> Iterator[Fault]:
    seen: set[str] = set()
    places = [
        (("host", kind, position), function)
        for kind in ("bridges", "functions")
        for position, function in enumerate(mapping["host"].get(kind, ()))
    ]
    known = {function["address"]: function for _path, function in places}
    for path, function in places:
        if function["address"] in seen:
            yield Fault((*path, "address"), f"{function['address']} is described twice")
        seen.add(function["address"])
        yield from _lone_contradictions(function, path)
        for key in ("parent", "physfn"):
            if function.get(key, function["address"]) not in known:
                yield Fault((*path, key), f"{function[key]} is no function of this host")
        if _is_below_itself(function["address"], known):
            yield Fault((*path, "parent"), "the function lies below itself")
    yield from _unknown_expectations(mapping.get("expected", {}), known)


def _lone_contradictions(function: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    if "boot_vga" in function and not function.get("class", "").startswith("0300"):
        yield Fault((*path, "boot_vga"), "only class 0300 has this file")
    if function.get("sriov_numvfs", 0) > function.get("sriov_totalvfs", 0):
        yield Fault((*path, "sriov_numvfs"), "it is larger than sriov_totalvfs")
    seen: set[int] = set()
    for place, port in enumerate(function.get("fpga", {}).get("ports", ())):
        number = port.get("number", place)
        if number in seen:
            yield Fault((*path, "fpga", "ports", place), f"port {number} is described twice")
        seen.add(number)
    if function.get("physfn") == function["address"]:
        yield Fault((*path, "physfn"), "a function cannot be its own physical function")


def _is_below_itself(address: str, known: Mapping[str, Mapping]) -> bool:
    above: list[str] = []
    here = known[address].get("parent")
    while here in known and here not in above:
        above.append(here)
        here = known[here].get("parent")
    return address in above


def _unknown_expectations(expected: Mapping[str, Any], known: Mapping) -> Iterator[Fault]:
    path: Path
    for position, entry in enumerate(expected.get("reported", ())):
        path = ("expected", "reported", position)
        if entry["address"] not in known:
            yield Fault((*path, "address"), f"{entry['address']} is no function of this host")
        for place, handle in enumerate(entry.get("handles", ())):
            if handle not in known:
                yield Fault((*path, "handles", place), f"{handle} is no function of this host")
    for address in expected.get("skipped", ()):
        if address not in known:
            yield Fault(("expected", "skipped", address), "it is no function of this host")


def _printed(path: Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".") or "the description"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
