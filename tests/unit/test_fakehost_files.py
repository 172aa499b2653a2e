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

"""The fake host refuses, loses and changes files as a host does."""

import errno
import os

import pytest

from cyborg_ext_drivers.testing import (
    FakeHost,
    HostDescription,
)
from tests.unit.fake_tree import ADDRESS, dangling_links, link, read, tree_of


class TestUnreadable:
    """What cannot be read, even by root."""

    def test_a_file_fails_with_eloop_and_can_be_read_again(self, fake):
        fake.make_unreadable(ADDRESS, "numa_node")
        with pytest.raises(OSError) as caught:
            read(fake, "numa_node")
        assert caught.value.errno == errno.ELOOP
        assert "numa_node" in os.listdir(fake.path(f"/sys/bus/pci/devices/{ADDRESS}"))
        fake.make_readable(ADDRESS, "numa_node")
        assert read(fake, "numa_node") == "0\n"

    def test_a_link_fails_with_einval(self, fake):
        fake.make_unreadable(ADDRESS, "iommu_group")
        with pytest.raises(OSError) as caught:
            link(fake, f"/sys/bus/pci/devices/{ADDRESS}/iommu_group")
        assert caught.value.errno == errno.EINVAL
        fake.make_readable(ADDRESS, "iommu_group")
        assert dangling_links(fake) == []

    def test_it_stays_unreadable_while_other_things_change(self, fake):
        fake.make_unreadable(ADDRESS, "uevent")
        fake.bind(ADDRESS, "vfio-pci")
        with pytest.raises(OSError):
            read(fake, "uevent")

    def test_setting_a_file_makes_it_readable(self, fake):
        fake.make_unreadable(ADDRESS, "revision")
        fake.set_attribute(ADDRESS, "revision", "0xa1")
        assert read(fake, "revision") == "0xa1\n"

    @pytest.mark.parametrize(
        "path",
        [
            "/sys/bus/pci/devices",
            "/sys/kernel/iommu_groups",
            "/sys/kernel/iommu_groups/27/devices",
            "/sys/bus/pci/drivers",
            "/sys/module/nvidia",
            "/sys/class/iommu",
        ],
    )
    def test_a_directory_cannot_be_listed_until_it_can(self, fake, path):
        before = tree_of(fake)
        fake.make_directory_unlistable(path)
        with pytest.raises(OSError) as caught:
            os.listdir(fake.path(path))
        assert caught.value.errno == errno.ELOOP
        fake.bind(ADDRESS, "vfio-pci")
        fake.bind(ADDRESS, "nvidia")
        fake.make_directory_listable(path)
        assert before.keys() <= tree_of(fake).keys()

    def test_a_file_of_the_host_can_be_unreadable_too(self, fake):
        for path in ("/proc/cmdline", "/etc/nova/nova.conf"):
            fake.write_file("/etc/nova/nova.conf", "[pci]")
            fake.make_directory_unlistable(path)
            with pytest.raises(OSError):
                fake.path(path).read_text()
            fake.make_directory_listable(path)
            assert fake.path(path).read_text()


class TestFiles:
    """Single files."""

    def test_a_text_gets_its_newline_and_bytes_stay(self, fake):
        fake.set_attribute(ADDRESS, "label", "Slot 3")
        fake.set_attribute(ADDRESS, "vpd", b"\x82\x00")
        assert read(fake, "label") == "Slot 3\n"
        assert fake.path(f"/sys/bus/pci/devices/{ADDRESS}/vpd").read_bytes() == b"\x82\x00"

    def test_what_was_set_outlives_other_changes(self, fake):
        fake.set_attribute(ADDRESS, "power_state", "D3cold")
        fake.bind(ADDRESS, "vfio-pci")
        assert read(fake, "power_state") == "D3cold\n"

    def test_a_removed_link_is_gone(self, fake):
        fake.remove_attribute(ADDRESS, "iommu_group")
        assert not fake.path(f"/sys/bus/pci/devices/{ADDRESS}/iommu_group").is_symlink()

    def test_a_reader_sees_the_old_file_or_the_new(self, fake):
        with fake.path(f"/sys/bus/pci/devices/{ADDRESS}/uevent").open() as old:
            fake.bind(ADDRESS, "vfio-pci")
            assert old.read().startswith("DRIVER=nvidia\n")

    def test_any_file_can_be_written_and_taken_away(self, fake):
        fake.write_file("/etc/nova/nova.conf", "[pci]\ndevice_spec = {}\n")
        assert fake.path("/etc/nova/nova.conf").read_text().endswith("{}\n")
        fake.write_file("/etc/nova/nova.conf", None)
        assert not fake.path("/etc/nova/nova.conf").exists()
        fake.write_file("/proc/sys/kernel/arch", None)
        assert not fake.path("/proc/sys/kernel/arch").exists()


