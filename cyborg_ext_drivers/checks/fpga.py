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

"""What is programmed into an FPGA card, and whether its maker's driver is there to tell.

Nothing of it keeps a card from being reported: it can be attached without.

Next stop: :mod:`cyborg_ext_drivers.checks.fpga_ports`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks import fpga_ports, fpga_shell
from cyborg_ext_drivers.checks.base import Check, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.fpga_codes import (
    FPGA_DRIVER_MISSING,
    FPGA_FUNCTIONS_DIFFER,
    FPGA_NO_AFU,
    FPGA_REGION_UNKNOWN,
    MANAGEMENT_FUNCTION,
)
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.families.intel_fpga import IntelFpgaFamily
from cyborg_ext_drivers.families.xilinx_fpga import XilinxFpgaFamily
from cyborg_ext_drivers.host.pci import PciFunction


class FpgaCheck(Check):
    """A driver that shows the card, functions and regions that it tells."""

    codes = (
        MANAGEMENT_FUNCTION,
        FPGA_DRIVER_MISSING,
        FPGA_NO_AFU,
        FPGA_FUNCTIONS_DIFFER,
        FPGA_REGION_UNKNOWN,
    )
    precedence = 80
    # The managing function is no reason against the card whose parts are given away.
    can_block = False

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what the ports of an Intel FPGA tell; Alveo cards tell it by the managing one."""
        if isinstance(accelerator.family, IntelFpgaFamily):
            yield from fpga_ports.told_by_part(accelerator)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what the managing function tells of a card of which the parts are given away."""
        if accelerator.inferred:
            return
        function, others = accelerator.function, accelerator.others
        if isinstance(accelerator.family, IntelFpgaFamily):
            yield _of_intel(accelerator)
            yield from fpga_ports.told_by_card(accelerator, surroundings)
        elif isinstance(accelerator.family, XilinxFpgaFamily) and others:
            yield _managing(
                function,
                f"{', '.join(map(str, others))} is for users",
                MANAGEMENT_FUNCTION.remedy,
            )
            yield from fpga_shell.told_by_card(accelerator)


def _of_intel(accelerator: Accelerator) -> Finding:
    function, remedy = accelerator.function, MANAGEMENT_FUNCTION.remedy
    if not accelerator.others:
        remedy = "Nothing is to be done; without virtual functions the card is given away whole"
    return _managing(function, "its ports are for other functions to give away", remedy)


def _managing(function: PciFunction, given: str, remedy: str) -> Finding:
    return MANAGEMENT_FUNCTION.finding(
        function.address,
        f"It manages the card, and stays with the host; {given}",
        (function.path, "the managing function"),
        remedy=remedy,
    )._replace(lowered=Severity.INFO)
