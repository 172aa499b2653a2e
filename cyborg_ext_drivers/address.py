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

"""The address of a PCI function: every spelling in, one spelling out.

The kernel, lspci, NVML, libvirt, Nova and Cyborg each write the same address
differently, and Cyborg compares addresses as text.  This is the only module
that knows the spellings.  Next stop: :mod:`cyborg_ext_drivers.host.pci`.
"""

import dataclasses
import json
import re

from cyborg_ext_drivers import errors

_SPELLINGS = (
    # 0000:3b:00.0 (sysfs), 00000000:3B:00.0 (NVML), 3b:00.0 (lspci), pci-... (udev)
    re.compile(
        r"(?:pci[@-])?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-9a-fA-F])"
    ),
    # pci_0000_3b_00_0 (libvirt node device)
    re.compile(r"pci_([0-9a-fA-F]{4,8})_([0-9a-fA-F]{2})_([0-9a-fA-F]{2})_([0-9a-fA-F])"),
)
# What the kernel's bus has: %04x:%02x:%02x.%d (drivers/pci/probe.c pci_setup_device).
_OF_SYSFS = re.compile(r"(?:[0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_NUMBER = re.compile(r"(?:0[xX])?[0-9a-fA-F]{1,8}")
_FIELDS = ("domain", "bus", "device", "function")
_LIMITS = (0xFFFFFFFF, 0xFF, 0x1F, 0x7)


def is_sysfs_name(name: str) -> bool:
    """Return whether an entry of sysfs is named as the kernel names PCI functions."""
    return _OF_SYSFS.fullmatch(name) is not None


class InvalidAddress(errors.ExtDriversError, ValueError):
    """A text that is not the address of a PCI function."""

    def __init__(self, text: object, reason: str):
        self.text = text
        self.reason = reason
        super().__init__(text, reason)

    def __str__(self) -> str:
        return (
            f"{self.text!r} is not a PCI address: {self.reason}; "
            "write it as domain:bus:device.function, for example 0000:3b:00.0"
        )


@dataclasses.dataclass(frozen=True, order=True)
class PciAddress:
    """One PCI function, printed as sysfs prints it: ``0000:3b:00.0``.

    Addresses sort by their four numbers, as ``10000:00:00.0`` would sort before
    ``f000:00:00.0`` as text.
    """

    domain: int
    bus: int
    device: int
    function: int

    def __post_init__(self) -> None:
        for name, limit in zip(_FIELDS, _LIMITS):
            value = getattr(self, name)
            if not 0 <= value <= limit:
                raise InvalidAddress(
                    tuple(getattr(self, field) for field in _FIELDS),
                    f"its {name} is outside 0 to {limit:#x}",
                )

    @classmethod
    def parse(cls, text: str) -> "PciAddress":
        """Read any spelling: sysfs, lspci, NVML, libvirt or Cyborg's JSON text.

        A missing domain is domain 0, as lspci has it.

        :raises InvalidAddress: when the text names no PCI function.
        """
        if not isinstance(text, str):
            raise InvalidAddress(text, "it is no text")
        stripped = text.strip()
        if stripped.startswith("{"):
            return cls.from_json(stripped)
        for spelling in _SPELLINGS:
            match = spelling.fullmatch(stripped)
            if match:
                return cls._from_digits(text, match.groups(default="0"))
        raise InvalidAddress(text, "it has another form")

    @classmethod
    def from_json(cls, text: str) -> "PciAddress":
        """Read the text of Cyborg's ``cpid_info`` and ``attach_info``; see :meth:`to_json`.

        Values may carry ``0x`` and need no leading zeros; other keys are ignored.

        :raises InvalidAddress: when it is no JSON object with the four keys.
        """
        try:
            fields = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            raise InvalidAddress(text, "it is no JSON") from None
        if not isinstance(fields, dict):
            raise InvalidAddress(text, "it is no JSON object")
        missing = [name for name in _FIELDS if not isinstance(fields.get(name), str)]
        if missing:
            raise InvalidAddress(text, f"it has no text for {', '.join(missing)}")
        return cls._from_digits(text, [fields[name] for name in _FIELDS])

    @classmethod
    def _from_digits(cls, text, digits) -> "PciAddress":
        if not all(_NUMBER.fullmatch(value) for value in digits):
            raise InvalidAddress(text, "a part of it is no hexadecimal number")
        numbers = [int(value, 16) for value in digits]
        for name, value, limit in zip(_FIELDS, numbers, _LIMITS):
            if value > limit:
                raise InvalidAddress(text, f"its {name} is larger than {limit:#x}")
        return cls(*numbers)

    @property
    def is_wide(self) -> bool:
        """Whether the domain needs more than 16 bits, as below Intel VMD.

        Nova and QEMU stop at domain ffff (Nova bug 1897528).
        """
        return self.domain > 0xFFFF

    def to_json(self) -> str:
        """Return the text by which Cyborg's conductor matches devices and handles.

        ``{"bus": "3b", "device": "00", "domain": "0000", "function": "0"}``: the keys
        sorted, lower-case hexadecimal values without ``0x`` (the in-tree drivers'
        ``cyborg.accelerator.common.utils.pci_str_to_json``).
        """
        return (
            f'{{"bus": "{self.bus:02x}", "device": "{self.device:02x}", '
            f'"domain": "{self.domain:04x}", "function": "{self.function:x}"}}'
        )

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"
