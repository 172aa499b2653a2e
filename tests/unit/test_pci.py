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

import pathlib

import pytest

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import EnumerationError, Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.identity import PciClass, PciId
from cyborg_ext_drivers.host.pci import DEVICES
from cyborg_ext_drivers.testing import FakeHost
from tests.cards import A40, T4, add_a40, add_t4


@pytest.fixture
def fake():
    """A host with a T4 on vfio-pci and an A40, which can have virtual functions."""
    with FakeHost() as host:
        add_t4(host, numa_node=1, iommu_group=0)
        add_a40(host)
        yield host


def _function(fake, address=T4):
    return Host(fake.root).functions.get(address)


# An ordinary card


def test_an_ordinary_card(fake):
    t4 = _function(fake)
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
    one_by_one, at_one_go = _function(fake, A40), _function(fake, A40)
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
    assert _function(fake).driver is None
    assert not _function(fake).is_on_vfio


def test_a_variant_driver_is_vfio_as_well(fake):
    fake.bind(T4, "nvgrace_gpu_vfio_pci")
    assert _function(fake).is_on_vfio
    fake.bind(T4, "nvidia")
    assert not _function(fake).is_on_vfio


def test_a_driver_that_only_the_link_tells_counts(fake):
    fake.bind(T4, "nvidia")
    text = fake.path(f"{DEVICES}/{T4}/uevent").read_text()
    fake.set_attribute(T4, "uevent", text.replace("DRIVER=nvidia\n", "").rstrip())
    assert "DRIVER" not in fake.path(f"{DEVICES}/{T4}/uevent").read_text()
    t4 = _function(fake)
    assert t4.failure is None and t4.identity is not None
    assert t4.driver == "nvidia"


def test_a_copy_that_lost_its_links_still_knows_the_driver(fake):
    fake.remove_attribute(T4, "driver")
    assert _function(fake).driver == "vfio-pci"


def test_uevent_that_changed_since_the_walk_is_noticed(fake):
    t4 = _function(fake)
    text = fake.path(f"{DEVICES}/{T4}/uevent").read_text()
    fake.set_attribute(T4, "uevent", text.replace("1EB8", "1EB9"))
    with pytest.raises(Malformed) as caught:
        t4.confirm_identity()
    assert caught.value.path == f"{DEVICES}/{T4}/uevent"


def test_a_driver_link_that_cannot_be_read_is_no_free_card(fake):
    fake.unbind(T4)
    fake.set_attribute(T4, "driver", "a file")
    with pytest.raises(ReadError):
        _ = _function(fake).driver


# Who it is, when uevent does not say


def test_without_uevent_the_id_files_tell(fake):
    before = _function(fake).identity
    fake.remove_attribute(T4, "uevent")
    t4 = _function(fake)
    assert t4.identity == before
    assert t4.failure is None
    assert t4.driver == "vfio-pci"


def test_a_uevent_without_the_pci_lines_is_as_good_as_none(fake):
    fake.set_attribute(T4, "uevent", "DRIVER=vfio-pci\nMODALIAS=pci:v1")
    t4 = _function(fake)
    assert str(t4.identity.id) == "10de:1eb8"
    assert t4.failure is None


@pytest.mark.parametrize(
    "content",
    [
        b"PCI_CLASS=30200\n",
        b"PCI_ID=10DE:1EB8\nPCI_CLASS=30200\nPCI_SUBSYS_ID=10DE:12A2\n",
        b"OF_NAME=gpu\nPCI_CLASS=30200\nPCI_ID=10DE:1EB8\nPCI_SLOT_NAME=0000:3b:00.0\n",
    ],
)
def test_a_uevent_of_another_form_is_made_up_for_by_the_id_files(fake, content):
    fake.set_attribute(T4, "uevent", content)
    t4 = _function(fake)
    assert str(t4.identity.id) == "10de:1eb8"
    assert t4.failure is None


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 40,
        b"nonsense\n",
        b"PCI_CLASS=zz\nPCI_ID=10DE:1EB8\nPCI_SUBSYS_ID=10DE:12A2\n",
        b"PCI_CLASS=30200\nPCI_ID=10DE\nPCI_SUBSYS_ID=10DE:12A2\n",
    ],
)
def test_a_nonsensical_uevent_does_not_hide_the_card_and_is_not_believed(fake, content):
    fake.set_attribute(T4, "uevent", content)
    t4 = _function(fake)
    assert str(t4.identity) == "10de:1eb8 class 030200"
    assert isinstance(t4.failure, Malformed)
    assert t4.failure.path == f"{DEVICES}/{T4}/uevent"


