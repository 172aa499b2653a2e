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

"""What Acme's own errata say: silicon that an instance cannot use."""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator

EARLY_SILICON = Code(
    "acme-early-silicon",
    Severity.BLOCKER,
    "The card has early silicon, which does not survive a reset",
    "The first silicon of the Roadrunner (PCI revision 00 to 0f) stops to answer when libvirt "
    "resets it between two instances, until the host is switched off.",
    "Have Acme exchange the card, or name this code in ignore_findings if no instance ever "
    "hands it on",
)


class SiliconCheck(Check):
    """No early silicon."""

    codes = (EARLY_SILICON,)

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether a card of Acme's is of the first revisions; nothing of others' cards."""
        if accelerator.identity.id.vendor != "acce":
            return
        revision = accelerator.revision
        evidence = (accelerator.function.path_of("revision"), revision or "absent")
        if revision is not None and revision < "10":
            message = f"Its silicon is of revision {revision}, and 10 is the first that is sound"
            yield EARLY_SILICON.finding(accelerator.address, message, evidence)
        else:
            yield Passed(EARLY_SILICON, (evidence,))
