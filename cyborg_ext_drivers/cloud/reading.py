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

"""Whole parts of a cloud as records, each with as few requests as the APIs allow.

========================  ===========================================================
devices, deployables,      one GET each: Cyborg's API has no pages, and tells the
profiles, ARQs             attributes with the deployables
providers, traits,         one GET each: Placement has no pages either
resource classes
who has a trait            one GET per distinct trait (``?required=``); per provider it
                           would be one per device
who has room               one GET per distinct class and amount (``?resources=``)
hypervisors, flavors,      pages of 1,000
servers
========================  ===========================================================

Next stop: :mod:`cyborg_ext_drivers.cloud.chain`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from cyborg_ext_drivers.cloud.asking import CYBORG, NOVA, PLACEMENT, Cloud, NotAnswered
from cyborg_ext_drivers.cloud.records import (
    Deployable,
    Device,
    Flavor,
    Hypervisor,
    Inventory,
    Profile,
    Provider,
    Request,
    Service,
    Unknown,
)

_T = TypeVar("_T")
#: The property of a flavor that names its device profile (nova.accelerator.cyborg).
FLAVOR_PROPERTY = "accel:device_profile"


class Reader:
    """Reads a cloud part by part; a part that is not answered is ``None``, and said."""

    def __init__(self, cloud: Cloud):
        self.cloud = cloud
        #: The parts that were not answered, in the order in which they were asked for.
        self.unknown: list[Unknown] = []

    def part(self, name: str, read: Callable[..., _T], *arguments: object) -> _T | None:
        """Return what *read* finds, ``None`` where the cloud does not answer."""
        try:
            return read(self.cloud, *arguments)
        except NotAnswered as error:
            self.unknown.append(Unknown(name, error.service, error.request, error.reason))
            return None

    def is_dumb(self, asked: int) -> bool:
        """Return whether none of *asked* parts was answered."""
        return len(self.unknown) >= asked


def devices(cloud: Cloud) -> list[Device]:
    """Return Cyborg's devices in the order of the API, which is that of their rows."""
    return [
        Device(
            _text(row, "uuid"),
            _text(row, "hostname"),
            _text(row, "type"),
            _text(row, "vendor"),
            _text(row, "model"),
            row["status"] if isinstance(row.get("status"), str) else None,
            _product_id(row.get("std_board_info")),
        )
        for row in cloud.rows(CYBORG, "/devices", "devices", "uuid")
    ]


def _product_id(told: object) -> str | None:
    """Return the product id in what the API tells of a board: an object, as JSON text."""
    try:
        board = json.loads(told) if isinstance(told, str) else None
    except (ValueError, RecursionError):
        return None
    return _optional(board, "product_id") if isinstance(board, dict) else None


def deployables(cloud: Cloud) -> list[Deployable]:
    """Return Cyborg's deployables with their attributes."""
    known: dict[str, str] = {}
    rows = cloud.rows(CYBORG, "/deployables", "deployables", "uuid")
    return [_deployable(row, known) for row in rows]


def _deployable(row: Mapping[str, object], known: dict[str, str]) -> Deployable:
    attributes = list(_attributes(row.get("attributes_list")))
    number = row.get("device_id")
    traits = sorted({value for key, value in attributes if key.startswith("trait")})
    return Deployable(
        _text(row, "uuid"),
        _text(row, "name"),
        _optional(row, "rp_uuid"),
        _number(row.get("num_accelerators")),
        next((known.setdefault(v, v) for k, v in attributes if k == "rc"), None),
        # 8,000 devices share a few dozen traits; one text of each is enough.
        tuple(known.setdefault(trait, trait) for trait in traits),
        number if isinstance(number, int) else None,
    )


def _attributes(told: object) -> Iterator[tuple[str, str]]:
    """Yield key and value; the API tells a list of objects, as JSON text."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            return
    for pair in told if isinstance(told, list) else ():
        if isinstance(pair, dict):
            yield from ((str(k), v) for k, v in pair.items() if isinstance(v, str))


def profiles(cloud: Cloud) -> list[Profile]:
    """Return the device profiles."""
    rows = cloud.rows(CYBORG, "/device_profiles", "device_profiles", "name")
    return [_profile(row) for row in rows]


def _profile(row: Mapping[str, object]) -> Profile:
    groups = row.get("groups")
    return Profile(
        _text(row, "name"),
        tuple(
            {str(key): str(value) for key, value in group.items()}
            for group in (groups if isinstance(groups, list) else ())
            if isinstance(group, dict)
        ),
        _text(row, "uuid"),
    )


def requests(cloud: Cloud) -> list[Request]:
    """Return the accelerator requests of all projects that the credentials may see."""
    rows = cloud.rows(CYBORG, "/accelerator_requests", "arqs", "uuid")
    return [_request(row) for row in rows]


def _request(row: Mapping[str, object]) -> Request:
    handle = row.get("attach_handle_info")
    return Request(
        _text(row, "uuid"),
        _text(row, "state"),
        _optional(row, "hostname"),
        _optional(row, "device_rp_uuid"),
        _optional(row, "instance_uuid"),
        _text(row, "device_profile_name"),
        {str(k): str(v) for k, v in handle.items()} if isinstance(handle, dict) else {},
        _optional(row, "attach_handle_uuid"),
        _optional(row, "created_at"),
        _optional(row, "updated_at"),
    )


def providers(cloud: Cloud, **parameters: object) -> dict[str, Provider]:
    """Return Placement's resource providers by UUID, those that *parameters* choose."""
    path, key = "/resource_providers", "resource_providers"
    rows = cloud.rows(PLACEMENT, path, key, "uuid", **parameters)
    return {
        _text(row, "uuid"): Provider(
            _text(row, "uuid"),
            _text(row, "name"),
            _optional(row, "parent_provider_uuid"),
            _optional(row, "root_provider_uuid"),
        )
        for row in rows
    }


