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

"""What the families of FPGAs have in common: the traits of what is programmed into a card.

Cyborg gives a card that it has programmed the trait ``CUSTOM_FPGA_FUNCTION_ID_<name>_<id>``, the
name being the deployable's ``driver_name`` in upper case (cyborg.objects.extarq.fpga_ext_arq).  A
card is known by the same trait here, as long as its driver tells the id.

Next stop: :mod:`cyborg_ext_drivers.families.intel_fpga`.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.families.base import Accelerator, AttachHandle, Deployable, Family
from cyborg_ext_drivers.host.pci import PciFunction


class FpgaFamily(Family):
    """FPGA cards of one maker's tools."""

    kind = "FPGA"
    resource_class = "FPGA"
    has_several_functions = True
    programmed_by: ClassVar[str]

    @abc.abstractmethod
    def function_ids(
        self, accelerator: Accelerator, given: Sequence[PciFunction]
    ) -> set[str | None]:
        """Return what is programmed into these parts of a card.

        Each is 32 lower-case hexadecimal digits, ``None`` for a part that does not tell it.
        """

    @abc.abstractmethod
    def region_ids(self, accelerator: Accelerator, given: Sequence[PciFunction]) -> set[str | None]:
        """Return what an image for these parts must fit.

        Each is 32 lower-case hexadecimal digits, ``None`` for a part that does not tell it.
        """

    def assumed_function_id(self, accelerator: Accelerator) -> str | None:
        """Return what parts hold that never told anything else, ``None`` where nobody knows."""
        return None

    def products(self, accelerator: Accelerator) -> tuple[str, ...]:
        """Return the traits by which earlier Cyborg releases knew the model."""
        return self.older_traits(accelerator.identity)

    def groups(
        self, accelerator: Accelerator, given: Sequence[PciFunction]
    ) -> Mapping[PciAddress, Sequence[PciFunction]]:
        """Return the functions that are given away, those that are alike together."""
        return {accelerator.address: given}

    def deployables(self, accelerator: Accelerator) -> tuple[Deployable, ...]:
        """Return what of the card is scheduled, with the traits of what is programmed into it."""
        parts = self.groups(accelerator, accelerator.given or (accelerator.function,))
        return tuple(
            self._deployable(accelerator, address, given) for address, given in parts.items()
        )

    def _deployable(
        self, accelerator: Accelerator, address: PciAddress, given: Sequence[PciFunction]
    ) -> Deployable:
        functions = f"CUSTOM_FPGA_FUNCTION_ID_{self.programmed_by}_"
        told = {
            functions: self.function_ids(accelerator, given),
            f"CUSTOM_FPGA_REGION_{self.programmed_by}_": self.region_ids(accelerator, given),
        }
        # Where they differ, or one of them may, nobody who asks for one would know that he gets it.
        programmed = tuple(
            f"{start}{id.upper()}"
            for start, ids in told.items()
            if len(ids) == 1
            for id in ids
            if id
        )
        assumed = self.assumed_function_id(accelerator)
        if assumed and not told[functions] - {None}:
            programmed = (f"{functions}{assumed.upper()}", *programmed)
        named = traits.of_device(
            self.kind,
            accelerator.vendor,
            accelerator.identity.id.device,
            accelerator.model,
            older=(*self.products(accelerator), *programmed),
        )
        handles = tuple(AttachHandle(function.address) for function in given)
        unknown = filter(None, (_unknown(start, ids) for start, ids in told.items()))
        return Deployable(address, self.resource_class, named, handles, tuple(unknown))


def _unknown(start: str, ids: set[str | None]) -> str | None:
    """Return how a trait begins that may be true, though not all parts tell it now.

    What some of them tell can be the trait of all, if it was so before; no other can.
    """
    known = ids - {None}
    if not known:
        return start
    if ids == known or len(known) > 1:
        return None
    return f"{start}{known.pop().upper()}"


def readable(subject: object, attribute: str, otherwise: Any = None) -> Any:
    """Return an attribute of what is seen of a card, *otherwise* where the host does not say.

    That it does not is for a check to tell.
    """
    try:
        return getattr(subject, attribute)
    except ReadError:
        return otherwise
