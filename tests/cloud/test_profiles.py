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

"""Device profiles, suggested and checked against all hosts of a cloud."""

# The imports below stand after the check that they can succeed.
# ruff: noqa: E402

import json

import pytest

for _name in ("cyborg", "placement", "openstack"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: cyborg-ext-drivers[stack,cloud]")

from cyborg.conf import CONF

from cyborg_ext_drivers.cloud import offers
from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.demo import find_drivers
from cyborg_ext_drivers.testing.stack import Stack
from tests.cloud.services import Nova, SmallCloud
from tests.cloud.test_chain import provider, replace_traits
from tests.cloud.test_growth import ManyCards
from tests.stack.one_card import ADDRESS, VIRTUAL, OneCard

FAST = {"resources:PGPU": "1", "trait:CUSTOM_ACME_FAST": "required"}
GUIDE = {"resources:PGPU": "1", "trait:CUSTOM_GPU_T4": "required"}
PART = {"resources:VGPU": "1", "trait:CUSTOM_GPU_ACME": "required"}


@pytest.fixture
def checked(cloud, diagnose):
    """Return the exit code and what is said of the one profile, or what went wrong."""

    def run(profile, *argv):
        cloud.forget()
        code, out, err = diagnose("profile", "check", profile, "--cloud", "-f", "json", *argv)
        assert cloud.methods() <= {"GET"}
        return code, json.loads(out)[0] if out else err

    return run


def codes(answer):
    return [each["code"] for each in answer["problems"]]


@pytest.mark.parametrize("name", ["cards-of-four-makers", "hgx-a100", "n6001"])
def test_the_cloud_and_its_only_host_are_suggested_the_same(name, diagnose):
    """Cyborg's API tells no model: that of an A100 looks like a product id."""

    def suggested(*argv):
        code, out, _err = diagnose("profile", "suggest", "-f", "json", *argv)
        assert code == 0
        return [{**each, "hosts": len(each["hosts"])} for each in json.loads(out)]

    with FakeHost.named(name) as fake:
        options = {"ext_drivers": {"host_root": str(fake.root)}}
        with Stack(drivers=find_drivers(()), options=options) as stack:
            with SmallCloud(stack, Nova("compute-1")) as cloud:
                stack.report()
                cloud.forget()
                for how in ("model", "vendor"):
                    of_cloud = suggested("--cloud", "--any", how)
                    assert of_cloud == suggested("--host-root", fake.root, "--any", how)
                assert cloud.methods() == {"GET"}
                (first, *_) = of_cloud
                stack.bind(first["groups"])
                (then, *_) = suggested("--cloud", "--any", how)
                assert then["accelerators"] == first["accelerators"] - 1
                assert then["devices"] == first["devices"]


def test_the_next_command_asks_the_same_cloud(cloud, diagnose):
    _code, out, _err = diagnose("profile", "suggest", "--os-cloud", "small")
    assert "Next: cyborg-ext-diagnose cloud check --os-cloud small" in out
    cloud.stack.report()
    code, out, _err = diagnose("profile", "suggest", "--os-cloud", "small")
    assert (code, "CUSTOM_ACME_FAST" in out) == (0, True)
    assert "Next: cyborg-ext-diagnose profile suggest --commands --os-cloud small" in out
    assert diagnose("profile", "suggest", "--cloud")[1].endswith("--commands --cloud\n")


def test_a_profile_of_the_cloud_by_name(cloud, checked, diagnose, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cloud.stack.report()
    cloud.stack.create_profile("fast", [FAST])
    (tmp_path / "fast").mkdir()
    code, answer = checked("fast")
    assert (code, answer["name"], answer["hosts"]) == (0, "fast", ["compute-1"])
    code, out, _err = diagnose("profile", "check", "fast", "--cloud")
    assert (code, "1 of 1 profile schedules on the hosts of the cloud." in out) == (0, True)
    code, said = checked("fats")
    assert (code, "no device profile 'fats'; the nearest is fast" in said) == (2, True)
    code, _out, said = diagnose("profile", "check", "fast-one", "--fake", "two-t4")
    assert (code, "with --cloud the name of a device profile" in said) == (2, True)
    # A file comes first.
    (tmp_path / "fats").write_text(json.dumps([GUIDE]))
    assert codes(checked("fats")[1]) == ["trait-not-reported"]


def test_the_nearest_trait_over_all_hosts(diagnose):
    card = ManyCards(3)
    card.traits = ("OWNER_CYBORG", "CUSTOM_GPU_NVIDIA", "CUSTOM_NVIDIA_1EB8", "CUSTOM_NVIDIA_T4")
    with Stack(driver_objects=[card]) as stack, SmallCloud(stack, Nova("compute-1")) as cloud:
        stack.report()
        for name in ("compute-2", "compute-3", "compute-4"):
            add_host(stack, name)
        cloud.forget()
        asked = ("profile", "check", json.dumps([GUIDE]), "--cloud", "-f", "json")
        code, out, _err = diagnose(*asked)
        assert cloud.methods() == {"GET"}
    (problem,) = json.loads(out)[0]["problems"]
    said = "no host reports it; CUSTOM_NVIDIA_T4 is reported by 12 devices on 4 hosts"
    assert (code, problem["message"]) == (1, f"CUSTOM_GPU_T4: {said}")
    assert problem["remedy"].startswith("Write trait:CUSTOM_NVIDIA_T4 in its place")


def add_host(stack, name):
    """Let the agent be that of another host, and report."""
    CONF.set_override("host", name)
    if "resource_provider_name" in CONF.agent:
        CONF.set_override("resource_provider_name", name, group="agent")
    stack.placement("POST", "/resource_providers", {"name": name})
    stack.host = name
    stack.new_tracker()
    stack.report()


def test_the_traits_are_those_that_placement_has(cloud, checked):
    cloud.stack.report()
    replace_traits(cloud, provider(cloud), "OWNER_CYBORG", "CUSTOM_GPU_ACME", "CUSTOM_RACK_7")
    assert codes(checked(json.dumps([FAST]))[1]) == ["trait-not-reported"]
    # Somebody's own, of which Cyborg knows nothing.
    assert checked('[{"resources:PGPU": "1", "trait:CUSTOM_RACK_7": "required"}]')[0] == 0


def test_only_what_is_free_can_be_asked_for(diagnose):
    three = (ADDRESS, VIRTUAL, VIRTUAL.replace('"1"', '"2"'))
    traits = ("OWNER_CYBORG", "CUSTOM_GPU_ACME", "CUSTOM_ACME_FAST")
    card = OneCard(handles=three, resource_class="VGPU", traits=traits)
    two = json.dumps([{**PART, "resources:VGPU": "2"}])

    def said(profile):
        _code, out, _err = diagnose("profile", "check", profile, "--cloud", "-f", "json")
        (answer,) = json.loads(out)
        return answer["verdict"], codes(answer), answer["groups"][0]["accelerators"]

    with Stack(driver_objects=[card]) as stack, SmallCloud(stack, Nova("compute-1")) as cloud:
        stack.report()
        assert said(two) == ("schedules", [], 3)
        stack.bind([PART, PART])
        assert said(json.dumps([PART])) == ("schedules", [], 1)
        assert said(two) == ("unsatisfied", ["too-many-of-one-device"], 0)
        stack.bind([PART])
        assert said(json.dumps([PART])) == ("unsatisfied", ["none-free"], 0)
        asked = cloud.open()
        (offer,) = offers.offers(asked)
        # Two lists each of Cyborg and Placement, three traits; who has 3 free, who has 1.  Before
        # 17 Cyborg is asked twice for its microversion.
        assert offer.units == 0
        assert asked.requests - (4 + 3 + 2) in (0, 1)


def test_a_cloud_that_does_not_say_enough(cloud, checked, diagnose):
    cloud.stack.report()
    cloud.cyborg.instead["/v2/devices"] = ("403 Forbidden", "text/plain", "")
    code, said = checked(json.dumps([FAST]))
    assert (code, "GET /devices: HTTP 403" in said, len(said.splitlines())) == (2, True, 1)
    code, out, said = diagnose("profile", "suggest", "--os-cloud", "nowhere")
    assert (code, out, "No cloud can be asked" in said) == (2, "", True)
    code, out, said = diagnose("profile", "suggest", "--cloud", "--fake", "two-t4")
    assert (code, out, "leave out --fake" in said) == (2, "", True)
