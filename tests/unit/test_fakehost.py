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

"""The fake host has the kernel's layout and spelling, and changes as a host does."""

import os

import pytest

from cyborg_ext_drivers.testing import (
    DescriptionError,
    FakeHost,
    UnknownFunction,
)
from tests.unit.fake_tree import ADDRESS, T4, dangling_links, link, read, tree_of


class TestOneFunction:
    """What a function's directory holds."""

    def test_uevent_is_spelt_as_the_kernel_spells_it(self, fake):
        assert read(fake, "uevent") == (
            "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:1EB8\nPCI_SUBSYS_ID=10DE:12A2\n"
            "PCI_SLOT_NAME=0000:3b:00.0\n"
            "MODALIAS=pci:v000010DEd00001EB8sv000010DEsd000012A2bc03sc02i00\n"
        )

    @pytest.mark.parametrize(
        "name, text",
        [
            ("vendor", "0x10de\n"),
            ("device", "0x1eb8\n"),
            ("class", "0x030200\n"),
            ("revision", "0x00\n"),
            ("subsystem_vendor", "0x10de\n"),
            ("subsystem_device", "0x12a2\n"),
            ("numa_node", "0\n"),
            ("local_cpulist", "0-15\n"),
            ("local_cpus", "ffff\n"),
            ("driver_override", "(null)\n"),
            ("power_state", "D0\n"),
            ("power/runtime_status", "active\n"),
            ("reset_method", "flr bus\n"),
            ("current_link_speed", "16.0 GT/s PCIe\n"),
        ],
    )
    def test_a_file_has_the_kernels_form(self, fake, name, text):
        assert read(fake, name) == text

    def test_links_are_relative_and_stay_below_the_root(self, fake):
        assert link(fake, f"/sys/bus/pci/devices/{ADDRESS}") == (
            "../../../devices/pci0000:3b/0000:3b:00.0"
        )
        here = f"/sys/devices/pci0000:3b/{ADDRESS}"
        assert link(fake, f"{here}/subsystem") == "../../../bus/pci"
        assert link(fake, f"{here}/driver") == "../../../bus/pci/drivers/nvidia"
        assert link(fake, f"{here}/iommu_group") == "../../../kernel/iommu_groups/27"
        assert link(fake, f"{here}/iommu") == "../../virtual/iommu/dmar0"
        assert link(fake, f"/sys/kernel/iommu_groups/27/devices/{ADDRESS}") == (
            "../../../../devices/pci0000:3b/0000:3b:00.0"
        )
        assert link(fake, f"/sys/bus/pci/drivers/nvidia/{ADDRESS}") == (
            "../../../../devices/pci0000:3b/0000:3b:00.0"
        )
        assert dangling_links(fake) == []

    def test_boot_vga_belongs_to_class_0300_alone(self, fake):
        assert not fake.path(f"/sys/bus/pci/devices/{ADDRESS}/boot_vga").exists()
        fake.add_function("0000:01:00.0", vendor="10de", device="2531", class_="030000")
        assert read(fake, "boot_vga", "0000:01:00.0") == "0\n"
        fake.add_function("0000:02:00.0", vendor="1a03", device="2000", class_="030000", boot_vga=1)
        assert read(fake, "boot_vga", "0000:02:00.0") == "1\n"

    def test_resource_has_13_lines_and_17_for_a_bridge(self, fake):
        lines = read(fake, "resource").splitlines()
        assert len(lines) == 13
        assert lines[0].endswith(" 0x0000000000040200")
        assert lines[2] == " ".join(["0x0000000000000000"] * 3)
        fake.add_function("0000:3a:00.0", vendor="8086", device="2030", class_="060400")
        assert len(read(fake, "resource", "0000:3a:00.0").splitlines()) == 17

    def test_a_bar_that_could_not_be_placed_says_so(self, fake):
        bars = [{"index": 0, "size": "16M"}, {"index": 1, "size": "64G", "unassigned": True}]
        fake.add_function("0000:5e:00.0", **T4, bars=bars)
        start, end, flags = (
            int(number, 16)
            for number in read(fake, "resource", "0000:5e:00.0").splitlines()[1].split()
        )
        assert (start, end) == (0, (64 << 30) - 1)
        assert flags & 0x20000000

    def test_configuration_space_repeats_the_identity(self, fake):
        data = fake.path(f"/sys/bus/pci/devices/{ADDRESS}/config").read_bytes()
        assert len(data) == 256
        assert data[:4] == bytes.fromhex("de10b81e")
        assert data[8:12] == bytes.fromhex("00000203")
        assert data[0x0E] == 0
        assert data[0x2C:0x30] == bytes.fromhex("de10a212")

    def test_a_bridge_has_a_header_of_its_own(self, fake):
        fake.add_function("0000:3a:00.0", vendor="8086", device="2030", class_="060400")
        fake.add_function("0000:40:00.0", **T4, parent="0000:3a:00.0")
        data = fake.path("/sys/bus/pci/devices/0000:3a:00.0/config").read_bytes()
        assert data[0x0E] == 1
        assert list(data[0x18:0x1B]) == [0x3A, 0x40, 0x40]
        assert link(fake, "/sys/bus/pci/devices/0000:40:00.0") == (
            "../../../devices/pci0000:3a/0000:3a:00.0/0000:40:00.0"
        )

    def test_a_dead_card_reads_ff_while_its_cached_ids_stay_right(self, fake):
        fake.add_function("0000:5e:00.0", **T4, config="dead")
        assert fake.path("/sys/bus/pci/devices/0000:5e:00.0/config").read_bytes() == b"\xff" * 256
        assert read(fake, "device", "0000:5e:00.0") == "0x1eb8\n"

    def test_a_wide_domain_keeps_its_five_digits(self, fake):
        fake.add_function("10000:01:00.0", **T4)
        assert link(fake, "/sys/bus/pci/devices/10000:01:00.0") == (
            "../../../devices/pci10000:01/10000:01:00.0"
        )

    def test_without_a_reset_method_both_files_are_missing(self, fake):
        fake.add_function("0000:5e:00.0", **T4, reset_method=None)
        names = os.listdir(fake.path("/sys/bus/pci/devices/0000:5e:00.0"))
        assert not {"reset", "reset_method"} & set(names)

    def test_a_description_may_replace_and_leave_out_single_files(self, fake):
        attributes = {"label": "Slot 3", "numa_node": None, "power/control": "auto"}
        fake.add_function("0000:5e:00.0", **T4, attributes=attributes)
        assert read(fake, "label", "0000:5e:00.0") == "Slot 3\n"
        assert read(fake, "power/control", "0000:5e:00.0") == "auto\n"
        assert not fake.path("/sys/bus/pci/devices/0000:5e:00.0/numa_node").exists()


