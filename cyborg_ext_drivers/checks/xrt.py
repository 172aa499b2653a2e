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

"""What keeps an Alveo or Versal card from having a function for users.

Next stop: :mod:`cyborg_ext_drivers.checks.nvml`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.families.xilinx_fpga import MANAGING, USER, XilinxFpgaFamily
from cyborg_ext_drivers.host.pci import PciFunction

FPGA_GOLDEN_IMAGE = Code(
    "fpga-golden-image",
    Severity.BLOCKER,
    "The card runs the image that it came with from the factory",
    "The factory's image, also called golden, serves to program the card and has no function for "
    "users. A card falls back to it when the image in its flash does not start.",
    "Flash the card's shell with xbmgmt program --base and boot cold",
)
FPGA_NO_USER_FUNCTION = Code(
    "fpga-no-user-function",
    Severity.BLOCKER,
    "The card has no function that could be given away",
    "A card with a shell has a function that manages it and another for users. Without the second "
    "the shell is not loaded, its function was removed from the bus, or the firmware left it out.",
    "Look with xbmgmt examine whether the shell is on the card; flash it and boot cold, or rescan "
    "the bus (echo 1 > /sys/bus/pci/rescan)",
)
FPGA_NO_MANAGEMENT_FUNCTION = Code(
    "fpga-no-management-function",
    Severity.BLOCKER,
    "The card's managing function is not on the bus",
    "The function for users stands alone, so nobody on this host can tell the state of the card, "
    "reset or program it; it may also come and go with the other one.",
    "Rescan the bus (echo 1 > /sys/bus/pci/rescan), or boot cold",
)


class XrtCheck(Check):
    """A shell on the card, with a function for users beside the managing one."""

    codes = (FPGA_GOLDEN_IMAGE, FPGA_NO_USER_FUNCTION, FPGA_NO_MANAGEMENT_FUNCTION)
    precedence = 15

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield nothing: of a function for users there is nothing more to say."""
        yield from ()

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether the card has a function for users, and why not."""
        product = accelerator.product
        if not isinstance(accelerator.family, XilinxFpgaFamily) or product is None:
            return
        if product.role == USER:
            yield _alone(accelerator.function)
        elif product.role in MANAGING:
            yield _golden(accelerator) or _users(accelerator)


def _alone(function: PciFunction) -> Finding:
    return FPGA_NO_MANAGEMENT_FUNCTION.finding(
        function.address,
        "It is the function for users of a card whose managing function is not there",
        (function.path[:-1] + "*", "no managing function"),
    )


def _golden(accelerator: Accelerator) -> Finding | None:
    function, product = accelerator.function, accelerator.product
    evidence = [(function.path_of("device"), accelerator.identity.id)]
    if product.role != "golden":
        if not function.xrt.is_golden:
            return None
        evidence = [(function.path_of("mfg"), 1)]
    return FPGA_GOLDEN_IMAGE.finding(
        function.address,
        f"{accelerator.name} has no function for users",
        *evidence,
        remedy=f"Flash its shell: xbmgmt program --device {function} --base; then boot cold",
    )


def _users(accelerator: Accelerator) -> Finding | Passed:
    function = accelerator.function
    if accelerator.others:
        named = " ".join(map(str, accelerator.others))
        return Passed(FPGA_NO_USER_FUNCTION, ((function.path[:-1] + "*", named),))
    pair = accelerator.product.pair_device
    return FPGA_NO_USER_FUNCTION.finding(
        function.address,
        f"Beside the managing function there should be one with the id "
        f"{accelerator.identity.id.vendor}:{pair}"
        if pair
        else "It has no function for users",
        (function.path[:-1] + "*", "no function for users"),
    )
