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

"""Whether an IOMMU lets a virtual machine own the accelerator.

Whether the neighbours let it go, :mod:`cyborg_ext_drivers.checks.iommu_group` tells.

Next stop: :mod:`cyborg_ext_drivers.survey`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import (
    Check,
    Code,
    Finding,
    Passed,
    Severity,
    Surroundings,
)
from cyborg_ext_drivers.checks.iommu_group import (
    IOMMU_GROUP_SHARED,
    IOMMU_GROUP_SHARED_ACCELERATORS,
    viability,
)
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.iommu import FIRMWARE_TABLES, GROUPS, UNITS
from cyborg_ext_drivers.host.kernel import COMMAND_LINE, HYPERVISOR, Kernel
from cyborg_ext_drivers.host.pci import PciFunction

IOMMU_DISABLED = Code(
    "iommu-disabled",
    Severity.BLOCKER,
    "No IOMMU is active on this host",
    "A virtual machine can own a PCI function only behind an IOMMU. This host has no IOMMU "
    "group at all: the IOMMU is off in the firmware, or off on the kernel command line, or the "
    "host is itself a virtual machine without one.",
    "Enable the IOMMU in the firmware and the kernel, and boot again",
)
NO_IOMMU_GROUP = Code(
    "no-iommu-group",
    Severity.BLOCKER,
    "The function has no IOMMU group",
    "The host's IOMMU is active, but this function is not behind it.",
    "Look for an option on the kernel command line that leaves the function out (such as "
    "intel_iommu=igfx_off), or put the card into a slot that the IOMMU serves",
)
XEN_HOST = Code(
    "xen-host",
    Severity.BLOCKER,
    "The kernel runs on Xen, which owns the IOMMU",
    "Under Xen the hypervisor owns the IOMMU and VFIO cannot be used; Nova's libvirt driver "
    "attaches Cyborg's handles through VFIO.",
    "Boot the kernel without Xen and use KVM",
)
VFIO_NOIOMMU = Code(
    "vfio-noiommu",
    Severity.BLOCKER,
    "The group exists in VFIO's no-IOMMU mode only",
    "vfio.enable_unsafe_noiommu_mode made the group. Nothing protects the host's memory, and no "
    "virtual machine can use it (drivers/vfio/group.c).",
    "Enable the IOMMU and switch enable_unsafe_noiommu_mode of the module vfio off",
)
IOMMU_RESERVED_REGION = Code(
    "iommu-reserved-region",
    Severity.BLOCKER,
    "A member of the group has a direct reserved region",
    "Firmware demands that a region of memory stays mapped one to one for a member of the group "
    "(an RMRR, say). The kernel then refuses to give the group away (drivers/iommu/iommu.c).",
    "Look in the firmware for the feature that needs the region, often remote management or USB "
    "emulation, and switch it off for this slot",
)

INTERRUPT_REMAPPING_MISSING = Code(
    "interrupt-remapping-missing",
    Severity.BLOCKER,
    "Interrupts are not remapped",
    "Without interrupt remapping an instance could inject interrupts into the host; VFIO refuses "
    "to attach any device (drivers/vfio/vfio_iommu_type1.c).",
    "Take intremap=off and nointremap off the kernel command line, enable interrupt remapping "
    "(x2APIC) in the firmware, and boot again",
)


class IommuCheck(Check):
    """IOMMU on, group present, group viable."""

    codes = (
        IOMMU_DISABLED,
        NO_IOMMU_GROUP,
        XEN_HOST,
        VFIO_NOIOMMU,
        IOMMU_GROUP_SHARED,
        IOMMU_GROUP_SHARED_ACCELERATORS,
        IOMMU_RESERVED_REGION,
        INTERRUPT_REMAPPING_MISSING,
    )
    precedence = 50

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what keeps the accelerator's group from being given away."""
        function = accelerator.function
        number = function.iommu_group
        if number is None:
            yield _without_group(function, surroundings)
            return
        yield Passed(NO_IOMMU_GROUP, ((function.path_of("iommu_group"), number),))
        group = surroundings.host.iommu.group(number)
        if not function.has_iommu and group.is_unprotected:
            yield VFIO_NOIOMMU.finding(
                function.address,
                f"IOMMU group {number} protects nothing: VFIO made it without an IOMMU",
                (group.path_of("name"), group.name),
            )
        direct = [region for region in group.reserved_regions if region[2] == "direct"]
        if direct:
            yield IOMMU_RESERVED_REGION.finding(
                function.address,
                f"IOMMU group {number} has a region that must stay mapped one to one",
                (group.path_of("reserved_regions"), " ".join(direct[0])),
            )
        yield _interrupts(function, surroundings.host.kernel)
        yield from viability(accelerator, group, surroundings)