def test_an_unreadable_uevent_does_not_hide_the_card(fake):
    fake.make_unreadable(T4, "uevent")
    t4 = _function(fake)
    assert str(t4.identity.id) == "10de:1eb8"
    assert isinstance(t4.failure, Unreadable)


def test_a_uevent_that_is_too_long_does_not_hide_the_card_or_its_neighbours(fake):
    fake.set_attribute(T4, "uevent", b"A=1\n" * 2000)
    functions = Host(fake.root).functions
    assert isinstance(functions.get(T4).failure, Malformed)
    assert str(functions.get(T4).identity.id) == "10de:1eb8"
    assert functions.get(A40).failure is None


@pytest.mark.parametrize("name", ["class", "vendor", "device", "subsystem_vendor"])
def test_without_uevent_an_unreadable_id_file_makes_it_unknown_and_not_absent(fake, name):
    fake.remove_attribute(T4, "uevent")
    fake.make_unreadable(T4, name)
    functions = Host(fake.root).functions
    t4 = functions.get(T4)
    assert t4.identity is None
    assert t4.failure.path == f"{DEVICES}/{T4}/{name}"
    assert t4 in functions.select(lambda identity: False)


@pytest.mark.parametrize("name", ["class", "vendor", "device"])
def test_without_uevent_a_missing_id_file_makes_it_unknown_and_not_absent(fake, name):
    fake.remove_attribute(T4, "uevent")
    fake.remove_attribute(T4, name)
    t4 = _function(fake)
    assert t4.identity is None
    assert "missing" in str(t4.failure)


def test_without_uevent_and_subsystem_files_there_is_no_subsystem(fake):
    for name in ("uevent", "subsystem_vendor", "subsystem_device"):
        fake.remove_attribute(T4, name)
    t4 = _function(fake)
    assert t4.identity.subsystem is None
    assert t4.failure is None
    t4.confirm_identity()


def test_a_function_that_went_away_in_mid_walk_was_never_there(fake):
    directory = fake.path(f"{DEVICES}/{T4}").resolve()
    for path in directory.iterdir():
        if not path.is_dir() or path.is_symlink():
            path.unlink()
    functions = Host(fake.root).functions
    assert functions.get(T4) is None
    assert T4 not in [function.name for function in functions]


def test_a_link_that_leads_nowhere_is_a_function_that_went_away(fake):
    fake.path(f"{DEVICES}/0000:99:00.0").symlink_to("../../../devices/pci0000:99/0000:99:00.0")
    assert Host(fake.root).functions.get("0000:99:00.0") is None


def test_a_link_out_of_the_root_is_an_unknown_function(fake):
    fake.path(f"{DEVICES}/0000:99:00.0").symlink_to("../../../../../../../../../../../../etc")
    function = Host(fake.root).functions.get("0000:99:00.0")
    assert function.identity is None
    assert isinstance(function.failure, Unreadable)
    with pytest.raises(Unreadable):
        _ = function.driver
    function.confirm_identity()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vendor", "0x1002"),
        ("device", "0x1eb9"),
        ("class", "0x030000"),
        ("subsystem_vendor", "0x1028"),
        ("subsystem_device", "0x0000"),
    ],
)
def test_id_files_that_contradict_uevent_are_noticed(fake, name, value):
    fake.set_attribute(T4, name, value)
    with pytest.raises(Malformed) as caught:
        _function(fake).confirm_identity()
    assert caught.value.path == f"{DEVICES}/{T4}/{name}"
    assert caught.value.value == value
    assert "as in uevent" in str(caught.value)


@pytest.mark.parametrize("name", ["vendor", "device", "class", "subsystem_device"])
def test_an_id_file_that_cannot_be_read_is_noticed(fake, name):
    fake.make_unreadable(T4, name)
    with pytest.raises(Unreadable):
        _function(fake).confirm_identity()


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
    assert _function(fake).revision is None
    assert _function(fake).numa_node is None


def test_group_zero_is_a_group_and_no_link_is_none(fake):
    assert _function(fake).iommu_group == 0
    fake.move_to_group(T4, None)
    assert _function(fake).iommu_group is None


def test_a_group_that_is_no_number_is_malformed(fake):
    path = fake.path(f"{DEVICES}/{T4}/iommu_group")
    path.unlink()
    path.symlink_to("../../../kernel/iommu_groups/x")
    with pytest.raises(Malformed, match="group number"):
        _ = _function(fake).iommu_group


