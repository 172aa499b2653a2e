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

"""Whether a card's link is as wide and as fast as the card can have it.

For people only: reading a link wakes the bridge above a sleeping card, so no discovery does.

Next stop: :mod:`cyborg_ext_drivers.survey`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.topology import Link, link_of, parents_of

LINK_DEGRADED = Code(
    "link-degraded",
    Severity.WARNING,
    "The card's link is narrower or slower than the card can have it",
    "With fewer lanes, all that goes to the card and back takes longer. That a link is slower "
    "than it could be is no fault while the card is idle, as cards then train it down; so it is "
    "shown and no more.",
    "Seat the card and its riser again, clean the contacts, or move it to a slot with more lanes",
)


class LinkCheck(Check):
    """The link is as wide as the card, and as fast while the card works."""

    codes = (LINK_DEGRADED,)
    precedence = 80

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield nothing; see :meth:`look_closer`."""
        yield from ()

    def look_closer(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is wrong with the link of a card that is awake."""
        if accelerator.inferred:
            return
        function = accelerator.function
        link = link_of(function)
        if link is None:
            return
        above = _link_above(function, surroundings)
        found = [each for each in (_width(function, link, above), _speed(function, link)) if each]
        yield from found
        if not found and link.width and link.speed:
            yield Passed(LINK_DEGRADED, ((function.path_of("current_link_width"), str(link)),))


def _link_above(function: PciFunction, surroundings: Surroundings) -> Link | None:
    parents = parents_of(function)
    bridge = surroundings.host.functions.get(parents[-1]) if parents else None
    return link_of(bridge) if bridge else None


def _width(function: PciFunction, link: Link, above: Link | None) -> Finding | None:
    if not link.width or not link.most_width or link.width >= link.most_width:
        return None
    evidence: list[tuple[str, object]] = [
        (function.path_of("current_link_width"), link.width),
        (function.path_of("max_link_width"), link.most_width),
    ]
    is_the_slot = bool(above and above.most_width and above.most_width <= link.width)
    where = f", which is all that its slot has (x{above.most_width})" if is_the_slot else ""
    return LINK_DEGRADED.finding(
        function.address,
        f"Its link has {link.width} of {link.most_width} lanes{where}",
        *evidence,
        remedy="Move it to a slot with more lanes, or set the slot's bifurcation in the firmware"
        if is_the_slot
        else None,
    )


def _speed(function: PciFunction, link: Link) -> Finding | None:
    if not link.speed or not link.most_speed or link.speed >= link.most_speed:
        return None
    finding = LINK_DEGRADED.finding(
        function.address,
        f"Its link runs at {link.speed} of {link.most_speed} GT/s, as that of an idle card may",
        (function.path_of("current_link_speed"), f"{link.speed} GT/s"),
        (function.path_of("max_link_speed"), f"{link.most_speed} GT/s"),
        remedy="Look again while the card works; if it stays so, look for the slot's generation in "
        "the firmware and seat the card again",
    )
    return finding._replace(lowered=Severity.INFO)
