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

"""Where a PCI function hangs and how fast its link is.

Read: ``current_link_speed``, ``max_link_speed``, ``current_link_width``, ``max_link_width``
(Documentation/ABI/testing/sysfs-bus-pci).  Reading the current ones wakes the bridge above a
sleeping card, so nothing that runs every minute does: the link is for people, never for a
report.  An idle GPU trains it down.
"""

import dataclasses
import re

from cyborg_ext_drivers.address import is_sysfs_name
from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.pci import PciFunction

_SPEED = re.compile(r"(\d+(?:\.\d+)?) ?GT/s")


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A PCI Express link: ``8.0 GT/s x16 of 16.0 GT/s x16``."""

    #: In gigatransfers a second; ``None`` where the kernel does not know.
    speed: float | None
    most_speed: float | None
    #: In lanes.
    width: int | None
    most_width: int | None

    def __str__(self) -> str:
        now = f"{self.speed or '?'} GT/s x{self.width or '?'}"
        return f"{now} of {self.most_speed or '?'} GT/s x{self.most_width or '?'}"


def link_of(function: PciFunction) -> Link | None:
    """Return a function's link, ``None`` for one that is not PCI Express.

    A sleeping card is left asleep; what its link is now is then not known.

    :raises ReadError: when it cannot be read.
    """
    most_speed, most_width = _speed(function, "max_link_speed"), _width(function, "max_link_width")
    if most_speed is None and most_width is None:
        return None
    if function.power_state not in (None, "D0", "unknown"):
        return Link(None, most_speed, None, most_width)
    return Link(
        _speed(function, "current_link_speed"),
        most_speed,
        _width(function, "current_link_width"),
        most_width,
    )


def parents_of(function: PciFunction) -> tuple[str, ...]:
    """Return the names of the bridges above a function, the root port first.

    :raises ReadError: when the link to its attributes leads nowhere.
    """
    path = function.directory.resolved()
    parts = [part for part in path.split("/") if is_sysfs_name(part)]
    return tuple(part for part in parts if part != function.name)


def _speed(function: PciFunction, name: str) -> float | None:
    text = function.directory.text(name)
    match = _SPEED.match(text) if text else None
    # "Unknown" and "Unknown speed" are the kernel's words for a virtual function.
    return float(match[1]) if match else None


def _width(function: PciFunction, name: str) -> int | None:
    try:
        width = function.directory.integer(name)
    except Malformed:
        return None
    # 255 is what a card that does not answer gives, 0 what a virtual function does.
    return width if width not in (0, 255) else None
