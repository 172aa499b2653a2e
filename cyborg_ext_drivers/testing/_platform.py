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

"""What is there once a host: kernel, modules, drivers, IOMMU, groups, CPUs, device nodes.

Source: Documentation/ABI/testing/sysfs-kernel-iommu_groups, sysfs-class-iommu and
Documentation/filesystems/proc.rst.  All IOMMUs are laid as one, below
/sys/devices/virtual/iommu, where the kernel puts Intel's.
"""

import re
import uuid

from cyborg_ext_drivers.testing import _function_files, _nvml
from cyborg_ext_drivers.testing._files import Entry, Link, Special
from cyborg_ext_drivers.testing._machine import Machine

_UNITS = {"intel": "dmar0", "amd": "ivhd0", "smmu": "smmu3.0x0000000011600000"}
_REGIONS = {
    "intel": "0x00000000fee00000 0x00000000feefffff msi\n",
    "amd": (
        "0x00000000fee00000 0x00000000feefffff msi\n"
        "0x000000fd00000000 0x000000ffffffffff reserved\n"
    ),
    "smmu": "0x0000000008000000 0x00000000080fffff msi\n",
}
_DIRECTORIES = (
    "/sys/bus/pci/devices",
    "/sys/bus/pci/drivers",
    "/sys/bus/pci/slots",
    "/sys/class/iommu",
    "/sys/module",
    "/dev/vfio",
    "/etc/cyborg",
    "/run/udev/data",
)
_VFIO_MODULES = ("vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1")
_COMMANDS = ("bind", "unbind", "new_id", "remove_id", "uevent")
# Drivers that are built in, or whose module has another name.
_MODULES_OF = {"pcieport": (), "vfio-pci": _VFIO_MODULES, "nvidia-nvswitch": ("nvidia",)}


def content(text: str | bytes) -> bytes:
    """Return what a file holds: bytes as they are, a text with a newline at its end."""
    if isinstance(text, bytes):
        return text
    return (text if not text or text.endswith("\n") else f"{text}\n").encode()


def entries(machine: Machine, nodes: int) -> dict[str, Entry]:
    """Return all that is there whatever the functions are, by path."""
    tree: dict[str, Entry] = dict.fromkeys(_DIRECTORIES, Special.DIRECTORY)
    tree |= _kernel(machine)
    tree |= _modules(machine)
    tree |= _drivers(machine)
    tree |= _iommu(machine)
    tree |= _groups(machine)
    tree |= _nvml.entries(machine)
    return tree | _cpus(nodes)


def _kernel(machine: Machine) -> dict[str, Entry]:
    host = machine.host
    tree: dict[str, Entry] = {
        "/proc/cmdline": content(_command_line(machine) if host.cmdline is None else host.cmdline),
        "/proc/sys/kernel/osrelease": content(host.kernel),
        "/proc/sys/kernel/ostype": content("Linux"),
        "/proc/sys/kernel/random/boot_id": content(str(uuid.UUID(int=host.boots, version=4))),
        "/proc/version": content(f"Linux version {host.kernel} (builder@host) (gcc) #1 SMP"),
    }
    release = [int(number) for number in re.findall(r"\d+", host.kernel)[:2]]
    if release >= [6, 1]:
        tree["/proc/sys/kernel/arch"] = content(host.architecture)
    if host.nvidia_driver is not None:
        text = f"NVRM version: NVIDIA UNIX {host.architecture} Kernel Module  {host.nvidia_driver}"
        tree["/proc/driver/nvidia/version"] = content(f"{text}\nGCC version:  gcc version 13.2.0")
    return tree


def _command_line(machine: Machine) -> str:
    words = {"intel": " intel_iommu=on", "off-on-command-line": " intel_iommu=off"}
    extra = words.get(machine.host.iommu, "") if machine.host.architecture == "x86_64" else ""
    return f"BOOT_IMAGE=/boot/vmlinuz-{machine.host.kernel} root=/dev/sda2 ro{extra}"


def modules(machine: Machine) -> dict[str, dict[str, str]]:
    """Return the loaded modules: those that are named, and those of the drivers."""
    names: list[str] = []
    for driver in sorted(machine.drivers):
        names.extend(_MODULES_OF.get(driver, (driver.replace("-", "_"),)))
    if any(each.mdev_types for each in machine.functions.values()):
        names.append("mdev")
    return {name: {} for name in names} | {
        name: dict(values) for name, values in machine.host.modules.items()
    }


