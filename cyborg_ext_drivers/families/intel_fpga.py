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

"""FPGA cards with Intel's and Altera's FPGAs that the kernel's DFL driver serves.

A port holds an accelerator function unit (AFU), a management engine programs it (Linux,
Documentation/fpga/dfl.rst).  A port can be given to a virtual function, which then is what
instances get.  Cards with an Open FPGA Stack image have several physical functions, the first of
them with the engine, others with AFUs of their own.

Next stop: :mod:`cyborg_ext_drivers.host.fpga`.
"""

from collections.abc import Mapping, Sequence

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.families.base import Accelerator, Sibling
from cyborg_ext_drivers.families.fpga import FpgaFamily, readable
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import PciFunction

#: Intel, and the makers of boards in the table of drivers/fpga/dfl-pci.c.
_VENDORS = ("8086", "1c2c")


class IntelFpgaFamily(FpgaFamily):
    """FPGA cards of the kernel's dfl-pci, and of the driver of OPAE 1.x before it."""

    name = "intel_fpga"
    driver = "ext_intel_fpga_driver"
    # In capitals the class is not Cyborg's own, whose VENDOR is intel, and the trait that the
    # conductor makes of it is the same.
    programmed_by = "INTEL"

    def recognises(self, identity: Identity, kind: str | None) -> bool:
        """Return whether the catalogue knows it as an FPGA of one of these makers."""
        return kind == "FPGA" and identity.id.vendor in _VENDORS

    def in_tree_drivers(self, identity: Identity) -> tuple[str, ...]:
        """Return Cyborg's own driver, which knows one card."""
        return ("intel_fpga_driver",) if str(identity.id) == "8086:09c4" else ()

    def older_traits(self, identity: Identity) -> tuple[str, ...]:
        """Return the spelling of Cyborg's own driver, for the card that it knows."""
        return ("CUSTOM_FPGA_INTEL_PAC_ARRIA10",) if str(identity.id) == "8086:09c4" else ()

    def manager_of(self, function: Sibling, others: Sequence[Sibling]) -> PciFunction:
        """Return the first function of the card, which has the management engine.

        A virtual one has none, though it may seem a card: to a virtual machine that has it, and
        in copies of a host without links.
        """
        if function.product and function.product.is_virtual:
            return function.function
        id = function.function.identity.id
        same = [each.function for each in others if each.function.identity.id == id]
        return min((function.function, *same), key=lambda each: each.address)

    def parts_of(self, accelerator: Accelerator) -> tuple[PciFunction, ...]:
        """Return the others of several functions; the first is the host's then.

        Where it has virtual functions these are given away beside the others.

        :raises ReadError: when the host does not say which it has.
        """
        first, others = accelerator.function, accelerator.others
        return (first, *others) if not others or first.virtual_functions else others

    def groups(
        self, accelerator: Accelerator, given: Sequence[PciFunction]
    ) -> Mapping[PciAddress, Sequence[PciFunction]]:
        """Return what is given away by physical function, as each has AFUs of its own."""
        found: dict[PciAddress, list[PciFunction]] = {}
        for each in given:
            found.setdefault(physical_address(each), []).append(each)
        return dict(sorted(found.items()))

    def function_ids(
        self, accelerator: Accelerator, given: Sequence[PciFunction]
    ) -> set[str | None]:
        """Return the ids of the AFUs in the ports of these functions."""
        return {id for each in given for id in _afu_ids(each)}

    def region_ids(self, accelerator: Accelerator, given: Sequence[PciFunction]) -> set[str | None]:
        """Return the ids of the card's interfaces for partial reconfiguration.

        Only ports of the function with the engine can be programmed so.
        """
        if accelerator.address not in map(physical_address, given):
            return set()
        engines = readable(accelerator.function.fpga, "engines", ())
        return {id.id for each in engines for id in readable(each, "interface_ids", ())}

    def told_of_board(self, accelerator: Accelerator) -> dict[str, str]:
        """Return the id of the part of the image that stays, ``0x202000200000237``."""
        engines = readable(accelerator.function.fpga, "engines", ())
        told = (readable(each, "bitstream_id") for each in engines)
        id = next(filter(None, told), None)
        return {"bitstream_id": id} if id else {}


def _afu_ids(function: PciFunction) -> set[str | None]:
    """Return what the ports of a function hold; one that shows none does not tell."""
    return {readable(port, "afu_id") for port in readable(function.fpga, "ports", ())} or {None}


def physical_address(function: PciFunction) -> PciAddress:
    """Return the address of a function, of a virtual one its physical function's.

    :raises ReadError: when it cannot be told.
    """
    return function.physical_function or function.address
