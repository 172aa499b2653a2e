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

"""What operators of vGPUs, HGX boards and Grace servers meet, and how they get rid of it."""

from tests.hosts.described_site import Situation

L40S, GRACE, ON_BOARD = "0000:18:00.0", "0009:01:00.0", "0000:18:00.0"
CONFIGURATION = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
DRIVERS = "/lib/modules/6.6.0-64k/kernel/drivers/vfio/pci/nvgrace-gpu"
OFFER = ("[ext_drivers]", "report_vendor_vfio = yes")


def type_of(site, number, *functions):
    for each in functions:
        site.fake.set_attribute(f"0000:18:00.{each}", "nvidia/current_vgpu_type", str(number))


NVIDIA_SITUATIONS = [
    Situation(
        code="vgpu-framework",
        host="l40s-vgpu-types-set",
        address=L40S,
        prepare=lambda site: site.configure(*OFFER),
        says="Mediated devices, which Cyborg's agent makes itself, come with kernels before",
        remedy=lambda site: site.fake.disable_virtual_functions(L40S),
    ),
    Situation(
        code="vgpu-type-unset",
        host="l40s-full-of-one-vgpu",
        address=L40S,
        prepare=lambda site: type_of(site, 0, 4),
        says="Give it a type after each boot",
        remedy=lambda site: (type_of(site, 1155, 4, 5, 6, 7), site.configure(*OFFER)),
    ),
    Situation(
        code="vgpu-type-unset",
        host="l40s-vgpu-types-unset",
        address=L40S,
        says="after each boot: echo 1145 > /sys/bus/pci/devices/0000:18:00.4/nvidia/",
        remedy=lambda site: type_of(site, 1145, 4, 5, 6, 7),
        offered=False,
    ),
    Situation(
        code="vendor-vfio-not-attachable",
        host="l40s-vgpu-types-set",
        address=L40S,
        says="Offer it through Nova",
        remedy=lambda site: site.fake.disable_virtual_functions(L40S),
    ),
    Situation(
        code="vendor-vfio-types-mixed",
        host="l40s-vgpu-types-mixed",
        address=L40S,
        prepare=lambda site: site.configure(*OFFER),
        says="Give all virtual functions of the card the same type",
        remedy=lambda site: type_of(site, 1145, 5),
    ),
    Situation(
        code="fabric-manager-needed",
        host="hgx-h200",
        address=ON_BOARD,
        says="Run the Fabric Manager with FABRIC_MODE=1",
        remedy=lambda site: site.fake.write_file(CONFIGURATION, "FABRIC_MODE=1"),
    ),
    Situation(
        code="fabric-manager-needed",
        host="hgx-b200-bare-metal",
        address="0000:1b:00.0",
        says="grep -l SW_MNG",
        remedy=lambda site: site.fake.write_file(CONFIGURATION, "# \n FABRIC_MODE = 1 # shared"),
    ),
    Situation(
        code="variant-driver-missing",
        host="gh200-on-plain-vfio",
        address=GRACE,
        says=f"driverctl set-override {GRACE} nvgrace_gpu_vfio_pci",
        remedy=lambda site: site.fake.bind(GRACE, "nvgrace_gpu_vfio_pci"),
    ),
    Situation(
        code="variant-driver-missing",
        host="gh200-kernel-without-variant",
        address=GRACE,
        says="install the package with its further modules",
        remedy=lambda site: site.fake.write_file(f"{DRIVERS}/nvgrace-gpu-vfio-pci.ko.xz", ""),
    ),
    Situation(
        code="gpu-memory-node",
        host="gb200-memory-as-nodes",
        address="0008:01:00.0",
        says="NVreg_CoherentGPUMemoryMode=driver",
        remedy=lambda site: site.fake.write_file(
            "/proc/driver/nvidia/gpus/0008:01:00.0/numa_status", None
        ),
    ),
    Situation(
        code="confidential-computing",
        host="h200-with-secure-stream",
        address="0000:17:00.0",
        says="echo tsm0 > /sys/bus/pci/devices/0000:17:00.0/tsm/disconnect",
        remedy=lambda site: site.disconnect("0000:17:00.0"),
    ),
    Situation(
        code="link-degraded",
        host="a40-in-narrow-slot",
        address="0000:17:00.0",
        prepare=lambda site: site.fake.set_attribute(
            "0000:17:00.0", "current_link_speed", "16.0 GT/s PCIe"
        ),
        says="Seat the card and its riser again",
        remedy=lambda site: site.fake.set_attribute("0000:17:00.0", "current_link_width", "16"),
    ),
    Situation(
        code="link-degraded",
        host="a40-in-narrow-slot",
        address="0000:17:00.0",
        prepare=lambda site: site.fake.set_attribute("0000:17:00.0", "current_link_width", "16"),
        says="Look again while the card works",
        remedy=lambda site: site.fake.set_attribute(
            "0000:17:00.0", "current_link_speed", "16.0 GT/s PCIe"
        ),
    ),
]
