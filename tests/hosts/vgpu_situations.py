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

"""Every finding about vGPU through mediated devices, on a described host, with its remedy."""

from collections.abc import Sequence

from tests.hosts.described_site import Site, Situation

UUID = "4b20d080-1b54-4048-85b3-a6a62d165c01"


def vgpu(kind: str, addresses: str) -> tuple[str, ...]:
    """Return the lines of cyborg.conf that ask a type of vGPU of cards."""
    return (
        "[gpu_devices]",
        f"enabled_vgpu_types = {kind}",
        f"[vgpu_{kind}]",
        f"device_addresses = {addresses}",
    )


def put_back(site: Site, addresses: Sequence[str]) -> None:
    """Let functions be there again that were taken away."""
    for address in addresses:
        site.fake.put_back(address)


A40_PARTS = [f"0000:41:{number >> 3:02x}.{number & 7}" for number in range(4, 12)]

VGPU_SITUATIONS = [
    # vGPU
    Situation(
        code="vgpu-type-unknown",
        host="t4-on-vgpu-host-driver",
        address="0000:3b:00.0",
        prepare=lambda site: site.configure(*vgpu("nvidia-999", "0000:3b:00.0")),
        says="nvidia-222 (GRID T4-1B), nvidia-223 (GRID T4-2B)",
        remedy=lambda site: site.configure(*vgpu("nvidia-223", "0000:3b:00.0")),
    ),
    Situation(
        code="vgpu-type-unknown",
        host="a40-with-vgpu-on-virtual-functions",
        address="0000:41:00.0",
        prepare=lambda site: site.configure(*vgpu("nvidia-222", "41:00.0")),
        says="nvidia-556 (NVIDIA A40-8Q)",
        remedy=lambda site: site.configure(*vgpu("nvidia-556", "41:00.0")),
    ),
    Situation(
        code="vgpu-types-mixed",
        host="a40-with-vgpu-on-virtual-functions",
        address="0000:41:00.0",
        prepare=lambda site: site.configure(
            "[gpu_devices]",
            "enabled_vgpu_types = nvidia-557, nvidia-563",
            "[vgpu_nvidia-557]",
            "device_addresses = 0000:41:00.4",
            "[vgpu_nvidia-563]",
            "device_addresses = 0000:41:00.5",
        ),
        says="in [vgpu_<type>] device_addresses of one type only",
        remedy=lambda site: site.configure(*vgpu("nvidia-557", "41:00.4,41:00.5")),
    ),
    Situation(
        code="vgpu-not-supported",
        host="a40-with-vgpu-on-virtual-functions",
        address="0000:41:00.0",
        prepare=lambda site: (
            site.configure(*vgpu("nvidia-557", "0000:41:00.4")),
            site.fake.disable_virtual_functions("0000:41:00.0"),
        ),
        says="sriov-manage -e 0000:41:00.0",
        remedy=lambda site: put_back(site, A40_PARTS),
    ),
    Situation(
        code="vgpu-not-supported",
        host="a40-with-vgpu-on-virtual-functions",
        address="0000:41:00.0",
        prepare=lambda site: (
            site.configure(*vgpu("nvidia-557", "0000:41:00.0")),
            site.fake.disable_virtual_functions("0000:41:00.0"),
        ),
        says="sriov-manage -e 0000:41:00.0",
        remedy=lambda site: put_back(site, A40_PARTS),
    ),
    Situation(
        code="vgpu-not-supported",
        host="t4-on-vgpu-host-driver",
        address="0000:3b:00.0",
        prepare=lambda site: (
            site.configure(*vgpu("nvidia-223", "0000:3b:00.0")),
            site.fake.remove_attribute(
                "0000:3b:00.0", "mdev_supported_types/nvidia-223/description"
            ),
        ),
        says="a release of the vGPU host driver that writes max_instance",
        remedy=lambda site: site.fake.set_attribute(
            "0000:3b:00.0", "mdev_supported_types/nvidia-223/description", "max_instance=8"
        ),
    ),
    Situation(
        code="vgpu-not-supported",
        host="h200-with-vgpu-of-the-driver",
        address="0000:18:00.0",
        prepare=lambda site: (
            site.configure(*vgpu("nvidia-1414", "0000:18:00.0")),
            site.fake.set_modules(["nvidia_vgpu_vfio"]),
            site.fake.set_attribute("0000:18:00.2", "nvidia/current_vgpu_type", "0"),
        ),
        says="Take it out of [vgpu_nvidia-1414] device_addresses",
        remedy=lambda site: site.configure("[DEFAULT]"),
        offered=False,
    ),
    Situation(
        code="vgpu-not-supported",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: (
            site.configure(*vgpu("nvidia-223", "0000:3b:00.0")),
            site.fake.set_modules(["nvidia_vgpu_vfio"]),
            site.fake.bind("0000:3b:00.0", "nvidia"),
        ),
        says="or take it out of [vgpu_nvidia-223] device_addresses",
        remedy=lambda site: site.configure("[DEFAULT]"),
    ),
    Situation(
        code="vendor-driver-missing",
        host="t4-on-vgpu-host-driver",
        address="0000:3b:00.0",
        prepare=lambda site: (
            site.configure(*vgpu("nvidia-223", "0000:3b:00.0")),
            site.fake.bind("0000:3b:00.0", "vfio-pci"),
        ),
        says="Bind 0000:3b:00.0 to nvidia",
        remedy=lambda site: site.fake.bind("0000:3b:00.0", "nvidia"),
    ),
    Situation(
        code="vendor-driver-missing",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: (
            site.configure(*vgpu("nvidia-223", "0000:3b:00.0")),
            site.fake.bind("0000:3b:00.0", "nvidia"),
        ),
        says="Install NVIDIA's vGPU host driver in the place of the driver for computing",
        remedy=lambda site: site.configure("[DEFAULT]"),
    ),
    Situation(
        code="mdev-ignored-by-nova",
        host="t4-on-vgpu-host-driver",
        address="0000:3b:00.0",
        prepare=lambda site: site.configure(*vgpu("nvidia-223", "0000:3b:00.0")),
        says="Offer vGPUs through Nova ([devices] enabled_mdev_types",
        remedy=lambda site: site.configure("[DEFAULT]"),
    ),
    Situation(
        code="mdev-in-use",
        host="t4-on-vgpu-host-driver",
        address="0000:3b:00.0",
        prepare=lambda site: site.fake.create_mediated_device("0000:3b:00.0", "nvidia-222", UUID),
        says=f"echo 1 > /sys/bus/pci/devices/0000:3b:00.0/{UUID}/remove",
        remedy=lambda site: site.fake.remove_mediated_device(UUID),
    ),
]
