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

"""What a PCI id means, by our word and the operator's."""

import pytest

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.host.identity import PciId
from tests.cards import identity

ADDRESS = PciAddress(0, 0x3B, 0, 0)
T4 = '{id: "10de:1eb8", kind: GPU, model: T4, name: Tesla T4}'
OWN = '{id: "10de:fff0", kind: GPU, model: OWN, name: My own card}'


def only_fault(loaded):
    (fault,) = loaded.faults
    return str(fault)


# Whose word counts


def test_without_files_of_the_operator_the_package_knows_its_cards(tmp_path):
    for directory in (None, tmp_path, tmp_path / "absent"):
        loaded = catalog.load(directory)
        assert loaded.product(identity("10de:1eb8")).model == "T4"
        assert loaded.vendor("10de") == "NVIDIA"
        assert loaded.faults == ()


def test_an_unknown_card_is_unknown(load_catalog):
    assert load_catalog().product(identity("10de:ffff")) is None
    assert load_catalog().vendor("ffff") is None


def test_the_operators_file_adds_a_card(load_catalog):
    loaded = load_catalog(mine=f"devices:\n- {OWN}\n")
    product = loaded.product(identity("10de:fff0"))
    assert (product.kind, product.model, product.name) == ("GPU", "OWN", "My own card")
    assert loaded.product(identity("10de:1eb8")).model == "T4"


def test_the_operators_file_wins_over_the_package(load_catalog):
    loaded = load_catalog(
        mine='devices:\n- {id: "10de:1eb8", kind: GPU, model: MY-T4, name: Mine}\n'
    )
    assert loaded.product(identity("10de:1eb8")).model == "MY-T4"


def test_a_later_file_wins_over_an_earlier_one(load_catalog):
    loaded = load_catalog(
        a='vendors: {"10de": ALPHA}\ndevices:\n'
        '- {id: "10de:fff0", kind: GPU, model: A, name: A}\n'
        '- {id: "10de:fff1", kind: GPU, model: A1, name: A1}\n',
        b='vendors: {"10de": BETA}\ndevices:\n- {id: "10de:fff0", kind: GPU, model: B, name: B}\n',
    )
    assert loaded.product(identity("10de:fff0")).model == "B"
    assert loaded.product(identity("10de:fff1")).model == "A1"
    assert loaded.vendor("10de") == "BETA"


def test_files_of_another_name_are_none_of_ours(load_catalog, tmp_path):
    (tmp_path / "notes.txt").write_text("nonsense: [")
    (tmp_path / "old.yaml.bak").write_text("nonsense: [")
    (tmp_path / "short.yml").write_text(f"devices: [{OWN}]")
    loaded = load_catalog()
    assert loaded.faults == ()
    assert loaded.product(identity("10de:fff0")).model == "OWN"


def test_an_empty_file_is_right(load_catalog):
    assert load_catalog(a="", b="# nothing yet\n", c="---\n", d="devices: []\n").faults == ()


# Ids, subsystems, revisions


SHARED = """
devices:
- {id: "10de:fff0", kind: GPU, model: PLAIN, name: Plain}
- {id: "10de:fff0", subsystem: "10de:0001", kind: GPU, model: SPECIAL, name: Special}
"""
SUBSYSTEM_ONLY = """
devices:
- {id: "10de:fff0", subsystem: "10de:0001", kind: GPU, model: ONE, name: One}
- {id: "10de:fff0", subsystem: "10de:0002", kind: GPU, model: TWO, name: Two}
"""
BY_REVISION = """
devices:
- id: "1002:fff0"
  kind: GPU
  name: One or Two
  memory_mib: 1024
  revisions:
    "c0": {model: ONE, name: One}
    "c1": {model: TWO}
"""


@pytest.mark.parametrize(
    ("subsystem", "model"),
    [
        ("10de:0001", "SPECIAL"),
        ("10de:0002", "PLAIN"),
        # Without a subsystem it could be either; that is no reason to guess.
        (None, None),
        ("0000:0000", None),
    ],
)
def test_a_matching_subsystem_wins_over_an_entry_without(load_catalog, subsystem, model):
    assert load_catalog(mine=SHARED).product(identity("10de:fff0", subsystem)).model == model


@pytest.mark.parametrize("subsystem", ["10de:0003", None])
def test_an_id_that_only_subsystems_decide_gets_no_guess(load_catalog, subsystem):
    product = load_catalog(mine=SUBSYSTEM_ONLY).product(identity("10de:fff0", subsystem))
    assert product.model is None
    assert product.kind == "GPU"
    assert product.name == "One or Two"


def test_an_entry_for_one_subsystem_leaves_the_packages_other_cards_alone(load_catalog):
    own = '{id: "10de:1eb8", subsystem: "1028:ffff", kind: GPU, model: MY-T4, name: Mine}'
    loaded = load_catalog(mine=f"devices:\n- {own}\n")
    assert loaded.product(identity("10de:1eb8", "1028:ffff")).model == "MY-T4"
    # Else CUSTOM_NVIDIA_T4 would vanish from every other T4 of a running cloud.
    assert loaded.product(identity("10de:1eb8", "10de:12a2")).model == "T4"


@pytest.mark.parametrize(
    ("revision", "model", "name"),
    [
        ("c0", "ONE", "One"),
        ("c1", "TWO", "One or Two"),
        ("c2", None, "One or Two"),
        (None, None, "One or Two"),
    ],
)
def test_the_revision_decides_where_the_ids_do_not(load_catalog, revision, model, name):
    product = load_catalog(mine=BY_REVISION).product(identity("1002:fff0"), revision)
    assert (product.model, product.name, product.memory_mib) == (model, name, 1024)


