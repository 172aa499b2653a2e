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

"""What a host says of mediated devices: absent, unreadable and nonsense are three answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.errors import Malformed, Unreadable
from cyborg_ext_drivers.families.vgpu import in_tree_trait, trait_name
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.mdev import MediatedParent
from cyborg_ext_drivers.testing import FakeHost

T4, HOST = "0000:3b:00.0", "t4-on-vgpu-host-driver"
UUID = "4b20d080-1b54-4048-85b3-a6a62d165c01"
KIND = "mdev_supported_types/nvidia-223"


@pytest.fixture
def fake():
    with FakeHost.named(HOST) as fake:
        yield fake


def parent_on(fake):
    host = Host(fake.root)
    return MediatedParent(host.tree, host.functions.get(T4))


def test_what_a_parent_offers_and_has(fake):
    fake.create_mediated_device(T4, "nvidia-223", UUID)
    parent = parent_on(fake)
    assert parent.is_one
    assert parent.type_ids == ("nvidia-222", "nvidia-223", "nvidia-232", "nvidia-234")
    assert parent.devices == (UUID,)
    assert parent.type_of(UUID) == "nvidia-223"
    kind = parent.type("nvidia-223")
    assert (kind.id, kind.name, kind.max_instance) == ("nvidia-223", "GRID T4-2B", 8)
    assert parent.type("nvidia-9") is None


def test_types_are_in_the_order_of_their_numbers(fake):
    fake.set_attribute(T4, "mdev_supported_types/nvidia-35/name", "GRID T4-1A")
    fake.set_attribute(T4, "mdev_supported_types/other/name", "x")
    assert parent_on(fake).type_ids[:2] == ("nvidia-35", "nvidia-222")


def test_a_function_on_vfio_is_no_parent(fake):
    fake.bind(T4, "vfio-pci")
    parent = parent_on(fake)
    assert not parent.is_one
    assert parent.type_ids == parent.devices == ()
    assert parent.type("nvidia-223") is None


def test_a_description_that_is_absent_is_no_number(fake):
    fake.remove_attribute(T4, f"{KIND}/description")
    fake.remove_attribute(T4, f"{KIND}/name")
    kind = parent_on(fake).type("nvidia-223")
    assert kind.max_instance is None
    assert kind.name == "nvidia-223"


@pytest.mark.parametrize("file", ["description", "name"])
def test_what_cannot_be_read_says_so(fake, file):
    fake.make_unreadable(T4, f"{KIND}/{file}")
    kind = parent_on(fake).type("nvidia-223")
    with pytest.raises(Unreadable, match=f"nvidia-223/{file} cannot be read"):
        _ = kind.name, kind.max_instance


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"max_instance=8", 8),
        (b"num_heads=4,max_instance = 16\n", 16),
        (b"max_instance=1, framebuffer=1024M", 1),
        (b"\xff\xfe, max_instance=3\n", 3),
        (b"max_instance=1024", 1024),
    ],
)
def test_the_number_is_found_wherever_it_stands(fake, text, number):
    fake.set_attribute(T4, f"{KIND}/description", text)
    assert parent_on(fake).type("nvidia-223").max_instance == number


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"num_heads=4",
        b"max_instance=0",
        b"max_instance=1025",
        b"max_instance=" + b"9" * 4000,
        b"xmax_instance=4",
        b"max_instance=4x",
        b"max_instance=\xd9\xa4",
        b"\x00" * 100,
    ],
)
def test_a_description_without_a_sensible_number_is_nonsense(fake, text):
    fake.set_attribute(T4, f"{KIND}/description", text)
    with pytest.raises(Malformed, match="max_instance"):
        _ = parent_on(fake).type("nvidia-223").max_instance


@given(st.text(), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True))
def test_a_name_of_any_form_makes_a_trait(name, id):
    found = traits.of_device("GPU", "NVIDIA", "1eb8", "T4", trait_name(name, id))
    assert len(found) == len(set(found))
    for trait in found[1:]:
        assert traits.check(trait) == trait
    in_tree = in_tree_trait(name, "1eb8")
    assert in_tree is None or traits.check(in_tree) == in_tree


@given(
    st.sampled_from(["GRID", "NVIDIA"]),
    st.from_regex(
        r"[A-Z][A-Z0-9]{0,6}(-[1-7])?-[0-9]{1,3}[ABCQ](ME|NOME|MEALL|GFX)?", fullmatch=True
    ),
)
def test_a_name_of_the_usual_form_makes_the_trait_of_cyborgs_own_driver(brand, word):
    name = f"{brand} {word}"
    ours = traits.custom("NVIDIA", "1eb8", trait_name(name, "nvidia-1"))
    assert ours == in_tree_trait(name, "1eb8") == f"CUSTOM_NVIDIA_1EB8_{word.replace('-', '_')}"
