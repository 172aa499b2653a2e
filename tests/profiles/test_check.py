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

"""What an operator is told of a profile that does not schedule."""

import io
import json
import pathlib
import sys
import time

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers.cli.app import main
from cyborg_ext_drivers.profiles import matching, reading
from cyborg_ext_drivers.profiles.inventory import Inventory, Offer

ROOT = pathlib.Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "doc/source/schema/profile-check.json").read_text())
GOOD = '[{"resources:PGPU": "1", "trait:CUSTOM_NVIDIA_T4": "required"}]'


def codes(answer):
    return [each["code"] for each in answer["problems"]]


@pytest.mark.parametrize(
    ("text", "wanted", "words"),
    [
        (
            '[{"resources:PGPU": "1", "trait:CUSTOM_GPU_T4": "required"}]',
            ["trait-not-reported"],
            "CUSTOM_NVIDIA_T4 is reported by 2 devices on 1 host",
        ),
        (
            '[{"resources:PGPU": "1", "trait:CUSTOM_ACCELERATOR_GPU": "required"}]',
            ["trait-not-reported"],
            "trait:CUSTOM_GPU_NVIDIA in its place",
        ),
        (
            '{"name": "t4", "groups": [{"resources:PGPU": "1"}]}',
            ["groups-in-an-object"],
            'device profile create t4 \'[{"resources:PGPU": "1"}]\'',
        ),
        (
            '{"name": "t4", "groups": []}',
            ["groups-in-an-object", "groups-missing"],
            "device profile create t4 GROUPS",
        ),
        ('{"resources:PGPU": "1"}', ["groups-not-a-list"], "in brackets"),
        ("[{'resources:PGPU': '1'}]", ["not-json"], '[{"resources:PGPU": "1"}]'),
        ("- resources:PGPU: '1'\n- {}", ["not-json", "nothing-asked"], "no JSON"),
        ('\'[{"resources:PGPU": "1"}]\'', ["quoted"], "quotes around"),
        ('[{"resource:PGPU": "1"}]', ["key-unknown"], "Write resources:PGPU"),
        (
            '[{"resources:PGPU": "1", "traits:CUSTOM_NVIDIA_T4": "required"}]',
            ["key-unknown"],
            "Write trait:CUSTOM_NVIDIA_T4",
        ),
        ('[{"resources:PGPU": "1", "resources:PGPU": "1"}]', ["key-twice"], "stands twice"),
        (
            '[{"resources:GPU": "1", "trait:CUSTOM_NVIDIA_T4": "required"}]',
            ["class-not-reported"],
            "Write resources:PGPU",
        ),
        (
            '[{"resources:GPU": "1", "trait:CUSTOM_GPU_T4": "required"}]',
            ["trait-not-reported", "class-not-reported"],
            "Write resources:PGPU",
        ),
        (
            '[{"resources:PGPU": "1", "trait:CUSTOM_GPU_NVIDIA": "forbidden"}]',
            ["traits-not-together"],
            "Each device has a trait that is forbidden",
        ),
        ('[{"resources:PGPU": "2"}]', ["too-many-of-one-device"], "Write 2 groups"),
        ('[{"resources:PGPU": 1}]', ["count-spelling"], '"resources:PGPU": "1"'),
        (
            '[{"resources:PGPU": "1", "trait:HW_GPU": "required"}]',
            ["trait-not-custom", "trait-not-reported"],
            "CUSTOM_",
        ),
        (
            '[{"resources:PGPU": "1", "trait:OWNER_CYBORG": "required"}]',
            ["trait-not-custom"],
            "Leave trait:OWNER_CYBORG out",
        ),
        ("resources:PGPU=1,trait:CUSTOM_NVIDIA_T4=required", [], ""),
    ],
)
def test_what_people_write_gets_an_answer(text, wanted, words, checked):
    code, answers = checked(text)
    jsonschema.validate(answers, SCHEMA)
    assert codes(answers[0]) == wanted
    assert words in json.dumps(answers, ensure_ascii=False).replace('\\"', '"')
    warnings_only = all(each["level"] == "warning" for each in answers[0]["problems"])
    assert (code == 0) == warnings_only == (answers[0]["verdict"] == "schedules")


def test_a_xilinx_trait_that_doubles_requests_is_warned_of(checked):
    text = '[{"resources:FPGA": "1", "trait:CUSTOM_FPGA_XILINX": "required"}]'
    code, (answer,) = checked(text, "--fake", "alveo-u250")
    assert (code, codes(answer)) == (0, ["requests-doubled"])