class TestDrivers:
    """Binding and unbinding."""

    def test_bind_moves_every_trace_of_the_driver(self, fake):
        fake.bind(ADDRESS, "vfio-pci")
        assert read(fake, "uevent").startswith("DRIVER=vfio-pci\n")
        assert link(fake, f"/sys/devices/pci0000:3b/{ADDRESS}/driver").endswith("/vfio-pci")
        assert fake.path(f"/sys/bus/pci/drivers/vfio-pci/{ADDRESS}").is_dir()
        assert not fake.path(f"/sys/bus/pci/drivers/nvidia/{ADDRESS}").exists()
        assert fake.path("/sys/bus/pci/drivers/nvidia/bind").exists()
        assert dangling_links(fake) == []

    def test_vfio_lets_a_card_sleep_and_makes_its_nodes(self, fake):
        assert not fake.path("/dev/vfio/27").exists()
        fake.bind(ADDRESS, "vfio-pci")
        assert read(fake, "power_state") == "D3hot\n"
        assert read(fake, "power/runtime_status") == "suspended\n"
        assert fake.path(f"/sys/bus/pci/devices/{ADDRESS}/vfio-dev/vfio0").is_dir()
        assert fake.path("/dev/vfio/27").exists()
        fake.unbind(ADDRESS)
        assert not fake.path(f"/sys/bus/pci/devices/{ADDRESS}/vfio-dev").exists()
        assert not fake.path("/dev/vfio/27").exists()

    def test_an_unbound_function_has_no_driver_anywhere(self, fake):
        fake.unbind(ADDRESS)
        assert read(fake, "uevent").startswith("PCI_CLASS=30200\n")
        assert not fake.path(f"/sys/bus/pci/devices/{ADDRESS}/driver").is_symlink()
        assert read(fake, "power_state") == "unknown\n"

    def test_a_driver_brings_its_module(self, fake):
        assert fake.path("/sys/module/nvidia").is_dir()
        fake.bind(ADDRESS, "vfio-pci")
        assert fake.path("/sys/module/vfio_iommu_type1").is_dir()
        assert "vfio_pci 16384" in fake.path("/proc/modules").read_text()
        assert link(fake, "/sys/bus/pci/drivers/vfio-pci/module") == "../../../../module/vfio_pci"

    def test_device_nodes_come_and_go_with_the_host_driver(self, fake):
        fake.add_function(
            "0000:01:00.0",
            vendor="1002",
            device="73bf",
            class_="030000",
            driver="amdgpu",
            drm=["card0"],
        )
        assert fake.path("/dev/dri/card0").exists()
        assert fake.path("/sys/class/drm/card0/device").resolve().name == "0000:01:00.0"
        fake.bind("0000:01:00.0", "vfio-pci")
        assert not fake.path("/dev/dri/card0").exists()
        assert dangling_links(fake) == []