def _interrupts(function: PciFunction, kernel: Kernel) -> Finding | Passed:
    words = {name: value for name, value in kernel.command_line}
    off = "nointremap" in words or words.get("intremap") == "off"
    if not off or kernel.module_parameter("vfio_iommu_type1", "allow_unsafe_interrupts") == "Y":
        return Passed(INTERRUPT_REMAPPING_MISSING, ((COMMAND_LINE, "does not switch it off"),))
    return INTERRUPT_REMAPPING_MISSING.finding(
        function.address,
        "Interrupt remapping is switched off on the kernel command line",
        (COMMAND_LINE, "nointremap" if "nointremap" in words else "intremap=off"),
    )


def _without_group(function: PciFunction, surroundings: Surroundings) -> Finding:
    host = surroundings.host
    link = (function.path_of("iommu_group"), "absent")
    if host.kernel.is_xen_host:
        return XEN_HOST.finding(function.address, "The kernel runs on Xen", (HYPERVISOR, "xen"))
    if host.iommu.has_groups or host.iommu.units:
        units = " ".join(host.iommu.units) or "none"
        return NO_IOMMU_GROUP.finding(
            function.address,
            "It is in no IOMMU group, though the host has an active IOMMU",
            link,
            (UNITS, units),
        )
    message, evidence, remedy = _why_disabled(host.kernel, host.iommu.firmware_tables)
    return IOMMU_DISABLED.finding(
        function.address, message, (GROUPS, "no group"), evidence, remedy=remedy
    )


def _why_disabled(
    kernel: Kernel, tables: tuple[str, ...] | None
) -> tuple[str, tuple[str, str], str]:
    """Return why no IOMMU is active, by what evidence, and what to do about it."""
    for name, table in (("iommu", None), ("intel_iommu", "DMAR"), ("amd_iommu", "IVRS")):
        value = kernel.parameter(name)
        is_heard = table is None or not tables or table in tables
        if value is not None and "off" in value.split(",") and is_heard:
            return (
                f"The IOMMU is switched off on the kernel command line by {name}=off",
                (COMMAND_LINE, f"{name}={value}"),
                f"Take {name}=off off the kernel command line and boot again",
            )
    if tables is None:
        return (
            "No IOMMU is active; whether the firmware offers one cannot be read",
            (FIRMWARE_TABLES, "not readable"),
            IOMMU_DISABLED.remedy,
        )
    if not tables:
        return (
            "No IOMMU is active and the firmware offers none",
            (FIRMWARE_TABLES, "no DMAR, IVRS or IORT"),
            f"Enable {_firmware_name(kernel)} in the firmware and boot again; a virtual machine "
            "needs a virtual IOMMU",
        )
    table = tables[0]
    if table == "DMAR" and "on" in (kernel.parameter("intel_iommu") or "").split(","):
        return (
            "The firmware offers an IOMMU (table DMAR) and the kernel is told to use it, but it "
            "does not",
            (COMMAND_LINE, f"intel_iommu={kernel.parameter('intel_iommu')}"),
            "Look for DMAR in the kernel's log: the firmware's table may be broken, or the kernel "
            "built without it",
        )
    return (
        f"The firmware offers an IOMMU (table {table}), but the kernel does not use it",
        (f"{FIRMWARE_TABLES}/{table}", "present"),
        _KERNEL_REMEDIES[table],
    )


_KERNEL_REMEDIES = {
    "DMAR": "Add intel_iommu=on to the kernel command line and boot again",
    "IVRS": "Boot a kernel with AMD IOMMU support; it is on by default and has no amd_iommu=on",
    "IORT": "Enable the SMMU in the firmware and boot a kernel with SMMU support",
}


def _firmware_name(kernel: Kernel) -> str:
    architecture = kernel.architecture or ""
    if architecture in ("aarch64", "arm64"):
        return "the SMMU"
    if architecture in ("x86_64", "i686"):
        return "VT-d (Intel) or AMD-Vi, often called IOMMU,"
    return "the IOMMU"
