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

"""Whether the card's own audio, USB and UCSI functions are free to go with it."""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.iommu_group import is_held_by_host
from cyborg_ext_drivers.families.base import Accelerator

COMPANION_BOUND = Code(
    "companion-bound",
    Severity.BLOCKER,
    "Another function of the card is held by the host",
    "Cards with a display output bring audio, USB or USB-C functions. They go with the card, but "
    "libvirt's managed mode moves only the function that is attached, so one that is bound to a "
    "driver of the host keeps the card from being given away.",
    "Bind the function to vfio-pci, or unbind it, for good (driverctl set-override)",
)


class CompanionCheck(Check):
    """Companions not held by a driver of the host."""

    codes = (COMPANION_BOUND,)
    precedence = 60

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield each companion that the host holds."""
        for function in accelerator.companions:
            path = function.path_of("driver")
            if not is_held_by_host(function):
                yield Passed(COMPANION_BOUND, ((path, function.driver or "absent"),))
                continue
            rule = function.identity and surroundings.catalog.companion(function.identity)
            yield COMPANION_BOUND.finding(
                accelerator.address,
                f"{function}, {rule.what if rule else 'a function of the card'}, is held by the "
                f"host's driver {function.driver}",
                (path, function.driver),
                remedy=f"Bind {function} to vfio-pci for good: driverctl set-override {function} "
                "vfio-pci",
            )
