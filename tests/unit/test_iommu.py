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

"""IOMMU groups and units, as the kernel lays them out."""

import pytest

from cyborg_ext_drivers.errors import Unreadable
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.iommu import FIRMWARE_TABLES, GROUPS, UNITS, Iommu
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.testing import FakeHost

T4 = "0000:3b:00.0"
AUDIO = "0000:3b:00.1"


@pytest.fixture
def fake():
    with FakeHost() as host:
        host.add_function(T4, vendor="10de", device="1eb8", class_="030200", iommu_group=27)
        host.add_function(AUDIO, vendor="10de", device="10f8", class_="040300", iommu_group=27)
        yield host


@pytest.fixture
def bare(tmp_path):
    """An empty root and a way to lay files into it."""

    def lay(path, text=""):
        at = tmp_path / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
        return Iommu(Tree(tmp_path))

    return lay


def test_a_group_and_its_members(fake):
    iommu = Host(fake.root).iommu
    group = iommu.group(27)
    assert group.number == 27
    assert group.members == (T4, AUDIO)
    assert group.path == f"{GROUPS}/27/devices"
    assert group.name is None
    assert iommu.has_groups
    assert iommu.units


def test_a_member_that_is_no_pci_function_has_a_driver_too(fake):
    directory = fake.path(f"{GROUPS}/27/devices")
    platform = fake.path("/sys/devices/platform/acpi0")
    platform.mkdir(parents=True)
    (platform / "driver").symlink_to("../../../bus/platform/drivers/rtc_cmos")
    (directory / "acpi0").symlink_to("../../../../devices/platform/acpi0")
    iommu = Host(fake.root).iommu
    group = iommu.group(27)
    assert group.members == (T4, AUDIO, "acpi0")
    assert iommu.driver_of(group, "acpi0") == "rtc_cmos"
    assert iommu.driver_of(group, "not-there") is None


def test_a_copy_without_the_listing_does_not_say_who_is_in_a_group(bare):
    group = bare("/sys/kernel/other").group(27)
    assert group.members is None
    assert group.reserved_regions == ()


def test_a_listing_that_cannot_be_read_is_not_an_empty_group(fake):
    fake.make_directory_unlistable(f"{GROUPS}/27/devices")
    with pytest.raises(Unreadable):
        Host(fake.root).iommu.group(27)


def test_the_group_that_vfio_makes_without_an_iommu_has_its_name(bare):
    iommu = bare(f"{GROUPS}/0/name", "vfio-noiommu\n")
    assert iommu.group(0).name == "vfio-noiommu"


def test_reserved_regions(bare):
    text = (
        "0x000000007b800000 0x000000007fffffff direct\n"
        "0x00000000fee00000 0x00000000feefffff msi\n"
        "0x0000000000000000 0x0000000000ffffff direct-relaxable\n"
        "something else altogether here\n"
    )
    regions = bare(f"{GROUPS}/5/reserved_regions", text).group(5).reserved_regions
    assert [kind for _, _, kind in regions] == ["direct", "msi", "direct-relaxable"]
    assert regions[0][0] == "0x000000007b800000"


def test_reserved_regions_that_cannot_be_read_are_not_none(bare, tmp_path):
    iommu = bare(f"{GROUPS}/5/name", "")
    (tmp_path / GROUPS.lstrip("/") / "5" / "reserved_regions").symlink_to("reserved_regions")
    with pytest.raises(Unreadable):
        _ = iommu.group(5).reserved_regions


def test_a_host_without_an_active_iommu_has_no_groups_or_an_empty_listing(bare, tmp_path):
    iommu = bare("/sys/x")
    assert not iommu.has_groups and iommu.units == ()
    (tmp_path / GROUPS.lstrip("/")).mkdir(parents=True)
    (tmp_path / UNITS.lstrip("/")).mkdir(parents=True)
    iommu = Iommu(Tree(tmp_path))
    assert not iommu.has_groups and iommu.units == ()


@pytest.mark.parametrize("kind", ["off-in-firmware", "off-on-command-line", "none"])
def test_a_host_whose_iommu_is_off(fake, kind):
    fake.set_iommu(kind)
    host = Host(fake.root)
    assert not host.iommu.has_groups
    assert host.functions.get(T4).iommu_group is None
    offered = kind == "off-on-command-line"
    assert bool(host.iommu.firmware_tables) is offered


def test_groups_that_cannot_be_listed_may_be_there(fake):
    fake.make_directory_unlistable(GROUPS)
    with pytest.raises(Unreadable):
        _ = Host(fake.root).iommu.has_groups


def test_only_tables_of_iommus_count(bare):
    bare(f"{FIRMWARE_TABLES}/FACP")
    assert bare(f"{FIRMWARE_TABLES}/APIC").firmware_tables == ()
    assert bare(f"{FIRMWARE_TABLES}/DMAR").firmware_tables == ("DMAR",)


def test_tables_that_cannot_be_listed_are_not_known(tmp_path):
    at = tmp_path / FIRMWARE_TABLES.lstrip("/")
    at.parent.mkdir(parents=True)
    at.symlink_to("tables")
    assert Iommu(Tree(tmp_path)).firmware_tables is None


def test_units_come_sorted(bare):
    bare(f"{UNITS}/dmar1/x")
    assert bare(f"{UNITS}/dmar0/x").units == ("dmar0", "dmar1")
