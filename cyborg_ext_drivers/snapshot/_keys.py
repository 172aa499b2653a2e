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
"""What of a host becomes the keys of a description: each function, the kernel, the options.

The keys, and what stands for one that is left out, are those of the described hosts that
``cyborg_ext_drivers.testing`` ships.

Next stop: :mod:`cyborg_ext_drivers.snapshot.describe`.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.iommu import GROUPS
from cyborg_ext_drivers.host.mdev import TYPES, MediatedParent
from cyborg_ext_drivers.host.nvml import Gpu, NvmlAnswer, State
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.text import UnusableFile, read_text
from cyborg_ext_drivers.host.topology import parents_of
from cyborg_ext_drivers.options import Options

T = TypeVar("T")
BRIDGE = "0604"
#: Modules that a look at a host may turn on; the others are left out.
MODULES_THAT_MATTER = re.compile(
    r"(?:vfio|kvm|nvidia|mdev|iommu|amd|gim|qat|intel_qat|xclmgmt|xocl|dfl)\w*"
    r"|nouveau|i915|xe|ast|mgag200|habanalabs|pci_stub|pci_pf_stub|xen_pciback"
)
# Words of a kernel command line that tell of hardware and its drivers, and not of the site.
_WORDS_THAT_MATTER = re.compile(
    r"iommu|remap|x2apic|vfio|pci|nvidia|amdgpu|nouveau|kvm|mem_encrypt|sev|tdx|blacklist|xen"
)
_DEFAULT_KERNEL, _DEFAULT_DRIVER = "6.8.0-45-generic", "550.144.03"
_RESET = "flr bus"
_USUAL_BRIDGE = {"vendor": "8086", "device": "2030", "class": "060400", "driver": "pcieport"}
_UNITS = (("dmar", "intel"), ("ivhd", "amd"), ("smmu", "smmu"))
_TABLES = (("DMAR", "intel"), ("IVRS", "amd"), ("IORT", "smmu"))
_NVML_STATES = {
    State.NO_LIBRARY: "missing",
    State.DRIVER_NOT_LOADED: "driver-not-loaded",
    State.VERSION_MISMATCH: "mismatch",
    State.NO_PERMISSION: "no-permission",
    State.TIMEOUT: "hanging",
    State.CRASHED: "crashing",
    State.MALFORMED: "unknown-error",
    State.FAILED: "unknown-error",
}
_GPU_STATES = {
    "GPU_IS_LOST": "lost",
    "RESET_REQUIRED": "reset-required",
    "NO_PERMISSION": "no-permission",
    "NOT_FOUND": "unlisted",
}
_LISTS_OF_OPTIONS = ("include", "exclude", "vfs_expected", "ignore_findings")
_PLAIN_OPTIONS = ("vfio_only", "report_vendor_vfio", "withdraw_after", "on_fault", "report_serials")


def readable(read: Callable[[], T], otherwise: T | None = None) -> T | None:
    """Return what a read answers, something else where it fails."""
    try:
        return read()
    except ReadError:
        return otherwise


def function(host: Host, each: PciFunction) -> dict[str, Any]:
    """Return the keys of one function; what cannot be read has none."""
    found = {"address": each.name, **_identity(each)}
    found["name"] = host.udev.names(each.address)[1]
    found["driver"] = readable(lambda: each.driver)
    group = readable(lambda: each.iommu_group)
    # A function that says nothing would get a group of its own.
    found |= {"iommu_group": group} if group is not None else {}
    node = readable(lambda: each.numa_node)
    found["numa_node"] = None if node == -1 else node
    if found["class"].startswith("0300") and readable(lambda: each.boot_vga):
        found["boot_vga"] = 1
    found["parent"] = _parent(host, each)
    found["physfn"] = _known(host, readable(lambda: each.physical_function))
    found["sriov_totalvfs"] = readable(lambda: each.total_virtual_functions)
    found["reset_method"] = _reset_method(each)
    for key in ("drm", "accel"):
        names = readable(lambda key=key: each.directory.names(key)) or ()
        found[key] = [name for name in names if re.fullmatch(r"[A-Za-z]+[0-9]+", name)] or None
    found["mdev_types"] = readable(lambda: _mediated_types(host, each))
    found["vendor_vgpu"] = readable(lambda: _vendor_vgpu(each))
    found["fpga"] = readable(lambda: _fpga(each))
    found["xrt"] = readable(lambda: _xrt(each))
    return {key: value for key, value in found.items() if value is not None}


def without_usual(bridge: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a bridge that are not those of the usual one."""
    return {
        key: value
        for key, value in bridge.items()
        if key not in _USUAL_BRIDGE or value != _USUAL_BRIDGE[key]
    } | ({} if "driver" in bridge else {"driver": None})