def test_the_default_vga_device_says_so(fake):
    name = "0000:03:00.0"
    fake.add_function(name, vendor="1a03", device="2000", class_="030000", boot_vga=1)
    assert _function(fake, name).boot_vga is True


def test_a_sleeping_card_is_not_woken_to_read_its_header(fake):
    assert len(_function(fake).header) == 64
    fake.set_attribute(T4, "power_state", "D3cold")
    fake.make_unreadable(T4, "config")
    assert _function(fake).header is None
    assert not _function(fake).is_virtual


# Virtual functions


def test_virtual_functions_come_in_the_order_of_their_numbers(fake):
    enabled = fake.enable_virtual_functions(A40, 12)
    a40 = _function(fake, A40)
    assert fake.path(f"{DEVICES}/{A40}/virtfn10").is_symlink()
    assert list(a40.virtual_functions) == enabled == sorted(enabled)
    assert a40.total_virtual_functions == 32
    assert not a40.is_virtual


def test_virtfn10_comes_after_virtfn2_whatever_their_addresses(fake):
    directory = fake.path(f"{DEVICES}/{A40}").resolve()
    for number, address in ((10, "0000:5e:00.1"), (2, "0000:5e:00.7"), (0, "0000:5e:01.0")):
        (directory / f"virtfn{number}").symlink_to(f"../{address}")
    (directory / "virtfnx").symlink_to("../0000:5e:00.2")
    found = _function(fake, A40).virtual_functions
    assert list(map(str, found)) == ["0000:5e:01.0", "0000:5e:00.7", "0000:5e:00.1"]


def test_a_card_with_sriov_and_none_enabled(fake):
    a40 = _function(fake, A40)
    assert a40.total_virtual_functions == 32
    assert a40.virtual_functions == ()


def test_a_virtfn_that_leads_to_no_function_is_malformed(fake):
    directory = fake.path(f"{DEVICES}/{A40}").resolve()
    (directory / "virtfn0").symlink_to("../nothing")
    with pytest.raises(Malformed, match="a PCI function"):
        _ = _function(fake, A40).virtual_functions


def test_a_virtual_function_knows_where_it_comes_from(fake):
    (virtual,) = fake.enable_virtual_functions(A40, 1)
    function = _function(fake, virtual)
    assert function.physical_function == PciAddress.parse(A40)
    assert function.is_virtual


def test_a_virtual_function_is_one_before_its_link_appears(fake):
    (virtual,) = fake.enable_virtual_functions(A40, 1)
    fake.remove_attribute(virtual, "physfn")
    function = _function(fake, virtual)
    assert function.physical_function is None
    assert function.header[:4] == b"\xff" * 4
    assert function.is_virtual


def test_a_dead_card_is_no_virtual_function(fake):
    fake.set_attribute(T4, "config", b"\xff" * 64)
    assert not _function(fake).is_virtual


@pytest.mark.parametrize("header", [b"", b"\xff" * 4, b"\xff" * 3 + b"\x00" * 61])
def test_neither_is_one_of_which_too_little_is_seen(fake, header):
    fake.set_attribute(T4, "config", header)
    assert not _function(fake).is_virtual


def test_whether_it_is_one_cannot_be_told_without_its_header(fake):
    fake.make_unreadable(T4, "config")
    with pytest.raises(Unreadable):
        _ = _function(fake).is_virtual


def test_counting_them_asks_nothing_that_can_block(fake):
    # sriov_numvfs takes the device lock; a count in it that is wrong is never looked at.
    enabled = fake.enable_virtual_functions(A40, 2)
    fake.set_attribute(A40, "sriov_numvfs", "7")
    a40 = _function(fake, A40)
    a40.fetch()
    with a40._tree.tracing() as trace:
        assert list(a40.virtual_functions) == enabled
        assert a40.header and a40.iommu_group is not None
    fake.set_attribute(A40, "sriov_numvfs", "5")
    again = Host(fake.root)
    assert trace.holds(again.tree.holds, again.functions.uevents)


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
    first, second, third, last = _function(fake).regions
    assert [region.number for region in (first, second, third, last)] == [0, 1, 3, 5]
    assert first.is_memory and not first.is_unassigned and first.size == 16 << 20
    assert second.is_memory and second.is_unassigned and second.size == 256 << 20
    assert not last.is_memory and last.size == 128


def test_a_function_without_any_region(fake):
    fake.remove_attribute(T4, "resource")
    assert _function(fake).regions == ()
    fake.set_attribute(T4, "resource", "")
    assert _function(fake).regions == ()