def holders(cloud: Cloud, parameter: str, value: str) -> set[str]:
    """Return the UUIDs of the providers that ``required=TRAIT`` or ``resources=CLASS:1`` finds."""
    return set(providers(cloud, **{parameter: value}))


def names(cloud: Cloud, what: str) -> set[str]:
    """Return the names of all ``traits`` or ``resource_classes`` that Placement knows."""
    found = cloud.get(PLACEMENT, f"/{what}").get(what)
    if not isinstance(found, list):
        raise NotAnswered(PLACEMENT, f"GET /{what}", f"the answer holds no list {what!r}")
    # Traits are told as texts, resource classes as objects.
    told = {str(each.get("name")) if isinstance(each, dict) else str(each) for each in found}
    return told


def record(cloud: Cloud, provider: str, resource_class: str) -> Inventory | None:
    """Return what Placement has of a class on one provider: two requests.

    :returns: ``None`` where the provider has no inventory of the class.
    :raises NotAnswered: when Placement does not tell both.
    """
    path = f"/resource_providers/{provider}"
    inventories = _object(cloud, f"{path}/inventories", "inventories")
    usages = _object(cloud, f"{path}/usages", "usages")
    found = inventories.get(resource_class)
    if not isinstance(found, dict):
        return None
    used = usages.get(resource_class)
    return Inventory(_number(found.get("total")), _number(found.get("reserved")), _number(used))


def _object(cloud: Cloud, path: str, key: str) -> Mapping[str, object]:
    found = cloud.get(PLACEMENT, path).get(key)
    if not isinstance(found, dict):
        raise NotAnswered(PLACEMENT, f"GET {path}", f"the answer holds no object {key!r}")
    return found


def has_candidate(cloud: Cloud, parameters: Mapping[str, object]) -> bool:
    """Return whether Placement has an allocation candidate."""
    path = "/allocation_candidates"
    answer = cloud.get(PLACEMENT, path, **{**parameters, "limit": 1})
    found = answer.get("allocation_requests")
    if not isinstance(found, list):
        reason = "the answer holds no list 'allocation_requests'"
        raise NotAnswered(PLACEMENT, f"GET {path}", reason)
    return bool(found)


def services(cloud: Cloud) -> list[Service]:
    """Return the nova-compute services."""
    rows = cloud.rows(NOVA, "/os-services", "services", "host", binary="nova-compute")
    return [
        Service(
            _text(row, "host"),
            _text(row, "state"),
            _text(row, "status"),
            _optional(row, "disabled_reason") or "",
        )
        for row in rows
    ]


def hypervisors(cloud: Cloud) -> list[Hypervisor]:
    """Return name and host of each hypervisor, page by page."""
    return [
        Hypervisor(_text(row, "hypervisor_hostname"), _service_host(row))
        for row in cloud.pages(NOVA, "/os-hypervisors/detail", "hypervisors", "hypervisor_hostname")
    ]


def _service_host(row: Mapping[str, object]) -> str:
    service = row.get("service")
    return _text(service, "host") if isinstance(service, dict) else ""


def flavors(cloud: Cloud) -> list[Flavor]:
    """Return the flavors that name a device profile, public or not, page by page."""
    found = cloud.pages(NOVA, "/flavors/detail", "flavors", "name", is_public="None")
    return [
        Flavor(_text(row, "name"), named)
        for row in found
        if isinstance(specs := row.get("extra_specs"), dict)
        and (named := _optional(specs, FLAVOR_PROPERTY))
    ]


def instances(cloud: Cloud, wanted: Iterable[str]) -> set[str]:
    """Return which of *wanted* are servers of any project, page by page."""
    wanted = set(wanted)
    rows = cloud.pages(NOVA, "/servers", "servers", "id", all_tenants="True")
    return {row["id"] for row in rows if row["id"] in wanted}


def is_instance(cloud: Cloud, uuid: str) -> bool:
    """Return whether Nova has this server.

    :raises NotAnswered: for everything but a server, and but an answer that there is none.
    """
    try:
        cloud.get(NOVA, f"/servers/{uuid}")
    except NotAnswered as error:
        # Nova says which it has not; a proxy in its place, or a wrong endpoint, does not.
        if error.status == 404 and f"Instance {uuid}" in error.reason:
            return False
        raise
    return True


def _text(row: Mapping[str, object], key: str) -> str:
    return _optional(row, key) or ""


def _optional(row: Mapping[str, object], key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) and value else None


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
