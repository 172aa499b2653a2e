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

"""Whether the host says of the card what has to be known."""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.errors import Malformed, ReadError
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.pci import PciFunction

UNREADABLE = Code(
    "unreadable",
    Severity.BLOCKER,
    "Something about the card cannot be read",
    "The kernel refuses to give an attribute, or gives a value that it never should. Absent is "
    "another thing: many attributes may be absent. Rather than guess, the card is not offered.",
    "Look at the path as the user of cyborg-agent, and at the kernel log for the card",
)
HELD = Code(
    "held",
    Severity.WARNING,
    "The card is reported as it last was",
    "Cyborg deletes the provider of a card that one report leaves out. So a card that stops "
    "qualifying is still reported, unchanged, until it has failed in withdraw_after discoveries "
    "in a row; a card of which something cannot be read is reported until it can be told again.",
    "Mend what the other findings say; withdraw_after in [ext_drivers] of cyborg.conf sets for how "
    "many discoveries a card is held",
)
REPORT_REFUSED = Code(
    "report-refused",
    Severity.BLOCKER,
    "Cyborg would refuse what its driver says of the card",
    "Cyborg's database and Placement have limits for names, traits and resource classes. A report "
    "that breaks one fails as a whole, for all cards of the host, so the card is left out.",
    "Look for a newer release of the driver of this card; what it says of the card is at fault",
)


class ReadingCheck(Check):
    """The id attributes agree with each other and with what the bus said."""

    codes = (UNREADABLE, HELD, REPORT_REFUSED)
    precedence = 10

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what of the card's identity and place cannot be read.

        :raises ReadError: with the first attribute that cannot be read.
        """
        function = accelerator.function
        if function.failure is not None:
            raise function.failure
        function.confirm_identity()
        _ = function.revision, function.numa_node
        yield Passed(UNREADABLE, ((function.path, "all that was read"),))

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what of the physical function cannot be read, unless it is elsewhere.

        :raises ReadError: with the first attribute that cannot be read.
        """
        if not accelerator.inferred:
            yield from self.examine(accelerator, surroundings)


def is_doubt(finding: Finding) -> bool:
    """Return whether something cannot be read on which it depends what Cyborg is told."""
    return finding.code is UNREADABLE and finding.severity is not Severity.INFO


def unreadable(function: PciFunction, error: ReadError) -> Finding:
    """Return the finding for something about a function that cannot be read."""
    remedy = None
    if isinstance(error, Malformed):
        remedy = "Compare the value with lspci's; if the kernel really says so, reset the card"
    return UNREADABLE.finding(
        function.address, str(error), (error.path, error.value), remedy=remedy
    )
