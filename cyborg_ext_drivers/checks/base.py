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

"""What a check is: it examines one accelerator and yields findings and passes.

What it can say is in :mod:`cyborg_ext_drivers.checks.findings`.  Checks register under the
entry point ``cyborg_ext_drivers.check``.

Next stop: :mod:`cyborg_ext_drivers.checks.iommu`.
"""

import abc
import functools
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from cyborg_ext_drivers.catalog import Catalog
from cyborg_ext_drivers.checks.findings import Code, Evidence, Finding, Passed, Severity
from cyborg_ext_drivers.families.base import Accelerator, Family
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.options import Options

__all__ = [
    "Check",
    "Code",
    "Evidence",
    "Finding",
    "Passed",
    "Severity",
    "Surroundings",
]


class Surroundings(NamedTuple):
    """What a check may look at beside the accelerator itself."""

    host: Host
    options: Options
    catalog: Catalog
    #: Every family that is installed, to tell accelerators among other functions.
    families: tuple[Family, ...]

    def is_accelerator(self, function: PciFunction) -> bool:
        """Return whether a function is a card, or a part of one, of any family.

        :raises ReadError: when that depends on what cannot be read.
        """
        identity = function.identity
        if identity is None or not self.families_of(identity):
            return False
        if function.physical_function is not None:
            # What of itself is none, as the graphics of a processor, may have parts that are.
            return True
        above = functools.partial(self.host.functions.ids_above, function)
        product = self.catalog.product(identity)
        is_integrated = product is not None and product.is_integrated
        return not is_integrated and not self.catalog.exclusion(identity, function.address, above)

    def families_of(self, identity: Identity) -> tuple[Family, ...]:
        """Return the families that know a card of this identity."""
        kind = self.catalog.kind(identity)
        return tuple(family for family in self.families if family.recognises(identity, kind))


class Check(abc.ABC):
    """One topic, one file."""

    codes: ClassVar[tuple[Code, ...]]
    #: Findings of a lower number stand first; the first blocker is the reason.
    precedence: ClassVar[int] = 100

    @property
    def can_block(self) -> bool:
        """Whether any of its findings keeps a card from being reported."""
        return any(code.severity is Severity.BLOCKER for code in self.codes)

    @abc.abstractmethod
    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is to be said of a function that an instance would get.

        That is the card itself, or each of its parts, which are virtual functions or others of
        the card: ``manager`` of the accelerator is set then, and ``function`` is the part.

        :raises ReadError: when the host does not say; the survey makes a finding of it.
        """

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is to be said of a card whose parts are given away.

        Whether each of them can be is not asked here.

        :raises ReadError: when the host does not say; the survey makes a finding of it.
        """
        yield from ()

    def look_closer(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is to be said of a card to somebody who asks about this one.

        What takes long or wakes a sleeping card is looked at here, never in a discovery, so it is
        a warning at most: what blocks would not be known to the agent.

        :raises ReadError: when the host does not say; the survey makes a finding of it.
        """
        yield from ()