def _identity(each: PciFunction) -> dict[str, Any]:
    identity = each.identity
    if identity is not None:
        vendor, device, code = identity.id.vendor, identity.id.device, identity.pci_class.code
        subsystem = str(identity.subsystem) if identity.subsystem else None
    else:

        def digits(name: str, count: int) -> str:
            said = readable(lambda: each.directory.hexadecimal(name, count))
            return said or "0" * count

        vendor, device, code = digits("vendor", 4), digits("device", 4), digits("class", 6)
        subsystem = f"{digits('subsystem_vendor', 4)}:{digits('subsystem_device', 4)}"
    revision = readable(lambda: each.revision)
    return {
        "vendor": vendor,
        "device": device,
        "class": code or "000000",
        "subsystem": None if subsystem == "0000:0000" else subsystem,
        "revision": None if revision == "00" else revision,
    }


def _known(host: Host, address: PciAddress | None) -> str | None:
    return str(address) if address is not None and host.functions.get(address) else None


def _parent(host: Host, each: PciFunction) -> str | None:
    """Return the bridge above a function; a virtual one lies beside its physical function."""
    if readable(lambda: each.physical_function) is not None:
        return None
    above = readable(lambda: parents_of(each), ()) or ()
    return next((name for name in reversed(above) if host.functions.get(name)), None)


def _reset_method(each: PciFunction) -> str | None:
    """Return how it can be reset, ``None`` for the usual way or none."""
    if not readable(lambda: each.has_reset):
        return None
    method = readable(lambda: each.directory.text("reset_method"))
    return None if method == _RESET else method


def _mediated_types(host: Host, each: PciFunction) -> dict[str, Any] | None:
    parent = MediatedParent(host.tree, each)
    found = {}
    for id in parent.type_ids:
        directory = host.tree.directory(f"{each.path}/{TYPES}/{id}")
        count = readable(lambda d=directory: d.integer("available_instances"))
        said = {
            "name": readable(lambda d=directory: d.text("name")) or id,
            "available_instances": max(count or 0, 0) if count is not None else 1,
            "description": readable(lambda d=directory: d.text("description")),
            "device_api": readable(lambda d=directory: d.text("device_api")),
        }
        if said["device_api"] == "vfio-pci":
            del said["device_api"]
        found[id] = {key: value for key, value in said.items() if value is not None}
    return found or None


def _vendor_vgpu(each: PciFunction) -> dict[str, Any] | None:
    vgpu = each.vendor_vgpu
    if vgpu is None:
        return None
    found: dict[str, Any] = {"current": vgpu.current or 0}
    if vgpu.creatable:
        found["creatable"] = {str(kind.id): kind.name for kind in vgpu.creatable}
    return found


def _fpga(each: PciFunction) -> dict[str, Any] | None:
    view = each.fpga
    if not view.is_shown:
        return None
    found: dict[str, Any] = {}
    if not each.directory.names("fpga_region"):
        found["layout"] = "intel-fpga"
    for engine in view.engines[:1]:
        said = {
            "interface_id": next((each.id for each in engine.interface_ids), None),
            "bitstream_id": engine.bitstream_id,
        }
        if engine.ports_num is not None:
            said["ports"] = engine.ports_num
        found["engine"] = said
    ports = []
    for place, port in enumerate(view.ports):
        number = port.number if port.number is not None else place
        ports.append({"afu_id": port.afu_id} | ({"number": number} if number != place else {}))
    if ports:
        found["ports"] = ports
    return found