def test_a_file_standard_input_and_a_text_say_the_same(checked, tmp_path, monkeypatch):
    file = tmp_path / "groups.json"
    file.write_text(GOOD)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert checked(GOOD) == checked(file) == checked("-")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b"hello", "neither an object nor a list"),
        (b"{", "neither JSON"),
        (b"[" * 100000, "deep"),
        (b"- &a [x]\n- *a", "aliases"),
        (b"3", "it is 3"),
    ],
)
def test_nonsense_is_one_sentence(content, words, checked, tmp_path):
    file = tmp_path / "nonsense"
    file.write_bytes(content)
    code, said = checked(file)
    assert code == 2 and words in said and said.count("\n") == 1 and "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('groups: [{"resources:PGPU": "1", "resources:PGPU": "2"}]\nname: t4', "(line 1)"),
        ("name: t4\nname: t5\ngroups:\n- resources:PGPU: '1'\n", "'name' (line 2)"),
    ],
)
def test_a_key_that_stands_twice_in_yaml(text, said, checked, tmp_path):
    """YAML's own loaders keep the last one without a word."""
    file = tmp_path / "profile.yaml"
    file.write_text(text)
    _code, (answer,) = checked(file)
    (problem,) = [each for each in answer["problems"] if each["code"] == "key-twice"]
    assert said in problem["message"]


def test_groups_that_ask_for_the_same_are_compared_with_what_is_reported_once():
    looked = []

    class Counted(Inventory):
        @property
        def traits(self):
            looked.append(1)
            return super().traits

    group = {"resources:PGPU": "1", "trait:CUSTOM_B": "required"}
    found = Counted((offer("a", "1"),), "a")
    matching.match([group], found)
    once = len(looked)
    answer = matching.match([group] * 1000, found)
    assert len(looked) == 2 * once
    assert [each.problems[0].group for each in answer.groups] == list(range(1000))


def test_an_object_with_very_many_keys_is_read_at_once():
    text = json.dumps([{f"trait:CUSTOM_{n}": "required" for n in range(50_000)}])
    began = time.monotonic()
    reading.read(text, "the text")
    assert time.monotonic() - began < 10


def test_a_file_that_is_not_there(checked, tmp_path):
    code, said = checked(tmp_path / "nothing.json")
    assert code == 2 and "No such file" in said and "standard input" in said


@pytest.mark.parametrize("text", [GOOD, GOOD.replace("NVIDIA", "GPU"), "{'x': {'y': [1]}}"])
def test_a_table_has_120_columns_at_most(text, diagnose):
    _, out, _ = diagnose("profile", "check", text, "--fake", "two-t4")
    assert max(map(len, out.splitlines())) <= 120


def offer(host, address, traits="CUSTOM_A", units=1):
    return Offer(host, address, "Card", "GPU", "ACME", None, "PGPU", tuple(traits.split()), units)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_a_sentence(text):
    found = Inventory((offer("a", "1"),), "a")
    try:
        drafts = reading.read(text, "the text", is_argument=True)
    except reading.NoProfile as error:
        assert str(error).startswith("the text holds no device profile")
        return
    for draft in drafts:
        matching.match(draft.groups, found)


def test_groups_that_compete_for_a_card_are_told_apart():
    """One card has both traits: the group that needs it gets it, the other takes the next."""
    wide = {"resources:PGPU": "1", "trait:CUSTOM_A": "required"}
    narrow = {"resources:PGPU": "1", "trait:CUSTOM_B": "required"}
    found = Inventory((offer("a", "1", "CUSTOM_A CUSTOM_B"), offer("a", "2")), "a")
    assert matching.match([wide, narrow], found).hosts == ("a",)
    assert matching.match([narrow, narrow], found).hosts == ()
    twins = Inventory((offer("a", "1"), offer("a", "1")), "a")
    assert matching.match([wide, wide], twins).hosts == ("a",)
    spread = Inventory((offer("a", "1"), offer("b", "1")), "2 hosts")
    assert matching.match([wide, wide], spread).hosts == ()


def test_a_trait_that_is_forbidden_and_unknown_hides_nothing_else():
    group = {"resources:PGPU": "1", "trait:CUSTOM_B": "forbidden", "trait:CUSTOM_A": "required"}
    answer = matching.match([group], Inventory((offer("a", "1"),), "a"))
    assert answer.hosts == ("a",)
    assert [each.code for each in answer.groups[0].problems] == ["forbidden-not-reported"]
    answer = matching.match([{**group, "resources:PGPU": "2"}], Inventory((offer("a", "1"),), "a"))
    assert [each.code for each in answer.groups[0].problems] == [
        "forbidden-not-reported",
        "too-many-of-one-device",
    ]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_what_fits_into_cards_of_several_parts(units, counts):
    """The answer is that of trying everything."""

    def fits(left, wanted):
        return not wanted or any(
            fits([*left[:n], left[n] - wanted[0], *left[n + 1 :]], wanted[1:])
            for n in range(len(left))
            if left[n] >= wanted[0]
        )

    found = Inventory(tuple(offer("a", str(n), units=u) for n, u in enumerate(units)), "a")
    groups = [{"resources:PGPU": str(count)} for count in counts]
    assert bool(matching.match(groups, found).hosts) == fits(units, counts)


def test_text_that_a_terminal_would_obey_is_spelled_out(capsys):
    text = '[{"resources:PGPU": "1", "trait:CUSTOM_\\u001b[31m\\ud800": "required"}]'
    assert main(["profile", "check", "--fake", "two-t4", "-f", "csv", text]) == 1
    out, _err = capsys.readouterr()
    assert "x1b[31m" in out and "ud800: no host reports it" in out
    assert "\x1b" not in out
