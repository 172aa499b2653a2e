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


"""What is read of a host to save it: all that was asked of it, and what may be asked later.

A :class:`RecordingTree` notes what a look at the host reads, so what checks of others read is
saved as well.  A crawl adds what a later release may want to know of accelerators.  It reads
attributes of the PCI core by their names only (drivers/pci/pci-sysfs.c): a driver's own files may
block, wake a card or do something, and so may ``sriov_numvfs``, ``rom``, ``vpd``, ``resourceN``
and ``reset``.

Next stop: :mod:`cyborg_ext_drivers.snapshot.redact`.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable
from typing import Any

from cyborg_ext_drivers.errors import EnumerationError, ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host._reading import Head, entries_of, list_names, read
from cyborg_ext_drivers.host.directory import Directory
from cyborg_ext_drivers.host.kernel import (
    ARCHITECTURE,
    BOOT_ID,
    COMMAND_LINE,
    HYPERVISOR,
    MODULES,
    PCI_DRIVERS,
    RELEASE,
)
from cyborg_ext_drivers.host.pci import DEVICES, PciFunction
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.snapshot.captured import Captured, Present

GROUPS = "/sys/kernel/iommu_groups"
_PAGE = 4096
_MOST_LINKS = 40
# Where the walk through a vendor's folder ends.
_DEEPEST = 4
_MOST_OF_A_FOLDER = 2000
#: Attributes of the PCI core that neither wait for a lock nor wake what sleeps.
_ATTRIBUTES = (
    *("vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device", "modalias"),
    *("uevent", "label", "index", "acpi_index", "resource", "irq", "enable", "numa_node"),
    *("local_cpulist", "local_cpus", "boot_vga", "ari_enabled", "d3cold_allowed", "power_state"),
    *("driver_override", "msi_bus", "reset_method", "sriov_totalvfs", "sriov_offset"),
    *("sriov_stride", "sriov_drivers_autoprobe", "sriov_vf_device", "dma_mask_bits"),
    *("consistent_dma_mask_bits", "broken_parity_status", "max_link_speed", "serial_number"),
)
# Reading these resumes the bridge above, so it is left alone where anything sleeps.
_OF_THE_AWAKE = ("current_link_speed", "current_link_width", "max_link_width")
_LINKS = ("driver", "iommu_group", "iommu", "physfn", "subsystem", "firmware_node")
_POWER = ("runtime_status", "control")
#: Folders of drivers whose files may all be read.
_FOLDERS = (
    "nvidia",
    "mdev_supported_types",
    "vfio-dev",
    "tsm",
    "fpga_region",
    "fpga",
    "fpga_manager",
)
_HOST_FILES = (
    *(RELEASE, ARCHITECTURE, BOOT_ID, COMMAND_LINE, HYPERVISOR),
    *("/proc/driver/nvidia/version", "/sys/module/nvidia/version", "/sys/module/amdgpu/version"),
)
_HOST_NAMES = (
    *(MODULES, PCI_DRIVERS, DEVICES, GROUPS, "/sys/class/iommu", "/sys/class/tsm"),
    *("/sys/class/mdev_bus", "/sys/class/vfio", "/sys/bus/mdev/devices"),
    *("/sys/firmware/acpi/tables", "/sys/devices/system/node"),
)
_MODULES_THAT_MATTER = re.compile(
    r"vfio\w*|kvm\w*|nvidia\w*|nouveau|nova_core|amdgpu|gim|amdxcp|i915|xe|mlx5_core|ast|mgag200"
    r"|xocl|xclmgmt|dfl\w*|habanalabs|qat\w*|intel_qat|mdev|iommufd|iommu\w*|pci\w*"
)
_VIRTUAL_FUNCTION = re.compile(r"virtfn\d+")


class RecordingTree(Tree):
    """The files of a host, with a note of each read."""

    def __init__(self, root: str | os.PathLike = "/"):
        super().__init__(root)
        #: (raw read, directory, name), each once and in order.
        self.asked: dict[tuple[Any, str, str], None] = {}

    def directory(self, path: str, fetch: Iterable[str] = ()) -> Directory:
        """Return a directory, and note that it was asked for."""
        self.asked[None, path, ""] = None
        return super().directory(path, fetch)

    def read_each(self, path: str, file: str, is_settled: Callable[[bytes], bool]) -> dict:
        """Return one file of every directory below *path*, and note them all."""
        self.asked[list_names, path, ""] = None
        found = super().read_each(path, file, is_settled)
        self.asked |= {(read, f"{path}/{name}", file): None for name in found}
        return found

    def _made(self, path: str, real: str, was_absent: bool = False) -> Directory:
        return _RecordingDirectory(self.asked, path, real, was_absent)


class _RecordingDirectory(Directory):
    __slots__ = ("_asked",)

    def __init__(self, asked: dict, path: str, real: str, was_absent: bool):
        super().__init__(path, real, was_absent)
        self._asked = asked

    def _read(self, name: str, parent: int | None) -> bytes | None:
        self._asked[read, self.path, name] = None
        return super()._read(name, parent)

    def _raw(self, ask: Callable, name: str) -> Any:
        self._asked[ask, self.path, name] = None
        return super()._raw(ask, name)


class Collector:
    """Takes entries of a host into memory, by the host's paths.

    Each directory that a path leads through, and each link, is taken with it.
    """

    def __init__(self, root: str, captured: Captured):
        self._root = root.rstrip("/")
        self._captured = captured
        self._reached: dict[str, str | None] = {"/": "/"}
        self._listed: set[str] = set()
        # So many bytes of each file were asked for.
        self._sizes: dict[str, int] = {}

    def take(self, ask: Any, path: str, name: str) -> None:
        """Take what one raw read of an entry needs; ``None`` for the directory alone."""
        if ask is None:
            self._reach(path)
        elif ask is list_names:
            self.names(f"{path}/{name}" if name else path)
        elif isinstance(ask, Head):
            self.file(path, name, ask.size)
        elif ask is read:
            self.file(path, name)
        else:
            self.entry(path, name)

    def file(self, path: str, name: str, size: int = _PAGE + 1) -> bytes | None:
        """Take a file with what it holds; return that, ``None`` where it has no content."""
        here = self._place(path, name)
        if here is None:
            return None
        if size <= self._sizes.get(here, 0):
            return getattr(self._captured.nodes.get(here), "data", None)
        self._sizes[here] = size
        try:
            data = read(self._root + here, size=size)
        except OSError as error:
            self._failed(here, error)
            return None
        if data is None:
            self._lstat(here)
        else:
            self._captured.add_file(here, data)
        return data

    def entry(self, path: str, name: str) -> None:
        """Take that an entry is there, and its target where it is a link."""
        here = self._place(path, name)
        if here is not None:
            self._lstat(here)

    def names(self, path: str) -> list[str]:
        """Take what a directory has in it, and return that; nothing where that cannot be told."""
        above, _, name = path.rpartition("/")
        here = self._place(above or "/", name)
        if here is None:
            return []
        if self._is_link(here):
            here = self._reach(path)
        if here is None:
            return []
        if here in self._listed:
            return list(self._captured.names(here))
        try:
            descriptor = os.open(
                self._root + here or "/",
                os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
            )
        except FileNotFoundError:
            return []
        except OSError as error:
            self._unlisted(here, error)
            return []
        try:
            names = [name for name, _ in entries_of(descriptor)]
        except OSError as error:
            self._unlisted(here, error)
            return []
        finally:
            os.close(descriptor)
        self._listed.add(here)
        self._captured.add_directory(here, names)
        for each in names:
            self._lstat(_joined(here, each))
        return names

    def mode(self, path: str, name: str) -> int | None:
        """Take that an entry is there and return its mode, ``None`` where it is not."""
        here = self._place(path, name)
        return self._lstat(here) if here is not None else None

    def folder(self, path: str) -> None:
        """Take all small files below a directory, as far as its links do not lead away."""
        ahead, count = [(path, 0)], 0
        while ahead and count < _MOST_OF_A_FOLDER:
            here, depth = ahead.pop()
            for name in self.names(here):
                count += 1
                real = self._place(here, name)
                mode = self._lstat(real) if real else None
                if mode is not None and stat.S_ISDIR(mode) and depth < _DEEPEST:
                    ahead.append((f"{here}/{name}", depth + 1))
                elif mode is not None and stat.S_ISREG(mode) and mode & 0o444:
                    self.file(here, name)

    def _place(self, path: str, name: str) -> str | None:
        """Return where an entry of a directory lies, the links on the way followed."""
        directory = self._reach(path)
        if directory is None or not name:
            return directory
        return _joined(directory, name)

    def _reach(self, path: str) -> str | None:
        """Return where a directory lies and take the way to it, ``None`` where there is none."""
        if path in self._reached:
            return self._reached[path]
        self._reached[path] = self._walk(path)
        return self._reached[path]

    def _walk(self, path: str) -> str | None:
        here, links = "", 0
        ahead = path.split("/")[::-1]
        while ahead:
            part = ahead.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not here and self._root:
                    return None
                here = here.rpartition("/")[0]
                continue
            there = f"{here}/{part}"
            mode = self._lstat(there)
            if mode is None:
                return None
            if stat.S_ISLNK(mode):
                links += 1
                target = self._captured.nodes[there].target  # type: ignore[union-attr]
                if links > _MOST_LINKS:
                    return None
                if target.startswith("/"):
                    here = ""
                ahead.extend(target.split("/")[::-1])
                continue
            here = there
            if not stat.S_ISDIR(mode):
                # Whoever asks below it is told that it is no directory.
                self._kind(here)
                return None
        return here or "/"

    def _lstat(self, here: str) -> int | None:
        """Take what kind of entry there is and return its mode, ``None`` where there is none."""
        try:
            mode = os.lstat(self._root + here).st_mode
            if stat.S_ISLNK(mode):
                self._captured.add_link(here, os.readlink(self._root + here))
            elif stat.S_ISDIR(mode):
                # Whoever listed what is above knew the name alone.
                if isinstance(self._captured.nodes.get(here), Present | None):
                    self._captured.add_directory(here)
            elif here not in self._captured.nodes:
                self._captured.add_present(here)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EIO, errno.EPERM):
                self._captured.add_failure(os.path.dirname(here), error.errno, is_directory=True)
            return None
        return mode

    def _kind(self, here: str) -> None:
        """Take a file as one, so that it is told from a directory."""
        parent, _, name = here.rpartition("/")
        self.file(parent or "/", name)

    def _is_link(self, here: str) -> bool:
        mode = self._lstat(here)
        return mode is not None and stat.S_ISLNK(mode)

    def _failed(self, here: str, error: OSError) -> None:
        mode = self._lstat(here)
        if mode is None or stat.S_ISLNK(mode) or stat.S_ISDIR(mode):
            return
        self._captured.add_failure(here, error.errno or errno.EIO)

    def _unlisted(self, here: str, error: OSError) -> None:
        number = error.errno or errno.EIO
        mode = self._lstat(here)
        if mode is None or not stat.S_ISDIR(mode):
            if mode is not None:
                self._kind(here)
            return
        try:
            os.lstat(f"{self._root}{here}/.no-such-entry")
        except FileNotFoundError:
            self._captured.add_directory(here, failure=number)
        except OSError:
            self._captured.add_failure(here, number, is_directory=True)


def collect(
    tree: RecordingTree,
    host: Host,
    functions: Iterable[PciFunction] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Captured:
    """Return a host in memory: what *tree* was asked, and what may be asked of it later.

    :param functions: those that are, or might be, accelerators.
    :param progress: told how many of the reads are done.
    """
    captured = Captured(tree.is_live)
    collector = Collector("" if tree.is_live else tree.root, captured)
    asked = list(tree.asked)
    for number, each in enumerate(asked):
        collector.take(*each)
        if not number % 1000:
            progress(number, len(asked))
    _crawl_host(collector)
    for function in _with_slots(host, functions):
        _crawl_function(collector, function)
    if tree.is_live and not captured.is_there(ARCHITECTURE):
        captured.add_file(ARCHITECTURE, f"{os.uname().machine}\n".encode())
    captured.nvml_answer = host.nvml.answer
    return captured


def _crawl_host(collector: Collector) -> None:
    for path in _HOST_FILES:
        collector.file(*_split(path))
    listed = {path: collector.names(path) for path in _HOST_NAMES}
    for module in filter(_MODULES_THAT_MATTER.fullmatch, listed[MODULES]):
        collector.file(f"{MODULES}/{module}", "version")
        for name in collector.names(f"{MODULES}/{module}/parameters"):
            if _is_readable(collector, f"{MODULES}/{module}/parameters", name):
                collector.file(f"{MODULES}/{module}/parameters", name)
    for group in listed[GROUPS]:
        for name in ("type", "reserved_regions"):
            collector.file(f"{GROUPS}/{group}", name)
        collector.names(f"{GROUPS}/{group}/devices")
    for name in listed["/sys/devices/system/node"]:
        collector.file(f"/sys/devices/system/node/{name}", "cpulist")


def _is_readable(collector: Collector, path: str, name: str) -> bool:
    mode = collector.mode(path, name)
    return mode is not None and bool(mode & 0o444)


def _with_slots(host: Host, functions: Iterable[PciFunction]) -> list[PciFunction]:
    found: dict[str, PciFunction] = {}
    for function in functions:
        for each in (function, *_or_nothing(lambda f=function: host.functions.in_slot_of(f))):
            found[each.name] = each
    return list(found.values())


def _or_nothing(read_it: Callable[[], Iterable]) -> Iterable:
    try:
        return read_it()
    except (ReadError, EnumerationError):
        return ()


def _crawl_function(collector: Collector, function: PciFunction) -> None:
    here = function.path
    names = collector.names(here)
    power = collector.file(here, "power_state")
    for name in _ATTRIBUTES:
        if name in names and _is_readable(collector, here, name):
            collector.file(here, name)
    if power is not None and power.strip() in (b"D0", b"unknown"):
        for name in _OF_THE_AWAKE:
            collector.file(here, name)
        # Below D0 the configuration space is not asked for: a card in D3cold would wake.
        collector.file(here, "config")
    for name in names:
        if name in _LINKS or _VIRTUAL_FUNCTION.fullmatch(name):
            collector.entry(here, name)
    for name in _POWER:
        collector.file(f"{here}/power", name)
    collector.names(f"{here}/drm")
    for name in _FOLDERS:
        if name in names:
            collector.folder(f"{here}/{name}")


def _split(path: str) -> tuple[str, str]:
    above, _, name = path.rpartition("/")
    return above or "/", name


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path != "/" else f"/{name}"
