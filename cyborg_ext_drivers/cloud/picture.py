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

"""What was read of a cloud, joined: devices to deployables, deployables to providers and hosts.

Cyborg's API tells a deployable's device by a row number that it does not tell of a device.  Both
lists are in the order of the rows, so the devices of a host and the row numbers of its
deployables go together when there are equally many; otherwise the device stays unknown.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.cloud import reading, records
from cyborg_ext_drivers.cloud.reading import Reader

OWNER_CYBORG, OWNER_NOVA = "OWNER_CYBORG", "OWNER_NOVA"
#: What Nova reports of the PCI devices that it gives away (nova.compute.pci_placement_translator).
NOVAS_PCI = "COMPUTE_MANAGED_PCI_DEVICE"


@dataclasses.dataclass(slots=True)
class Picture:
    """A cloud as it was read; ``None`` for a part that was not answered."""

    devices: list[records.Device] | None = None
    deployables: list[records.Deployable] | None = None
    profiles: list[records.Profile] | None = None
    requests: list[records.Request] | None = None
    providers: Mapping[str, records.Provider] | None = None
    traits: frozenset[str] | None = None
    classes: frozenset[str] | None = None
    services: list[records.Service] | None = None
    hypervisors: list[records.Hypervisor] | None = None
    flavors: list[records.Flavor] | None = None
    #: Trait to the providers that have it, for the traits that were asked for.
    holders: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    #: ``CLASS:AMOUNT`` to the providers that have so many free.
    free: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    #: The UUID of a deployable to its device; what is not here is joined by its host only.
    device_of: dict[str, records.Device] = dataclasses.field(default_factory=dict)

    def host_of(self, deployable: records.Deployable) -> str:
        """Return the host of a deployable."""
        device = self.device_of.get(deployable.uuid)
        return device.hostname if device else deployable.hostname

    def root_name(self, provider: str | None) -> str | None:
        """Return the name of the provider at the root of *provider*'s tree."""
        found = (self.providers or {}).get(provider or "")
        root = (self.providers or {}).get((found.root if found else None) or "")
        return root.name if root else None


def take(reader: Reader) -> Picture:
    """Read what says which devices there are, and what Placement knows by name."""
    traits = reader.part("traits", reading.names, "traits")
    classes = reader.part("resource classes", reading.names, "resource_classes")
    picture = Picture(
        devices=reader.part("devices", reading.devices),
        deployables=reader.part("deployables", reading.deployables),
        traits=None if traits is None else frozenset(traits),
        classes=None if classes is None else frozenset(classes),
    )
    picture.device_of = _join(picture.devices or (), picture.deployables or ())
    return picture


def take_whole(reader: Reader) -> Picture:
    """Read all that the chain from Cyborg's agent to Nova's flavors consists of."""
    picture = take(reader)
    picture.profiles = reader.part("device profiles", reading.profiles)
    picture.requests = reader.part("accelerator requests", reading.requests)
    picture.providers = reader.part("resource providers", reading.providers)
    picture.services = reader.part("compute services", reading.services)
    picture.hypervisors = reader.part("hypervisors", reading.hypervisors)
    picture.flavors = reader.part("flavors", reading.flavors)
    return picture


def ask_who_has(reader: Reader, picture: Picture, traits: Iterable[str]) -> None:
    """Learn who has each trait: a request for each that Placement knows and that is new."""
    for trait in sorted(set(traits) - picture.holders.keys()):
        if picture.traits is not None and trait not in picture.traits:
            picture.holders[trait] = set()
            continue
        found = reader.part(f"who has {trait}", reading.holders, "required", trait)
        if found is not None:
            picture.holders[trait] = found


def ask_who_is_free(reader: Reader, picture: Picture, wanted: Iterable[tuple[str, int]]) -> None:
    """Learn who has an amount of a class to give: a request for each that Placement knows."""
    for name, amount in sorted(set(wanted)):
        key = f"{name}:{amount}"
        if key in picture.free:
            continue
        if picture.classes is not None and name not in picture.classes:
            picture.free[key] = set()
            continue
        found = reader.part(f"who has {amount} {name} free", reading.holders, "resources", key)
        if found is not None:
            picture.free[key] = found


def pci_address(name: str) -> PciAddress | None:
    """Return the PCI address at the end of a provider's or a deployable's name."""
    try:
        return PciAddress.parse(name.rpartition("_")[2].lower())
    except InvalidAddress:
        return None


def _join(
    devices: Iterable[records.Device], deployables: Iterable[records.Deployable]
) -> dict[str, records.Device]:
    of_host: dict[str, list[records.Device]] = defaultdict(list)
    for device in devices:
        of_host[device.hostname].append(device)
    numbers: dict[str, dict[int, list[records.Deployable]]] = defaultdict(lambda: defaultdict(list))
    for deployable in deployables:
        if deployable.device_number is not None:
            numbers[deployable.hostname][deployable.device_number].append(deployable)
    return {
        deployable.uuid: device
        for host, found in of_host.items()
        if len(found) == len(numbers[host])
        for device, number in zip(found, sorted(numbers[host]))
        for deployable in numbers[host][number]
    }
