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


"""What a PCI function is: its class and ids, from its ``uevent`` or its id files.

Read: ``uevent`` and ``vendor``, ``device``, ``class``, ``subsystem_*`` of
``/sys/bus/pci/devices/<address>/``; anybody may.  All are values that the kernel cached
when it found the function, so they stay right when the card is dead or asleep.

Next stop: :mod:`cyborg_ext_drivers.host.pci`.
"""

import functools
import re
from typing import NamedTuple

from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.directory import Directory, shown

# The order in which drivers/pci/pci-driver.c writes its part.
_UEVENT = re.compile(
    rb"^PCI_CLASS=([0-9A-Fa-f]{1,6})\nPCI_ID=([0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4})\n"
    rb"PCI_SUBSYS_ID=([0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4})$",
    re.MULTILINE,
)


class PciId(NamedTuple):
    """A vendor and one of its device (or subsystem) ids: ``10de:1eb8``."""

    vendor: str
    device: str

    def __str__(self) -> str:
        return f"{self.vendor}:{self.device}"


class PciClass(NamedTuple):
    """A class code of six hexadecimal digits, base, sub and interface: ``030200``.

    It is empty in copies of a host that lack the file.
    """

    code: str

    @property
    def base(self) -> str:
        """The first two digits, ``03`` for a display controller."""
        return self.code[:2]

    @property
    def base_and_sub(self) -> str:
        """The first four digits, ``0302`` for a 3D controller."""
        return self.code[:4]

    @property
    def is_display(self) -> bool:
        """Whether it is a display controller: VGA, XGA, 3D or other."""
        return self.base == "03"

    @property
    def is_accelerator(self) -> bool:
        """Whether accelerators use it: display, co-processor, processing accelerator.

        1201 is left out: SDXI moves memory and is no card (pci.ids).
        """
        return self.is_display or self.base_and_sub in ("0b40", "1200")

    def __str__(self) -> str:
        return self.code


class Identity(NamedTuple):
    """What a function is, as the kernel found it: ``10de:1eb8 class 030200``.

    A named tuple, as these are compared and looked up thousands of times in a walk.
    """

    pci_class: PciClass
    id: PciId
    subsystem: PciId | None

    def __str__(self) -> str:
        return f"{self.id} class {self.pci_class.code or 'unknown'}"

    @classmethod
    def of_uevent(cls, uevent: bytes) -> "Identity | None":
        """Return what a ``uevent`` says, ``None`` when it does not say it.

        All but DRIVER in it, which is read apart, stays as long as the function does.
        """
        match = _UEVENT.search(uevent)
        return _spelled(*match.groups()) if match else None

    @classmethod
    def of_files(cls, directory: Directory) -> "Identity | None":
        """Return what the id files say, ``None`` when vendor or device is absent.

        Some copies of a host have no ``class``; the ids of many cards are enough to know them.

        :raises ReadError: when one of them cannot be read.
        """
        pci_class = directory.hexadecimal("class", 6)
        vendor = directory.hexadecimal("vendor", 4)
        device = directory.hexadecimal("device", 4)
        subsystem_vendor = directory.hexadecimal("subsystem_vendor", 4)
        subsystem_device = directory.hexadecimal("subsystem_device", 4)
        if not (vendor and device):
            return None
        subsystem = None
        if subsystem_vendor and subsystem_device:
            subsystem = PciId(subsystem_vendor, subsystem_device)
        return cls(PciClass(pci_class or ""), PciId(vendor, device), subsystem)

    def confirm(self, directory: Directory) -> None:
        """Compare with what ``uevent`` and the id files say, one by one.

        :raises ReadError: when one cannot be read or contradicts it.
        """
        uevent = directory.data("uevent") or b""
        said = Identity.of_uevent(uevent)
        if said != self and (said or is_nonsense(uevent)):
            raise Malformed(directory.path_of("uevent"), shown(uevent), f"the uevent of {self}")
        subsystem = self.subsystem or PciId("", "")
        for name, digits, value in (
            ("vendor", 4, self.id.vendor),
            ("device", 4, self.id.device),
            ("class", 6, self.pci_class.code),
            ("subsystem_vendor", 4, subsystem.vendor),
            ("subsystem_device", 4, subsystem.device),
        ):
            found = directory.hexadecimal(name, digits)
            if found is not None and value and found != value:
                raise Malformed(directory.path_of(name), f"0x{found}", f"0x{value}, as in uevent")

    def confirm_header(self, header: bytes, path: str) -> None:
        """Compare with the ids that begin a configuration space, the file at *path*.

        :raises Malformed: when it has other ones, or is too short for any.
        """
        ids = b"".join(int(part, 16).to_bytes(2, "little") for part in self.id)
        if header[:4] != ids:
            raise Malformed(path, header[:4].hex(" "), f"{ids.hex(' ')}, the ids in uevent")


# Copies and kernels of other makers may leave lines out, or write them in another order.
_LEGAL = re.compile(rb"PCI_CLASS=[0-9A-Fa-f]{1,6}|PCI_ID=[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}")


def is_nonsense(uevent: bytes) -> bool:
    """Tell nonsense from a ``uevent`` that merely lacks the PCI lines, as in some copies.

    To be asked of one that gives no identity.
    """
    return any(
        b"=" not in line
        or (line.startswith((b"PCI_CLASS", b"PCI_ID")) and not _LEGAL.fullmatch(line))
        for line in uevent.splitlines()
    )


@functools.lru_cache(maxsize=1024)
def _spelled(class_code: bytes, pci_id: bytes, subsystem: bytes) -> Identity:
    return Identity(
        PciClass(f"{int(class_code, 16):06x}"),
        PciId(*(f"{int(part, 16):04x}" for part in pci_id.split(b":"))),
        PciId(*(f"{int(part, 16):04x}" for part in subsystem.split(b":"))),
    )