class TestComingAndGoing:
    """Functions that appear and disappear."""

    def test_removing_a_function_leaves_no_link_to_it(self, fake):
        fake.bind(ADDRESS, "vfio-pci")
        fake.remove_function(ADDRESS)
        assert not [path for path in tree_of(fake) if ADDRESS in path]
        assert not fake.path("/sys/kernel/iommu_groups/27").exists()
        assert dangling_links(fake) == []

    def test_removing_a_bridge_removes_what_lies_below(self, fake):
        fake.add_function("0000:d7:00.0", vendor="8086", device="2030", class_="060400")
        fake.add_function("0000:d8:00.0", **T4, parent="0000:d7:00.0")
        fake.remove_function("0000:d7:00.0")
        assert os.listdir(fake.path("/sys/bus/pci/devices")) == [ADDRESS]

    def test_a_function_without_a_given_group_gets_one_of_its_own(self, fake):
        assert fake.add_function("0000:5e:00.0", **T4).iommu_group == 28
        assert fake.add_function("0000:5f:00.0", **T4, iommu_group=None).iommu_group is None
        assert not fake.path("/sys/bus/pci/devices/0000:5f:00.0/iommu_group").is_symlink()

    def test_the_first_group_is_group_0(self):
        with FakeHost() as fake:
            assert fake.add_function(ADDRESS, **T4).iommu_group == 0
            assert fake.path("/sys/kernel/iommu_groups/0/type").read_text() == "DMA-FQ\n"

    def test_moving_to_a_group_moves_both_links(self, fake):
        fake.move_to_group(ADDRESS, 5)
        assert os.listdir(fake.path("/sys/kernel/iommu_groups")) == ["5"]
        assert link(fake, f"/sys/devices/pci0000:3b/{ADDRESS}/iommu_group").endswith("/5")
        fake.move_to_group(ADDRESS, None)
        assert os.listdir(fake.path("/sys/kernel/iommu_groups")) == []

    def test_an_address_can_be_taken_only_once(self, fake):
        with pytest.raises(DescriptionError, match=r"0000:3b:00\.0 is described twice"):
            fake.add_function(ADDRESS, **T4)

    @pytest.mark.parametrize(
        "change",
        [
            lambda fake: fake.bind("0000:ff:00.0", "nvidia"),
            lambda fake: fake.remove_function("0000:ff:00.0"),
            lambda fake: fake.make_unreadable("0000:ff:00.0", "vendor"),
            lambda fake: fake.add_function("0000:5e:00.0", **T4, physfn="0000:ff:00.0"),
        ],
    )
    def test_a_function_that_is_not_there_is_named(self, fake, change):
        with pytest.raises(UnknownFunction, match=r"no function 0000:ff:00\.0"):
            change(fake)

    def test_a_wrong_value_of_a_builder_call_is_named(self, fake):
        with pytest.raises(DescriptionError) as caught:
            fake.add_function("0000:5e:00.0", vendor="0x10de", device="1eb8", class_="0302")
        assert [fault.path for fault in caught.value.faults] == [("class",), ("vendor",)]


def test_the_last_bus_may_have_a_bridge():
    with FakeHost() as fake:
        fake.add_function("0000:ff:00.0", vendor="8086", device="2030", class_="060400")
        assert read(fake, "config", "0000:ff:00.0")
