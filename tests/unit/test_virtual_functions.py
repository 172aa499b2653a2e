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

"""Virtual functions, and the one that they come from."""

import pytest

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import Malformed, Unreadable
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.pci import DEVICES
from tests.cards import A40, T4, function_of


@pytest.fixture
def fake(t4_and_a40):
    return t4_and_a40


def test_virtual_functions_come_in_the_order_of_their_numbers(fake):
    enabled = fake.enable_virtual_functions(A40, 12)
    a40 = function_of(fake, A40)
    assert fake.path(f"{DEVICES}/{A40}/virtfn10").is_symlink()
    assert list(a40.virtual_functions) == enabled == sorted(enabled)
    assert a40.total_virtual_functions == 32
    assert not a40.is_virtual


def test_virtfn10_comes_after_virtfn2_whatever_their_addresses(fake):
    directory = fake.path(f"{DEVICES}/{A40}").resolve()
    for number, address in ((10, "0000:5e:00.1"), (2, "0000:5e:00.7"), (0, "0000:5e:01.0")):
        (directory / f"virtfn{number}").symlink_to(f"../{address}")
    (directory / "virtfnx").symlink_to("../0000:5e:00.2")
    found = function_of(fake, A40).virtual_functions
    assert list(map(str, found)) == ["0000:5e:01.0", "0000:5e:00.7", "0000:5e:00.1"]


def test_a_card_with_sriov_and_none_enabled(fake):
    a40 = function_of(fake, A40)
    assert a40.total_virtual_functions == 32
    assert a40.virtual_functions == ()


def test_a_virtfn_that_leads_to_no_function_is_malformed(fake):
    directory = fake.path(f"{DEVICES}/{A40}").resolve()
    (directory / "virtfn0").symlink_to("../nothing")
    with pytest.raises(Malformed, match="a PCI function"):
        _ = function_of(fake, A40).virtual_functions


def test_a_virtual_function_knows_where_it_comes_from(fake):
    (virtual,) = fake.enable_virtual_functions(A40, 1)
    function = function_of(fake, virtual)
    assert function.physical_function == PciAddress.parse(A40)
    assert function.is_virtual


def test_a_virtual_function_is_one_before_its_link_appears(fake):
    (virtual,) = fake.enable_virtual_functions(A40, 1)
    fake.remove_attribute(virtual, "physfn")
    function = function_of(fake, virtual)
    assert function.physical_function is None
    assert function.header[:4] == b"\xff" * 4
    assert function.is_virtual


def test_a_dead_card_is_no_virtual_function(fake):
    fake.set_attribute(T4, "config", b"\xff" * 64)
    assert not function_of(fake).is_virtual


@pytest.mark.parametrize("header", [b"", b"\xff" * 4, b"\xff" * 3 + b"\x00" * 61])
def test_neither_is_one_of_which_too_little_is_seen(fake, header):
    fake.set_attribute(T4, "config", header)
    assert not function_of(fake).is_virtual


def test_whether_it_is_one_cannot_be_told_without_its_header(fake):
    fake.make_unreadable(T4, "config")
    with pytest.raises(Unreadable):
        _ = function_of(fake).is_virtual


def test_counting_them_asks_nothing_that_can_block(fake):
    # sriov_numvfs takes the device lock; a count in it that is wrong is never looked at.
    enabled = fake.enable_virtual_functions(A40, 2)
    fake.set_attribute(A40, "sriov_numvfs", "7")
    a40 = function_of(fake, A40)
    a40.fetch()
    with a40._tree.tracing() as trace:
        assert list(a40.virtual_functions) == enabled
        assert a40.header and a40.iommu_group is not None
    fake.set_attribute(A40, "sriov_numvfs", "5")
    again = Host(fake.root)
    assert trace.holds(again.tree.holds, again.functions.uevents)
