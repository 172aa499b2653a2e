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

"""Where one PCI function shows: its directory and the links that lead to it.

Source: Documentation/ABI/testing/sysfs-bus-pci, sysfs-kernel-iommu_groups,
sysfs-bus-vfio-mdev, sysfs-devices-vfio-dev.
"""

import string

from cyborg_ext_drivers.testing import (
    _fpga,
    _function_files,
    _mediated,
    _nvidia,
    _platform,
    _xrt,
)
from cyborg_ext_drivers.testing._description import FunctionDescription
from cyborg_ext_drivers.testing._files import Entry, Link, Special
from cyborg_ext_drivers.testing._machine import Machine

_DRM_MAJOR, _ACCEL_MAJOR = 226, 261
# Given out at boot; any of the dynamic numbers will do.
_VFIO_MAJOR = 511
# What udev's database calls the makers (ID_VENDOR_FROM_DATABASE).
_MAKERS = {
    "1002": "Advanced Micro Devices, Inc. [AMD/ATI]",
    "102b": "Matrox Electronics Systems Ltd.",
    "10de": "NVIDIA Corporation",
    "10ee": "Xilinx Corporation",
    "15b3": "Mellanox Technologies",
    "1a03": "ASPEED Technology, Inc.",
    "8086": "Intel Corporation",
}


def entries(
    machine: Machine, function: FunctionDescription, nodes: int, detailed: bool
) -> dict[str, Entry]:
    """Return all that is there because of one function, by path.

    :param detailed: whether the files that say more than the identity are laid as well.
    """
    here = machine.directory(function.address)
    virtual = machine.virtual_functions(function.address)
    files = _function_files.identity(function) | _function_files.sriov(function, len(virtual))
    if detailed:
        buses = machine.buses_below(function.address) if function.is_bridge else (0, 0)
        files |= _function_files.details(function, nodes, buses)
    tree: dict[str, Entry] = {here: Special.DIRECTORY}
    tree |= {f"{here}/{name}": entry for name, entry in files.items()}
    tree |= _links(machine, function, here, detailed)
    tree |= {
        f"{here}/virtfn{number}": Link(machine.directory(each.address))
        for number, each in enumerate(virtual)
    }
    tree |= _nodes(function, here)
    tree |= _mediated.entries(machine, function, here)
    tree |= _nvidia.entries(function, here)
    tree |= _fpga.entries(machine, function, here)
    tree |= _xrt.entries(function, here)
    if detailed:
        tree[f"/run/udev/data/+pci:{function.address}"] = _udev_record(function)
    _override(tree, function, here)
    return tree


def _links(
    machine: Machine, function: FunctionDescription, here: str, detailed: bool
) -> dict[str, Entry]:
    address = function.address
    links: dict[str, Entry] = {
        f"/sys/bus/pci/devices/{address}": Link(here),
        f"{here}/subsystem": Link("/sys/bus/pci"),
    }
    if function.physfn in machine.functions:
        links[f"{here}/physfn"] = Link(machine.directory(function.physfn))
    if function.driver is not None:
        driver = f"/sys/bus/pci/drivers/{function.driver}"
        links |= {f"{here}/driver": Link(driver), f"{driver}/{address}": Link(here)}
    group = machine.group_of(function)
    if group is not None:
        directory = f"/sys/kernel/iommu_groups/{group}"
        links |= {
            f"{here}/iommu_group": Link(directory),
            f"{directory}/devices/{address}": Link(here),
        }
        if detailed and machine.is_iommu_active:
            unit = _platform.iommu_unit(machine)
            links |= {f"{here}/iommu": Link(unit), f"{unit}/devices/{address}": Link(here)}
    if detailed and function.is_on_vfio:
        links |= _vfio(machine.vfio_number(address), here)
    return links


def _vfio(number: int, here: str) -> dict[str, Entry]:
    directory = f"{here}/vfio-dev/vfio{number}"
    return {
        f"{directory}/dev": f"{_VFIO_MAJOR}:{number}\n".encode(),
        f"{directory}/uevent": _node_uevent(_VFIO_MAJOR, number, f"vfio/devices/vfio{number}"),
        f"{directory}/subsystem": Link("/sys/class/vfio-dev"),
        f"/sys/class/vfio-dev/vfio{number}": Link(directory),
        f"/dev/vfio/devices/vfio{number}": b"",
    }


def _nodes(function: FunctionDescription, here: str) -> dict[str, Entry]:
    """Return the device nodes that a host driver makes; under vfio there are none."""
    if function.driver is None or function.is_on_vfio:
        return {}
    tree: dict[str, Entry] = {}
    for kind, directory, major, names in (
        ("drm", "dri", _DRM_MAJOR, function.drm),
        ("accel", "accel", _ACCEL_MAJOR, function.accel),
    ):
        for name in names:
            minor = int(name.lstrip(string.ascii_letters))
            node = f"{here}/{kind}/{name}"
            tree |= {
                f"{node}/dev": f"{major}:{minor}\n".encode(),
                f"{node}/uevent": _node_uevent(major, minor, f"{directory}/{name}"),
                f"{node}/device": Link(here),
                f"{node}/subsystem": Link(f"/sys/class/{kind}"),
                f"/sys/class/{kind}/{name}": Link(node),
                f"/dev/{directory}/{name}": b"",
            }
    return tree


def _node_uevent(major: int, minor: int, name: str) -> bytes:
    return f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\n".encode()


def _udev_record(function: FunctionDescription) -> bytes:
    """Return udev's database record of a function (systemd, src/libsystemd/sd-device)."""
    properties = {
        "ID_VENDOR_FROM_DATABASE": _MAKERS.get(function.vendor),
        "ID_MODEL_FROM_DATABASE": function.name,
    }
    lines = [f"E:{key}={value}" for key, value in properties.items() if value]
    return "\n".join(["I:1000000", *lines, "V:1", ""]).encode()


def _override(tree: dict[str, Entry], function: FunctionDescription, here: str) -> None:
    """Put in what the description says of single files."""
    for name, content in function.attributes.items():
        if content is None:
            tree.pop(f"{here}/{name}", None)
        else:
            tree[f"{here}/{name}"] = _platform.content(content)
