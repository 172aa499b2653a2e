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

"""Mediated devices and the types that their parents offer.

Source: Documentation/ABI/testing/sysfs-bus-vfio-mdev, drivers/vfio/mdev.  A card that has
one has no room for types of another size any more, as NVIDIA's in equal-size mode.
"""

from cyborg_ext_drivers.testing._description import FunctionDescription, MediatedType
from cyborg_ext_drivers.testing._files import Entry, Link, Special
from cyborg_ext_drivers.testing._machine import Machine, MediatedDevice


def entries(machine: Machine, function: FunctionDescription, here: str) -> dict[str, Entry]:
    """Return a parent's types and its mediated devices; nothing for other functions."""
    if not machine.offers_mediated_types(function):
        return {}
    devices = [m for m in machine.mediated.values() if m.parent == function.address]
    tree: dict[str, Entry] = {f"/sys/class/mdev_bus/{function.address}": Link(here)}
    for kind in function.mdev_types:
        directory = f"{here}/mdev_supported_types/{kind.id}"
        tree |= {
            f"{directory}/{name}": entry for name, entry in _type(machine, function, kind).items()
        }
    for device in devices:
        tree |= _device(device, here, _driver(function))
    return tree


def _type(machine: Machine, function: FunctionDescription, kind: MediatedType) -> dict[str, Entry]:
    files: dict[str, Entry] = {
        "name": f"{kind.name}\n".encode(),
        "available_instances": f"{machine.room_for(function, kind)}\n".encode(),
        "device_api": f"{kind.device_api}\n".encode(),
        "create": Special.WRITE_ONLY,
        "devices": Special.DIRECTORY,
    }
    if kind.description is not None:
        files["description"] = f"{kind.description}\n".encode()
    return files


def _device(device: MediatedDevice, parent: str, driver: str) -> dict[str, Entry]:
    here = f"{parent}/{device.uuid}"
    kind = f"{parent}/mdev_supported_types/{device.type}"
    group = f"/sys/kernel/iommu_groups/{device.iommu_group}"
    return {
        here: Special.DIRECTORY,
        f"{here}/uevent": f"DRIVER={driver}\n".encode(),
        f"{here}/remove": Special.WRITE_ONLY,
        f"{here}/mdev_type": Link(kind),
        f"{here}/subsystem": Link("/sys/bus/mdev"),
        f"{here}/driver": Link(f"/sys/bus/mdev/drivers/{driver}"),
        f"{here}/iommu_group": Link(group),
        f"{kind}/devices/{device.uuid}": Link(here),
        f"{group}/devices/{device.uuid}": Link(here),
        f"/sys/bus/mdev/devices/{device.uuid}": Link(here),
        f"/sys/bus/mdev/drivers/{driver}/{device.uuid}": Link(here),
    }


def _driver(function: FunctionDescription) -> str:
    return "nvidia-vgpu-vfio" if function.vendor == "10de" else "vfio_mdev"
