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

"""Heads, links and listings: the reads that are no text."""

import os

import pytest

from cyborg_ext_drivers.errors import Malformed, Unreadable
from tests.unit.tree import CARD


def test_the_head_of_a_binary_file_is_as_long_as_asked_or_shorter(root):
    root.file(f"{CARD}/config", bytes(range(256)))
    card = root.tree.directory(CARD)
    assert card.head("config", 64) == bytes(range(64))
    assert card.head("config", 4) == bytes(range(4))
    assert card.head("config", 4096) == bytes(range(256))


def test_a_link_is_read_and_not_followed(root):
    root.file(f"{CARD}/vendor")
    root.link(f"{CARD}/driver", "../../../bus/pci/drivers/vfio-pci")
    root.link(f"{CARD}/iommu_group", "/nowhere/kernel/iommu_groups/27/")
    card = root.tree.directory(CARD)
    assert card.link("driver") == "vfio-pci"
    assert card.link("iommu_group") == "27"


def test_a_file_in_place_of_a_link_is_malformed(root):
    root.file(f"{CARD}/driver")
    with pytest.raises(Malformed, match="symbolic link"):
        root.tree.directory(CARD).link("driver")


def test_whether_an_entry_is_there_is_told_whatever_it_is(root):
    root.file(f"{CARD}/reset")
    root.link(f"{CARD}/driver", "nowhere")
    root.at(f"{CARD}/vfio-dev").mkdir()
    os.mkfifo(root.at(f"{CARD}/pipe"))
    card = root.tree.directory(CARD)
    assert all(map(card.has, ("reset", "driver", "vfio-dev", "pipe")))
    assert not card.has("remove")
    assert not root.tree.directory("/sys/devices/gone").has("reset")


def test_listings(root):
    root.file(f"{CARD}/vendor")
    root.file(f"{CARD}/vfio-dev/vfio0/dev")
    card = root.tree.directory(CARD)
    assert sorted(card.names()) == ["vendor", "vfio-dev"]
    assert card.names("vfio-dev") == ["vfio0"]
    assert root.tree.names(f"{CARD}/vfio-dev") == ["vfio0"]


def test_a_listing_below_does_not_follow_a_link(root, outside):
    root.file(f"{CARD}/vendor")
    root.link(f"{CARD}/vfio-dev", outside)
    with pytest.raises(Unreadable) as caught:
        root.tree.directory(CARD).names("vfio-dev")
    assert caught.value.path == f"{CARD}/vfio-dev"


def test_a_directory_prints_as_the_hosts_path(root):
    directory = root.tree.directory(CARD)
    assert str(directory) == CARD
    assert directory.path_of("vendor") == f"{CARD}/vendor"


def test_all_who_ask_one_tree_see_the_same(root):
    root.file(f"{CARD}/power_state", "D0")
    tree = root.tree
    assert tree.directory(CARD).text("power_state") == "D0"
    root.file(f"{CARD}/power_state", "D3cold")
    assert tree.directory(CARD).text("power_state") == "D0"
    assert tree.again().directory(CARD).text("power_state") == "D3cold"


def test_files_fetched_at_one_go_read_as_if_one_by_one(root):
    root.file(f"{CARD}/vendor", "0x10de")
    root.link(f"{CARD}/device", "device")
    card = root.tree.directory(CARD, fetch=("vendor", "device", "absent"))
    root.file(f"{CARD}/vendor", "0x1002")
    assert card.text("vendor") == "0x10de"
    assert card.text("absent") is None
    with pytest.raises(Unreadable, match="ELOOP"):
        card.text("device")
