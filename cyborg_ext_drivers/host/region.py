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


"""The base address registers of a PCI function, as its ``resource`` gives them.

A line per register with start, end and flags, all 0 for one that is not implemented
(Documentation/PCI/sysfs-pci.rst).  Next stop: :mod:`cyborg_ext_drivers.host.pci`.
"""

from typing import NamedTuple

from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.directory import Directory, shown

# The lines after them are the expansion ROM, virtual functions' and bridges' windows.
_BASE_ADDRESS_REGISTERS = 6


class Region(NamedTuple):
    """One base address register, as a line of ``resource`` gives it: ``0``."""

    number: int
    start: int
    end: int
    #: include/linux/ioport.h
    flags: int

    @property
    def is_memory(self) -> bool:
        """Whether it is memory, which a driver needs; unused I/O ports are common."""
        return bool(self.flags & 0x200)

    @property
    def is_unassigned(self) -> bool:
        """Whether neither firmware nor kernel found a place for it."""
        return bool(self.flags & 0x20000000)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.end - self.start + 1


def regions_in(directory: Directory) -> tuple[Region, ...]:
    """Return those of a function's base address registers that are implemented, in order.

    :raises ReadError: when ``resource`` cannot be read or is no such table.
    """
    lines = (directory.text("resource") or "").splitlines()[:_BASE_ADDRESS_REGISTERS]
    try:
        rows = [[_number(part) for part in line.split()] for line in lines]
        regions = [Region(n, start, end, flags) for n, (start, end, flags) in enumerate(rows)]
    except ValueError:
        found = shown(" ".join(lines).encode())
        raise Malformed(directory.path_of("resource"), found, "lines of 3 numbers") from None
    return tuple(region for region in regions if region.flags)


def _number(text: str) -> int:
    """Return a number of at most 64 bits.

    :raises ValueError: when it is none.
    """
    number = int(text, 16)
    if not 0 <= number < 1 << 64:
        raise ValueError(text)
    return number
