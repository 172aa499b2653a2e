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

"""What Placement has of a device to give, and why it gives nothing though no request holds it.

Next stop: :mod:`cyborg_ext_drivers.cloud.wishes`.
"""

from collections import defaultdict
from collections.abc import Iterator

from cyborg_ext_drivers.cloud import findings as codes
from cyborg_ext_drivers.cloud import picture as pictures
from cyborg_ext_drivers.cloud import reading
from cyborg_ext_drivers.cloud.asking import PLACEMENT
from cyborg_ext_drivers.cloud.findings import CloudFinding
from cyborg_ext_drivers.cloud.picture import Picture
from cyborg_ext_drivers.cloud.reading import Reader
from cyborg_ext_drivers.cloud.records import BINDING, Deployable, Inventory, Unknown

#: How many devices are looked at one by one (two requests each) to tell why they are not free.
MOST_LOOKED_AT = 50


class Stock:
    """The inventories and usages of deployables, as far as they are worth a look."""

    def __init__(self, reader: Reader, picture: Picture, broken: set[str]):
        """Take the providers that have findings of their own; those found here are added."""
        self._reader = reader
        self._picture = picture
        self._broken = broken

    def not_free(self, present: list[Deployable]) -> Iterator[CloudFinding]:
        """Yield what is not free although no accelerator request holds it."""
        held = self._held()
        suspects = self._suspects(present, held)
        for each in suspects[:MOST_LOOKED_AT]:
            unknown = len(self._reader.unknown)
            inventory = self._reader.part(
                f"inventory of {each.name}", reading.record, each.provider, each.resource_class
            )
            if len(self._reader.unknown) > unknown:
                continue
            finding = self._why_not_free(each, inventory, held)
            if finding is not None:
                self._broken.add(each.provider or "")
                yield finding
        if len(suspects) > MOST_LOOKED_AT:
            self._reader.unknown.append(
                Unknown(
                    f"why {len(suspects) - MOST_LOOKED_AT} more devices are not free",
                    PLACEMENT,
                    "GET /resource_providers/UUID/inventories",
                    f"asked for the first {MOST_LOOKED_AT} only; name one with --host",
                )
            )

    def _held(self) -> dict[str | None, int] | None:
        """Return how many requests hold each provider, ``None`` where Cyborg does not list them.

        Below ``None`` are those that may be about to: Nova allocates before it binds.
        """
        if self._picture.requests is None:
            return None
        held: dict[str | None, int] = defaultdict(int)
        for request in self._picture.requests:
            if request.provider or request.state in BINDING:
                held[request.provider] += 1
        return held

    def _suspects(
        self, present: list[Deployable], held: dict[str | None, int] | None
    ) -> list[Deployable]:
        picture = self._picture
        pictures.ask_who_is_free(
            self._reader,
            picture,
            {(each.resource_class, 1) for each in present if each.resource_class},
        )
        return [
            each
            for each in present
            if each.provider not in self._broken
            and each.accelerators > 0
            and each.provider not in picture.free.get(f"{each.resource_class}:1", {each.provider})
            and (held is None or held[each.provider] < each.accelerators)
        ]

    def _why_not_free(
        self, each: Deployable, inventory: Inventory | None, held: dict[str | None, int] | None
    ) -> CloudFinding | None:
        host = self._picture.host_of(each)
        look = f"openstack resource provider inventory list {each.provider}"
        if inventory is None:
            return codes.INVENTORY_MISSING.finding(
                each.name,
                f"Placement has no {each.resource_class} of {each.name}; Cyborg's database has "
                f"{each.accelerators}",
                ("inventory", "none"),
                ("num_accelerators", each.accelerators),
                commands=(look, f"openstack accelerator deployable show {each.uuid}"),
                host=host,
            )
        evidence = [("total", inventory.total), ("reserved", inventory.reserved)]
        evidence.append(("used", inventory.used))
        if inventory.total > inventory.reserved + inventory.used:
            return None
        if inventory.reserved:
            device = self._picture.device_of.get(each.uuid)
            does = "Cyborg has the device enabled"
            if device is None or device.status is None:
                does = "Cyborg does not tell whether the device is disabled"
            return codes.INVENTORY_RESERVED.finding(
                each.name,
                f"{inventory.reserved} of {inventory.total} {each.resource_class} of {each.name} "
                f"are reserved, and {does}",
                *evidence,
                commands=(look,),
                host=host,
            )
        if held is None or inventory.used <= held[each.provider] + held[None]:
            return None
        return codes.ALLOCATED_WITHOUT_REQUEST.finding(
            each.name,
            f"{inventory.used} {each.resource_class} of {each.name} are allocated, and accelerator "
            f"requests hold {held[each.provider]}",
            *evidence,
            ("requests", held[each.provider]),
            commands=(
                f"openstack resource provider show --allocations {each.provider}",
                "openstack accelerator arq list",
            ),
            host=host,
        )
