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

import contextlib
import errno
import os
import subprocess
import sys

import hypothesis
import pytest
from hypothesis import strategies

from cyborg_ext_drivers import testing
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.testing import (
    DescriptionError,
    FakeHost,
    HostDescription,
    UnknownFunction,
    UnknownHost,
    described_hosts,
    load,
)

T4 = {"vendor": "10de", "device": "1eb8", "class_": "030200", "subsystem": "10de:12a2"}
ADDRESS = "0000:3b:00.0"
UUID = "4b20d080-1b54-4048-85b3-a6a62d165c01"
TYPES = {
    "nvidia-222": {"name": "GRID T4-1B", "available_instances": 16},
    "nvidia-223": {"name": "GRID T4-2B", "available_instances": 8, "description": "num_heads=4"},
}


@pytest.fixture
def fake():
    """A host with one T4 in group 27 on NVIDIA's driver."""
    with FakeHost() as host:
        host.add_function(ADDRESS, **T4, driver="nvidia", iommu_group=27, numa_node=0)
        yield host


def read(fake, name, address=ADDRESS):
    return fake.path(f"/sys/bus/pci/devices/{address}/{name}").read_text()


def link(fake, path):
    return os.readlink(fake.path(path))


def tree_of(fake):
    """Return everything below the root: links by target, files by content."""
    found = {}
    for directory, names, files in os.walk(fake.root):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            key = path.removeprefix(str(fake.root))
            if os.path.islink(path):
                found[key] = os.readlink(path)
            elif os.path.isdir(path):
                found[key] = None
            elif not os.stat(path).st_mode & 0o400:
                found[key] = "takes commands"
            else:
                with open(path, "rb") as file:
                    found[key] = file.read()
    return found


def dangling_links(fake):
    """Return the links that lead nowhere or out of the root; a host has none."""
    return [
        path
        for path in tree_of(fake)
        if os.path.islink(f"{fake.root}{path}")
        and not os.path.realpath(f"{fake.root}{path}", strict=False).startswith(f"{fake.root}/sys/")
    ] + [path for path in tree_of(fake) if not os.path.exists(f"{fake.root}{path}")]


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
        before = tree_of(fake)
        fake.set_iommu(False)
        fake.set_iommu(True)
        assert tree_of(fake) == before

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


class TestBeforeSetUp:
    """The same calls build a host and change one."""

    changes = (
        lambda fake: fake.bind(ADDRESS, "vfio-pci"),
        lambda fake: fake.unbind(ADDRESS),
        lambda fake: fake.move_to_group(ADDRESS, 40),
        lambda fake: fake.move_to_group(ADDRESS, None),
        lambda fake: fake.set_attribute(ADDRESS, "label", "x"),
        lambda fake: fake.remove_attribute(ADDRESS, "numa_node"),
        lambda fake: fake.make_unreadable(ADDRESS, "config"),
        lambda fake: fake.make_readable(ADDRESS, "config"),
        lambda fake: fake.make_directory_unlistable(),
        lambda fake: fake.make_directory_listable(),
        lambda fake: fake.enable_virtual_functions("0000:af:00.0", 3, driver="vfio-pci"),
        lambda fake: fake.disable_virtual_functions("0000:af:00.0"),
        lambda fake: fake.remove_function("0000:af:00.4"),
        lambda fake: fake.remove_function("0000:af:00.0"),
        lambda fake: fake.bind("0000:af:00.0", "nvidia"),
        lambda fake: fake.create_mediated_device("0000:af:00.0", "nvidia-223", UUID),
        lambda fake: fake.remove_mediated_device(UUID),
        lambda fake: fake.set_iommu(False),
        lambda fake: fake.set_iommu("vfio-noiommu"),
        lambda fake: fake.set_iommu("amd"),
        lambda fake: fake.write_file("/proc/cmdline", "quiet"),
        lambda fake: fake.write_file("/etc/nova/nova.conf", None),
        lambda fake: fake.set_modules(["mdev"]),
    )

    @staticmethod
    def a_host():
        fake = FakeHost()
        fake.add_function(ADDRESS, **T4, driver="nvidia", iommu_group=27)
        fake.add_function("0000:af:00.0", **T4, sriov_totalvfs=4, mdev_types=TYPES, drm=["card0"])
        return fake

    @hypothesis.settings(max_examples=60, deadline=None)
    @hypothesis.given(strategies.lists(strategies.sampled_from(changes), max_size=8))
    def test_a_changed_host_is_one_laid_out_like_that(self, changes):
        """Whatever the changes, the tree is that of a host which was so from the start."""
        with self.a_host() as changed:
            anew = self.a_host()
            for change in changes:
                for fake in (changed, anew):
                    with contextlib.suppress(LookupError, ValueError):
                        change(fake)
            with anew:
                after, wanted = tree_of(changed), tree_of(anew)
        assert after == wanted

    def test_the_root_is_there_only_while_it_is_set_up(self):
        fake = FakeHost()
        with pytest.raises(RuntimeError, match="not set up"):
            fake.path("/sys")
        with fake:
            root = fake.root
            assert root.is_dir()
        assert not root.exists()
        with fake:
            assert fake.root != root

    def test_the_description_follows(self, fake):
        fake.bind(ADDRESS, "vfio-pci")
        (function,) = fake.description.functions
        assert (function.driver, function.address) == ("vfio-pci", PciAddress.parse(ADDRESS))
        with FakeHost(fake.description) as again:
            assert tree_of(again).keys() <= tree_of(fake).keys()
            assert dangling_links(again) == []