def _xrt(each: PciFunction) -> dict[str, Any] | None:
    view = each.xrt
    if not view.is_shown:
        return None
    found: dict[str, Any] = {}
    if view.is_ready is False:
        found["ready"] = False
    if view.is_golden:
        found["golden"] = True
    if view.shell is not None:
        found["vbnv"] = view.shell
    for key in ("interface_uuids", "logic_uuids"):
        if ids := getattr(view, key):
            found[key] = list(ids)
    return found


def kernel(host: Host) -> dict[str, Any]:
    """Return what is true once a host: kernel, architecture, IOMMU, modules."""
    release = readable(lambda: host.kernel.release)
    found: dict[str, Any] = {}
    if release and re.match(r"[0-9]+\.[0-9]+", release) and release != _DEFAULT_KERNEL:
        found["kernel"] = release
    architecture = readable(lambda: host.kernel.architecture)
    if architecture not in (None, "x86_64"):
        found["architecture"] = architecture
    kind = iommu(host)
    if kind != ("smmu" if architecture == "aarch64" else "intel"):
        found["iommu"] = kind
    version = readable(lambda: host.tree.text("/sys/module/nvidia/version"))
    if version:
        found["nvidia_driver"] = version
    return found


def iommu(host: Host) -> str:
    """Return which kind of IOMMU a description has to name for this host."""
    if readable(lambda: host.kernel.is_xen_host):
        return "xen"
    units = readable(lambda: host.iommu.units) or ()
    for start, kind in _UNITS:
        if any(unit.startswith(start) for unit in units):
            return kind
    if any(readable(lambda each=each: each.has_iommu) for each in host.functions):
        return _of_firmware(host) or "intel"
    names = readable(lambda: host.tree.names(GROUPS))
    for name in names or ():
        if readable(lambda name=name: host.tree.text(f"{GROUPS}/{name}/name")) == "vfio-noiommu":
            return "vfio-noiommu"
    if any(readable(lambda each=each: each.iommu_group) is not None for each in host.functions):
        return _of_firmware(host) or "intel"
    if names is None:
        return "none"
    return "off-on-command-line" if _of_firmware(host) else "off-in-firmware"


def _of_firmware(host: Host) -> str | None:
    tables = host.iommu.firmware_tables or ()
    return next((kind for table, kind in _TABLES if table in tables), None)


def command_line(text: str) -> str:
    """Return the words of a kernel command line that tell of hardware; the rest is private."""
    words = re.findall(r'(?:"[^"]*(?:"|$)|[^\s"])+', text)
    return " ".join(word for word in words if _WORDS_THAT_MATTER.search(word.partition("=")[0]))


def files_of_options(options: Options) -> dict[str, str]:
    """Return the files that say what an operator decided, as far as it bears on a report."""
    files = {}
    cyborg = "".join(_cyborg_conf(options))
    if cyborg:
        files["/etc/cyborg/cyborg.conf"] = cyborg
    if options.nova_device_specs:
        lines = (f"device_spec = {_escaped(each)}\n" for each in options.nova_device_specs)
        files["/etc/nova/nova.conf"] = "[pci]\n" + "".join(lines)
    with contextlib.suppress(OSError):
        for path in catalog.files_in(options.below_root("catalog_dir")):
            with contextlib.suppress(UnusableFile):
                name = os.path.basename(path)
                files[f"/etc/cyborg/ext_catalog.d/{name}"] = read_text(path, catalog.MOST_BYTES)
    return files


