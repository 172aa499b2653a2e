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

"""Whose the functions are by ``[pci] device_spec`` of nova.conf, by Nova's rules.

``[pci] passthrough_whitelist`` of cyborg.conf, which Cyborg's pci_driver reads, has the same
rules.

A value is a JSON object or a list of them.  ``vendor_id`` and ``product_id`` are ids or
``*``.  ``address`` is a text whose parts may be left out or be ``*``, or an object of regular
expressions that match from the start.  An address that names one physical function also names
its virtual functions.  Source: nova/pci/devspec.py and nova/pci/whitelist.py.
"""

import json
import re
from typing import NamedTuple

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.host.identity import PciId

_PARTS = ("domain", "bus", "slot", "function")
_LIMITS = (0xFFFF, 0xFF, 0x1F, 0x7)
_WIDTHS = (4, 2, 2, 1)


class InvalidDeviceSpec(ExtDriversError, ValueError):
    """A value that Nova would refuse."""


class DeviceSpec(NamedTuple):
    """One object of ``device_spec``; ``text`` is the value that it stands in."""

    text: str
    vendor: str | None
    product: str | None
    #: A pattern for each of domain, bus, slot and function.
    patterns: tuple[re.Pattern, ...]
    #: The one function that the address names, if it names one.
    single: PciAddress | None

    def matches(self, address: PciAddress, pci_id: PciId, parent: PciAddress | None = None) -> bool:
        """Return whether Nova takes a function.

        :param parent: the physical function, for a virtual one.
        """
        if self.vendor not in (None, pci_id.vendor) or self.product not in (None, pci_id.device):
            return False
        if address.is_wide:
            return False
        if parent is not None and parent == self.single:
            return True
        fields = (address.domain, address.bus, address.device, address.function)
        texts = (f"{field:0{width}x}" for field, width in zip(fields, _WIDTHS))
        return all(pattern.match(text) for pattern, text in zip(self.patterns, texts))


def parse(text: str) -> tuple[DeviceSpec, ...]:
    """Return the objects of one value of the option.

    A ``devname`` names a network interface and so none of our devices.

    :raises InvalidDeviceSpec: when Nova would refuse the value.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidDeviceSpec(f"{text!r} is no JSON") from None
    objects = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in objects):
        raise InvalidDeviceSpec(f"{text!r} is neither an object nor a list of objects")
    return tuple(_spec(text, each) for each in objects if not each.get("devname"))


def _spec(text: str, given: dict) -> DeviceSpec:
    address = given.get("address") or "*:*:*.*"
    vendor = _id(text, given.get("vendor_id", "*"))
    product = _id(text, given.get("product_id", "*"))
    if isinstance(address, dict):
        patterns = _regular(text, address)
        return DeviceSpec(text, vendor, product, patterns, _named(patterns))
    if not isinstance(address, str):
        raise InvalidDeviceSpec(f"{text!r}: the address is neither a text nor an object")
    numbers = _numbers(text, address)
    patterns = tuple(
        re.compile(".*" if number is None else f"{number:0{width}x}$")
        for number, width in zip(numbers, _WIDTHS)
    )
    single = None if None in numbers else PciAddress(*numbers)
    return DeviceSpec(text, vendor, product, patterns, single)


def _id(text: str, value: object) -> str | None:
    if not isinstance(value, str):
        raise InvalidDeviceSpec(f"{text!r}: {value!r} is no text")
    return None if value.strip() == "*" else f"{_hexadecimal(text, value, 0xFFFF):04x}"


def _regular(text: str, address: dict) -> tuple[re.Pattern, ...]:
    try:
        return tuple(re.compile(address.get(part, ".*")) for part in _PARTS)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise InvalidDeviceSpec(f"{text!r}: {error}") from None


def _named(patterns: tuple[re.Pattern, ...]) -> PciAddress | None:
    """Return the function that regular expressions of nothing but digits name."""
    name = "{}:{}:{}.{}".format(*(pattern.pattern for pattern in patterns))
    try:
        address = PciAddress.parse(name)
    except InvalidAddress:
        return None
    return address if str(address) == name else None


def _numbers(text: str, address: str) -> list[int | None]:
    """Return domain, bus, slot and function; ``None`` for what may be anything."""
    front, _, function = address.partition(".")
    fields = front.split(":") if front else []
    if len(fields) > 3:
        raise InvalidDeviceSpec(f"{text!r}: {address!r} is no PCI address")
    padded = [*["*"] * (3 - len(fields)), *fields, function]
    parts = [part.strip() or "*" for part in padded]
    return [
        None if part == "*" else _hexadecimal(text, part, limit)
        for part, limit in zip(parts, _LIMITS)
    ]


def _hexadecimal(text: str, value: str, limit: int) -> int:
    try:
        number = int(value, 16)
    except ValueError:
        number = -1
    if not 0 <= number <= limit:
        raise InvalidDeviceSpec(f"{text!r}: {value!r} is no hexadecimal number up to {limit:x}")
    return number
