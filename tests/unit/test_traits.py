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

"""Traits keep to one grammar, whatever vendors call their cards."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.traits import InvalidTrait

_NORMAL = re.compile("([A-Z0-9]+(_[A-Z0-9]+)*)?")


@given(st.text())
def test_whatever_the_text_the_result_is_normal(text):
    normal = traits.normalise(text)
    assert _NORMAL.fullmatch(normal)
    assert traits.normalise(normal) == normal
    assert traits.normalise(f" {text}-") == normal


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Tesla T4", "TESLA_T4"),
        ("T4-2B", "T4_2B"),
        ("  A100 -- (PCIe)  ", "A100_PCIE"),
        ("__x__", "X"),
        ("Größe", "GR_SSE"),
        ("µ", ""),
    ],
)
def test_every_run_of_other_characters_is_one_underscore(text, normal):
    assert traits.normalise(text) == normal


@given(st.lists(st.text()))
def test_a_custom_trait_is_one_that_placement_takes_or_an_error(parts):
    try:
        trait = traits.custom(*parts)
    except InvalidTrait:
        return
    assert re.fullmatch("CUSTOM_[A-Z0-9_]{1,248}", trait)


@pytest.mark.parametrize("parts", [(), ("",), ("--", "  "), ("X" * 249,)])
def test_nothing_left_or_too_long_is_no_trait(parts):
    with pytest.raises(InvalidTrait, match="CUSTOM_"):
        traits.custom(*parts)


def test_the_longest_trait_has_255_characters():
    assert len(traits.custom("X" * 248)) == traits.MOST_CHARACTERS


@pytest.mark.parametrize(
    "trait",
    ["", "CUSTOM_", "custom_x", "HW_CPU_X86", "CUSTOM_x", "CUSTOM_X\n", "CUSTOM_É", "CUSTOM-X"],
)
def test_what_placement_refuses_is_refused_here(trait):
    with pytest.raises(InvalidTrait) as caught:
        traits.check(trait)
    assert repr(trait) in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_known_card_has_its_traits_in_the_fixed_order():
    assert traits.of_device(
        "GPU", "NVIDIA", "1eb8", "T4", older=("CUSTOM_GPU_PRODUCT_ID_1EB8",)
    ) == (
        "OWNER_CYBORG",
        "CUSTOM_GPU_NVIDIA",
        "CUSTOM_NVIDIA_1EB8",
        "CUSTOM_NVIDIA_T4",
        "CUSTOM_GPU_PRODUCT_ID_1EB8",
    )


def test_a_card_that_the_catalogue_does_not_know_has_no_model_trait():
    assert traits.of_device("GPU", "NVIDIA", "ffff", None) == (
        "OWNER_CYBORG",
        "CUSTOM_GPU_NVIDIA",
        "CUSTOM_NVIDIA_FFFF",
    )


def test_a_partition_is_spelt_as_in_tree_drivers_spell_it():
    named = traits.of_device("GPU", "NVIDIA", "1eb8", "T4", partition="T4-2B")
    assert named[-1] == "CUSTOM_NVIDIA_1EB8_T4_2B"


def test_a_vendor_without_a_name_is_known_by_its_id():
    assert "CUSTOM_GPU_1D94" in traits.of_device("GPU", "1d94", "53b7", None)


def test_each_trait_stands_once():
    named = traits.of_device(
        "GPU", "NVIDIA", "1eb8", "1EB8", older=("CUSTOM_NVIDIA_1EB8", "OWNER_CYBORG")
    )
    assert named == ("OWNER_CYBORG", "CUSTOM_GPU_NVIDIA", "CUSTOM_NVIDIA_1EB8")


@pytest.mark.parametrize(
    ("vendor", "model", "partition"),
    [("--", "T4", None), ("NVIDIA", "??", None), ("NVIDIA", "T4", "µ")],
)
def test_a_part_that_a_trait_cannot_hold_is_not_left_out_silently(vendor, model, partition):
    # Without it, the trait of a model would read like the trait of the whole vendor.
    with pytest.raises(InvalidTrait):
        traits.of_device("GPU", vendor, "1eb8", model, partition)
