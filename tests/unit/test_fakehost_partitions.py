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

"""The fake host cuts cards as a host does: virtual functions and mediated devices."""

import os

import pytest

from tests.unit.fake_tree import ADDRESS, T4, TYPES, UUID, dangling_links, link, read, tree_of


class TestVirtualFunctions:
    """SR-IOV as drivers/pci/iov.c has it."""

    @pytest.fixture
    def physical(self, fake):
        fake.add_function("0000:af:00.0", **T4, driver="nvidia", sriov_totalvfs=16, numa_node=1)
        return "0000:af:00.0"

    def test_they_follow_offset_and_stride_into_the_next_device(self, fake, physical):
        found = fake.enable_virtual_functions(physical, 6)
        assert [str(address) for address in found[3:]] == [
            "0000:af:00.7",
            "0000:af:01.0",
            "0000:af:01.1",
        ]
        assert read(fake, "sriov_numvfs", physical) == "6\n"
        assert link(fake, f"/sys/devices/pci0000:af/{physical}/virtfn4") == "../0000:af:01.0"
        assert link(fake, "/sys/devices/pci0000:af/0000:af:01.0/physfn") == f"../{physical}"
        assert dangling_links(fake) == []

    def test_they_carry_into_the_next_bus_below_the_same_parent(self, fake, physical):
        (first,) = fake.enable_virtual_functions(physical, 1, offset=256)
        assert str(first) == "0000:b0:00.0"
        assert (
            link(fake, f"/sys/bus/pci/devices/{first}")
            == "../../../devices/pci0000:af/0000:b0:00.0"
        )

    def test_one_has_ids_in_sysfs_but_not_in_its_header(self, fake, physical):
        (first,) = fake.enable_virtual_functions(physical, 1, device="1eb9", driver="vfio-pci")
        data = fake.path(f"/sys/bus/pci/devices/{first}/config").read_bytes()
        assert data[:4] == b"\xff" * 4
        assert data[8:12] == bytes.fromhex("00000203")
        assert read(fake, "device", first) == "0x1eb9\n"
        assert read(fake, "sriov_vf_device", physical) == "1eb9\n"
        names = os.listdir(fake.path(f"/sys/bus/pci/devices/{first}"))
        assert not {"sriov_totalvfs", "remove", "rescan"} & set(names)

    def test_each_has_a_group_of_its_own(self, fake, physical):
        found = fake.enable_virtual_functions(physical, 3)
        groups = {
            os.readlink(fake.path(f"/sys/bus/pci/devices/{each}/iommu_group")) for each in found
        }
        assert len(groups) == 3

    def test_disabling_takes_them_away(self, fake, physical):
        before = tree_of(fake)
        fake.enable_virtual_functions(physical, 4)
        fake.disable_virtual_functions(physical)
        assert tree_of(fake) == before

    def test_removing_one_takes_its_link_away(self, fake, physical):
        found = fake.enable_virtual_functions(physical, 2)
        fake.remove_function(found[1])
        assert read(fake, "sriov_numvfs", physical) == "1\n"
        assert dangling_links(fake) == []

    def test_what_the_kernel_refuses_is_refused(self, fake, physical):
        with pytest.raises(ValueError, match="can have 16"):
            fake.enable_virtual_functions(physical, 17)
        with pytest.raises(ValueError, match="can have 0"):
            fake.enable_virtual_functions(ADDRESS, 1)
        fake.enable_virtual_functions(physical, 2)
        with pytest.raises(ValueError, match="disable them first"):
            fake.enable_virtual_functions(physical, 4)


class TestMediatedDevices:
    """Types and devices of a parent."""

    @pytest.fixture
    def parent(self, fake):
        fake.add_function("0000:5e:00.0", **T4, driver="nvidia", mdev_types=TYPES)
        return "0000:5e:00.0"

    def available(self, fake, parent, kind):
        return read(fake, f"mdev_supported_types/{kind}/available_instances", parent)

    def test_a_parent_lists_its_types(self, fake, parent):
        assert os.listdir(fake.path("/sys/class/mdev_bus")) == [parent]
        kind = "mdev_supported_types/nvidia-223"
        assert read(fake, f"{kind}/name", parent) == "GRID T4-2B\n"
        assert read(fake, f"{kind}/device_api", parent) == "vfio-pci\n"
        assert read(fake, f"{kind}/description", parent) == "num_heads=4\n"
        assert os.listdir(fake.path(f"/sys/bus/pci/devices/{parent}/{kind}/devices")) == []

    def test_one_takes_its_place_and_its_siblings_fall(self, fake, parent):
        device = fake.create_mediated_device(parent, "nvidia-223", UUID)
        assert self.available(fake, parent, "nvidia-223") == "7\n"
        assert self.available(fake, parent, "nvidia-222") == "0\n"
        assert os.listdir(fake.path("/sys/bus/mdev/devices")) == [UUID]
        assert link(fake, f"/sys/devices/pci0000:5e/{parent}/{UUID}/mdev_type") == (
            "../mdev_supported_types/nvidia-223"
        )
        assert fake.path(f"/sys/kernel/iommu_groups/{device.iommu_group}/devices/{UUID}").is_dir()
        assert dangling_links(fake) == []

    def test_removing_one_restores_the_host(self, fake, parent):
        before = tree_of(fake)
        fake.create_mediated_device(parent, "nvidia-223", UUID)
        fake.remove_mediated_device(UUID)
        assert tree_of(fake) == before

    def test_unbinding_the_parent_destroys_them(self, fake, parent):
        fake.create_mediated_device(parent, "nvidia-223", UUID)
        fake.bind(parent, "vfio-pci")
        assert os.listdir(fake.path("/sys/bus/mdev/devices")) == []
        assert not fake.path(
            f"/sys/bus/pci/devices/{parent}/mdev_supported_types/nvidia-223"
        ).exists()
        fake.bind(parent, "nvidia")
        assert self.available(fake, parent, "nvidia-223") == "8\n"

    def test_what_the_driver_refuses_is_refused(self, fake, parent):
        with pytest.raises(ValueError, match="offers no type nvidia-1"):
            fake.create_mediated_device(parent, "nvidia-1", UUID)
        fake.create_mediated_device(parent, "nvidia-223", UUID)
        with pytest.raises(ValueError, match="no room"):
            fake.create_mediated_device(parent, "nvidia-222", UUID.replace("4b", "4c"))
        with pytest.raises(ValueError, match="exists already"):
            fake.create_mediated_device(parent, "nvidia-223", UUID)
