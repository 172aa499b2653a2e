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

"""The rules are those of Cyborg's API, in both directions."""

import copy

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("cyborg", reason="Cyborg is not installed")

from cyborg import objects

from cyborg_ext_drivers.profiles import rules
from cyborg_ext_drivers.profiles.rules import Level
from cyborg_ext_drivers.testing._cyborg import check_profile

TEXTS = st.text(max_size=8)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(),
    st.sampled_from(["1", "2", "0", "-1", " 1 ", "1.5", "1_0", "one", "", "required", "forbidden"]),
    TEXTS,
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(TEXTS, SCALARS))
NAMES = st.one_of(
    st.sampled_from(["CUSTOM_NVIDIA_T4", " CUSTOM_X ", "HW_CPU", "CUSTOM_a", "CUSTOM_A:B", ""]),
    st.sampled_from(["PGPU", "GPU", "VGPU", "FPGA", "VCPU", "CUSTOM_QAT", "CUSTOM_FPGA_XILINX"]),
    TEXTS,
)
PREFIXES = st.sampled_from(
    [
        "resources:",
        "trait:",
        "accel:",
        "resource:",
        "traits:",
        "resources1:",
        "Trait:",
        "",
        " trait:",
    ]
)
KEYS = st.builds("{}{}".format, PREFIXES, NAMES)
GOOD = st.fixed_dictionaries(
    {"resources:PGPU": st.sampled_from(["1", 1])},
    optional={"trait:CUSTOM_NVIDIA_T4": st.sampled_from(["required", "forbidden"])},
)
GROUP = st.one_of(GOOD, st.dictionaries(KEYS, VALUES, max_size=3), VALUES)
PROFILES = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.sampled_from(["t4", "a_b-C", "a b", "t4\n", "é"]), VALUES),
        "groups": st.one_of(st.lists(GROUP, max_size=3), GROUP),
        "description": VALUES,
    },
)


def api_takes(profile):
    """Return whether Cyborg's API would, any exception being an error for whoever asks."""
    fields = copy.deepcopy(profile)
    try:
        check_profile(fields)
        objects.DeviceProfile(None, **fields)
    except Exception:
        return False
    return True


@settings(max_examples=600)
@given(PROFILES)
@example({"name": "t4\n", "groups": [{"resources:PGPU": "1"}]})
@example({"name": "t4", "groups": ["resources:PGPU"]})
@example({"name": "t4", "groups": {"resources:PGPU": "1"}})
@example({"name": "t4", "groups": [{}]})
@example({"name": "t4", "groups": ""})
@example({"name": "t4", "groups": [{"accel:bitstream_id": ["a"]}]})
@example({"name": "t4", "groups": [{"resources:PGPU": float("inf")}]})
def test_what_the_api_refuses_breaks_a_rule_and_nothing_else_does(profile):
    objects.register_all()
    refused = [each for each in rules.problems(profile) if each.level is Level.REFUSED]
    assert api_takes(profile) == (not refused), refused


@pytest.mark.parametrize("value", [None, 3, "text", [], [1]])
def test_what_is_no_object_is_refused(value):
    assert [each.code for each in rules.problems(value)] == ["profile-not-an-object"]


@given(st.lists(GROUP, max_size=4))
def test_each_problem_says_what_to_do(groups):
    for problem in rules.of_groups(groups):
        assert problem.message and problem.remedy and problem.code == problem.code.lower()
        assert len(problem.message) < 400


@pytest.mark.parametrize("given", ["x", 5, [], {}])
def test_a_uuid_that_is_none(given):
    """Cyborg keeps it, and from then on answers HTTP 400 to whoever lists the profiles."""
    profile = {"name": "t4", "groups": [{"resources:PGPU": "1"}], "uuid": given}
    (problem,) = rules.problems(profile)
    assert (problem.code, problem.level) == ("uuid-invalid", Level.REFUSED)
    assert not rules.problems({**profile, "uuid": "00000000-0000-4000-8000-00000000a11c"})
