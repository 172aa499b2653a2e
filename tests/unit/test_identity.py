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

"""Who a function is, also when its uevent does not say."""

import pytest

from cyborg_ext_drivers.errors import Malformed, Unreadable
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.pci import DEVICES
from tests.cards import A40, T4, function_of


@pytest.fixture
def fake(t4_and_a40):
    return t4_and_a40


def test_without_uevent_the_id_files_tell(fake):
    before = function_of(fake).identity
    fake.remove_attribute(T4, "uevent")
    t4 = function_of(fake)
    assert t4.identity == before
    assert t4.failure is None
    assert t4.driver == "vfio-pci"


def test_a_uevent_without_the_pci_lines_is_as_good_as_none(fake):
    fake.set_attribute(T4, "uevent", "DRIVER=vfio-pci\nMODALIAS=pci:v1")
    t4 = function_of(fake)
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
    t4 = function_of(fake)
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
    t4 = function_of(fake)
    assert str(t4.identity) == "10de:1eb8 class 030200"
    assert isinstance(t4.failure, Malformed)
    assert t4.failure.path == f"{DEVICES}/{T4}/uevent"


def test_an_unreadable_uevent_does_not_hide_the_card(fake):
    fake.make_unreadable(T4, "uevent")
    t4 = function_of(fake)
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


@pytest.mark.parametrize("name", ["vendor", "device"])
def test_without_uevent_a_missing_id_file_makes_it_unknown_and_not_absent(fake, name):
    fake.remove_attribute(T4, "uevent")
    fake.remove_attribute(T4, name)
    t4 = function_of(fake)
    assert t4.identity is None
    assert "missing" in str(t4.failure)


def test_without_uevent_and_class_the_ids_are_known_all_the_same(fake):
    fake.remove_attribute(T4, "uevent")
    fake.remove_attribute(T4, "class")
    t4 = function_of(fake)
    assert (str(t4.identity.id), t4.identity.pci_class.code) == ("10de:1eb8", "")
    assert t4.failure is None


def test_without_uevent_and_subsystem_files_there_is_no_subsystem(fake):
    for name in ("uevent", "subsystem_vendor", "subsystem_device"):
        fake.remove_attribute(T4, name)
    t4 = function_of(fake)
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
        function_of(fake).confirm_identity()
    assert caught.value.path == f"{DEVICES}/{T4}/{name}"
    assert caught.value.value == value
    assert "as in uevent" in str(caught.value)


# What the configuration space begins with: another card, nothing, a function that is not ready,
# and the beginning of a vendor id.
@pytest.mark.parametrize("start", ["de10b91e", "00000000", "0100b81e", "de"])
def test_a_card_that_gives_other_ids_than_the_kernel_cached_is_noticed(fake, start):
    whole = bytes.fromhex(start)
    fake.set_attribute(T4, "config", whole + bytes(60) if len(whole) == 4 else whole)
    with pytest.raises(Malformed) as caught:
        function_of(fake).confirm_identity()
    assert caught.value.path == f"{DEVICES}/{T4}/config"
    assert "not de 10 b8 1e, the ids in uevent" in str(caught.value)


def test_a_card_that_does_not_answer_is_what_the_kernel_cached(fake):
    fake.set_attribute(T4, "config", b"\xff" * 64)
    function_of(fake).confirm_identity()


@pytest.mark.parametrize("name", ["vendor", "device", "class", "subsystem_device"])
def test_an_id_file_that_cannot_be_read_is_noticed(fake, name):
    fake.make_unreadable(T4, name)
    with pytest.raises(Unreadable):
        function_of(fake).confirm_identity()
