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

"""Each fault is made in the real services, and named with its project; nothing else is."""

# The imports below stand after the check that they can succeed.
# ruff: noqa: E402

import json
import shlex
import socket
import urllib.request
import uuid

import pytest

for _name in ("cyborg", "placement", "openstack"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: cyborg-ext-drivers[stack,cloud]")

from cyborg.conf import CONF
from oslo_policy import opts

from cyborg_ext_drivers.cli import clouds
from cyborg_ext_drivers.cli.app import main
from cyborg_ext_drivers.cloud import chain
from cyborg_ext_drivers.cloud.asking import CloudUnusable
from tests.cloud.services import PROJECT

ANY_GPU = {"resources:PGPU": "1", "trait:CUSTOM_GPU_ACME": "required"}
ADDRESS = '{"bus": "3b", "device": "00", "domain": "0000", "function": "%d"}'


#: Those that only look, of python-cyborgclient, osc-placement and python-openstackclient.
COMMANDS = (
    "accelerator arq list",
    "accelerator deployable show",
    "accelerator device list",
    "accelerator device show",
    "accelerator device profile list",
    "accelerator device profile show",
    "allocation candidate list",
    "compute service list",
    "flavor show",
    "hypervisor list",
    "profile check",
    "resource class list",
    "resource provider inventory list",
    "resource provider list",
    "resource provider show",
    "resource provider trait list",
    "trait list",
)


def check(cloud, **options):
    """Return the chain, and see to it that nothing but GET was sent."""
    cloud.forget()
    checked = chain.check(cloud.open(), **options)
    assert cloud.methods() == {"GET"}
    return checked


def told(checked):
    assert [str(each) for each in checked.unknown] == []
    for finding in checked.findings:
        assert finding.evidence and finding.message and finding.commands
        for command in finding.commands:
            assert any(f" {each}" in command for each in COMMANDS), command
    return [(each.code.name, each.code.project) for each in checked.findings]


def provider(cloud):
    return cloud.stack.devices()[0].deployables[0].provider


def replace_traits(cloud, uuid_, *traits):
    path = f"/resource_providers/{uuid_}"
    generation = cloud.stack.placement("GET", path)["generation"]
    for trait in traits:
        if trait.startswith("CUSTOM_"):
            cloud.stack.placement("PUT", f"/traits/{trait}")
    body = {"resource_provider_generation": generation, "traits": list(traits)}
    cloud.stack.placement("PUT", f"{path}/traits", body)


def test_a_sound_cloud_has_no_findings(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    cloud.nova.flavors.append(
        {"id": "1", "name": "g1", "extra_specs": {"accel:device_profile": "gpu"}}
    )
    checked = check(cloud)
    assert told(checked) == []
    assert (checked.hosts, checked.devices, checked.profiles) == (1, 1, 1)
    assert told(check(cloud, profile="gpu", host="compute-1")) == []


def test_the_agent_never_reported(cloud):
    assert told(check(cloud)) == [("agent-never-reported", "Cyborg")]
    assert told(check(cloud, host="compute-1")) == [("agent-never-reported", "Cyborg")]


def test_a_host_without_accelerators_is_no_fault_until_it_is_asked_about(cloud):
    cloud.stack.report()
    cloud.nova.add_host("compute-2")
    assert told(check(cloud)) == []
    assert told(check(cloud, host="compute-2")) == [("agent-never-reported", "Cyborg")]


def test_the_hypervisor_has_another_name_and_nothing_was_reported(cloud):
    cloud.nova.hypervisors[0]["hypervisor_hostname"] = "compute-1.example.org"
    root = cloud.stack.placement("GET", "/resource_providers")["resource_providers"][0]
    path = f"/resource_providers/{root['uuid']}"
    cloud.stack.placement("PUT", path, {"name": "compute-1.example.org"})
    cloud.stack.report()
    assert told(check(cloud)) == [("provider-name-differs", "Cyborg")]
    (finding,) = check(cloud, host="compute-1").findings
    assert "compute-1.example.org" in finding.message


def test_the_hypervisor_got_another_name_after_the_report(cloud):
    cloud.stack.report()
    cloud.nova.hypervisors[0]["hypervisor_hostname"] = "compute-1.example.org"
    assert told(check(cloud)) == [("provider-name-differs", "Cyborg")]


def test_placement_lost_a_trait(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    replace_traits(cloud, provider(cloud), "OWNER_CYBORG", "CUSTOM_ACME_FAST")
    checked = check(cloud)
    assert told(checked) == [("trait-not-in-placement", "Placement")]
    assert "CUSTOM_GPU_ACME" in checked.findings[0].message


def test_the_provider_is_missing(cloud):
    cloud.stack.report()
    cloud.stack.placement("DELETE", f"/resource_providers/{provider(cloud)}")
    assert told(check(cloud)) == [("provider-missing", "Placement")]


def test_all_is_in_use(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    cloud.stack.bind("gpu")
    assert told(check(cloud, profile="gpu")) == [("inventory-used-up", "Placement")]
    checked = check(cloud)
    assert not checked.is_broken
    assert [str(each.severity) for each in checked.findings] == ["info"]


def test_the_inventory_is_reserved(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    path = f"/resource_providers/{provider(cloud)}/inventories/PGPU"
    inventory = cloud.stack.placement("GET", path)
    cloud.stack.placement("PUT", path, {**inventory, "reserved": 1})
    checked = check(cloud, profile="gpu")
    assert told(checked) == [("inventory-reserved", "Placement")]
    assert ("reserved", "1") in checked.findings[0].evidence


def test_the_inventory_is_missing(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    cloud.stack.placement("DELETE", f"/resource_providers/{provider(cloud)}/inventories/PGPU")
    checked = check(cloud, profile="gpu")
    assert told(checked) == [("inventory-missing", "Placement")]
    assert ("num_accelerators", "1") in checked.findings[0].evidence


def test_something_is_allocated_that_no_request_holds(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    body = {
        "allocations": {provider(cloud): {"resources": {"PGPU": 1}}},
        "project_id": PROJECT,
        "user_id": PROJECT,
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    cloud.stack.placement("PUT", f"/allocations/{uuid.uuid4()}", body)
    assert told(check(cloud, profile="gpu")) == [("allocated-without-request", "Placement")]
    # A request that is about to be bound may be what it is for.
    arq = {"uuid": PROJECT, "state": "Initial", "device_profile_name": "gpu"}
    text = json.dumps({"arqs": [arq]})
    cloud.cyborg.instead["/v2/accelerator_requests"] = ("200 OK", "application/json", text)
    assert told(check(cloud, profile="gpu")) == [("inventory-used-up", "Placement")]


def test_the_device_is_disabled(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    (device,) = cloud.stack.devices()
    request = urllib.request.Request(
        f"{cloud.cyborg.url}/v2/devices/{device.uuid}/disable", b"", method="POST"
    )
    urllib.request.urlopen(request)
    assert told(check(cloud)) == [("device-maintaining", "Cyborg")]


@pytest.mark.parametrize(
    "group, code, hint",
    [
        ({"trait:CUSTOM_GPU_ACMEE": "required"}, "profile-trait-nowhere", "CUSTOM_GPU_ACME"),
        ({"resources:CUSTOM_GPU": "1"}, "profile-class-nowhere", "PGPU"),
        ({"resources:PGPU": "2"}, "profile-group-nowhere", "group 0"),
    ],
)
def test_a_profile_asks_for_what_nobody_has(cloud, group, code, hint):
    cloud.stack.report()
    wrong = group if "resources:CUSTOM_GPU" in group else {**ANY_GPU, **group}
    cloud.stack.create_profile("wrong", [wrong])
    checked = check(cloud)
    assert told(checked) == [(code, "the profile")]
    assert hint in checked.findings[0].message


@pytest.mark.parametrize(
    "group, said",
    [
        ({**ANY_GPU, "resources:PGPU": "0"}, "0 of PGPU is less than one"),
        ({"trait:CUSTOM_GPU_ACME": "required"}, "asks for no resource"),
        ({**ANY_GPU, "resources:VGPU": "1"}, "one resource class"),
        ({**ANY_GPU, "trait:CUSTOM_acme": "required"}, "Placement"),
    ],
)
def test_a_profile_that_cyborg_keeps_and_cannot_serve(cloud, group, said):
    """In the words of profile check, and nothing of it is asked of Placement."""
    cloud.stack.report()
    cloud.stack.create_profile("wrong", [group])
    checked = check(cloud)
    assert told(checked) == [("profile-unusable", "the profile")]
    assert said in checked.findings[0].message


def test_several_groups_and_no_host_has_enough(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("two", [ANY_GPU, ANY_GPU])
    assert told(check(cloud)) == [("profile-groups-not-on-one-host", "the profile")]


def test_a_profile_that_does_not_exist(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    checked = check(cloud, profile="gpus")
    assert told(checked) == [("profile-unknown", "the profile")]
    assert "the nearest is gpu" in checked.findings[0].message


def test_a_flavor_names_a_profile_that_does_not_exist(cloud):
    cloud.stack.report()
    cloud.nova.flavors.append(
        {"id": "1", "name": "g1", "extra_specs": {"accel:device_profile": "gone"}}
    )
    assert told(check(cloud)) == [("flavor-profile-unknown", "the flavor")]


@pytest.mark.parametrize("named", ["gpu,gpu-2", " gpu"])
def test_a_flavor_has_one_profile_and_nova_takes_it_word_for_word(cloud, named):
    cloud.stack.report()
    for name in ("gpu", "gpu-2"):
        cloud.stack.create_profile(name, [ANY_GPU])
    cloud.nova.flavors.append(
        {"id": "1", "name": "g1", "extra_specs": {"accel:device_profile": named}}
    )
    checked = check(cloud)
    assert told(checked) == [("flavor-profile-unknown", "the flavor")]
    assert "a flavor has one" in checked.findings[0].message


@pytest.mark.parametrize("trait", ["COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"])
def test_the_same_card_is_novas_pci_device(cloud, trait):
    cloud.stack.report()
    root = cloud.stack.placement("GET", f"/resource_providers/{provider(cloud)}")
    other = str(uuid.uuid4())
    cloud.stack.placement(
        "POST",
        "/resource_providers",
        {
            "name": "compute-1.example.org_0000:3B:00.0",
            "uuid": other,
            "parent_provider_uuid": root["root_provider_uuid"],
        },
    )
    replace_traits(cloud, other, trait)
    checked = check(cloud)
    assert told(checked) == [("owner-conflict", "Nova")]
    assert trait in [each.path for each in checked.findings[0].evidence]
    assert "0000:3b:00.0" in checked.findings[0].message


def test_both_owners_on_one_provider(cloud):
    cloud.stack.report()
    replace_traits(
        cloud, provider(cloud), "OWNER_NOVA", "OWNER_CYBORG", "CUSTOM_GPU_ACME", "CUSTOM_ACME_FAST"
    )
    assert told(check(cloud)) == [("owner-conflict", "Nova")]


def test_a_provider_of_a_host_that_is_gone(cloud):
    cloud.stack.report()
    root, child = str(uuid.uuid4()), str(uuid.uuid4())
    cloud.stack.placement("POST", "/resource_providers", {"name": "compute-0", "uuid": root})
    cloud.stack.placement(
        "POST",
        "/resource_providers",
        {"name": "compute-0_0000:3b:00.0", "uuid": child, "parent_provider_uuid": root},
    )
    replace_traits(cloud, child, "OWNER_CYBORG")
    checked = check(cloud)
    assert told(checked) == [("provider-left-behind", "Placement")]
    assert "neither hypervisor nor nova-compute of compute-0" in checked.findings[0].message


def test_a_host_with_devices_that_nova_has_forgotten(cloud):
    cloud.stack.report()
    cloud.nova.hypervisors.clear()
    cloud.nova.services.clear()
    assert told(check(cloud)) == [("provider-left-behind", "Placement")]


def test_a_host_whose_nova_compute_is_up_is_not_gone(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    cloud.nova.hypervisors.clear()
    for host in (None, "compute-1"):
        assert told(check(cloud, host=host)) == [("hypervisor-missing", "Nova")]
    cloud.nova.services[0]["state"] = "down"
    assert told(check(cloud)) == [("compute-service-down", "Nova")]


@pytest.mark.parametrize("part", ["/os-services", "/os-hypervisors/detail"])
def test_a_host_is_not_gone_where_nova_tells_half(cloud, part):
    cloud.stack.report()
    cloud.nova.hypervisors.clear()
    cloud.nova.services.clear()
    cloud.compute.instead[part] = ("403 Forbidden", "text/plain", "")
    assert check(cloud).findings == ()


def test_a_cyborg_without_any_deployable_is_told_once(cloud):
    """Whatever Placement has is not called left behind: it was Cyborg that lost it."""
    cloud.stack.report()
    cloud.cyborg.instead["/v2/deployables"] = ("200 OK", "application/json", '{"deployables": []}')
    cloud.cyborg.instead["/v2/devices"] = ("200 OK", "application/json", '{"devices": []}')
    assert told(check(cloud)) == [("agent-never-reported", "Cyborg")]


@pytest.mark.parametrize("asked", [None, "compute-1", "renamed"])
def test_the_root_provider_was_renamed(cloud, asked):
    cloud.stack.report()
    root = cloud.stack.placement("GET", f"/resource_providers/{provider(cloud)}")
    path = f"/resource_providers/{root['root_provider_uuid']}"
    cloud.stack.placement("PUT", path, {"name": "renamed"})
    assert told(check(cloud, host=asked)) == [("provider-name-differs", "Cyborg")]


@pytest.mark.parametrize("asked", [None, "compute-1", "nova-1"])
def test_nova_calls_the_host_by_another_name_than_its_hypervisor(cloud, asked):
    """The provider has the hypervisor's name, as it should; nova-compute has one of its own."""
    cloud.stack.report()
    cloud.nova.services[0]["host"] = cloud.nova.hypervisors[0]["service"]["host"] = "nova-1"
    assert told(check(cloud, host=asked)) == []
    cloud.nova.services[0]["state"] = "down"
    assert told(check(cloud, host=asked)) == [("compute-service-down", "Nova")]


@pytest.mark.parametrize(
    "state, code",
    [
        ({"state": "down"}, "compute-service-down"),
        ({"status": "disabled"}, "compute-service-disabled"),
    ],
)
def test_nova_compute_does_not_serve(cloud, state, code):
    cloud.stack.report()
    cloud.nova.services[0].update(state)
    assert told(check(cloud)) == [(code, "Nova")]


class TestHalfAnswers:
    """A part that is not answered is unknown, named, and the rest is told."""

    @pytest.mark.parametrize(
        "answer, said",
        [
            (("200 OK", "text/html", "<html>"), "no JSON object"),
            (("200 OK", "application/json", "{}"), "no list 'hypervisors'"),
            (("200 OK", "application/json", '{"hypervisors": 5}'), "no list 'hypervisors'"),
            (("406 Not Acceptable", "application/json", "{}"), "microversion 2.61"),
            (
                ("403 Forbidden", "application/json", '{"forbidden": {"message": "no way"}}'),
                "policy does not allow this to these credentials (an administrator's are needed)"
                ": no way",
            ),
            (("500 Oh", "text/plain", "trouble"), "HTTP 500"),
        ],
    )
    def test_novas_hypervisors(self, cloud, answer, said):
        cloud.stack.report()
        cloud.stack.create_profile("wrong", [{**ANY_GPU, "trait:CUSTOM_NO": "required"}])
        cloud.compute.instead["/os-hypervisors/detail"] = answer
        checked = check(cloud)
        (unknown,) = checked.unknown
        assert (unknown.part, unknown.service) == ("hypervisors", "Nova")
        assert "GET /os-hypervisors/detail" in unknown.request and said in unknown.reason
        assert [each.code.name for each in checked.findings] == ["profile-trait-nowhere"]

    @pytest.mark.parametrize("path", ["devices", "deployables", "device_profiles"])
    def test_rows_of_nonsense(self, cloud, path):
        cloud.stack.report()
        cloud.cyborg.instead[f"/v2/{path}"] = (
            "200 OK",
            "application/json",
            f'{{"{path}": [5, null, {{}}, {{"uuid": 5, "groups": 7, "attributes_list": "["}}]}}',
        )
        check(cloud)

    def test_pages_without_end(self, cloud):
        cloud.stack.report()
        cloud.compute.instead["/flavors/detail"] = (
            "200 OK",
            "application/json",
            '{"flavors": [{"id": "1", "name": "g1"}], "flavors_links": [1]}',
        )
        (unknown,) = check(cloud).unknown
        assert "do not come to an end" in unknown.reason

    def test_cyborgs_policy(self, cloud):
        cloud.stack.report()
        rules = ("device", "deployable", "device_profile", "arq")
        policy = cloud.stack.directory / "policy.yaml"
        policy.write_text("".join(f'"cyborg:{each}:get_all": "!"\n' for each in rules))
        opts.set_defaults(CONF)
        CONF.set_override("policy_file", str(policy), group="oslo_policy")
        checked = check(cloud)
        assert {each.service for each in checked.unknown} == {"Cyborg"}
        assert all("HTTP 403" in each.reason for each in checked.unknown)
        assert checked.findings == ()

    def test_nobody_listens(self, cloud):
        cloud.file.write_text(
            "clouds:\n  small:\n    auth_type: none\n"
            "    accelerator_endpoint_override: http://127.0.0.1:1\n"
            "    placement_endpoint_override: http://127.0.0.1:1\n"
            "    compute_endpoint_override: http://127.0.0.1:1\n"
        )
        with pytest.raises(CloudUnusable, match="No service of the cloud answers") as caught:
            chain.check(cloud.open())
        said = str(caught.value)
        assert "nothing answers at http://127.0.0.1:1 (Connection refused); see that" in said
        assert len(said) < 180 and "Pool" not in said

    def test_a_service_that_speaks_no_tls(self, cloud):
        cloud.stack.report()
        text = cloud.file.read_text()
        cloud.file.write_text(text.replace(cloud.compute.url, "https" + cloud.compute.url[4:]))
        checked = check(cloud)
        assert checked.findings == () and {each.service for each in checked.unknown} == {"Nova"}
        said = f"no TLS with https{cloud.compute.url[4:]} ("
        assert all(each.reason.startswith(said) for each in checked.unknown)


class TestTextFromOutside:
    """What the services tell is text that a terminal and a shell must not obey."""

    def test_a_flavor_with_the_name_of_a_command(self, cloud, capsys):
        cloud.stack.report()
        name = "g1; rm -rf $HOME 'x'" + " long" * 30
        specs = {"accel:device_profile": "gone"}
        cloud.nova.flavors.append({"id": "1", "name": name, "extra_specs": specs})
        (finding,) = check(cloud).findings
        words = shlex.split(finding.commands[0])
        assert words == ["openstack", "flavor", "show", name, "-c", "properties"]
        lines = clouds.command_lines(finding.commands[0])
        assert shlex.split("\n".join(lines).replace("\\\n", ""))[1:] == words

    def test_a_flavor_that_colours_the_terminal(self, cloud, capsys):
        cloud.stack.report()
        specs = {"accel:device_profile": "gone"}
        cloud.nova.flavors.append({"id": "1", "name": "red\x1b[31m", "extra_specs": specs})
        assert main(["cloud", "check"]) == 1
        out, _err = capsys.readouterr()
        assert "red\\x1b[31m" in out and "\x1b" not in out


@pytest.mark.parametrize(
    "path, key",
    [
        ("/v2/devices", "devices"),
        ("/v2/deployables", "deployables"),
        ("/v2/device_profiles", "device_profiles"),
        ("/v2/accelerator_requests", "arqs"),
        ("/os-services", "services"),
        ("/os-hypervisors/detail", "hypervisors"),
        ("/flavors/detail", "flavors"),
    ],
)
@pytest.mark.parametrize("row", ["{}", "null", "[]", '{"uuid": {}, "name": [], "host": 5}'])
def test_half_an_answer_is_unknown(cloud, path, key, row):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    service = cloud.cyborg if path.startswith("/v2") else cloud.compute
    service.instead[path] = ("200 OK", "application/json", f'{{"{key}": [{row}]}}')
    checked = check(cloud)
    assert checked.findings == ()
    (unknown,) = checked.unknown
    assert f"something in the list '{key}'" in unknown.reason


def test_an_answer_that_is_nested_too_deep(cloud):
    cloud.stack.report()
    cloud.compute.instead["/os-services"] = ("200 OK", "application/json", "[" * 200_000)
    (unknown,) = check(cloud).unknown
    assert "no JSON object" in unknown.reason


def test_a_profile_forbids_a_trait_that_placement_does_not_know(cloud):
    """Placement answers the scheduler's query with HTTP 400."""
    cloud.stack.report()
    cloud.stack.create_profile("picky", [{**ANY_GPU, "trait:CUSTOM_NEVER": "forbidden"}])
    checked = check(cloud)
    assert told(checked) == [("profile-trait-nowhere", "the profile")]
    assert "forbids CUSTOM_NEVER" in checked.findings[0].message


def test_a_service_that_is_silent_where_no_timeout_is_configured(cloud, monkeypatch):
    cloud.stack.report()
    monkeypatch.setattr("cyborg_ext_drivers.cloud.asking.SILENT_SECONDS", 3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = cloud.file.read_text().replace("    api_timeout: 20\n", "")
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        cloud.file.write_text(text.replace(cloud.compute.url, url))
        checked = chain.check(cloud.open())
    assert checked.findings == ()
    assert {each.service for each in checked.unknown} == {"Nova"}
