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

"""What is suggested, as a table, as JSON, as commands and as a library."""

import json
import pathlib
import re
import subprocess

import jsonschema
import pytest

from cyborg_ext_drivers.profiles.inventory import Inventory, Offer
from cyborg_ext_drivers.profiles.suggest import suggest
from cyborg_ext_drivers.testing import described_hosts

ROOT = pathlib.Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "doc/source/schema/profile-suggest.json").read_text())
EVERY = [word for name in described_hosts() for word in ("--fake", name)]


def test_cards_of_several_hosts_are_one_profile(suggested):
    profiles = suggested("--fake", "two-t4", "--fake", "mixed-models")
    jsonschema.validate(profiles, SCHEMA)
    (t4,) = [each for each in profiles if each["name"] == "nvidia-t4"]
    assert (t4["devices"], t4["hosts"]) == (3, ["mixed-models", "two-t4"])
    assert t4["groups"] == [{"resources:PGPU": "1", "trait:CUSTOM_NVIDIA_T4": "required"}]


def test_names_of_all_described_hosts_are_unique_stable_and_taken_by_cyborg(suggested):
    profiles = suggested(*EVERY)
    jsonschema.validate(profiles, SCHEMA)
    names = [each["name"] for each in profiles]
    assert len(set(names)) == len(names) > 40
    assert all(re.fullmatch("[a-zA-Z0-9-_]+", name) for name in names)
    alone = suggested("--fake", "mixed-models")
    assert {each["name"] for each in alone} <= set(names)
    assert "CUSTOM_FPGA_XILINX" not in json.dumps(profiles)


@pytest.mark.parametrize("options", [(), ("--count", 2), ("--any", "vendor")])
def test_the_table_of_all_described_hosts_has_120_columns_at_most(options, diagnose):
    code, out, _ = diagnose("profile", "suggest", *options, *EVERY)
    table = [line for line in out.splitlines() if line[0] in "|+"]
    assert code == 0 and max(map(len, table)) <= 120


def test_any_card_of_a_vendor_but_not_where_requests_would_double(suggested, diagnose):
    argv = ("--any", "vendor", "--fake", "alveo-u250", "--fake", "mixed-models")
    (only,) = suggested(*argv)
    assert only["name"] == "nvidia-gpu" and only["devices"] > 1
    assert only["groups"] == [{"resources:PGPU": "1", "trait:CUSTOM_GPU_NVIDIA": "required"}]
    assert "two accelerator requests" in diagnose("profile", "suggest", *argv)[2]


def test_the_commands_reach_the_client_as_they_are_meant(diagnose, suggested):
    """A shell runs them; in the client's place stands what prints the words that it is given."""
    argv = ("--count", "2", "--fake", "two-t4", "--flavor", "my gpu's")
    _, script, _ = diagnose("profile", "suggest", "--commands", *argv)
    (profile,) = suggested(*argv)
    client = 'openstack() { for word in "$@"; do printf "%s\\n" "$word"; done; }\n'
    ran = subprocess.run(["sh", "-ec", client + script], capture_output=True, text=True, check=True)
    words = ran.stdout.splitlines()
    assert words[:5] == ["accelerator", "device", "profile", "create", "nvidia-t4-x2"]
    assert json.loads(words[5]) == profile["groups"] and len(profile["groups"]) == 2
    last = ["flavor", "set", "my gpu's", "--property", "accel:device_profile=nvidia-t4-x2"]
    assert words[6:] == last


def test_a_library_is_read_again_and_never_written_over(diagnose, tmp_path):
    library, hosts = tmp_path / "library.yaml", ("--fake", "two-t4", "--fake", "n6001")
    assert diagnose("profile", "suggest", "--library", library, *hosts)[0] == 0
    code, out, _ = diagnose("profile", "check", library, *hosts)
    assert code == 0 and "2 of 2 profiles schedule" in out
    before = library.read_bytes()
    code, _, said = diagnose("profile", "suggest", "--library", library, *hosts)
    assert code == 2 and "perhaps reviewed" in said and library.read_bytes() == before


def test_a_library_that_cannot_be_written(diagnose, tmp_path):
    library = tmp_path / "missing" / "library.yaml"
    code, _, said = diagnose("profile", "suggest", "--library", library, "--fake", "two-t4")
    assert code == 2 and f"{library} cannot be written: No such file" in said


def test_a_host_without_accelerators(diagnose):
    code, out, _ = diagnose("profile", "suggest", "--fake", "no-accelerators")
    assert code == 1 and "Nothing is reported" in out


@pytest.mark.parametrize("count", ["0", "-1", "x", "65", "9" * 5000])
def test_a_count_out_of_reach(count, diagnose):
    assert diagnose("profile", "suggest", "--fake", "two-t4", f"--count={count}")[0] == 2


@pytest.mark.parametrize(
    ("model", "resource_class", "traits", "name", "wanted"),
    [
        (
            "T4",
            "VGPU",
            "CUSTOM_GPU_NVIDIA CUSTOM_NVIDIA_1EB8 CUSTOM_NVIDIA_T4 CUSTOM_NVIDIA_1EB8_T4_2B",
            "nvidia-1eb8-t4-2b",
            "CUSTOM_NVIDIA_1EB8_T4_2B",
        ),
        # A model that looks like a product id; the order in a cloud is any.
        (
            "A100",
            "PGPU",
            "CUSTOM_NVIDIA_A100 CUSTOM_NVIDIA_20B0 CUSTOM_GPU_NVIDIA",
            "nvidia-a100",
            "CUSTOM_NVIDIA_A100",
        ),
        # In-tree drivers, today's and before Wallaby.
        (None, "PGPU", "CUSTOM_GPU_NVIDIA CUSTOM_NVIDIA_1EB8", "nvidia-1eb8", "CUSTOM_NVIDIA_1EB8"),
        (
            None,
            "PGPU",
            "CUSTOM_GPU_NVIDIA CUSTOM_GPU_PRODUCT_ID_1EB8",
            "gpu-product-id-1eb8",
            "CUSTOM_GPU_PRODUCT_ID_1EB8",
        ),
    ],
)
def test_the_trait_that_says_most(model, resource_class, traits, name, wanted):
    offer = Offer(
        "a",
        "3b:00.0",
        "Card",
        "GPU",
        "NVIDIA",
        model,
        resource_class,
        ("OWNER_CYBORG", *traits.split()),
        1,
    )
    (profile,) = suggest(Inventory((offer,), "a"))
    assert profile.name == name
    assert profile.groups == ({f"resources:{resource_class}": "1", f"trait:{wanted}": "required"},)


def test_a_dead_card_is_left_out():
    traits = ("OWNER_CYBORG", "CUSTOM_GPU_NVIDIA", "CUSTOM_NVIDIA_T4", "CUSTOM_ACCEL_FAULTY")
    offer = Offer("a", "3b:00.0", "Card", "GPU", "NVIDIA", "T4", "PGPU", traits, 1)
    assert suggest(Inventory((offer,), "a")) == []
