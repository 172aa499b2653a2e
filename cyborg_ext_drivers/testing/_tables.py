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

"""The records of :mod:`cyborg_ext_drivers.testing.stack` as tables that fit 120 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import prettytable

from cyborg_ext_drivers import address

if TYPE_CHECKING:
    from cyborg_ext_drivers.testing.stack import BoundHandle, Device, Provider

_WIDTH = 120


def devices(found: Sequence[Device]) -> str:
    """Return the devices, a line each."""
    rows = [(_address(each.cpid_info), each.type, each.vendor, each.model) for each in found]
    return _table("Devices in Cyborg", ("address", "type", "vendor", "model"), rows)


def deployables(found: Sequence[Device]) -> str:
    """Return what can be scheduled, a line for each deployable."""
    rows = [
        (
            _address(device.cpid_info),
            deployable.name,
            deployable.driver_name,
            deployable.num_accelerators,
        )
        for device in found
        for deployable in device.deployables
    ]
    columns = ("device", "deployable", "driver", "accelerators")
    return _table("Deployables in Cyborg", columns, rows)


def attach_handles(found: Sequence[Device]) -> str:
    """Return what instances can get, a line for each handle."""
    rows = [
        (deployable.name, handle.type, _address(handle.info))
        for device in found
        for deployable in device.deployables
        for handle in deployable.attach_handles
    ]
    return _table("Attach handles in Cyborg", ("deployable", "type", "address"), rows)


def providers(found: Sequence[Provider]) -> str:
    """Return what Placement schedules by: inventory and traits of each resource provider."""
    rows = [(each.name, _lines(each.inventories), "\n".join(each.traits)) for each in found]
    columns = ("resource provider", "inventory", "traits")
    return _table("Resource providers in Placement", columns, rows)


def bound_handles(title: str, found: Sequence[BoundHandle], names: Mapping[str, str]) -> str:
    """Return what an instance gets; *names* are those of the resource providers by UUID."""
    rows = [(names[each.provider], each.state, each.type, _lines(each.info)) for each in found]
    return _table(title, ("resource provider", "state", "type", "info"), rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Iterable]) -> str:
    table = prettytable.PrettyTable(columns)
    table.align = "l"
    table.max_table_width = _WIDTH
    for row in rows:
        table.add_row(list(row))
    return f"{title}\n{table.get_string()}"


def _lines(values: Mapping[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())


def _address(info: str) -> str:
    try:
        return str(address.PciAddress.parse(info))
    except address.InvalidAddress:
        return info
