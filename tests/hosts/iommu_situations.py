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

"""Every finding about the IOMMU, on a described host, with its remedy."""

from tests.hosts.described_site import BOOT, Situation

IOMMU_SITUATIONS = [
    # IOMMU
    Situation(
        code="iommu-disabled",
        host="iommu-off",
        address="0000:3b:00.0",
        says="VT-d (Intel) or AMD-Vi, often called IOMMU, in the firmware",
        remedy=lambda site: site.fake.set_iommu("intel"),
    ),
    Situation(
        code="iommu-disabled",
        host="iommu-off-on-command-line",
        address="0000:17:00.0",
        says="Take intel_iommu=off off the kernel command line",
        remedy=lambda site: site.boot(f"{BOOT} intel_iommu=on", "intel"),
    ),
    Situation(
        code="iommu-disabled",
        host="iommu-off-on-command-line",
        address="0000:17:00.0",
        prepare=lambda site: site.fake.set_command_line(f"{BOOT} iommu=off amd_iommu=on"),
        says="Take iommu=off off the kernel command line",
        remedy=lambda site: site.boot(BOOT, "amd"),
    ),
    Situation(
        code="iommu-disabled",
        host="iommu-off-on-command-line",
        address="0000:17:00.0",
        prepare=lambda site: site.fake.set_command_line(f"{BOOT} amd_iommu=off"),
        says="Take amd_iommu=off off the kernel command line",
        remedy=lambda site: site.boot(BOOT, "amd"),
    ),
    Situation(
        code="iommu-disabled",
        host="iommu-off-on-command-line",
        address="0000:17:00.0",
        # The kernel was built with the IOMMU off by default.
        prepare=lambda site: site.fake.set_command_line(BOOT),
        says="Add intel_iommu=on",
        remedy=lambda site: site.boot(f"{BOOT} intel_iommu=on", "intel"),
    ),
    Situation(
        code="iommu-disabled",
        host="gh200-without-smmu",
        address="0009:01:00.0",
        says="Enable the SMMU in the firmware",
        remedy=lambda site: site.fake.set_iommu("smmu"),
    ),
    Situation(
        code="no-iommu-group",
        host="function-without-group",
        address="0000:06:00.0",
        says="put the card into a slot that the IOMMU serves",
        remedy=lambda site: site.fake.move_to_group("0000:06:00.0", 6),
    ),
    Situation(
        code="vfio-noiommu",
        host="vfio-without-iommu",
        address="0000:3b:00.0",
        says="Enable the IOMMU and switch enable_unsafe_noiommu_mode",
        remedy=lambda site: (site.fake.set_modules({}), site.fake.set_iommu("intel")),
    ),
    Situation(
        code="xen-host",
        host="xen-host",
        address="0000:3b:00.0",
        says="without Xen",
        remedy=lambda site: site.fake.set_iommu("intel"),
    ),
    Situation(
        code="iommu-group-shared",
        host="gpu-shares-group-with-nic",
        address="0000:1b:00.0",
        says="move one of the cards to another slot",
        remedy=lambda site: site.fake.move_to_group("0000:1b:00.0", 41),
    ),
    Situation(
        code="iommu-group-shared",
        host="v100-pairs-in-groups",
        address="0000:27:00.0",
        prepare=lambda site: site.fake.bind("0000:28:00.0", "nvidia"),
        says="Bind 0000:28:00.0 to vfio-pci",
        remedy=lambda site: site.fake.bind("0000:28:00.0", "vfio-pci"),
    ),
    Situation(
        code="iommu-group-shared-accelerators",
        host="v100-pairs-in-groups",
        address="0000:28:00.0",
        says="move one of the cards to another slot",
        remedy=lambda site: site.fake.move_to_group("0000:28:00.0", 33),
    ),
    Situation(
        code="companion-bound",
        host="gpu-with-bound-audio",
        address="0000:17:00.0",
        says="driverctl set-override 0000:17:00.1 vfio-pci",
        remedy=lambda site: site.fake.bind("0000:17:00.1", "vfio-pci"),
    ),
    Situation(
        code="iommu-reserved-region",
        host="firmware-keeps-a-region",
        address="0000:3b:00.0",
        says="switch it off for this slot",
        remedy=lambda site: site.fake.write_file(
            "/sys/kernel/iommu_groups/31/reserved_regions",
            "0x00000000fee00000 0x00000000feefffff msi",
        ),
    ),
    Situation(
        code="interrupt-remapping-missing",
        host="interrupts-not-remapped",
        address="0000:3b:00.0",
        says="Take intremap=off and nointremap off the kernel command line",
        remedy=lambda site: site.fake.set_command_line(f"{BOOT} intel_iommu=on"),
    ),
    Situation(
        code="interrupt-remapping-missing",
        host="interrupts-not-remapped",
        address="0000:3b:00.0",
        prepare=lambda site: site.fake.set_command_line(f"{BOOT} nointremap"),
        says="Take intremap=off and nointremap off the kernel command line",
        remedy=lambda site: site.fake.set_command_line(BOOT),
    ),
]
