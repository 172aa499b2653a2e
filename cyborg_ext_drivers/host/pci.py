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

"""The PCI functions of a host and what sysfs says of each.

Read: ``/sys/bus/pci/devices/<address>/`` (Documentation/ABI/testing/sysfs-bus-pci).
Walking the bus costs one ``uevent`` read per function, which anybody may do and which
waits for no lock; the rest is read when it is asked for.  ``vendor``, ``device``,
``class`` and ``subsystem_*`` are values that the kernel cached when it found the
function, so they stay right when the card is dead or asleep.

Next stop: :mod:`cyborg_ext_drivers.families.base`.
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import EnumerationError, Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host.sysfs import Directory, Tree, shown

DEVICES = "/sys/bus/pci/devices"

# The order in which drivers/pci/pci-driver.c writes its part; DRIVER only while bound.
_UEVENT = re.compile(
    rb"^PCI_CLASS=([0-9A-Fa-f]{1,6})\nPCI_ID=([0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4})\n"
    rb"PCI_SUBSYS_ID=([0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4})$",
    re.MULTILINE,
)
_DRIVER = re.compile(rb"^DRIVER=([^\n]+)$", re.MULTILINE)
# sriov_numvfs is not among them: it can block (see virtual_functions).
_ASKED_OF_ALL = (
    "uevent",
    "vendor",
    "device",
    "class",
    "subsystem_vendor",
    "subsystem_device",
    "revision",
    "numa_node",
    "power_state",
    "resource",
)
_FUNCTION_NAME = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DRM_CARD = re.compile(r"card\d+")
# The lines after them are the expansion ROM, virtual functions' and bridges' windows.
_BASE_ADDRESS_REGISTERS = 6
_VIRTUAL_FUNCTION = re.compile(r"virtfn(\d+)")


class PciId(NamedTuple):
    """A vendor and one of its device (or subsystem) ids: ``10de:1eb8``."""

    vendor: str
    device: str

    def __str__(self) -> str:
        return f"{self.vendor}:{self.device}"


class PciClass(NamedTuple):
    """A class code of six hexadecimal digits, base, sub and interface: ``030200``."""

    code: str

    @property
    def base(self) -> str:
        """The first two digits, ``03`` for a display controller."""
        return self.code[:2]

    @property
    def base_and_sub(self) -> str:
        """The first four digits, ``0302`` for a 3D controller."""
        return self.code[:4]

    @property
    def is_display(self) -> bool:
        """Whether it is a display controller: VGA, XGA, 3D or other."""
        return self.base == "03"

    @property
    def is_accelerator(self) -> bool:
        """Whether accelerators use it: display, co-processor, processing accelerator.

        1201 is left out: SDXI moves memory and is no card (pci.ids).
        """
        return self.is_display or self.base_and_sub in ("0b40", "1200")

    def __str__(self) -> str:
        return self.code


class Identity(NamedTuple):
    """What a function is, as the kernel found it: class, id and subsystem id.

    A named tuple, as these are compared and looked up thousands of times in a walk.
    """

    pci_class: PciClass
    id: PciId
    subsystem: PciId | None

    def __str__(self) -> str:
        return f"{self.id} class {self.pci_class}"


class Region(NamedTuple):
    """One base address register, as a line of ``resource`` gives it: ``0``."""

    number: int
    start: int
    end: int
    #: include/linux/ioport.h
    flags: int

    @property
    def is_memory(self) -> bool:
        """Whether it is memory, which a driver needs; unused I/O ports are common."""
        return bool(self.flags & 0x200)

    @property
    def is_unassigned(self) -> bool:
        """Whether neither firmware nor kernel found a place for it."""
        return bool(self.flags & 0x20000000)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.end - self.start + 1


class PciFunction:
    """One PCI function of the host, read on demand: ``0000:3b:00.0``.

    A function that cannot be identified has ``identity`` ``None`` and the
    reason in ``failure``.
    """

    def __init__(
        self,
        tree: Tree,
        name: str,
        identity: Identity | None,
        failure: ReadError | None = None,
    ):
        self._tree = tree
        self.name = name
        self.identity = identity
        self.failure = failure

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """The host's path of the function."""
        return f"{DEVICES}/{self.name}"

    def path_of(self, attribute: str) -> str:
        """Return the host's path of an attribute, for evidence."""
        return f"{DEVICES}/{self.name}/{attribute}"

    @property
    def directory(self) -> Directory:
        """The function's attributes.

        :raises Unreadable: when the link to them leads nowhere that can be read.
        """
        return self._tree.directory(self.path)

    @functools.cached_property
    def address(self) -> PciAddress:
        """The function's address."""
        return PciAddress.parse(self.name)

    def fetch(self) -> None:
        """Read at one go what is asked of every accelerator.

        :raises Unreadable: when the link to its attributes leads nowhere.
        """
        self._tree.directory(self.path, fetch=_ASKED_OF_ALL)

    @property
    def driver(self) -> str | None:
        """The driver that the function is bound to, in the driver's own spelling.

        :raises ReadError: when the ``driver`` link cannot be read.
        """
        driver = self.directory.link("driver")
        if driver is None:
            # Some copies of a host keep files and lose links.
            match = _DRIVER.search(self.directory.data("uevent") or b"")
            driver = match[1].decode("utf-8", "backslashreplace") if match else None
        return driver

    @property
    def is_on_vfio(self) -> bool:
        """Whether a vfio driver holds it: vfio-pci or one of its variants.

        Variant drivers have names of their own (``nvgrace_gpu_vfio_pci``); all of them
        make a ``vfio-dev`` folder (Documentation/ABI/testing/sysfs-devices-vfio-dev).

        :raises ReadError: when the driver cannot be read.
        """
        return self.driver is not None and "vfio" in self.driver

    @property
    def revision(self) -> str | None:
        """The PCI revision as two hexadecimal digits; ``None`` before Linux 4.10.

        :raises ReadError: when it cannot be read.
        """
        return self.directory.hexadecimal("revision", 2)

    @property
    def numa_node(self) -> int | None:
        """The NUMA node, -1 where firmware did not say, ``None`` on kernels without NUMA.

        :raises ReadError: when it cannot be read.
        """
        return self.directory.integer("numa_node")

    @property
    def boot_vga(self) -> bool | None:
        """Whether it is the default VGA device; ``None`` for any class but 0300.

        :raises ReadError: when it cannot be read.
        """
        return self.directory.flag("boot_vga")

    @property
    def iommu_group(self) -> int | None:
        """The number of its IOMMU group, ``None`` when it has none.  0 is a group.

        :raises ReadError: when the link cannot be read.
        """
        name = self.directory.link("iommu_group")
        if name is None:
            return None
        if not (name.isascii() and name.isdecimal()):
            raise Malformed(self.path_of("iommu_group"), name, "a group number")
        return int(name)

    @property
    def has_iommu(self) -> bool:
        """Whether an IOMMU driver has adopted it; not so in VFIO's no-IOMMU mode.

        :raises ReadError: when it cannot be told.
        """
        return self.directory.has("iommu")

    @property
    def physical_function(self) -> PciAddress | None:
        """The function that this virtual function comes from, ``None`` for others.

        :raises ReadError: when the ``physfn`` link cannot be read.
        """
        return self._linked("physfn")

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual function, its link to the physical one there or not yet.

        Its own id words then read ffff:ffff while the cached ids are right (PCI Express
        Base Specification, SR-IOV: Vendor ID and Device ID of a VF).

        :raises ReadError: when it cannot be told.
        """
        if self.physical_function is not None:
            return True
        header = self.header or b""
        return header[:4] == b"\xff" * 4 and header != b"\xff" * len(header)

    @property
    def virtual_functions(self) -> tuple[PciAddress, ...]:
        """The virtual functions that are enabled on it, in the order of their numbers.

        Counted by the ``virtfnN`` links: ``sriov_numvfs`` takes the device lock and can
        block as long as a hanging unbind does (drivers/pci/iov.c).

        :raises ReadError: when a link cannot be read.
        """
        if self.directory.link("virtfn0") is None:
            return ()
        names = self.directory.names() or ()
        numbers = filter(None, map(_VIRTUAL_FUNCTION.fullmatch, names))
        matches = sorted(numbers, key=lambda match: int(match[1]))
        linked = (self._linked(match[0]) for match in matches)
        return tuple(address for address in linked if address is not None)

    @property
    def total_virtual_functions(self) -> int | None:
        """How many virtual functions it could have, ``None`` without SR-IOV.

        :raises ReadError: when it cannot be read.
        """
        return self.directory.integer("sriov_totalvfs")

    @property
    def power_state(self) -> str | None:
        """The kernel's belief of its power state (``D0`` ... ``D3cold``), never asked of it.

        :raises ReadError: when it cannot be read.
        """
        return self.directory.text("power_state")

    @property
    def runtime_status(self) -> str | None:
        """What runtime power management thinks: ``active``, ``suspended``, ``error`` ...

        :raises ReadError: when it cannot be read.
        """
        return self._tree.text(f"{self.path}/power/runtime_status")

    @property
    def has_reset(self) -> bool:
        """Whether the kernel can reset this function alone; the file can only be written.

        :raises ReadError: when it cannot be told.
        """
        return self.directory.has("reset")

    @property
    def is_boot_display(self) -> bool:
        """Whether the firmware's framebuffer lies in it, for any class; since Linux 6.18.44.

        Known only while a driver with a DRM node is bound (drm_sysfs.c, video-common.c).

        :raises ReadError: when it cannot be read.
        """
        cards = [name for name in self.directory.names("drm") or () if _DRM_CARD.fullmatch(name)]
        return any(
            self._tree.directory(f"{self.path}/drm/{card}").flag("boot_display") for card in cards
        )

    @property
    def regions(self) -> tuple[Region, ...]:
        """Its base address registers, those that are implemented, in order.

        :raises ReadError: when ``resource`` cannot be read or is no such table.
        """
        lines = (self.directory.text("resource") or "").splitlines()[:_BASE_ADDRESS_REGISTERS]
        try:
            rows = [[int(part, 16) for part in line.split()] for line in lines]
            regions = [Region(n, start, end, flags) for n, (start, end, flags) in enumerate(rows)]
        except ValueError:
            shown_text = " ".join(lines)[:80]
            raise Malformed(self.path_of("resource"), shown_text, "lines of 3 numbers") from None
        return tuple(region for region in regions if region.flags)

    @property
    def header(self) -> bytes | None:
        """The first 64 bytes of its configuration space, which any user may read.

        A function in D3cold is not woken for it: ``None``.

        :raises ReadError: when it cannot be read.
        """
        if self.power_state == "D3cold":
            return None
        return self.directory.head("config", 64)

    def confirm_identity(self) -> None:
        """Read the id attributes one by one and compare them with ``uevent``.

        :raises ReadError: when one cannot be read or they contradict each other.
        """
        known = self.identity
        if known is None:
            return
        uevent = self.directory.data("uevent") or b""
        match = _UEVENT.search(uevent)
        if (match and _identity(*match.groups()) != known) or (not match and _fault_of(uevent)):
            raise Malformed(self.path_of("uevent"), shown(uevent), f"the uevent of {known}")
        subsystem = known.subsystem or PciId("", "")
        for name, digits, value in (
            ("vendor", 4, known.id.vendor),
            ("device", 4, known.id.device),
            ("class", 6, known.pci_class.code),
            ("subsystem_vendor", 4, subsystem.vendor),
            ("subsystem_device", 4, subsystem.device),
        ):
            found = self.directory.hexadecimal(name, digits)
            if found is not None and value and found != value:
                raise Malformed(self.path_of(name), f"0x{found}", f"0x{value}, as in uevent")

    def _linked(self, name: str) -> PciAddress | None:
        target = self.directory.link(name)
        if target is None:
            return None
        try:
            return PciAddress.parse(target)
        except InvalidAddress:
            raise Malformed(self.path_of(name), target, "a PCI function") from None


class PciFunctions:
    """All PCI functions of a host at one moment, sorted by address.

    A :class:`PciFunction` is made only of those that somebody asks for; a host may have
    thousands that nobody does.
    """

    def __init__(self, tree: Tree, uevents: dict[str, bytes | None | ReadError]):
        self._tree = tree
        #: What the bus says of each entry, to compare one walk with another.
        self.uevents = uevents
        self._made: dict[str, PciFunction | None] = {}

    def __len__(self) -> int:
        return len(self.uevents) - len(self.strays)

    @functools.cached_property
    def strays(self) -> tuple[str, ...]:
        """Entries of the bus that are named like no PCI function."""
        return tuple(sorted(name for name in self.uevents if not _FUNCTION_NAME.fullmatch(name)))

    def __iter__(self) -> Iterator[PciFunction]:
        yield from self.select(lambda identity: True)

    def select(self, wanted: Callable[[Identity], bool]) -> list[PciFunction]:
        """Return the functions of a wanted identity, and those that cannot be identified."""
        answers: dict[tuple[bytes, ...], bool] = {}
        names = []
        for name, uevent in self.uevents.items():
            match = _UEVENT.search(uevent) if isinstance(uevent, bytes) else None
            if match is None:
                names.append(name)
                continue
            key = match.groups()
            if key not in answers:
                answers[key] = wanted(_identity(*key))
            if answers[key]:
                names.append(name)
        made = (self.get(name) for name in names)
        kept = (f for f in made if f is not None and (f.identity is None or wanted(f.identity)))
        return sorted(kept, key=lambda function: function.address)

    def in_slot_of(self, function: PciFunction) -> tuple[PciFunction, ...]:
        """Return the other functions with the same domain, bus and device."""
        names = (function.name[:-1] + digit for digit in "01234567")
        others = (self.get(name) for name in names if name != function.name)
        return tuple(other for other in others if other is not None)

    def get(self, address: PciAddress | str) -> PciFunction | None:
        """Return the function at an address, ``None`` when there is none."""
        name = str(address)
        uevent = self.uevents.get(name)
        self._tree.note(name, uevent)
        if name not in self.uevents or not _FUNCTION_NAME.fullmatch(name):
            return None
        if name not in self._made:
            self._made[name] = _look(self._tree, name, uevent)
        return self._made[name]


def walk(tree: Tree) -> PciFunctions:
    """Return all PCI functions that the host has now.

    A function that goes away in mid-walk is left out, as if it had gone before.

    :raises EnumerationError: when the bus itself cannot be listed.
    """
    try:
        return PciFunctions(tree, tree.read_each(DEVICES, "uevent", _is_identity))
    except Unreadable as error:
        raise EnumerationError(error.path, error.reason) from None


def _look(tree: Tree, name: str, uevent: bytes | None | ReadError) -> PciFunction | None:
    if isinstance(uevent, bytes) and (match := _UEVENT.search(uevent)):
        return PciFunction(tree, name, _identity(*match.groups()))
    path = f"{DEVICES}/{name}"
    try:
        directory = tree.directory(path)
    except Unreadable as error:
        return PciFunction(tree, name, None, failure=error)
    if isinstance(uevent, ReadError):
        return _look_closer(tree, name, directory, b"", uevent)
    uevent = uevent or b""
    failure = None
    if _fault_of(uevent):
        wanted = "the uevent of a PCI function"
        failure = Malformed(directory.path_of("uevent"), shown(uevent), wanted)
    return _look_closer(tree, name, directory, uevent, failure)


def _is_identity(uevent: bytes) -> bool:
    # All but DRIVER, which is read apart, stays as long as the function does.
    return _UEVENT.search(uevent) is not None


@functools.lru_cache(maxsize=1024)
def _identity(class_code: bytes, pci_id: bytes, subsystem: bytes) -> Identity:
    return Identity(
        PciClass(f"{int(class_code, 16):06x}"),
        PciId(*(f"{int(part, 16):04x}" for part in pci_id.split(b":"))),
        PciId(*(f"{int(part, 16):04x}" for part in subsystem.split(b":"))),
    )


def _fault_of(uevent: bytes) -> bool:
    """Tell nonsense from a ``uevent`` that merely lacks the PCI lines, as in some copies."""
    lines = uevent.splitlines()
    return any(b"=" not in line or line.startswith((b"PCI_CLASS", b"PCI_ID")) for line in lines)


def _look_closer(
    tree: Tree, name: str, directory: Directory, uevent: bytes, failure: ReadError | None
) -> PciFunction | None:
    """Identify a function whose ``uevent`` does not say what it is.

    One without any attribute has gone in the meantime: ``None``.
    """
    try:
        class_code = directory.hexadecimal("class", 6)
        vendor = directory.hexadecimal("vendor", 4)
        device = directory.hexadecimal("device", 4)
        subsystem_vendor = directory.hexadecimal("subsystem_vendor", 4)
        subsystem_device = directory.hexadecimal("subsystem_device", 4)
    except ReadError as error:
        return PciFunction(tree, name, None, failure or error)
    if class_code and vendor and device:
        subsystem = None
        if subsystem_vendor and subsystem_device:
            subsystem = PciId(subsystem_vendor, subsystem_device)
        identity = Identity(PciClass(class_code), PciId(vendor, device), subsystem)
        return PciFunction(tree, name, identity, failure)
    if not (class_code or vendor or device or uevent or failure):
        return None
    missing = Unreadable(directory.path_of("class"), "class, vendor or device is missing")
    return PciFunction(tree, name, None, failure or missing)
