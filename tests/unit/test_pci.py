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

"""What a PCI function says of itself, whole or in part, straight or odd."""

import pytest

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import Malformed, ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.identity import PciClass, PciId
from cyborg_ext_drivers.host.pci import DEVICES
from tests.cards import A40, T4, function_of


@pytest.fixture
def fake(t4_and_a40):
    return t4_and_a40


# An ordinary card


def test_an_ordinary_card(fake):
    t4 = function_of(fake)
    assert str(t4) == t4.name == T4
    assert t4.failure is None
    assert t4.identity.id == PciId("10de", "1eb8")
    assert t4.identity.subsystem == PciId("10de", "12a2")
    assert str(t4.identity) == "10de:1eb8 class 030200"
    assert t4.address == PciAddress(0, 0x3B, 0, 0)
    assert t4.path == f"{DEVICES}/{T4}"
    assert t4.path_of("driver") == f"{DEVICES}/{T4}/driver"
    assert t4.driver == "vfio-pci"
    assert t4.is_on_vfio
    assert t4.revision == "a1"
    assert t4.numa_node == 1
    assert t4.iommu_group == 0
    assert t4.boot_vga is None
    assert t4.physical_function is None
    assert not t4.is_virtual
    assert t4.virtual_functions == ()
    assert t4.total_virtual_functions is None
    t4.confirm_identity()


def test_fetching_at_one_go_gives_the_same_answers(fake):
    one_by_one, at_one_go = function_of(fake, A40), function_of(fake, A40)
    at_one_go.fetch()
    for name in ("revision", "numa_node", "power_state", "total_virtual_functions", "header"):
        assert getattr(one_by_one, name) == getattr(at_one_go, name)


@pytest.mark.parametrize(
    ("code", "is_display", "is_accelerator"),
    [
        ("030000", True, True),
        ("030200", True, True),
        ("038000", True, True),
        ("0b4000", False, True),
        ("120000", False, True),
        ("120100", False, False),
        ("040300", False, False),
        ("068000", False, False),
    ],
)
def test_classes(code, is_display, is_accelerator):
    pci_class = PciClass(code)
    assert pci_class.is_display is is_display
    assert pci_class.is_accelerator is is_accelerator
    assert (pci_class.base, pci_class.base_and_sub, str(pci_class)) == (code[:2], code[:4], code)


# The driver


def test_an_unbound_card_has_no_driver(fake):
    fake.unbind(T4)
    assert function_of(fake).driver is None
    assert not function_of(fake).is_on_vfio


def test_a_variant_driver_is_vfio_as_well(fake):
    fake.bind(T4, "nvgrace_gpu_vfio_pci")
    assert function_of(fake).is_on_vfio
    fake.bind(T4, "nvidia")
    assert not function_of(fake).is_on_vfio


def test_a_driver_that_only_the_link_tells_counts(fake):
    fake.bind(T4, "nvidia")
    text = fake.path(f"{DEVICES}/{T4}/uevent").read_text()
    fake.set_attribute(T4, "uevent", text.replace("DRIVER=nvidia\n", "").rstrip())
    assert "DRIVER" not in fake.path(f"{DEVICES}/{T4}/uevent").read_text()
    t4 = function_of(fake)
    assert t4.failure is None and t4.identity is not None
    assert t4.driver == "nvidia"


def test_a_copy_that_lost_its_links_still_knows_the_driver(fake):
    fake.remove_attribute(T4, "driver")
    assert function_of(fake).driver == "vfio-pci"


def test_uevent_that_changed_since_the_walk_is_noticed(fake):
    t4 = function_of(fake)
    text = fake.path(f"{DEVICES}/{T4}/uevent").read_text()
    fake.set_attribute(T4, "uevent", text.replace("1EB8", "1EB9"))
    with pytest.raises(Malformed) as caught:
        t4.confirm_identity()
    assert caught.value.path == f"{DEVICES}/{T4}/uevent"


def test_a_driver_link_that_cannot_be_read_is_no_free_card(fake):
    fake.unbind(T4)
    fake.set_attribute(T4, "driver", "a file")
    with pytest.raises(ReadError):
        _ = function_of(fake).driver


# Odd but legal


def test_a_domain_behind_vmd(fake):
    fake.add_function("10000:01:00.0", vendor="10de", device="1eb8", class_="030200")
    functions = Host(fake.root).functions
    wide = functions.get("10000:01:00.0")
    assert wide.address.is_wide
    assert [function.name for function in functions][-1] == "10000:01:00.0"


