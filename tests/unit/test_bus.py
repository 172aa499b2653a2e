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

"""All functions of a host, and what else lies on the bus."""

import pathlib

import pytest

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import EnumerationError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.pci import DEVICES
from cyborg_ext_drivers.testing import FakeHost
from tests.cards import A40, T4


@pytest.fixture
def fake(t4_and_a40):
    return t4_and_a40


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


def test_the_ids_above_a_card_are_its_bridges(fake):
    fake.add_function("0000:40:01.0", vendor="1022", device="1483", class_="060400")
    fake.add_function(
        "0000:41:00.0", vendor="1002", device="1479", class_="060400", parent="0000:40:01.0"
    )
    fake.add_function(
        "0000:42:00.0", vendor="1002", device="744c", class_="030000", parent="0000:41:00.0"
    )
    functions = Host(fake.root).functions
    assert [str(each) for each in functions.ids_above(functions.get("0000:42:00.0"))] == [
        "1022:1483",
        "1002:1479",
    ]
    assert functions.ids_above(functions.get("0000:40:01.0")) == ()


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
