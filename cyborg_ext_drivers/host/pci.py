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

Read: ``/sys/bus/pci/devices/<address>/`` (Documentation/ABI/testing/sysfs-bus-pci), each
attribute when it is asked for.  What a function is, :mod:`cyborg_ext_drivers.host.identity`
tells; all functions of a host together are :mod:`cyborg_ext_drivers.host.bus`.

Next stop: :mod:`cyborg_ext_drivers.families.base`.
"""

import functools
import re

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import Malformed, ReadError
from cyborg_ext_drivers.host.directory import Directory
from cyborg_ext_drivers.host.fpga import FpgaView
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.region import Region, regions_in
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.host.vendor_vgpu import FOLDER, VendorVgpu
from cyborg_ext_drivers.host.xrt import XrtView

DEVICES = "/sys/bus/pci/devices"

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
# drivers/pci/pci.c and drivers/base/power/sysfs.c.
_POWER_STATES = ("error", "D0", "D1", "D2", "D3hot", "D3cold", "unknown")
_RUNTIME_STATES = ("error", "active", "suspended", "suspending", "resuming", "unsupported")
# In uevent, only while it is bound (drivers/base/core.c).
_DRIVER = re.compile(rb"^DRIVER=([^\n]+)$", re.MULTILINE)
_DRM_CARD = re.compile(r"card\d+")
_VIRTUAL_FUNCTION = re.compile(r"virtfn(\d+)")


def is_vfio(driver: str | None) -> bool:
    """Return whether a driver, by its name, is vfio-pci or one of its variants.

    Variants have names of their own (``nvgrace_gpu_vfio_pci``); all of them make a
    ``vfio-dev`` folder (Documentation/ABI/testing/sysfs-devices-vfio-dev).
    """
    return driver is not None and "vfio" in driver


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
        #: The host's path of the function.
        self.path = f"{DEVICES}/{name}"
        self.identity = identity
        self.failure = failure

    def __str__(self) -> str:
        return self.name

    def path_of(self, attribute: str) -> str:
        """Return the host's path of an attribute, for evidence."""
        return f"{self.path}/{attribute}"

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

        :raises ReadError: when the driver cannot be read.
        """
        return is_vfio(self.driver)

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
        # While they are taken away, the first one goes before the others.
        if self.directory.link("virtfn0") is None and not self.directory.has("sriov_totalvfs"):
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
        return self.directory.word("power_state", _POWER_STATES)

    @property
    def runtime_status(self) -> str | None:
        """What runtime power management thinks: ``active``, ``suspended``, ``error`` ...

        :raises ReadError: when it cannot be read.
        """
        return self._tree.directory(f"{self.path}/power").word("runtime_status", _RUNTIME_STATES)

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
    def vendor_vgpu(self) -> VendorVgpu | None:
        """Its vGPU, where NVIDIA's driver serves virtual functions itself; ``None`` elsewhere.

        :raises ReadError: when it cannot be told.
        """
        if not self.directory.has(FOLDER):
            return None
        return VendorVgpu(self._tree.directory(f"{self.path}/{FOLDER}"))

    @property
    def fpga(self) -> FpgaView:
        """What the driver of an Intel FPGA shows below it; nothing where it is none."""
        return FpgaView(self._tree, self.path)

    @property
    def xrt(self) -> XrtView:
        """What XRT's drivers show of it; nothing where it is no card of theirs."""
        return XrtView(self._tree, self.path)

    @property
    def regions(self) -> tuple[Region, ...]:
        """Its base address registers, those that are implemented, in order.

        :raises ReadError: when ``resource`` cannot be read or is no such table.
        """
        return regions_in(self.directory)

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

        A physical function that answers must also say so itself: QEMU shows an instance the
        ids in the configuration space, not those that the kernel cached.

        :raises ReadError: when one cannot be read or they contradict each other.
        """
        if self.identity is None:
            return
        self.identity.confirm(self.directory)
        header = self.header
        if header and header != b"\xff" * len(header) and not self.is_virtual:
            self.identity.confirm_header(header, self.path_of("config"))

    def _linked(self, name: str) -> PciAddress | None:
        target = self.directory.link(name)
        if target is None:
            return None
        try:
            return PciAddress.parse(target)
        except InvalidAddress:
            raise Malformed(self.path_of(name), target, "a PCI function") from None