def _modules(machine: Machine) -> dict[str, Entry]:
    tree: dict[str, Entry] = {}
    lines = []
    for name, parameters in modules(machine).items():
        here = f"/sys/module/{name}"
        tree |= {here: Special.DIRECTORY, f"{here}/initstate": b"live\n", f"{here}/refcnt": b"0\n"}
        tree |= {f"{here}/parameters/{key}": content(value) for key, value in parameters.items()}
        lines.append(f"{name} 16384 0 - Live 0x0000000000000000\n")
    if "nvidia" in modules(machine) and machine.host.nvidia_driver is not None:
        tree["/sys/module/nvidia/version"] = content(machine.host.nvidia_driver)
    if "mdev" in modules(machine):
        for path in ("/sys/class/mdev_bus", "/sys/bus/mdev/devices", "/sys/bus/mdev/drivers"):
            tree[path] = Special.DIRECTORY
    return tree | {"/proc/modules": "".join(lines).encode()}


def _drivers(machine: Machine) -> dict[str, Entry]:
    tree: dict[str, Entry] = {}
    loaded = modules(machine)
    for driver in machine.drivers | ({"vfio-pci"} if "vfio_pci" in loaded else set()):
        here = f"/sys/bus/pci/drivers/{driver}"
        tree[here] = Special.DIRECTORY
        tree |= {f"{here}/{command}": Special.WRITE_ONLY for command in _COMMANDS}
        names = _MODULES_OF.get(driver, (driver.replace("-", "_"),))
        if names:
            module = "vfio_pci" if driver == "vfio-pci" else names[0]
            tree[f"{here}/module"] = Link(f"/sys/module/{module}")
    return tree


def iommu_unit(machine: Machine) -> str:
    """Return the real directory of the host's IOMMU."""
    return f"/sys/devices/virtual/iommu/{_UNITS[machine.host.iommu]}"


def _iommu(machine: Machine) -> dict[str, Entry]:
    kind = machine.host.iommu
    tree: dict[str, Entry] = {}
    for table in ("APIC", "FACP", "MCFG", *_iommu_tables(machine)):
        tree[f"/sys/firmware/acpi/tables/{table}"] = table.encode().ljust(36, b"\0")
    if kind != "none":
        tree["/sys/kernel/iommu_groups"] = Special.DIRECTORY
    if kind == "xen":
        tree["/sys/hypervisor/type"] = b"xen\n"
    if machine.is_iommu_active:
        unit = iommu_unit(machine)
        tree |= {
            unit: Special.DIRECTORY,
            f"{unit}/devices": Special.DIRECTORY,
            f"{unit}/uevent": b"",
            f"{unit}/subsystem": Link("/sys/class/iommu"),
            f"/sys/class/iommu/{_UNITS[kind]}": Link(unit),
        }
    return tree


def _iommu_tables(machine: Machine) -> tuple[str, ...]:
    """Return the ACPI table by which firmware offers the IOMMU."""
    kind = machine.host.iommu
    if kind == "off-on-command-line":
        if machine.host.architecture == "aarch64":
            kind = "smmu"
        else:
            kind = "amd" if "amd_iommu" in (machine.host.cmdline or "") else "intel"
    table = {"intel": "DMAR", "amd": "IVRS", "smmu": "IORT"}.get(kind)
    return (table,) if table else ()


def _groups(machine: Machine) -> dict[str, Entry]:
    functions = [(machine.group_of(each), each) for each in machine.functions.values()]
    on_vfio = {group for group, each in functions if each.is_on_vfio}
    numbers = {group for group, _each in functions} | {
        device.iommu_group for device in machine.mediated.values()
    }
    is_unsafe = machine.host.iommu == "vfio-noiommu"
    tree: dict[str, Entry] = {"/dev/vfio/vfio": b""}
    for number in numbers - {None}:
        here = f"/sys/kernel/iommu_groups/{number}"
        tree |= {
            here: Special.DIRECTORY,
            f"{here}/devices": Special.DIRECTORY,
            f"{here}/type": b"unknown\n" if is_unsafe else b"DMA-FQ\n",
            f"{here}/reserved_regions": _REGIONS.get(machine.host.iommu, "").encode(),
        }
        if is_unsafe:
            tree[f"{here}/name"] = b"vfio-noiommu\n"
        if number in on_vfio:
            tree[f"/dev/vfio/{'noiommu-' if is_unsafe else ''}{number}"] = b""
    return tree


def _cpus(nodes: int) -> dict[str, Entry]:
    each = _function_files.CPUS_PER_NODE
    tree: dict[str, Entry] = {
        "/sys/devices/system/cpu/online": content(f"0-{each * nodes - 1}"),
        "/sys/devices/system/node/online": content(f"0-{nodes - 1}" if nodes > 1 else "0"),
    }
    for node in range(nodes):
        cpus = content(f"{each * node}-{each * node + each - 1}")
        tree[f"/sys/devices/system/node/node{node}/cpulist"] = cpus
    return tree