def _cyborg_conf(options: Options) -> Iterator[str]:
    if options.enabled_drivers is not None:
        yield f"[agent]\nenabled_drivers = {','.join(options.enabled_drivers)}\n"
    lines = [*_ext_drivers(options)]
    if lines:
        yield "[ext_drivers]\n" + "".join(f"{line}\n" for line in lines)
    if options.cyborg_device_specs:
        yield "[pci]\n"
        for each in options.cyborg_device_specs:
            yield f"passthrough_whitelist = {_escaped(each)}\n"
    names: dict[str, list[str]] = {}
    for address, name in options.vgpu_types:
        names.setdefault(name, []).append(str(address))
    if names:
        yield f"[gpu_devices]\nenabled_vgpu_types = {','.join(names)}\n"
    for name, addresses in names.items():
        yield f"[vgpu_{name}]\ndevice_addresses = {','.join(addresses)}\n"


def _ext_drivers(options: Options) -> Iterator[str]:
    usual = Options()
    for name in _LISTS_OF_OPTIONS:
        value = getattr(options, name)
        if value:
            yield f"{name} = {_escaped(','.join(sorted(map(str, value))))}"
    for name in _PLAIN_OPTIONS:
        if getattr(options, name) != getattr(usual, name):
            yield f"{name} = {getattr(options, name)}"
    for selector, name in options.resource_classes:
        yield f"resource_classes = {selector}={name}"
    for selector, names in options.extra_traits:
        yield f"extra_traits = {selector}={','.join(names)}"


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def nvml(answer: NvmlAnswer | None, driver: str | None) -> dict[str, Any]:
    """Return the keys of the host that say how NVML answers."""
    if answer is None or answer.state in (State.NOT_ASKED, State.NO_BINDING):
        return {}
    found: dict[str, Any] = {}
    if answer.state in _NVML_STATES:
        found["nvml"] = _NVML_STATES[answer.state]
        if answer.detail.startswith("OPERATING_SYSTEM"):
            found["nvml"] = "blocked"
    version = answer.driver_version
    if version and driver is None:
        found["nvidia_driver"] = version
    library = (answer.nvml_version or "").partition(".")[2]
    if library and library != (version or driver or _DEFAULT_DRIVER):
        found["nvml_library"] = library
    return found


def gpu(said: Gpu, with_serials: bool) -> dict[str, Any]:
    """Return what NVML says of a GPU, without what identifies the very card unless asked for."""
    found: dict[str, Any] = {} if said.is_listed else {"state": "unlisted"}
    if said.errors:
        found["state"] = _GPU_STATES.get(said.errors[0], "unknown-error")
    found["name"] = said.name
    if said.memory is not None and said.memory >> 20 != 16384:
        found["memory_mib"] = said.memory >> 20
    for key in ("uuid", "serial") if with_serials else ():
        found[key] = getattr(said, key)
    for key in ("vbios", "board_part", "compute_capability", "architecture"):
        found[key] = getattr(said, key)
    for key in ("virtualization_mode", "host_vgpu_mode"):
        found[key] = getattr(said, key)
    if said.mig is not None:
        found["mig"] = {"enabled": said.mig[0], "pending": said.mig[1]}
        if said.instances:
            found["mig"]["instances"] = [
                {"name": each.name or "unknown", "memory_mib": (each.memory or 0) >> 20}
                for each in said.instances
            ]
    found["processes"] = [
        {"pid": each.pid, "command": each.command or "unknown"}
        | ({"memory_mib": each.memory >> 20} if each.memory is not None else {})
        for each in said.processes or ()
    ] or None
    if said.ecc is not None:
        found["ecc"] = {
            "enabled": said.ecc.is_on,
            "pending": said.ecc.is_pending_on,
            "volatile": said.ecc.volatile or 0,
            "aggregate": said.ecc.aggregate or 0,
        }
    if said.rows is not None:
        found["rows"] = {
            "correctable": said.rows.correctable,
            "uncorrectable": said.rows.uncorrectable,
            "pending": said.rows.is_pending,
            "failed": said.rows.has_failed,
        }
    found["retired_pages_pending"] = said.retired_pages_pending
    creatable = {each.id for each in said.creatable_vgpus or ()}
    found["vgpu_types"] = [
        {"id": each.id, "name": each.name or str(each.id), "creatable": each.id in creatable}
        for each in said.supported_vgpus or ()
    ] or None
    return {key: value for key, value in found.items() if value is not None}
