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

"""Alveo and Versal cards of AMD, which were Xilinx's.

A card with a shell has a function by which it is managed and programmed, and which stays with the
host, and one for the user, which is what instances get (Xilinx/XRT, security.rst and
system_requirements.rst).  Which is which, the catalogue says by the id.

Next stop: :mod:`cyborg_ext_drivers.host.xrt`.
"""

from collections.abc import Sequence

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.catalog import Product
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.families.base import Accelerator, Sibling
from cyborg_ext_drivers.families.fpga import FpgaFamily, readable
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import PciFunction

#: What the catalogue calls a function that manages a card; with a golden image it is the only one.
MANAGING = ("mgmt", "golden")
USER = "user"


class XilinxFpgaFamily(FpgaFamily):
    """FPGA cards that XRT manages."""

    name = "xilinx_fpga"
    driver = "ext_xilinx_fpga_driver"
    # As Cyborg's own driver writes it, whose class for programming has another (xilinx).
    programmed_by = "XILINX"

    def recognises(self, identity: Identity, kind: str | None) -> bool:
        """Return whether the catalogue knows it as an FPGA of Xilinx's."""
        return kind == "FPGA" and identity.id.vendor == "10ee"

    def in_tree_drivers(self, identity: Identity) -> tuple[str, ...]:
        """Return Cyborg's own driver, which looks for the words of class 1200."""
        return ("xilinx_fpga_driver",) if identity.pci_class.base_and_sub == "1200" else ()

    def products(self, accelerator: Accelerator) -> tuple[str, ...]:
        """Return Cyborg's own spelling, of both functions.

        It takes the id of the first one that pci.ids does not know by name, so which of the two
        depends on the age of that file.
        """
        product, id = accelerator.product, accelerator.identity.id
        ids = {id.device, product.pair_device if product else None} - {None}
        return tuple(traits.custom("FPGA", "PRODUCT_ID", each) for each in sorted(ids))

    def manager_of(self, function: Sibling, others: Sequence[Sibling]) -> PciFunction:
        """Return the function of the slot that manages the card, itself where there is none."""
        if _role_of(function.product) != USER:
            return function.function
        managing = [each.function for each in others if _role_of(each.product) in MANAGING]
        return min(managing, key=lambda each: each.address, default=function.function)

    def parts_of(self, accelerator: Accelerator) -> tuple[PciFunction, ...]:
        """Return the functions for users; the one that manages the card is never given away."""
        is_shell = _role_of(accelerator.product) in (*MANAGING, USER)
        return accelerator.others if is_shell else (accelerator.function,)

    def function_ids(
        self, accelerator: Accelerator, given: Sequence[PciFunction]
    ) -> set[str | None]:
        """Return the ids of the kernels that are loaded, of the shell where there are none.

        A function for users tells it while XRT's driver of the host has it.
        """
        shell = self.assumed_function_id(accelerator)
        return {_loaded(each, shell) for each in given}

    def assumed_function_id(self, accelerator: Accelerator) -> str | None:
        """Return the id of the shell that is loaded, which stands last after those of its base."""
        return next(reversed(readable(accelerator.function.xrt, "logic_uuids") or ()), None)

    def region_ids(self, accelerator: Accelerator, given: Sequence[PciFunction]) -> set[str | None]:
        """Return the id of the interface that the loaded shell has for what comes upon it."""
        return set((readable(accelerator.function.xrt, "interface_uuids") or ())[-1:])

    def told_of_board(self, accelerator: Accelerator) -> dict[str, str]:
        """Return the name of the shell, ``xilinx_u250_gen3x16_xdma_shell_4_1``."""
        shell = readable(accelerator.function.xrt, "shell")
        return {"shell": shell} if shell else {}


def _loaded(function: PciFunction, shell: str | None) -> str | None:
    try:
        is_told = function.xrt.is_user and function.xrt.is_ready
        return (function.xrt.xclbin_uuid or shell) if is_told else None
    except ReadError:
        return None


def _role_of(product: Product | None) -> str | None:
    return product.role if product else None
