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

"""Every finding about the card itself, on a described host, with its remedy."""

from tests.hosts.described_site import (
    CATALOG,
    NOVA,
    NpuFamily,
    OtherFamily,
    Situation,
    ToasterFamily,
)

CARD_SITUATIONS = [
    # Identity
    Situation(
        code="unknown-device",
        host="mixed-models",
        address="0000:98:00.0",
        says='Add an entry for id "10de:ffe0" (kind GPU, model, name) to a file in '
        "/etc/cyborg/ext_catalog.d",
        remedy=lambda site: site.fake.write_file(
            CATALOG, 'devices: [{id: "10de:ffe0", kind: GPU, model: MY-CARD, name: My card}]'
        ),
    ),
    Situation(
        code="unknown-device",
        host="two-t4",
        address="0000:5e:00.0",
        # An A16 and an A2 share the id, and this subsystem belongs to neither.
        prepare=lambda site: site.fake.add_function(
            "0000:5e:00.0", vendor="10de", device="25b6", class_="030200", subsystem="10de:0001"
        ),
        says='Add an entry for id "10de:25b6"',
        remedy=lambda site: site.fake.write_file(
            CATALOG, 'devices: [{id: "10de:25b6", kind: GPU, model: MY-CARD, name: My card}]'
        ),
    ),
    Situation(
        code="integrated-gpu",
        host="graphics-and-npu-of-the-processor",
        address="0000:00:02.0",
        says="if the firmware can switch it off, it is not listed any more",
        remedy=lambda site: site.fake.remove_function("0000:00:02.0"),
        offered=False,
    ),
    Situation(
        code="console-device",
        host="console-gpu",
        address="0000:01:00.0",
        says="Make another display controller the primary one",
        remedy=lambda site: site.fake.set_attribute("0000:01:00.0", "boot_vga", "0"),
    ),
    Situation(
        code="console-device",
        host="boot-display-without-boot-vga",
        address="0000:17:00.0",
        says="Make another display controller the primary one",
        remedy=lambda site: site.fake.remove_attribute("0000:17:00.0", "drm/card0/boot_display"),
    ),
    Situation(
        code="management-display",
        host="bmc-display-only",
        address="0000:03:00.0",
        says="if the firmware can switch it off, it is not listed any more",
        remedy=lambda site: site.fake.remove_function("0000:03:00.0"),
        offered=False,
    ),
    Situation(
        code="not-an-accelerator",
        host="graphics-and-npu-of-the-processor",
        address="0000:00:0b.0",
        says="no installed driver supports it",
        remedy=lambda site: (
            site.families.append(NpuFamily()),
            site.fake.write_file(
                CATALOG, 'devices: [{id: "8086:ad1d", kind: AICHIP, model: NPU-3, name: NPU}]'
            ),
        ),
    ),
    # SR-IOV
    Situation(
        code="vfs-enabled",
        host="a2-with-virtual-functions",
        address="0000:08:00.0",
        says="/usr/lib/nvidia/sriov-manage -d 0000:08:00.0",
        remedy=lambda site: site.fake.disable_virtual_functions("0000:08:00.0"),
    ),
    Situation(
        code="vfs-enabled",
        host="mi355x-divided-by-gim",
        address="0000:05:00.0",
        # Nothing can be written to sriov_numvfs there.
        says="Unload gim, which takes them along",
        remedy=lambda site: (
            site.fake.disable_virtual_functions("0000:05:00.0"),
            site.fake.unbind("0000:05:00.0"),
        ),
    ),
    Situation(
        code="vfs-enabled",
        host="processor-graphics-with-virtual-functions",
        address="0000:00:02.0",
        says="unless more is against it",
        remedy=lambda site: site.fake.disable_virtual_functions("0000:00:02.0"),
        offered=False,
    ),
    Situation(
        code="owned-by-host-driver",
        host="gim-without-virtual-functions",
        address="0000:05:00.0",
        says="Enable virtual functions through that driver",
        remedy=lambda site: site.fake.enable_virtual_functions("0000:05:00.0", 2, device="74b5"),
    ),
    Situation(
        code="owned-by-host-driver",
        host="gim-without-virtual-functions",
        address="0000:05:00.0",
        says="or unload it to offer the card whole",
        remedy=lambda site: site.fake.unbind("0000:05:00.0"),
    ),
    Situation(
        code="vf-count-mismatch",
        host="mi355x-divided-by-gim",
        address="0000:05:00.0",
        # The driver is just making them: the card does not name its first one yet.
        prepare=lambda site: site.fake.remove_attribute("0000:05:00.0", "virtfn0"),
        says="disable the virtual functions and enable them again",
        remedy=lambda site: site.enable_again("0000:05:00.0", 1, device="75b3"),
    ),
    Situation(
        code="vf-count-mismatch",
        host="mi355x-divided-by-gim",
        address="0000:05:00.0",
        prepare=lambda site: site.fake.set_attribute("0000:05:00.0", "sriov_totalvfs", "0"),
        says="disable the virtual functions and enable them again",
        remedy=lambda site: site.enable_again("0000:05:00.0", 1, device="75b3"),
    ),
    Situation(
        code="vfs-expected",
        host="gim-without-virtual-functions",
        address="0000:26:00.0",
        prepare=lambda site: site.configure("[ext_drivers]", "vfs_expected = 1002:74a1"),
        says="Enable its virtual functions",
        remedy=lambda site: (
            site.fake.bind("0000:26:00.0", "gim"),
            site.fake.enable_virtual_functions("0000:26:00.0", 8, device="74b5"),
        ),
    ),
    Situation(
        code="vfs-expected",
        host="gim-without-virtual-functions",
        address="0000:26:00.0",
        prepare=lambda site: site.configure("[ext_drivers]", "vfs_expected = 26:00.0"),
        says="take the card out of vfs_expected",
        remedy=lambda site: site.configure("[ext_drivers]", "vfs_expected = 05:00.0"),
    ),
    *(
        Situation(
            code="set-aside",
            host="set-aside",
            address="0000:3b:00.0",
            prepare=lambda site, driver=driver: site.fake.bind("0000:3b:00.0", driver),
            says="Unbind it",
            remedy=lambda site: site.fake.unbind("0000:3b:00.0"),
        )
        for driver in ("pci-stub", "pci-pf-stub", "pciback")
    ),
    # Hardware
    Situation(
        code="config-space-dead",
        host="fallen-off-the-bus",
        address="0000:3b:00.0",
        says="Reset the card or power the host off and on",
        remedy=lambda site: site.copy_attribute("config", "0000:af:00.0", "0000:3b:00.0"),
    ),
    Situation(
        code="bar-unassigned",
        host="no-room-above-4g",
        address="0000:17:00.0",
        says="Above 4G Decoding",
        remedy=lambda site: site.copy_attribute("resource", "0000:3b:00.0", "0000:17:00.0"),
    ),
    Situation(
        code="no-reset-method",
        host="gpu-without-reset",
        address="0000:01:00.0",
        says="a newer firmware of the card",
        remedy=lambda site: site.fake.set_attribute("0000:01:00.0", "reset", ""),
    ),
    Situation(
        code="powered-off",
        host="power-gone-or-asleep",
        address="0000:3b:00.0",
        says="Power the slot or the host off and on",
        remedy=lambda site: site.fake.set_attribute("0000:3b:00.0", "power_state", "D0"),
    ),
    Situation(
        code="vfio-denylisted",
        host="qat-old-and-new",
        address="0000:b1:00.0",
        says="disable_denylist of the module vfio_pci",
        remedy=lambda site: site.fake.set_modules({"vfio_pci": {"disable_denylist": True}}),
        # It may be attached now, but is no accelerator of ours.
        offered=False,
    ),
    Situation(
        code="domain-too-wide",
        host="domain-0001",
        address="10000:01:00.0",
        says="Switch VMD off",
        remedy=lambda site: site.move("10000:01:00.0", "0000:5e:00.0"),
        then_at="0000:5e:00.0",
    ),
    # Ownership
    Situation(
        code="claimed-by-nova",
        host="in-tree-driver-and-nova",
        address="0000:3b:00.0",
        says="Take the card out of [pci] device_spec in nova.conf",
        remedy=lambda site: site.fake.write_file(NOVA, "[pci]"),
    ),
    Situation(
        code="claimed-by-nova",
        host="in-tree-driver-and-nova",
        address="0000:3b:00.0",
        says="or exclude it in cyborg.conf ([ext_drivers] exclude)",
        remedy=lambda site: site.configure("[ext_drivers]", "exclude = 3b:00.0"),
        offered=False,
    ),
    Situation(
        code="in-tree-driver-enabled",
        host="in-tree-driver-and-nova",
        address="0000:d8:00.0",
        says="Take nvidia_gpu_driver out of [agent] enabled_drivers",
        remedy=lambda site: site.configure("[agent]", "enabled_drivers = ext_nvidia_gpu_driver"),
    ),
    Situation(
        code="in-tree-driver-enabled",
        host="in-tree-driver-and-nova",
        address="0000:d8:00.0",
        prepare=lambda site: site.configure(
            "[agent]",
            "enabled_drivers = ext_nvidia_gpu_driver, pci_driver",
            "[pci]",
            'passthrough_whitelist = {"vendor_id": "10de", "product_id": "*"}',
        ),
        says="Take pci_driver out of [agent] enabled_drivers",
        remedy=lambda site: site.configure("[agent]", "enabled_drivers = ext_nvidia_gpu_driver"),
    ),
    Situation(
        code="driver-not-enabled",
        host="in-tree-driver-and-nova",
        address="0000:d8:00.0",
        says="Add ext_nvidia_gpu_driver to [agent] enabled_drivers",
        remedy=lambda site: site.configure("[agent]", "enabled_drivers = ext_nvidia_gpu_driver"),
    ),
    Situation(
        code="excluded-by-config",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.configure("[ext_drivers]", "exclude = 10de:1eb8"),
        says="Change [ext_drivers] exclude",
        remedy=lambda site: site.configure("[ext_drivers]", "exclude = d8:00.0"),
    ),
    Situation(
        code="excluded-by-config",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.configure("[ext_drivers]", "include = 10de:2235, d8:00.0"),
        says="Change [ext_drivers] include",
        remedy=lambda site: site.configure("[ext_drivers]", "include = 3b:00.0, d8:00.0"),
    ),
    Situation(
        code="excluded-by-config",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.configure("[ext_drivers]", "vfio_only = yes"),
        says="driverctl set-override 0000:3b:00.0 vfio-pci",
        remedy=lambda site: site.fake.bind("0000:3b:00.0", "vfio-pci"),
    ),
    Situation(
        code="claimed-by-two-drivers",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: (
            site.families.append(OtherFamily()),
            site.configure("[agent]", "enabled_drivers = ext_nvidia_gpu_driver, other_driver"),
        ),
        says="Take one of the two drivers out of [agent] enabled_drivers",
        remedy=lambda site: site.configure("[agent]", "enabled_drivers = other_driver"),
    ),
    # Reading
    Situation(
        code="unreadable",
        host="copy-padded-by-tar",
        address="0000:3b:00.0",
        says="Compare the value with lspci's",
        remedy=lambda site: site.fake.set_attribute("0000:3b:00.0", "revision", "0xa1"),
    ),
    Situation(
        code="unreadable",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.fake.make_unreadable("0000:3b:00.0", "numa_node"),
        says="Look at the path as the user of cyborg-agent",
        remedy=lambda site: site.fake.make_readable("0000:3b:00.0", "numa_node"),
    ),
    Situation(
        code="held",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: (
            site.discover(),
            site.fake.make_unreadable("0000:3b:00.0", "config"),
        ),
        says="Mend what the other findings say",
        remedy=lambda site: site.fake.make_readable("0000:3b:00.0", "config"),
    ),
    Situation(
        code="report-refused",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.families.insert(0, ToasterFamily()),
        says="a newer release of the driver of this card",
        remedy=lambda site: site.families.pop(0),
    ),
]