class TestTheHost:
    """Kernel, modules and IOMMU."""

    def test_the_kernel_says_what_it_is(self, fake):
        assert fake.path("/proc/sys/kernel/osrelease").read_text() == "6.8.0-45-generic\n"
        assert fake.path("/proc/sys/kernel/arch").read_text() == "x86_64\n"
        assert fake.path("/proc/version").read_text().startswith("Linux version 6.8.0-45-generic ")
        assert fake.path("/etc/cyborg").is_dir()

    @pytest.mark.parametrize(
        "kernel, is_there", [("5.15.0-118", False), ("6.1", True), ("7.0.12", True)]
    )
    def test_the_architecture_has_a_file_since_6_1(self, kernel, is_there):
        with FakeHost(HostDescription(kernel=kernel)) as fake:
            assert fake.path("/proc/sys/kernel/arch").exists() is is_there

    def test_command_line_and_modules_can_change(self, fake):
        fake.set_command_line("quiet intel_iommu=off")
        fake.set_modules({"vfio-iommu-type1": {"allow_unsafe_interrupts": True}})
        assert fake.path("/proc/cmdline").read_text() == "quiet intel_iommu=off\n"
        parameters = fake.path("/sys/module/vfio_iommu_type1/parameters")
        assert (parameters / "allow_unsafe_interrupts").read_text() == "Y\n"
        assert fake.path("/sys/module/nvidia").is_dir()

    @pytest.mark.parametrize(
        "kind, groups, unit, table",
        [
            (True, ["27"], ["dmar0"], "DMAR"),
            ("amd", ["27"], ["ivhd0"], "IVRS"),
            ("smmu", ["27"], ["smmu3.0x0000000011600000"], "IORT"),
            (False, [], [], None),
            ("off-in-firmware", [], [], None),
            ("off-on-command-line", [], [], "DMAR"),
            ("vfio-noiommu", [], [], None),
            ("xen", [], [], None),
            ("none", None, [], None),
        ],
    )
    def test_an_iommu_shows_in_groups_units_and_tables(self, fake, kind, groups, unit, table):
        fake.set_iommu(kind)
        listing = fake.path("/sys/kernel/iommu_groups")
        assert (os.listdir(listing) if listing.exists() else None) == groups
        assert os.listdir(fake.path("/sys/class/iommu")) == unit
        tables = set(os.listdir(fake.path("/sys/firmware/acpi/tables")))
        assert tables & {"DMAR", "IVRS", "IORT"} == ({table} if table else set())
        assert fake.path(f"/sys/bus/pci/devices/{ADDRESS}/iommu_group").exists() is bool(groups)
        assert dangling_links(fake) == []

    def test_switching_the_iommu_back_on_restores_the_groups(self, fake):
        boot = {"/proc/sys/kernel/random/boot_id": None}
        before = tree_of(fake) | boot
        fake.set_iommu(False)
        fake.set_iommu(True)
        assert tree_of(fake) | boot == before

    def test_the_unsafe_mode_names_its_groups(self, fake):
        fake.set_iommu("vfio-noiommu")
        fake.bind(ADDRESS, "vfio-pci")
        assert fake.path("/sys/kernel/iommu_groups/27/name").read_text() == "vfio-noiommu\n"
        assert fake.path("/dev/vfio/noiommu-27").exists()

    def test_true_is_the_usual_iommu_of_the_architecture(self):
        host = {"architecture": "aarch64", "functions": []}
        assert HostDescription.from_mapping({"host": host}).iommu == "smmu"

    def test_a_kind_that_does_not_exist_is_refused(self, fake):
        with pytest.raises(ValueError, match="off-in-firmware"):
            fake.set_iommu("vt-d")
