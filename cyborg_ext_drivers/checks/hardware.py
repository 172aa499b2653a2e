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

"""Whether the card answers and can be addressed."""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator

CONFIG_SPACE_DEAD = Code(
    "config-space-dead",
    Severity.BLOCKER,
    "The card does not answer",
    "All of its configuration space reads ff, as the kernel fills in for a function that does not "
    "answer (drivers/pci/access.c): it fell off the bus, lost power, or a reset failed.",
    "Reset the card or power the host off and on; if it stays so, the card or its slot is broken",
)
DOMAIN_TOO_WIDE = Code(
    "domain-too-wide",
    Severity.BLOCKER,
    "The PCI domain has more than four digits",
    "Behind Intel VMD, domains start at 10000. Nova and QEMU stop at ffff (Nova bug 1897528), so "
    "the function cannot be attached.",
    "Switch VMD off for the slot in the firmware",
)


class HardwareCheck(Check):
    """A live configuration space, an address that can be attached."""

    codes = (CONFIG_SPACE_DEAD, DOMAIN_TOO_WIDE)
    precedence = 30

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is wrong with the hardware."""
        function = accelerator.function
        header = function.header
        if header is not None and header == b"\xff" * len(header) and header:
            yield CONFIG_SPACE_DEAD.finding(
                function.address,
                "Its configuration space reads ff throughout",
                (function.path_of("config"), f"ff in all of {len(header)} bytes"),
            )
        else:
            yield Passed(CONFIG_SPACE_DEAD, ((function.path_of("config"), "answers"),))
        if function.address.is_wide:
            yield DOMAIN_TOO_WIDE.finding(
                function.address,
                f"Its domain {function.address.domain:x} is larger than ffff",
                (function.path, function.name),
            )