def test_a_host_of_hundreds_can_be_laid_by_its_identity_alone():
    functions = tuple(
        testing.FunctionDescription(
            address=PciAddress(0, bus, device, 0),
            vendor="10de",
            device="1eb8",
            class_="030200",
            driver="vfio-pci",
        )
        for bus in range(1, 17)
        for device in range(32)
    )
    with FakeHost(HostDescription(functions=functions), attributes="identity") as fake:
        names = os.listdir(fake.path("/sys/bus/pci/devices"))
        assert len(names) == len(functions) == 512
        assert not fake.path("/sys/bus/pci/devices/0000:01:00.0/config").exists()
        fake.set_attribute("0000:01:00.0", "numa_node", "1")
        assert read(fake, "numa_node", "0000:01:01.0") == "-1\n"


class TestDescriptions:
    """Reading descriptions, and what is said of wrong ones."""

    def test_every_fault_is_named_with_path_and_line(self, tmp_path):
        file = tmp_path / "host.yaml"
        file.write_text(
            "name: wrong\n"
            "host:\n"
            "  iommu: vt-d\n"
            "  functions:\n"
            '  - {address: "0000:3b:00.0", vendor: "10de", device: 1000, class: "030200"}\n'
            '  - address: "3b:00.0"\n'
            '    vendor: "10DE"\n'
            '    device: "1eb8"\n'
            "    clas: 030200\n"
            "expected: {reported: none}\n"
        )
        with pytest.raises(DescriptionError) as caught:
            load(file)
        assert str(caught.value).splitlines() == [
            f"{file} describes no host:",
            "  expected.reported: 'none' is not a list of devices (line 10)",
            "  host.functions[0].device: 1000 is not four hexadecimal digits in quotes: "
            '"10de" (line 5)',
            "  host.functions[1]: the key class is missing (line 6)",
            "  host.functions[1].clas: the key is unknown; did you mean class (line 9)",
            "  host.functions[1].address: '3b:00.0' is not a PCI address as sysfs prints it, in "
            'quotes: "0000:3b:00.0" (line 6)',
            "  host.functions[1].vendor: '10DE' is not four hexadecimal digits in quotes: "
            '"10de" (line 7)',
            "  host.iommu: 'vt-d' is not true, false or one of intel, amd, smmu, off-in-firmware, "
            "off-on-command-line, none, vfio-noiommu, xen (line 3)",
        ]

    @pytest.mark.parametrize(
        "functions, fault",
        [
            ([{}, {}], "host.functions[1].address: 0000:3b:00.0 is described twice"),
            ([{"physfn": "0000:3c:00.0"}], "functions[0].physfn: 0000:3c:00.0 is no function"),
            ([{"parent": "0000:3b:00.0"}], "functions[0].parent: the function lies below itself"),
            ([{"boot_vga": 1}], "functions[0].boot_vga: only class 0300 has this file"),
            (
                [{"sriov_totalvfs": 2, "sriov_numvfs": 3}],
                "numvfs: it is larger than sriov_totalvfs",
            ),
        ],
    )
    def test_a_contradiction_is_named(self, functions, fault):
        usual = {"address": ADDRESS, "vendor": "10de", "device": "1eb8", "class": "030200"}
        with pytest.raises(DescriptionError) as caught:
            FakeHost.from_mapping({"host": {"functions": [usual | each for each in functions]}})
        assert fault in str(caught.value)

    def test_an_expectation_of_nothing_is_named(self):
        expected = {
            "reported": [{"address": ADDRESS, "resource_class": "PGPU", "handles": [ADDRESS]}],
            "skipped": {"0000:5e:00.0": "iommu-disabled"},
        }
        with pytest.raises(DescriptionError) as caught:
            HostDescription.from_mapping({"host": {"functions": []}, "expected": expected})
        assert [fault.path for fault in caught.value.faults] == [
            ("expected", "reported", 0, "address"),
            ("expected", "reported", 0, "handles", 0),
            ("expected", "skipped", "0000:5e:00.0"),
        ]

    @pytest.mark.parametrize(
        "text, fault",
        [
            ("", "the description: None is not a map with at least the key host"),
            ("host: [", "the description: it is no YAML"),
            ("host: {functions: []}\nhost: {functions: []}", "host: the key is repeated (line 2)"),
        ],
    )
    def test_a_file_that_is_no_description_is_named(self, tmp_path, text, fault):
        file = tmp_path / "host.yaml"
        file.write_text(text)
        with pytest.raises(DescriptionError) as caught:
            FakeHost.from_file(file)
        assert fault in str(caught.value)

    def test_what_the_tree_has_no_place_for_is_kept(self):
        host = {
            "functions": [
                {
                    "address": ADDRESS,
                    "vendor": "10de",
                    "device": "2335",
                    "class": "030200",
                    "extra": {"nvidia_current_vgpu_type": 1237},
                }
            ],
            "arch": "x86_64",
            "iommu": True,
            "nvml": "mismatch",
            "nvml_lists": [ADDRESS],
            "nvml_library": "570.195",
            "nvidia_driver": "580.159.01",
            "mdev_bus": "absent",
            "nova_pci_device_spec": [ADDRESS],
        }
        with FakeHost.from_mapping({"host": host}) as fake:
            assert fake.description.extra["nvml_lists"] == [ADDRESS]
            assert "580.159.01" in fake.path("/proc/driver/nvidia/version").read_text()
            assert not fake.path("/sys/class/mdev_bus").exists()

    def test_an_unknown_name_brings_the_nearest(self):
        with pytest.raises(UnknownHost, match="'two-t5'; there is two-t4"):
            FakeHost.named("two-t5")

    def test_the_public_names(self):
        assert sorted(testing.__all__) == [
            "Bar",
            "DescriptionError",
            "Expectation",
            "FakeHost",
            "Fault",
            "FunctionDescription",
            "HostDescription",
            "MediatedDevice",
            "MediatedType",
            "Oddity",
            "Reported",
            "UmockdevMissing",
            "UnknownFunction",
            "UnknownHost",
            "described_hosts",
            "load",
        ]

    def test_importing_it_is_cheap(self):
        code = "import sys, cyborg_ext_drivers.testing; print(*sys.modules)"
        names = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded = {name.partition(".")[0] for name in names.stdout.split()}
        assert not {"cyborg", "jsonschema", "oslo_config", "pyudev"} & loaded


@pytest.mark.parametrize("name", described_hosts())
class TestDescribedHosts:
    """What every shipped description keeps to."""

    def test_it_says_what_is_special(self, name):
        host = load(name)
        assert host.name == name
        assert host.title and host.title.endswith(".") and "." not in host.title[:-1]
        assert host.source

    def test_it_is_laid_out_without_a_loose_end(self, name):
        with FakeHost.named(name) as fake:
            assert dangling_links(fake) == []
            names = os.listdir(fake.path("/sys/bus/pci/devices"))
        assert sorted(map(PciAddress.parse, names)) == [
            f.address for f in fake.description.functions
        ]

    def test_it_expects_something_of_every_candidate_and_of_nothing_else(self, name):
        host = load(name)
        candidates = {
            function.address
            for function in host.functions
            if function.class_.startswith(("03", "0b40", "12")) and function.physfn is None
        }
        # NVSwitches are bridges that operators count among the GPUs.
        switches = {f.address for f in host.functions if f.class_.startswith("0680")}
        reported = {entry.address for entry in host.expected.reported}
        assert reported | host.expected.skipped.keys() == candidates | switches
        assert not reported & host.expected.skipped.keys()