def test_functions_come_in_the_order_of_their_numbers(fake):
    for name in ("f000:01:00.0", "10000:01:00.0", "0000:02:00.0"):
        fake.add_function(name, vendor="10de", device="1eb8", class_="030200")
    names = [function.name for function in Host(fake.root).functions]
    assert names == ["0000:02:00.0", T4, A40, "f000:01:00.0", "10000:01:00.0"]


def test_before_linux_4_10_there_is_no_revision(fake):
    fake.remove_attribute(T4, "revision")
    fake.remove_attribute(T4, "numa_node")
    assert function_of(fake).revision is None
    assert function_of(fake).numa_node is None


def test_group_zero_is_a_group_and_no_link_is_none(fake):
    assert function_of(fake).iommu_group == 0
    fake.move_to_group(T4, None)
    assert function_of(fake).iommu_group is None


def test_a_group_that_is_no_number_is_malformed(fake):
    path = fake.path(f"{DEVICES}/{T4}/iommu_group")
    path.unlink()
    path.symlink_to("../../../kernel/iommu_groups/x")
    with pytest.raises(Malformed, match="group number"):
        _ = function_of(fake).iommu_group


def test_the_default_vga_device_says_so(fake):
    name = "0000:03:00.0"
    fake.add_function(name, vendor="1a03", device="2000", class_="030000", boot_vga=1)
    assert function_of(fake, name).boot_vga is True


def test_a_sleeping_card_is_not_woken_to_read_its_header(fake):
    assert len(function_of(fake).header) == 64
    fake.set_attribute(T4, "power_state", "D3cold")
    fake.make_unreadable(T4, "config")
    assert function_of(fake).header is None
    assert not function_of(fake).is_virtual


# Memory, reset, power, displays


RESOURCE = """\
0x00000000c5000000 0x00000000c5ffffff 0x0000000000040200
0x0000000000000000 0x000000000fffffff 0x000000002014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00003c0010000000 0x00003c0011ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000003000 0x000000000000307f 0x0000000000040101
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00003c0012000000 0x00003c0013ffffff 0x000000000014220c
"""


def test_base_address_registers_that_are_implemented(fake):
    fake.set_attribute(T4, "resource", RESOURCE)
    first, second, third, last = function_of(fake).regions
    assert [region.number for region in (first, second, third, last)] == [0, 1, 3, 5]
    assert first.is_memory and not first.is_unassigned and first.size == 16 << 20
    assert second.is_memory and second.is_unassigned and second.size == 256 << 20
    assert not last.is_memory and last.size == 128


def test_a_function_without_any_region(fake):
    fake.remove_attribute(T4, "resource")
    assert function_of(fake).regions == ()
    fake.set_attribute(T4, "resource", "")
    assert function_of(fake).regions == ()


@pytest.mark.parametrize(
    "content", ["x", "0x0 0x0\n", "0x0 0x0 0x0 0x0\n", "0x0 0xg 0x0", b"\xff\x00", "a" * 5000]
)
def test_a_table_of_regions_that_is_none_is_malformed(fake, content):
    fake.set_attribute(T4, "resource", content)
    with pytest.raises(Malformed) as caught:
        _ = function_of(fake).regions
    assert caught.value.path == f"{DEVICES}/{T4}/resource"
    assert len(caught.value.value) < 400


def test_whether_it_can_be_reset(fake):
    fake.set_attribute(T4, "reset", "")
    assert function_of(fake).has_reset
    fake.make_unreadable(T4, "reset")
    assert function_of(fake).has_reset
    fake.make_readable(T4, "reset")
    fake.remove_attribute(T4, "reset")
    assert not function_of(fake).has_reset


def test_what_runtime_power_management_thinks(fake):
    path = fake.path(f"{DEVICES}/{T4}/power/runtime_status").resolve()
    path.parent.mkdir(exist_ok=True)
    path.write_text("suspended\n")
    assert function_of(fake).runtime_status == "suspended"
    path.unlink()
    assert function_of(fake).runtime_status is None


def test_the_firmwares_display_of_any_class(fake):
    assert not function_of(fake).is_boot_display
    drm = fake.path(f"{DEVICES}/{T4}").resolve() / "drm"
    for name, value in (("renderD128", None), ("card0", "0"), ("card0-DP-1", "1")):
        (drm / name).mkdir(parents=True)
        if value:
            (drm / name / "boot_display").write_text(value)
    assert not function_of(fake).is_boot_display
    (drm / "card0" / "boot_display").write_text("1\n")
    assert function_of(fake).is_boot_display
    (drm / "card0" / "boot_display").write_text("maybe\n")
    with pytest.raises(Malformed):
        _ = function_of(fake).is_boot_display
