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
from collections.abc import Sequence
from typing import ClassVar

from cyborg_ext_drivers import traits
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

__all__ = ["Accelerator", "AttachHandle", "Deployable", "Family", "Partition"]


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

    def partition(self, accelerator: Accelerator, host: Host, options: Options) -> Partition | None:
        """Return into what the operator has a card divided by the host's driver.

        ``None`` for a card that is given away whole, or by its virtual functions.

        :raises ReadError: when the host does not say what of it can be had.
        """
        return None

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
        given = accelerator.virtual_functions or (accelerator.function,)
        handles = tuple(AttachHandle(function.address) for function in given)
        if partition:
            handles = partition.handles
        if not handles:
            return ()
        name = self.virtual_function_class if accelerator.is_given_in_parts else None
        return (Deployable(accelerator.address, name or self.resource_class, named, handles),)