@pytest.mark.parametrize(
    "content", ["x", "0x0 0x0\n", "0x0 0x0 0x0 0x0\n", "0x0 0xg 0x0", b"\xff\x00", "a" * 5000]
)
def test_a_table_of_regions_that_is_none_is_malformed(fake, content):
    fake.set_attribute(T4, "resource", content)
    with pytest.raises(Malformed) as caught:
        _ = _function(fake).regions
    assert caught.value.path == f"{DEVICES}/{T4}/resource"
    assert len(caught.value.value) < 400


def test_whether_it_can_be_reset(fake):
    fake.set_attribute(T4, "reset", "")
    assert _function(fake).has_reset
    fake.make_unreadable(T4, "reset")
    assert _function(fake).has_reset
    fake.make_readable(T4, "reset")
    fake.remove_attribute(T4, "reset")
    assert not _function(fake).has_reset


def test_what_runtime_power_management_thinks(fake):
    path = fake.path(f"{DEVICES}/{T4}/power/runtime_status").resolve()
    path.parent.mkdir(exist_ok=True)
    path.write_text("suspended\n")
    assert _function(fake).runtime_status == "suspended"
    path.unlink()
    assert _function(fake).runtime_status is None


def test_the_firmwares_display_of_any_class(fake):
    assert not _function(fake).is_boot_display
    drm = fake.path(f"{DEVICES}/{T4}").resolve() / "drm"
    for name, value in (("renderD128", None), ("card0", "0"), ("card0-DP-1", "1")):
        (drm / name).mkdir(parents=True)
        if value:
            (drm / name / "boot_display").write_text(value)
    assert not _function(fake).is_boot_display
    (drm / "card0" / "boot_display").write_text("1\n")
    assert _function(fake).is_boot_display
    (drm / "card0" / "boot_display").write_text("maybe\n")
    with pytest.raises(Malformed):
        _ = _function(fake).is_boot_display


# The bus


def test_entries_that_are_named_like_no_function_are_left_out(fake):
    for name in ("notes", "0000:3B:00.1", "3b:00.1", "0000:3b:00.8"):
        fake.path(f"{DEVICES}/{name}").symlink_to(f"../../../devices/{name}")
    functions = Host(fake.root).functions
    assert len(functions) == 2
    assert [function.name for function in functions] == [T4, A40]
    assert functions.get("notes") is None


def test_only_wanted_functions_are_selected(fake):
    functions = Host(fake.root).functions
    selected = functions.select(lambda identity: identity.id.device == "2235")
    assert [function.name for function in selected] == [A40]


def test_the_slot_of_a_card_holds_its_other_functions(fake):
    fake.add_function("0000:3b:00.1", vendor="10de", device="10f8", class_="040300")
    fake.add_function("0000:3b:01.0", vendor="10de", device="1eb8", class_="030200")
    functions = Host(fake.root).functions
    slot = functions.in_slot_of(functions.get(T4))
    assert [function.name for function in slot] == ["0000:3b:00.1"]


def test_a_function_is_got_by_text_or_address_and_is_one(fake):
    functions = Host(fake.root).functions
    assert functions.get(T4) is functions.get(PciAddress.parse(T4))
    assert functions.get("0000:00:00.0") is None


def test_a_host_without_any_function_is_an_answer():
    with FakeHost() as fake:
        fake.path(DEVICES).mkdir(parents=True, exist_ok=True)
        assert list(Host(fake.root).functions) == []


def test_a_bus_that_is_absent_is_an_error_and_no_empty_host(tmp_path: pathlib.Path):
    with pytest.raises(EnumerationError) as caught:
        _ = Host(tmp_path).functions
    assert caught.value.path == DEVICES
    assert "host_root" in str(caught.value)


def test_a_bus_that_cannot_be_listed_is_an_error_and_no_empty_host(fake):
    fake.make_directory_unlistable(DEVICES)
    with pytest.raises(EnumerationError) as caught:
        _ = Host(fake.root).functions
    assert "ELOOP" in caught.value.reason
    fake.make_directory_listable(DEVICES)
    assert len(Host(fake.root).functions) == 2


def test_a_host_is_seen_anew_only_when_asked(fake):
    host = Host(fake.root)
    assert host.functions.get(T4).driver == "vfio-pci"
    fake.bind(T4, "nvidia")
    fake.remove_function(A40)
    assert host.functions.get(T4).driver == "vfio-pci"
    again = host.again()
    assert again.functions.get(T4).driver == "nvidia"
    assert again.functions.get(A40) is None
