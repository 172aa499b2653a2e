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

"""A trait that was promised once is never changed or taken back."""

from tests import golden

#: Cards that the catalogue knows and no family is for yet: kind and vendor.
WAITING = {
    ("FPGA", "1bd4"),
    ("GPU", "1d94"),
    ("NIC", "15b3"),
}
HELP = (
    "The catalogue is append-only, because device profiles in running clouds name these traits. "
    "Take the change back; for new cards run python -m tests.golden, which only adds lines. "
)


def test_no_promised_trait_changed():
    now = golden.lines()
    changed = {
        label: f"promised {traits}, now {now[label]}"
        for label, traits in golden.kept().items()
        if label in now and now[label] != traits
    }
    assert not changed, HELP


def test_no_promised_card_is_forgotten():
    forgotten = golden.kept().keys() - golden.lines().keys()
    assert not forgotten, HELP


def test_every_card_of_the_catalogue_is_promised():
    new = golden.lines().keys() - golden.kept().keys()
    assert not new, HELP


def _whole_cards(is_waiting):
    return {
        " ".join(filter(None, (entry["id"], entry.get("subsystem"))))
        for entry in golden.packaged().entries()
        if entry.get("role", "pf") in ("pf", "mgmt")
        and ((entry["kind"], entry["id"].partition(":")[0]) in WAITING) is is_waiting
    }


def test_every_whole_card_is_claimed_by_a_family():
    assert _whole_cards(is_waiting=False) <= golden.lines().keys()


def test_no_card_that_a_family_claims_is_said_to_wait():
    assert _whole_cards(is_waiting=True).isdisjoint(golden.lines())


def test_known_promises_are_among_them():
    promised = golden.kept()
    assert promised["10de:1eb8"] == (
        "OWNER_CYBORG CUSTOM_GPU_NVIDIA CUSTOM_NVIDIA_1EB8 CUSTOM_NVIDIA_T4 "
        "CUSTOM_GPU_PRODUCT_ID_1EB8"
    )
    assert "CUSTOM_NVIDIA_A16" in promised["10de:25b6 10de:14a9"].split()
    assert "CUSTOM_NVIDIA_A2" in promised["10de:25b6 10de:157e"].split()
