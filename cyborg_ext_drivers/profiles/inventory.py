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

"""What is reported, of one host, of several, or of a cloud: all that profiles rest on."""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from cyborg_ext_drivers import traits as grammar
from cyborg_ext_drivers.report.ledger import Decision

#: For a group that requires it, Cyborg's API makes two accelerator requests for each unit,
#: for the two functions of older cards (cyborg.api.controllers.v2.arqs, ARQsController.post).
TWICE = "CUSTOM_FPGA_XILINX"


@dataclasses.dataclass(frozen=True)
class Offer:
    """One resource provider: what a group of a device profile can be satisfied by."""

    host: str
    device_address: str
    device_name: str
    #: Cyborg's type of the device: ``GPU``, ``FPGA`` ...
    kind: str
    #: The vendor as in traits, or its PCI id.
    vendor: str
    #: The catalogue's model, ``None`` where it is not known.
    model: str | None
    resource_class: str
    traits: tuple[str, ...]
    #: How many a group may ask of it: its total, or of a cloud what is not taken.
    units: int

    @property
    def customs(self) -> tuple[str, ...]:
        """Return the traits that a device profile may name."""
        return tuple(trait for trait in self.traits if trait.startswith("CUSTOM_"))

    @property
    def general_trait(self) -> str | None:
        """Return what says kind and vendor, ``CUSTOM_GPU_NVIDIA``, if it has that."""
        return next((f"CUSTOM_{self.kind}_{each}" for each in self._makers()), None)

    @property
    def type_trait(self) -> str | None:
        """Return what says which part of a card it is: ``CUSTOM_NVIDIA_1EB8_T4_2B``."""
        for maker in self._makers():
            product = re.compile(f"(CUSTOM_{re.escape(maker)}_[0-9A-F]{{4}})_.+")
            for trait in self.customs:
                match = product.fullmatch(trait)
                if match and match[1] in self.traits and trait != self._model_trait():
                    return trait
        return None

    @property
    def own_trait(self) -> str | None:
        """Return what says most exactly what to ask for.

        That is the part's type, else the model, else the product id, else what an in-tree driver
        says; ``None`` when it has only traits that no profile should name.
        """
        return self.type_trait or self._model_trait() or self._any_trait()

    def _model_trait(self) -> str | None:
        if self.model is not None:
            for maker in (grammar.normalise(self.vendor), *self._makers()):
                trait = f"CUSTOM_{maker}_{grammar.normalise(self.model)}"
                if trait in self.traits:
                    return trait
        return None

    def _any_trait(self) -> str | None:
        makers = self._makers()
        general = {f"CUSTOM_{self.kind}_{each}" for each in makers} | {TWICE, grammar.FAULTY}
        others = [each for each in self.customs if each not in general]
        for maker in makers:
            named = [each for each in others if each.startswith(f"CUSTOM_{maker}_")]
            # The product id is four hexadecimal digits; so is a model such as A100, behind it.
            named.sort(key=lambda each: bool(re.fullmatch("CUSTOM_.+_[0-9A-F]{4}", each)))
            if named:
                return named[0]
        return max(others, key=lambda each: ("PRODUCT_ID" in each, each), default=None)

    def _makers(self) -> list[str]:
        """Return the vendor as its traits spell it; a name is one only with a product."""
        prefix = f"CUSTOM_{self.kind}_"
        makers = [each.removeprefix(prefix) for each in self.customs if each.startswith(prefix)]
        return [
            maker
            for maker in makers
            if any(each.startswith(f"CUSTOM_{maker}_") for each in self.customs)
            or maker == grammar.normalise(self.vendor)
        ]


@dataclasses.dataclass(frozen=True)
class Inventory:
    """All that is reported."""

    offers: tuple[Offer, ...]
    #: Where it is from, for people: ``this host``, ``3 hosts``, ``the cloud``.
    source: str

    def with_trait(self, trait: str) -> list[Offer]:
        """Return what has a trait."""
        return [each for each in self.offers if trait in each.traits]

    @property
    def traits(self) -> list[str]:
        """Return every trait that a device profile can name here, sorted."""
        return sorted({trait for each in self.offers for trait in each.customs})

    @property
    def resource_classes(self) -> list[str]:
        """Return every resource class, sorted."""
        return sorted({each.resource_class for each in self.offers})


def hosts(offers: Iterable[Offer]) -> list[str]:
    """Return the names of the hosts that have them, sorted."""
    return sorted({each.host for each in offers})


def devices(offers: Iterable[Offer]) -> int:
    """Return of how many devices they are."""
    return len({(each.host, each.device_address) for each in offers})


def counted(offers: Sequence[Offer]) -> str:
    """Return their number for people: ``12 devices on 4 hosts``."""
    return f"{many(devices(offers), 'device')} on {many(len(hosts(offers)), 'host')}"


def many(number: int, word: str) -> str:
    """Return a number with its word: ``1 host``, ``4 hosts``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def of_decisions(decisions: Iterable[Decision], host: str) -> tuple[Offer, ...]:
    """Return what Cyborg is told of one host, what is held included."""
    return tuple(
        _offer(decision, deployable, host)
        for decision in decisions
        if decision.report
        for deployable in decision.report.deployables
    )


def _offer(decision: Decision, deployable, host: str) -> Offer:
    accelerator, report = decision.assessment.accelerator, decision.report
    attributes = dict(deployable.attributes)
    return Offer(
        host=host,
        device_address=str(decision.assessment.address),
        device_name=report.model,
        kind=report.type,
        vendor=accelerator.vendor if accelerator else report.vendor,
        model=accelerator.model if accelerator else None,
        resource_class=attributes.pop("rc"),
        traits=tuple(attributes.values()),
        units=deployable.num_accelerators,
    )
