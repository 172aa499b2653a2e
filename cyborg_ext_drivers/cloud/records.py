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

"""What the three services tell, as plain values; everything in them is text from outside.

Next stop: :mod:`cyborg_ext_drivers.cloud.reading`.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple


class Device(NamedTuple):
    """A card, as Cyborg's API tells it; its row number is not told there."""

    uuid: str
    hostname: str
    type: str
    vendor: str
    model: str
    #: ``enabled`` or ``maintaining``; ``None`` where the API does not tell it.
    status: str | None
    #: What its driver told as ``product_id`` of the board, which drivers need not.
    product_id: str | None = None


class Deployable(NamedTuple):
    """What Cyborg schedules."""

    uuid: str
    name: str
    #: The UUID of its resource provider.
    provider: str | None
    accelerators: int
    resource_class: str | None
    traits: tuple[str, ...]
    #: The row number of its device.
    device_number: int | None

    @property
    def hostname(self) -> str:
        """The host that its name begins with, as all of Cyborg's drivers write it."""
        return self.name.rpartition("_")[0]

    @property
    def address(self) -> str:
        """The PCI address that its name ends with."""
        return self.name.rpartition("_")[2]


class Provider(NamedTuple):
    """A resource provider of Placement."""

    uuid: str
    name: str
    parent: str | None
    root: str | None

    @property
    def host(self) -> str:
        """The host that its name begins with where one of Cyborg's drivers gave it."""
        return self.name.rpartition("_")[0]


class Inventory(NamedTuple):
    """What Placement has of one class on one provider."""

    total: int
    reserved: int
    used: int


class Service(NamedTuple):
    """A nova-compute service."""

    host: str
    state: str
    status: str
    reason: str


class Hypervisor(NamedTuple):
    """What Nova names its resource provider by."""

    name: str
    host: str


class Profile(NamedTuple):
    """A device profile."""

    name: str
    groups: tuple[Mapping[str, str], ...]
    uuid: str


class Flavor(NamedTuple):
    """A flavor that names a device profile."""

    name: str
    #: As it stands there: to Nova it is one name, spaces and commas included.
    profile: str


#: The states of a request whose provider Nova may be about to tell.
BINDING = ("Initial", "BindStarted")


class Request(NamedTuple):
    """An accelerator request (ARQ)."""

    uuid: str
    state: str
    hostname: str | None
    provider: str | None
    instance: str | None
    profile: str
    handle: Mapping[str, str]
    handle_uuid: str | None
    #: In UTC, as told.
    created_at: str | None
    changed_at: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """A part of the chain that was not answered."""

    part: str
    service: str
    request: str
    reason: str

    def __str__(self) -> str:
        return f"{self.part}: {self.service} was asked {self.request}: {self.reason}"
