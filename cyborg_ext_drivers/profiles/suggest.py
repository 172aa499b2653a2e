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

"""A device profile for each kind of card that is reported.

A group of a profile is satisfied by one resource provider (Nova makes a numbered request group
of it), and a whole card is a provider with one unit.  So two cards are two groups; one group with
``"resources:PGPU": "2"`` never schedules.
"""

import collections
import dataclasses
import json
import shlex

from cyborg_ext_drivers.profiles import inventory
from cyborg_ext_drivers.profiles.inventory import TWICE, Inventory, Offer
from cyborg_ext_drivers.traits import FAULTY

#: Classes that need no word in the name.
_PLAIN = frozenset(("PGPU", "FPGA", "CUSTOM_AICHIP", "CUSTOM_NIC"))


@dataclasses.dataclass(frozen=True)
class Profile:
    """A device profile, and what it would be satisfied by."""

    name: str
    description: str
    groups: tuple[dict[str, str], ...]
    offers: tuple[Offer, ...]

    def create_command(self) -> str:
        """Return the command that creates it, quoted for a shell."""
        words = ["openstack", "accelerator", "device", "profile", "create"]
        return shlex.join([*words, self.name, json.dumps(list(self.groups))])

    def flavor_command(self, flavor: str = "FLAVOR") -> str:
        """Return the command that lets a flavor ask for it, quoted for a shell."""
        wanted = f"accel:device_profile={self.name}"
        return shlex.join(["openstack", "flavor", "set", flavor, "--property", wanted])


def suggest(found: Inventory, count: int = 1, any_of_vendor: bool = False) -> list[Profile]:
    """Return a profile for each kind of card, by name; each name depends on its card alone.

    :param count: how many each instance gets.
    :param any_of_vendor: ask for any card of a vendor in place of one model.
    """
    kinds: dict[tuple[str, str], list[Offer]] = collections.defaultdict(list)
    for offer in found.offers:
        trait = offer.general_trait if any_of_vendor else offer.own_trait
        if trait not in (None, TWICE) and FAULTY not in offer.traits:
            kinds[offer.resource_class, trait].append(offer)
    names = collections.Counter(_name(*key, of[0]) for key, of in kinds.items())
    made = []
    for (resource_class, trait), offers in kinds.items():
        name = _name(resource_class, trait, offers[0])
        if names[name] > 1:
            name = f"{name}-{_words(resource_class)}"
        group = {f"resources:{resource_class}": "1", f"trait:{trait}": "required"}
        made.append(
            Profile(
                name if count == 1 else f"{name}-x{count}",
                _description(offers, resource_class, count, any_of_vendor),
                tuple(dict(group) for _ in range(count)),
                tuple(offers),
            )
        )
    return sorted(made, key=lambda each: each.name)


def left_out(found: Inventory, any_of_vendor: bool = False) -> list[str]:
    """Return, a sentence each, what has no profile and why."""
    faulty = [each for each in found.offers if FAULTY in each.traits]
    sentences = []
    if faulty:
        sentences.append(f"Left out, as dead ({FAULTY}): {inventory.counted(faulty)}")
    if any_of_vendor:
        twice = [each for each in found.offers if each.general_trait == TWICE]
        if twice:
            sentences.append(
                f"No profile asks for {TWICE}: Cyborg makes two accelerator requests for each "
                "unit of a group that requires it, and the second is bound to nothing. Ask for "
                f"one model ({inventory.counted(twice)}): leave out --any vendor"
            )
    return sentences


def _name(resource_class: str, trait: str, offer: Offer) -> str:
    """Return a name that Cyborg takes: letters, digits, hyphens and underscores."""
    words = _words(trait)
    if trait == offer.general_trait:
        kind, _, vendor = words.partition("-")
        words = f"{vendor}-{kind}" if vendor else words
    if resource_class in _PLAIN or trait == offer.type_trait:
        return words
    return f"{words}-{_words(resource_class)}"


def _words(name: str) -> str:
    return name.removeprefix("CUSTOM_").lower().replace("_", "-")


def _description(offers: list[Offer], resource_class: str, count: int, any_of_vendor: bool) -> str:
    first = offers[0]
    if any_of_vendor:
        what = f"{first.kind} of {first.general_trait.removeprefix(f'CUSTOM_{first.kind}_')}"
        what = f"any {what}"
    else:
        what = first.device_name
        if first.type_trait:
            what = f"vGPU {first.type_trait.removeprefix('CUSTOM_')} of {what}"
    part = "a part of " if resource_class == "VGPU" and not first.type_trait else ""
    return f"{count} x {part}{what}"