def test_what_an_entry_says_of_a_card(load_catalog):
    product = load_catalog(
        mine='devices:\n- {id: "10de:fff0", kind: FPGA, name: X, role: vf, integrated: true, '
        'architecture: a, compute_capability: "7.5", memory_mib: 8192, sriov: true, mig: false, '
        'vgpu: mdev, pf_device: "0001", vf_device: "0002", pair_device: "0003"}\n'
    ).product(identity("10de:fff0"))
    assert product == catalog.Product(
        "FPGA",
        None,
        "X",
        is_integrated=True,
        role="vf",
        pair_device="0003",
        architecture="a",
        compute_capability="7.5",
        memory_mib=8192,
    )


# What is never offered, and what belongs to a card


NEVER = """
never:
- {id: "10de:fff0", code: integrated-gpu, what: by id}
- {id: "10de:fff1", subsystem: "10de:0001", code: not-an-accelerator, what: by subsystem}
- {id: "10de:fff2", address: "0000:3b:00.0", code: not-an-accelerator, what: by address}
- {vendor: "1234", class: "03", code: management-display, what: by class}
"""


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (identity("10de:fff0"), "by id"),
        (identity("10de:fff1", "10de:0001"), "by subsystem"),
        (identity("10de:fff1", "10de:0002"), None),
        (identity("10de:fff2"), "by address"),
        (identity("1234:0001"), "by class"),
        (identity("1234:0001", pci_class="120000"), None),
        (identity("1a03:2000"), "ASPEED graphics of the management controller"),
    ],
)
def test_what_is_never_offered(load_catalog, function, what):
    rule = load_catalog(mine=NEVER).exclusion(function, ADDRESS)
    assert (rule.what if rule else None) == what


def test_a_rule_with_an_address_is_for_that_address(load_catalog):
    loaded = load_catalog(mine=NEVER)
    assert loaded.exclusion(identity("10de:fff2"), PciAddress(0, 0x5E, 0, 0)) is None


@pytest.mark.parametrize("spelling", ["3b:00.0", "0000:3B:00.0", "00000000:3b:00.0"])
def test_an_address_in_another_spelling_is_obeyed_or_named(load_catalog, spelling):
    # Obeying neither would offer a card that the operator keeps back.
    loaded = load_catalog(
        mine=f'never:\n- {{id: "10de:1eb8", address: "{spelling}", '
        "code: not-an-accelerator, what: mine}\n"
    )
    assert loaded.faults or loaded.exclusion(identity("10de:1eb8"), ADDRESS)


def test_an_address_that_is_none_is_named(load_catalog):
    loaded = load_catalog(
        mine='never:\n- {id: "10de:1eb8", address: slot 3, code: not-an-accelerator, what: x}\n'
    )
    assert "slot 3" in only_fault(loaded)


def test_an_exact_id_in_never_beats_devices_which_beat_a_class(load_catalog):
    loaded = load_catalog(
        mine='devices:\n- {id: "1234:0001", kind: GPU, name: Real}\n'
        '- {id: "1234:0002", kind: GPU, name: Real}\n'
        'never:\n- {id: "1234:0002", code: not-an-accelerator, what: exact}\n'
        '- {vendor: "1234", class: "03", code: not-an-accelerator, what: class}\n'
    )
    assert loaded.exclusion(identity("1234:0001"), ADDRESS) is None
    assert loaded.exclusion(identity("1234:0002"), ADDRESS).what == "exact"
    assert loaded.exclusion(identity("1234:0003"), ADDRESS).what == "class"


def test_the_operator_can_offer_what_the_package_never_would(load_catalog):
    loaded = load_catalog(mine='devices:\n- {id: "1a03:2000", kind: GPU, name: Really}\n')
    assert loaded.exclusion(identity("1a03:2000"), ADDRESS) is None


def test_companions(load_catalog):
    loaded = load_catalog(mine='companions:\n- {id: "10de:fff8", what: my own audio}\n')
    assert loaded.companion(identity("10de:fff8")).what == "my own audio"
    assert "audio" in loaded.companion(identity("10de:10f8", pci_class="040300")).what
    assert loaded.companion(identity("10de:1eb8")) is None


# Rules that go by what is above a function


BELOW = """
never:
- {vendor: "1234", class: "03", unless_below: ["1234:00aa"], code: integrated-gpu, what: x}
"""


@pytest.mark.parametrize(
    ("above", "is_excluded"),
    [([], True), (["1234:00ab"], True), (["1234:00ab", "1234:00aa"], False)],
)
def test_a_rule_may_except_what_is_below_a_bridge(load_catalog, above, is_excluded):
    rule = load_catalog(mine=BELOW).exclusion(
        identity("1234:0001"), ADDRESS, lambda: [PciId(*each.split(":")) for each in above]
    )
    assert (rule is not None) is is_excluded


def test_what_is_above_is_asked_only_where_a_rule_goes_by_it(load_catalog):
    def above():
        raise AssertionError("asked")

    loaded = load_catalog(mine=BELOW)
    assert loaded.exclusion(identity("1234:0001", pci_class="120000"), ADDRESS, above) is None
    assert loaded.exclusion(identity("1a03:2000"), ADDRESS, above)
