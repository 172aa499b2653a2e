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

"""A card, and what of it can be scheduled and attached."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.catalog import Product
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import PciFunction

if TYPE_CHECKING:
    from cyborg_ext_drivers.families.base import Family


class AttachHandle(NamedTuple):
    """What one instance gets: the address that libvirt attaches, or what the agent makes there."""

    address: PciAddress
    type: str = "PCI"
    #: The type of mediated device that the agent is to make at the address.
    asked_type: str | None = None
    #: Which of those that the address can hold.
    number: int | None = None


class Deployable(NamedTuple):
    """What is scheduled: one Placement resource provider with equal attach handles."""

    address: PciAddress
    resource_class: str
    traits: tuple[str, ...]
    handles: tuple[AttachHandle, ...]
    #: How those of its traits begin that the host does not tell now, and may have told before.
    #: What stands among the traits of them is assumed.
    unknown: tuple[str, ...] = ()


class Partition(NamedTuple):
    """Equal parts into which the operator has a card divided: ``nvidia-223``, eight times."""

    #: What the host's driver calls the type.
    type: str
    #: What people call it, as a trait can hold it; ``None`` while the host does not say.
    name: str | None = None
    #: None where the card cannot have such parts; a check says why.
    handles: tuple[AttachHandle, ...] = ()
    #: Traits of the type in the spelling of Cyborg's own driver, where that is another.
    older: tuple[str, ...] = ()
    #: Further types that the operator names for the same card.
    others: tuple[str, ...] = ()
    #: The functions that the operator named, or meant with the card, and does not exclude.
    functions: tuple[PciFunction, ...] = ()
    #: Those of them that [ext_drivers] exclude leaves out.
    excluded: tuple[PciFunction, ...] = ()
    #: Addresses of virtual functions that the operator named and that are not there.
    missing: tuple[PciAddress, ...] = ()
    #: Why it cannot be told now whether the card can have such parts.
    doubt: ReadError | None = None


class Accelerator(NamedTuple):
    """One card, Cyborg's device: ``0000:3b:00.0 (Tesla T4)``."""

    family: Family
    #: The function by which the card is managed, and by which Cyborg knows it.
    function: PciFunction
    vendor: str
    product: Product | None
    #: Other functions in the card's slot: audio, USB, UCSI.
    companions: tuple[PciFunction, ...] = ()
    #: Physical functions beside the managing one that make up the card with it, by address.
    others: tuple[PciFunction, ...] = ()
    #: The functions that are given away in the place of the managing one, by address: virtual
    #: functions, or others of the card.
    given: tuple[PciFunction, ...] = ()
    #: The managing function, where this is one part of a card and nothing more.
    manager: PciFunction | None = None
    #: What the card is, where its managing function is not there to say so.
    inferred: Identity | None = None
    #: What the card is of which this is one part.
    card_identity: Identity | None = None
    #: Into what the operator has the card divided by the host's driver, which keeps it.
    partition: Partition | None = None

    @property
    def address(self) -> PciAddress:
        """The address of the managing function."""
        return self.function.address

    @property
    def identity(self) -> Identity:
        """What the managing function is."""
        identity = self.inferred or self.function.identity
        assert identity is not None
        return identity

    @property
    def revision(self) -> str | None:
        """The PCI revision of the managing function, ``None`` where that is not there to say so.

        :raises ReadError: when it cannot be read.
        """
        return None if self.inferred else self.function.revision

    @property
    def is_given_in_parts(self) -> bool:
        """Whether an instance gets a part; a guest may see a virtual function by itself."""
        is_virtual = self.product is not None and self.product.is_virtual
        return bool(self.given or self.partition) or is_virtual

    @property
    def model(self) -> str | None:
        """The catalogue's model token, ``None`` for a card that it cannot name."""
        return self.product.model if self.product else None

    @property
    def name(self) -> str:
        """What people call the card."""
        if self.product is None:
            return f"{self.vendor} {self.identity.id.device}"
        name = self.product.name
        # "Alveo U250, management function" names the function.
        return name.partition(",")[0] if self.product.role == "mgmt" else name

    def __str__(self) -> str:
        return f"{self.function} ({self.name})"
