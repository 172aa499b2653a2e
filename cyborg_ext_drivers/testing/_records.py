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

"""What Cyborg's database and Placement hold about a host, as plain values.

Two records are equal when an operator could see no difference.
Next stop: :mod:`cyborg_ext_drivers.testing.stack`.
"""

import dataclasses
from collections.abc import Callable

from cyborg.objects.attach_handle import AttachHandle as CyborgAttachHandle
from cyborg.objects.attribute import Attribute
from cyborg.objects.control_path import ControlpathID
from cyborg.objects.deployable import Deployable as CyborgDeployable
from cyborg.objects.device import Device as CyborgDevice


@dataclasses.dataclass(frozen=True, slots=True)
class AttachHandle:
    """What one instance gets; ``info`` is the text that Cyborg keeps."""

    type: str
    info: str
    in_use: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Deployable:
    """What is scheduled; ``provider`` is the UUID of its resource provider."""

    name: str
    driver_name: str
    num_accelerators: int
    provider: str | None
    #: Key and value, in the order in which they were first reported.
    attributes: tuple[tuple[str, str], ...]
    #: In the order of their text.
    attach_handles: tuple[AttachHandle, ...]

    @property
    def resource_class(self) -> str | None:
        """The value of the attribute ``rc``."""
        return next((value for key, value in self.attributes if key == "rc"), None)

    @property
    def traits(self) -> tuple[str, ...]:
        """The traits that Cyborg believes Placement to hold; compare :attr:`Provider.traits`."""
        return tuple(value for key, value in self.attributes if key.startswith("trait"))


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A card, as a row of Cyborg's database; the rows are in the order of ``cpid_info``."""

    type: str
    vendor: str
    model: str
    hostname: str
    cpid_info: str
    std_board_info: str | None
    vendor_board_info: str | None
    deployables: tuple[Deployable, ...]
    #: Another UUID for the same card: Cyborg has deleted the row and made a new one.
    uuid: str = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Provider:
    """A resource provider below the compute host's, as Placement holds it."""

    name: str
    uuid: str
    #: The UUID of the provider above it.
    parent: str | None
    #: In alphabetical order.
    traits: tuple[str, ...]
    #: Resource class to total.
    inventories: dict[str, int]
    #: Resource class to amount in use.
    usages: dict[str, int]
    #: The UUIDs of the instances (consumers) that hold an allocation, in order.
    allocations: tuple[str, ...]


def read_devices(context) -> list[Device]:
    """Return all devices of Cyborg's database."""
    devices = [_device(context, row) for row in CyborgDevice.list(context)]
    return sorted(devices, key=lambda device: (device.hostname, device.cpid_info))


def _device(context, row: CyborgDevice) -> Device:
    control_path = ControlpathID.get_by_device_id(context, row.id)
    deployables = CyborgDeployable.get_list_by_device_id(context, row.id)
    return Device(
        type=row.type,
        vendor=row.vendor,
        model=row.model,
        hostname=row.hostname,
        cpid_info=control_path.cpid_info if control_path else "",
        std_board_info=row.std_board_info,
        vendor_board_info=row.vendor_board_info,
        deployables=tuple(
            _deployable(context, deployable)
            for deployable in sorted(deployables, key=lambda deployable: deployable.name)
        ),
        uuid=row.uuid,
    )


def _deployable(context, row: CyborgDeployable) -> Deployable:
    attributes = Attribute.get_by_deployable_id(context, row.id)
    handles = CyborgAttachHandle.get_ah_list_by_deployable_id(context, row.id)
    return Deployable(
        name=row.name,
        driver_name=row.driver_name,
        num_accelerators=row.num_accelerators,
        provider=row.rp_uuid,
        attributes=tuple(
            (attribute.key, attribute.value)
            for attribute in sorted(attributes, key=lambda attribute: attribute.id)
        ),
        attach_handles=tuple(
            AttachHandle(handle.attach_type, handle.attach_info, handle.in_use)
            for handle in sorted(handles, key=lambda handle: handle.attach_info)
        ),
    )


def read_providers(request: Callable[[str, str], dict], root: str) -> list[Provider]:
    """Return all resource providers but *root*, in the order of their names."""
    rows = request("GET", "/resource_providers")["resource_providers"]
    return [
        _provider(request, row)
        for row in sorted(rows, key=lambda row: row["name"])
        if row["uuid"] != root
    ]


def _provider(request: Callable[[str, str], dict], row: dict) -> Provider:
    def read(what: str):
        return request("GET", f"/resource_providers/{row['uuid']}/{what}")[what]

    return Provider(
        name=row["name"],
        uuid=row["uuid"],
        parent=row["parent_provider_uuid"],
        traits=tuple(sorted(read("traits"))),
        inventories={name: record["total"] for name, record in read("inventories").items()},
        usages=read("usages"),
        allocations=tuple(sorted(read("allocations"))),
    )
