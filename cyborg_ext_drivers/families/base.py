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

"""What every family of accelerators gives: the cards it knows, cut into deployables.

A family is one file.  It says which PCI functions are its cards (:meth:`Family.recognises`)
and what of a card can be scheduled (:meth:`Family.deployables`); the default is the whole
card, or its virtual functions where the operator has enabled some.  It opens no file: what it
needs of the host is an attribute of :class:`~cyborg_ext_drivers.host.pci.PciFunction`.
Families register under the entry point ``cyborg_ext_drivers.family``.

Next stop: :mod:`cyborg_ext_drivers.families.nvidia`.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.catalog import Product
from cyborg_ext_drivers.families.accelerator import (
    Accelerator,
    AttachHandle,
    Deployable,
    Partition,
)
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.options import Options

__all__ = ["Accelerator", "AttachHandle", "Deployable", "Family", "Partition", "Sibling"]


class Sibling(NamedTuple):
    """A physical function of a slot that a family recognises, and what the catalogue knows."""

    function: PciFunction
    product: Product | None


class Family(abc.ABC):
    """The cards of one maker that are of one kind."""

    #: The name of the family's entry point.
    name: ClassVar[str]
    #: The name of the Cyborg driver that reports it.
    driver: ClassVar[str]
    #: Cyborg's device type: GPU, FPGA, AICHIP or NIC.
    kind: ClassVar[str]
    #: The resource class of a whole card.
    resource_class: ClassVar[str]
    #: The resource class of virtual functions; ``None`` when it is that of a whole card.
    virtual_function_class: ClassVar[str | None] = None
    #: Whether a virtual function is of use to an instance as it is.
    is_divisible: ClassVar[bool] = True
    #: Whether a card may have several physical functions; see manager_of.
    has_several_functions: ClassVar[bool] = False
    #: The name by which Cyborg looks up the driver class that programs a card (VENDOR of
    #: cyborg.accelerator.drivers.fpga.base.FPGADriver); ``None`` for cards that none programs.
    programmed_by: ClassVar[str | None] = None

    @abc.abstractmethod
    def recognises(self, identity: Identity, kind: str | None) -> bool:
        """Return whether a function of this identity is a card of this family.

        :param kind: what the catalogue says that it is: GPU, FPGA, AICHIP or NIC; ``None`` for
            an id that it does not know.
        """

    def in_tree_drivers(self, identity: Identity) -> tuple[str, ...]:
        """Return the drivers of Cyborg itself that would report such a card."""
        return ()

    def older_traits(self, identity: Identity) -> tuple[str, ...]:
        """Return the traits by which earlier Cyborg releases knew such a card."""
        return ()

    def manager_of(self, function: Sibling, others: Sequence[Sibling]) -> PciFunction:
        """Return the function that manages the card to which a function belongs, maybe itself.

        It gives the card its address, and is what Cyborg calls the control path.  For what it
        returns it gives the same again.

        :param others: the other physical functions of the slot that the family recognises.
        """
        return function.function

    def parts_of(self, accelerator: Accelerator) -> tuple[PciFunction, ...]:
        """Return the physical functions that are given away of a card, whole or divided.

        :raises ReadError: when the host does not say.
        """
        return (accelerator.function,)

    def partition(self, accelerator: Accelerator, host: Host, options: Options) -> Partition | None:
        """Return into what the operator has a card divided by the host's driver.

        ``None`` for a card that is given away whole, or by its virtual functions.

        :raises ReadError: when the host does not say what of it can be had.
        """
        return None

    def told_of_board(self, accelerator: Accelerator) -> Mapping[str, str]:
        """Return what the card's driver says of the board now beside what the catalogue knows.

        It stands in the board information until the driver says otherwise.
        """
        return {}

    def unmet(self, host: Host, options: Options) -> tuple[str, ...]:
        """Return, a sentence each, what the options ask of cards that the host does not have.

        What is wrong with a card that it has is a finding.
        """
        return ()

    def is_divided_by(self, virtual: Sequence[PciFunction], options: Options) -> bool:
        """Return whether the virtual functions of a card are what is given away of it.

        :param virtual: those that are enabled on it, as far as the bus has them.
        :raises ReadError: when the host does not say.
        """
        return self.is_divisible

    def deployables(self, accelerator: Accelerator) -> tuple[Deployable, ...]:
        """Return what of the card is scheduled: the whole card once, or its parts.

        :raises ReadError: when the host does not say how the card is divided.
        """
        identity, partition = accelerator.identity, accelerator.partition
        named = traits.of_device(
            self.kind,
            accelerator.vendor,
            identity.id.device,
            accelerator.model,
            partition.name if partition else None,
            older=(*self.older_traits(identity), *(partition.older if partition else ())),
        )
        given = accelerator.given or (accelerator.function,)
        handles = tuple(AttachHandle(function.address) for function in given)
        if partition:
            handles = partition.handles
        if not handles:
            return ()
        name = self.virtual_function_class if accelerator.is_given_in_parts else None
        return (Deployable(accelerator.address, name or self.resource_class, named, handles),)
