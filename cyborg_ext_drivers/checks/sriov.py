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

"""Whether SR-IOV, or a driver that the operator put there, keeps the card."""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator

VFS_ENABLED = Code(
    "vfs-enabled",
    Severity.BLOCKER,
    "Virtual functions are enabled on the card",
    "vfio-pci refuses a physical function that has virtual functions "
    "(drivers/vfio/pci/vfio_pci_core.c), so the card cannot be given away whole.",
    "Disable the virtual functions (write 0 to sriov_numvfs) to offer the whole card",
)
SET_ASIDE = Code(
    "set-aside",
    Severity.BLOCKER,
    "The operator has set the function aside",
    "It is bound to a driver whose only purpose is to keep every other driver away.",
    "Unbind it from that driver to offer it",
)

_ASIDE_DRIVERS = frozenset(("pci-stub", "pci-pf-stub", "pciback"))


class SriovCheck(Check):
    """No virtual functions enabled, not set aside."""

    codes = (VFS_ENABLED, SET_ASIDE)
    precedence = 40

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what keeps the physical function."""
        function = accelerator.function
        enabled = function.virtual_functions
        path = function.path_of("virtfn0")
        if enabled:
            yield VFS_ENABLED.finding(
                function.address,
                f"{len(enabled)} virtual function{'s are' if len(enabled) > 1 else ' is'} enabled "
                "on it",
                (path, enabled[0]),
                remedy=f"echo 0 > {function.path_of('sriov_numvfs')} disables them, if "
                "nothing uses them, and offers the whole card",
            )
        else:
            yield Passed(VFS_ENABLED, ((path, "absent"),))
        if function.driver in _ASIDE_DRIVERS:
            yield SET_ASIDE.finding(
                function.address,
                f"It is bound to {function.driver}, which keeps it from being used",
                (function.path_of("driver"), function.driver),
            )
