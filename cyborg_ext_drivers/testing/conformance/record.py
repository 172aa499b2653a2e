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

"""What a driver discovers, as plain values: a field that is not set is :data:`UNSET`."""

from typing import Any

#: In the place of a field that the driver did not set.
UNSET = "(not set)"

_DEVICE = ("vendor", "model", "type", "std_board_info", "vendor_board_info", "stub")
_DEPLOYABLE = ("name", "driver_name", "num_accelerators")


def record(devices: list) -> list[dict[str, Any]]:
    """Return the devices of a ``discover()`` as dictionaries, in its order."""
    return [_device(device) for device in devices]


def _get(thing: Any, name: str) -> Any:
    try:
        is_set = thing.obj_attr_is_set(name)
    except AttributeError:
        is_set = hasattr(thing, name)
    return getattr(thing, name) if is_set else UNSET


def _fields(thing: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _get(thing, name) for name in names}


def _listed(thing: Any, name: str) -> list:
    found = _get(thing, name)
    return [] if found in (UNSET, None) else list(found)


def _device(device: Any) -> dict[str, Any]:
    path = _get(device, "controlpath_id")
    names = ("cpid_type", "cpid_info")
    return {
        **_fields(device, _DEVICE),
        **(dict.fromkeys(names, UNSET) if path in (UNSET, None) else _fields(path, names)),
        "deployables": [_deployable(each) for each in _listed(device, "deployable_list")],
    }


def _deployable(deployable: Any) -> dict[str, Any]:
    attributes = _listed(deployable, "attribute_list")
    handles = _listed(deployable, "attach_handle_list")
    lists = ("attribute_list", "attach_handle_list")
    return {
        **_fields(deployable, _DEPLOYABLE),
        "unset": [name for name in lists if _get(deployable, name) == UNSET],
        "attributes": [(_get(each, "key"), _get(each, "value")) for each in attributes],
        "handles": [(_get(each, "attach_type"), _get(each, "attach_info")) for each in handles],
    }
