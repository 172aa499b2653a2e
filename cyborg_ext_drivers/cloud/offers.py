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

"""What device profiles can ask of a cloud, as those who suggest and check profiles take it."""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping

from cyborg_ext_drivers.cloud import picture as pictures
from cyborg_ext_drivers.cloud import reading
from cyborg_ext_drivers.cloud.asking import Cloud, CloudUnusable
from cyborg_ext_drivers.cloud.picture import Picture
from cyborg_ext_drivers.cloud.reading import Reader
from cyborg_ext_drivers.cloud.records import Deployable, Profile
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.profiles.inventory import Offer
from cyborg_ext_drivers.report.contract import DEVICE_TYPES


class UnknownProfile(ExtDriversError):
    """The cloud has no device profile of a name."""

    def __init__(self, name: str, nearest: str | None):
        self.name = name
        self.nearest = nearest
        super().__init__(name, nearest)

    def __str__(self) -> str:
        near = f"; the nearest is {self.nearest}" if self.nearest else ""
        return f"The cloud has no device profile {self.name!r}{near}"


def offers(cloud: Cloud, named: Iterable[str] = ()) -> tuple[Offer, ...]:
    """Return what each deployable offers: the traits that Placement has, the units that are free.

    :param named: traits that are asked about besides those that Cyborg told Placement.
    :raises CloudUnusable: when Cyborg or Placement does not answer what this needs.
    """
    reader = Reader(cloud)
    named = frozenset(named)
    picture = pictures.take(reader)
    found = picture.deployables or []
    pictures.ask_who_has(reader, picture, named.union(*(each.traits for each in found)))
    free = _ask_how_much_is_free(reader, picture)
    if reader.unknown:
        raise CloudUnusable(f"What the cloud has is not known. {reader.unknown[0]}")
    # The API tells no address of a device: the first of its deployables stands for it.
    addresses: dict[object, str] = {}
    for each in sorted(found, key=lambda each: each.address):
        addresses.setdefault(each.device_number or each.uuid, each.address)
    return tuple(
        _offer(
            picture,
            each,
            addresses[each.device_number or each.uuid],
            tuple(
                trait
                for trait in dict.fromkeys((*each.traits, *sorted(named)))
                if each.provider in picture.holders[trait]
            ),
            free.get(each.provider, 0),
        )
        for each in found
    )


def profile(cloud: Cloud, name: str) -> Profile:
    """Return a device profile of the cloud by its name.

    :raises UnknownProfile: when there is none.
    :raises NotAnswered: when Cyborg does not answer.
    """
    known = {each.name: each for each in reading.profiles(cloud)}
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), 1, 0.5)
        raise UnknownProfile(name, next(iter(near), None))
    return known[name]


def _ask_how_much_is_free(reader: Reader, picture: Picture) -> dict[str | None, int]:
    """Return how many units a group may ask of each provider: what is neither taken nor reserved.

    Placement tells that of one provider only, but who has at least so many in one answer.  So the
    requests grow with how many units a provider has, and one is enough where all are whole cards.
    """
    totals: dict[str, dict[str | None, int]] = defaultdict(dict)
    for each in picture.deployables or ():
        if each.resource_class in (picture.classes or ()) and each.accelerators > 0:
            totals[each.resource_class][each.provider] = each.accelerators
    free: dict[str | None, int] = {}
    for name, units in totals.items():
        free |= _of_class(reader, name, units)
    return free


def _of_class(reader: Reader, name: str, units: Mapping[str | None, int]) -> dict[str | None, int]:
    least, most = dict.fromkeys(units, 0), dict(units)
    # First those that have all: in most clouds nearly all have all, or nothing.
    amounts = sorted(set(units.values()))
    while True:
        if amounts:
            amount = amounts.pop()
        else:
            unsettled = next((each for each in units if least[each] < most[each]), None)
            if unsettled is None:
                return least
            amount = (least[unsettled] + most[unsettled] + 1) // 2
        has = reader.part(
            f"who has {amount} {name} free", reading.holders, "resources", f"{name}:{amount}"
        )
        if has is None:
            return least
        for each in units:
            if each in has:
                least[each] = min(max(least[each], amount), units[each])
            else:
                most[each] = min(most[each], amount - 1)


def _offer(
    picture: Picture, deployable: Deployable, address: str, traits: tuple[str, ...], units: int
) -> Offer:
    device = picture.device_of.get(deployable.uuid)
    kind = device.type if device else _kind(traits)
    return Offer(
        host=picture.host_of(deployable),
        device_address=address,
        device_name=device.model if device else deployable.name,
        kind=kind,
        vendor=device.vendor if device else "",
        model=_model(kind, traits, device.product_id) if device and device.product_id else None,
        resource_class=deployable.resource_class or "",
        traits=traits,
        units=units,
    )


def _kind(traits: Iterable[str]) -> str:
    """Return Cyborg's type of a device that is not known, from ``CUSTOM_GPU_NVIDIA``."""
    return next((k for k in DEVICE_TYPES for t in traits if t.startswith(f"CUSTOM_{k}_")), "")


def _model(kind: str, traits: Iterable[str], product_id: str) -> str | None:
    """Return the catalogue's model: what a trait has behind the vendor that is no product id.

    ``CUSTOM_GPU_NVIDIA`` tells the vendor; of ``CUSTOM_NVIDIA_1EB8``, ``CUSTOM_NVIDIA_T4`` and
    ``CUSTOM_NVIDIA_1EB8_T4_2B`` the second is the model (:mod:`cyborg_ext_drivers.traits`).
    """
    of_kind = f"CUSTOM_{kind}_"
    for maker in [each.removeprefix(of_kind) for each in traits if each.startswith(of_kind)]:
        prefix = f"CUSTOM_{maker}_"
        product = f"{prefix}{product_id.upper()}"
        for trait in traits:
            if trait.startswith(prefix) and not f"{trait}_".startswith(f"{product}_"):
                return trait.removeprefix(prefix)
    return None
