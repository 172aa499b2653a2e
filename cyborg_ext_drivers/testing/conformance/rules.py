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

"""What can be judged of one report without changing the host: (code, evidence) pairs."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cyborg_ext_drivers import address, traits
from cyborg_ext_drivers.testing.conformance.record import UNSET

Found = Iterator[tuple[str, str]]

_MOST = {"vendor": 255, "model": 255, "cpid_info": 255, "driver_name": 100, "name": 200}
_POSITIONAL = re.compile(r"traits?[_-]?\d+")


def judge(report: list[dict[str, Any]], hostname: str, types: Iterable[str]) -> Found:
    """Yield what a report breaks.

    :param hostname: what ``[DEFAULT] host`` says.
    :param types: what Cyborg calls kinds of devices.
    """
    for device in report:
        yield from _device(device, tuple(types))
        for deployable in device["deployables"]:
            yield from _deployable(deployable, hostname)
    yield from _repeated(report)


def handles(report: list[dict[str, Any]]) -> list[str]:
    """Return the addresses that a report hands out, in sysfs' spelling; no others."""
    texts = [
        info
        for device in report
        for part in device["deployables"]
        for _type, info in part["handles"]
    ]
    return list(dict.fromkeys(filter(None, map(address_of, texts))))


def together(report: list[dict[str, Any]], physical: Mapping[str, str]) -> Found:
    """Yield each virtual function that is offered beside its physical function.

    :param physical: the address of a virtual function to that of its physical function.
    """
    offered = handles(report)
    for virtual in offered:
        parent = physical.get(virtual)
        if parent in offered:
            evidence = f"{parent} and its virtual function {virtual} are both attach handles"
            yield "virtual-functions-beside-physical", evidence


def address_of(text: Any) -> str | None:
    """Return the address that an attach handle says, in sysfs' spelling; ``None`` for no address.

    Each spelling that can be understood counts, not only the one of the in-tree drivers.
    """
    try:
        return str(address.PciAddress.parse(text))
    except address.InvalidAddress:
        return None


def _device(device: dict[str, Any], types: tuple[str, ...]) -> Found:
    where = device["cpid_info"]
    for name, value in device.items():
        if value is UNSET or value == UNSET:
            yield "field-unset", f"{name} of the device {where}"
    yield from _long(device, ("vendor", "model", "cpid_info"))
    if device["type"] not in (UNSET, *types):
        yield "device-type-unknown", f"{device['type']!r} of {where}"
    yield from _spelling("cpid-spelling", where)


def _spelling(code: str, text: Any) -> Found:
    if text == UNSET:
        return
    try:
        numbers = json.loads(address.PciAddress.from_json(text).to_json())
    except address.InvalidAddress as error:
        example = address.PciAddress(0, 0x3B, 0, 0).to_json()
        yield code, f"{text!r}: {error.reason}; the in-tree spelling is, for example, {example}"
        return
    # A handle may say more, such as the type of a mediated device.
    right = json.dumps({**json.loads(text), **numbers}, sort_keys=True)
    if text != right:
        yield code, f"{text} where the in-tree spelling is {right}"


def _deployable(part: dict[str, Any], hostname: str) -> Found:
    name = part["name"]
    for field in ("name", "driver_name", "num_accelerators"):
        if part[field] == UNSET:
            yield "field-unset", f"{field} of the deployable {name}"
    for field in part["unset"]:
        yield "field-unset", f"{field} of the deployable {name}"
    yield from _long(part, ("name", "driver_name"))
    if name != UNSET and not name.startswith(f"{hostname}_"):
        yield "name-without-host", f"{name} does not begin with [DEFAULT] host = {hostname}"
    if part["num_accelerators"] != len(part["handles"]):
        said, there = part["num_accelerators"], len(part["handles"])
        yield "accelerators-unlike-handles", f"{name}: num_accelerators {said}, handles {there}"
    for kind, info in part["handles"]:
        if kind not in ("PCI", "MDEV", "TEST_PCI"):
            yield "attach-type-unknown", f"{kind!r} of {info}"
        yield from _spelling("handle-spelling", info)
        if len(str(info)) > 255:
            yield "text-too-long", f"attach_info of {name}"
    yield from _attributes(name, part["attributes"])


def _attributes(name: str, attributes: list[tuple[str, str]]) -> Found:
    keys = [key for key, _ in attributes]
    if "rc" not in keys:
        yield "no-resource-class", f"{name} has the attributes {', '.join(keys) or 'none'}"
    for key, times in Counter(keys).items():
        if times > 1:
            yield "attribute-repeated", f"{name}: {key} is there {times} times"
    for key, value in attributes:
        if key == "rc":
            if not traits.is_resource_class(value):
                yield "resource-class-not-nameable", f"{name}: {value}"
        elif not key.startswith("trait"):
            yield "attribute-becomes-trait", f"{name}: {key} = {value}"
        else:
            yield from _trait(name, key, value)


def _trait(name: str, key: str, value: str) -> Found:
    if _POSITIONAL.fullmatch(key):
        yield "positional-trait-key", f"{name}: {key} = {value}"
    if re.fullmatch("CUSTOM_[A-Z0-9_]+", value) and len(value) <= traits.MOST_CHARACTERS:
        return
    if value.startswith("CUSTOM_") or not re.fullmatch("[A-Z0-9_]+", value):
        yield "trait-form", f"{name}: {value}"
    elif value != traits.OWNER_CYBORG:
        yield "trait-not-nameable", f"{name}: {value}"


def _long(fields: Mapping[str, Any], names: Iterable[str]) -> Found:
    for name in names:
        length = len(str(fields[name]))
        if length > _MOST[name]:
            yield "text-too-long", f"{name} has {length} characters, {_MOST[name]} are taken"


def _repeated(report: list[dict[str, Any]]) -> Found:
    parts = [part for device in report for part in device["deployables"]]
    found = {
        "cpid-repeated": [device["cpid_info"] for device in report],
        "name-not-unique": [part["name"] for part in parts],
        "handle-repeated": [info for part in parts for _type, info in part["handles"]],
    }
    for code, texts in found.items():
        for text, times in Counter(texts).items():
            if times > 1 and text != UNSET:
                yield code, f"{text} is there {times} times"
