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

"""What a check can say: a finding of some kind, or that all is well.

Each kind is a :class:`Code`; its title, explanation and remedy are written once, beside the
check that uses it, and the command, its list of codes and the manual are made from there.
Codes are public and never renamed.
"""

import enum
from typing import NamedTuple

from cyborg_ext_drivers.address import PciAddress


class Severity(enum.Enum):
    """What a finding does to the accelerator."""

    BLOCKER = "blocker"
    WARNING = "warning"
    INFO = "info"

    def __str__(self) -> str:
        return self.value


class Evidence(NamedTuple):
    """The very path and value that decided."""

    path: str
    value: str

    def __str__(self) -> str:
        return f"{self.path} = {self.value}"


class Finding(NamedTuple):
    """Something about an accelerator that the operator should know."""

    code: "Code"
    address: PciAddress | None
    message: str
    evidence: tuple[Evidence, ...]
    remedy: str
    #: The operator takes it upon himself ([ext_drivers] ignore_findings).
    is_ignored: bool = False
    #: What it does where that is less than its kind: it blocks a function of the card, say, and
    #: others are given away in its place.
    lowered: Severity | None = None

    @property
    def severity(self) -> Severity:
        """What it does to the accelerator."""
        return self.lowered or self.code.severity

    @property
    def is_blocker(self) -> bool:
        """Whether it keeps the accelerator from being reported."""
        return self.severity is Severity.BLOCKER and not self.is_ignored

    def __str__(self) -> str:
        return f"{self.code}: {self.message}. {self.remedy}"


class Passed(NamedTuple):
    """A question that was asked and answered well: which, and by what."""

    code: "Code"
    evidence: tuple[tuple[str, object], ...] = ()


class Code(NamedTuple):
    """One kind of finding: ``iommu-disabled``."""

    name: str
    severity: Severity
    title: str
    explanation: str
    remedy: str
    #: Whether it says that the card's hardware is dead ([ext_drivers] on_fault).
    is_fault: bool = False

    def finding(
        self,
        address: PciAddress | None,
        message: str,
        *evidence: tuple[str, object],
        remedy: str | None = None,
    ) -> Finding:
        """Return a finding of this kind; *remedy* where the general one does not fit."""
        shown = tuple(Evidence(path, str(value)) for path, value in evidence)
        return Finding(self, address, message, shown, remedy or self.remedy)

    def __str__(self) -> str:
        return self.name
