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
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from cyborg_ext_drivers.catalog import Catalog
from cyborg_ext_drivers.checks.findings import Code, Evidence, Finding, Passed, Severity
from cyborg_ext_drivers.families.base import Accelerator, Family
from cyborg_ext_drivers.host import Host
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
        """Return whether a function is a card of any family."""
        identity = function.identity
        return identity is not None and any(f.recognises(identity) for f in self.families)


class Check(abc.ABC):
    """One topic, one file."""

    codes: ClassVar[tuple[Code, ...]]
    #: Findings of a lower number stand first; the first blocker is the reason.
    precedence: ClassVar[int] = 100

    @abc.abstractmethod
    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is to be said of the accelerator.

        :raises ReadError: when the host does not say; the survey makes a finding of it.
        """
