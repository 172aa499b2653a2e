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

"""Cards that the host has set up for confidential virtual machines.

Whether a GPU itself is in a mode for confidential computing, its driver knows and PCI does not;
what PCI has is the secure stream (IDE) that the platform's security manager has to a function
since Linux 6.19.

Next stop: :mod:`cyborg_ext_drivers.checks.link`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.tsm import CLASS

CONFIDENTIAL_COMPUTING = Code(
    "confidential-computing",
    Severity.BLOCKER,
    "The card is connected for confidential virtual machines",
    "Somebody has let the platform's security manager (TSM) open a secure stream to the card, for "
    "trusted input and output of confidential virtual machines (PCI Express, TDISP and IDE). Nova "
    "cannot start such a machine with a device of Cyborg's, and in an ordinary one the card would "
    "be taken from what it was set up for.",
    "Leave it to what set it up, or disconnect it to offer it",
)


class ConfidentialCheck(Check):
    """No security manager has a secure stream to the card."""

    codes = (CONFIDENTIAL_COMPUTING,)
    precedence = 48

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether a card has a secure stream; those of a card are those of its parts."""
        if not accelerator.manager:
            yield _examine(accelerator, surroundings)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether the card has a secure stream, which then is for its parts."""
        yield _examine(accelerator, surroundings)


def _examine(accelerator: Accelerator, surroundings: Surroundings) -> Finding | Passed:
    function = accelerator.function
    for path, name in surroundings.host.tsm.streams():
        if name == function.name:
            manager = path.split("/")[-2]
            return CONFIDENTIAL_COMPUTING.finding(
                function.address,
                f"The security manager {manager} has a secure stream to it",
                (path, name),
                remedy=f"Leave it to what set it up; if that was a mistake, echo {manager} > "
                f"{function.path_of('tsm/disconnect')} disconnects it",
            )
    return Passed(CONFIDENTIAL_COMPUTING, ((CLASS, "no stream to it"),))
