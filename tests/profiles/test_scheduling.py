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

"""What is suggested is bound: the real API's checks, the real conductor, the real Placement."""

import json

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg_ext_drivers.testing import FakeHost, described_hosts, load
from cyborg_ext_drivers.testing.demo import find_drivers
from cyborg_ext_drivers.testing.stack import NoValidHost, PlacementRefused, Stack

T4 = "CUSTOM_NVIDIA_T4"


def stack_on(fake):
    options = {"ext_drivers": {"host_root": str(fake.root)}}
    return Stack(drivers=find_drivers(()), options=options)


@pytest.mark.parametrize(
    "name", [name for name in described_hosts() if load(name).expected.reported]
)
def test_what_is_suggested_on_a_described_host_is_bound(name, suggested):
    with FakeHost.named(name) as fake:
        root = ("--host-root", fake.root)
        models, vendors = suggested(*root), suggested("--any", "vendor", *root)
        of_two = [each for each in suggested("--count", 2, *root) if each["accelerators"] > 1]
        with stack_on(fake) as stack:
            stack.report()
            for profile in models + vendors + of_two:
                bound = stack.bind(stack.create_profile(profile["name"], profile["groups"]))
                assert [each.state for each in bound] == ["Bound"] * len(profile["groups"])
                stack.unbind(bound)
            # Every unit that Placement has is in one of the profiles of models.
            units = sum(sum(each.inventories.values()) for each in stack.providers())
            assert sum(each["accelerators"] for each in models) == units


@pytest.mark.parametrize(
    ("group", "is_good"),
    [
        ({"resources:PGPU": "1", f"trait:{T4}": "required"}, True),
        ({"resources:PGPU": 1, f"trait:{T4}": "required"}, True),
        ({"resources:PGPU": "2", f"trait:{T4}": "required"}, False),
        ({"resources:PGPU": "1", f"trait:{T4}": "forbidden"}, False),
        ({"resources:VGPU": "1", f"trait:{T4}": "required"}, False),
        ({"resources:PGPU": "0"}, False),
        ({"resources:PGPU": True}, False),
        ({"resources:PGPU": "1", "resources:FPGA": "1"}, False),
        ({"resources:PGPU": "1", "trait:CUSTOM_GPU_T4": "required"}, False),
        ({f"trait:{T4}": "required"}, False),
        ({"resources:PGPU": "1", "trait:CUSTOM_lower": "required"}, False),
    ],
    ids=str,
)
def test_check_and_the_services_agree(group, is_good, checked):
    """Both directions: what check calls good is bound, and what it calls bad is not."""
    code, _ = checked(json.dumps([group]))
    assert code == (0 if is_good else 1)
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        try:
            bound = stack.bind([group])
        except Exception as error:
            assert not is_good, error
        else:
            assert is_good == ([each.state for each in bound] == ["Bound"])


def test_check_knows_that_two_groups_need_two_cards(checked):
    group = {"resources:PGPU": "1", f"trait:{T4}": "required"}
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        assert len(stack.bind([group, group])) == 2
        assert checked(json.dumps([group] * 2))[0] == 0
        code, (answer,) = checked(json.dumps([group] * 3))
        assert code == 1
        assert [each["code"] for each in answer["problems"]] == ["not-on-one-host"]
        with pytest.raises(NoValidHost):
            stack.bind([group] * 3)


def test_forbidding_what_placement_has_never_heard_of(checked):
    """A host cannot tell which traits Placement knows, so check warns and says how to be sure."""
    group = {"resources:PGPU": "1", "trait:CUSTOM_NEVER_REPORTED": "forbidden"}
    code, (answer,) = checked(json.dumps([group]))
    (problem,) = answer["problems"]
    assert (code, problem["code"]) == (0, "forbidden-not-reported")
    assert "openstack trait create CUSTOM_NEVER_REPORTED" in problem["remedy"]
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        with pytest.raises(PlacementRefused):
            stack.bind([group])
        stack.placement("PUT", "/traits/CUSTOM_NEVER_REPORTED")
        assert [each.state for each in stack.bind([group])] == ["Bound"]


def test_the_type_of_a_vgpu_is_what_is_suggested_and_bound(suggested, monkeypatch):
    from tests.stack.test_vgpu import ON_T4, Agent, AgentAPI, stack_on, vgpu

    options = vgpu("nvidia-223", "0000:3b:00.0")
    lines = [
        line
        for group, values in options.items()
        for line in (f"[{group}]", *(f"{key} = {','.join(each)}" for key, each in values.items()))
    ]
    with FakeHost.named(ON_T4) as fake, stack_on(fake, options) as stack:
        fake.write_file("/etc/cyborg/cyborg.conf", "\n".join(lines))
        (profile,) = suggested("--count", 2, "--host-root", fake.root)
        agent = Agent(fake)
        monkeypatch.setattr(AgentAPI, "create_vgpu_mdev", lambda *given: agent.create(*given))
        stack.report()
        bound = stack.bind(stack.create_profile(profile["name"], profile["groups"]))
        assert [(each.state, each.type) for each in bound] == [("Bound", "MDEV")] * 2
    assert profile["name"] == "nvidia-1eb8-t4-2b-x2"
    assert profile["accelerators"] == 8
