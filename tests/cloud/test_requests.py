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

"""Accelerator requests that hold a device for nobody, made in the real Cyborg."""

# The imports below stand after the check that they can succeed.
# ruff: noqa: E402

import datetime
import json
import urllib.error
import urllib.request

import pytest

for _name in ("cyborg", "placement", "openstack"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: cyborg-ext-drivers[stack,cloud]")

from cyborg import context as cyborg_context
from cyborg import objects

from cyborg_ext_drivers.cloud import requests
from cyborg_ext_drivers.cloud.asking import CloudUnusable

PROVIDER = "00000000-0000-4000-8000-00000000a11c"
ANY_GPU = {"resources:PGPU": "1", "trait:CUSTOM_GPU_ACME": "required"}


def look(cloud, sleep=lambda _seconds: None, later=0):
    cloud.forget()
    now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=later)
    looked = requests.look(cloud.open(), 10, sleep, lambda: now)
    assert cloud.methods() <= {"GET"}
    return looked


def verdicts(looked):
    return [each.verdict for each in looked.leftovers]


@pytest.fixture
def bound(cloud):
    """Return an instance's request, bound as Nova has it bound."""
    cloud.stack.report()
    (handle,) = cloud.stack.bind([ANY_GPU])
    cloud.nova.servers[handle.instance] = True
    return handle


def test_a_live_one_is_no_leftover(cloud, bound):
    looked = look(cloud)
    assert (looked.leftovers, looked.total, looked.unknown) == ((), 1, ())


def test_the_instance_is_gone(cloud, bound):
    del cloud.nova.servers[bound.instance]
    (orphan,) = look(cloud, later=7200).leftovers
    assert (orphan.verdict, orphan.age // 3600, orphan.host) == ("orphan", 2, "compute-1")
    assert orphan.device == "compute-1_0000:3b:00.0"
    assert orphan.command == f"openstack accelerator arq delete {bound.request}"
    # What the remark on service tokens rests on.
    request = urllib.request.Request(
        f"{cloud.cyborg.url}/v2/accelerator_requests?arqs={bound.request}", method="DELETE"
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)


@pytest.mark.parametrize(
    "path, status",
    [
        ("/servers", "403 Forbidden"),
        ("/servers", "404 Not Found"),
        ("/servers", "500 Oh"),
        ("/servers", "200 OK"),
        ("/servers/{}", "403 Forbidden"),
        ("/servers/{}", "404 Not Found"),
        ("/servers/{}", "500 Oh"),
    ],
)
def test_when_nova_cannot_be_asked_nothing_is_an_orphan(cloud, bound, path, status):
    cloud.nova.servers.clear()
    cloud.compute.instead[path.format(bound.instance)] = (status, "text/html", "<html>")
    looked = look(cloud)
    assert verdicts(looked) == ["unknown"]
    assert [each.service for each in looked.unknown] == ["Nova"]


def test_a_gateway_that_knows_no_such_route_says_nothing_of_an_instance(cloud, bound):
    cloud.nova.servers.clear()
    text = '{"message": "no Route matched with those values"}'
    answer = ("404 Not Found", "application/json", text)
    cloud.compute.instead[f"/servers/{bound.instance}"] = answer
    assert verdicts(look(cloud)) == ["unknown"]


def test_an_instance_that_is_missing_from_the_list_alone_lives(cloud, bound):
    """Nova leaves out what is in a cell that is down, and what came since the first page."""
    cloud.compute.instead["/servers"] = ("200 OK", "application/json", '{"servers": []}')
    assert look(cloud).leftovers == ()


def test_a_request_in_a_passing_state(cloud):
    cloud.stack.report()
    cloud.stack.create_profile("gpu", [ANY_GPU])
    context = cyborg_context.get_admin_context()
    profile = objects.DeviceProfile.get_by_name(context, "gpu")
    arq = objects.ARQ(context, device_profile_name="gpu", device_profile_group_id=0)
    made = objects.ExtARQ(context, arq=arq).create(context, profile.id)

    (stuck,) = look(cloud).leftovers
    assert (stuck.verdict, stuck.state, stuck.instance) == ("stuck", "Initial", None)
    # After ten minutes nobody has to wait for a second look.
    assert verdicts(look(cloud, sleep=pytest.fail, later=700)) == ["stuck"]
    # It goes on while we wait.
    assert look(cloud, sleep=lambda _s: made.destroy(context)).leftovers == ()


def test_a_request_that_failed(cloud, bound):
    context = cyborg_context.get_admin_context()
    request = objects.ExtARQ.get(context, bound.request)
    request.update_state(context, "BindFailed")
    assert verdicts(look(cloud)) == ["stuck"]


def test_the_attach_handle_is_gone(cloud, bound):
    """One such request, and Cyborg lists none."""
    context = cyborg_context.get_admin_context()
    (handle,) = objects.AttachHandle.list(context)
    handle.destroy(context)
    (gone,) = look(cloud).leftovers
    assert gone.verdict == "handle-gone"
    assert "HTTP 404" in gone.message


def listed(cloud, *providers):
    """Let Cyborg list deployables with these providers, in place of its own."""
    rows = [{"uuid": PROVIDER, "name": "compute-1_0", "rp_uuid": each} for each in providers]
    text = json.dumps({"deployables": rows})
    cloud.cyborg.instead["/v2/deployables"] = ("200 OK", "application/json", text)


def test_the_deployable_is_another(cloud, bound):
    listed(cloud, PROVIDER)
    (gone,) = look(cloud).leftovers
    assert gone.verdict == "handle-gone"
    assert f"its instance {bound.instance} exists" in gone.message


@pytest.mark.parametrize(
    "providers, said", [((), "no deployable at all"), ((PROVIDER, None), "not all deployables'")]
)
def test_a_list_of_deployables_that_cannot_be_trusted(cloud, bound, providers, said):
    listed(cloud, *providers)
    (doubted,) = look(cloud).leftovers
    assert (doubted.verdict, doubted.command) == ("unknown", "")
    assert said in doubted.message and bound.instance in doubted.message


@pytest.mark.parametrize("key", ["device_rp_uuid", "attach_handle_info"])
def test_a_bound_request_of_which_half_is_told(cloud, bound, key):
    whole = {
        "uuid": bound.request,
        "state": "Bound",
        "instance_uuid": bound.instance,
        "device_rp_uuid": cloud.stack.devices()[0].deployables[0].provider,
        "attach_handle_info": {"bus": "3b"},
    }
    for row, wanted in ((whole, []), ({**whole, key: None}, ["unknown"])):
        text = json.dumps({"arqs": [row]})
        cloud.cyborg.instead["/v2/accelerator_requests"] = ("200 OK", "application/json", text)
        assert verdicts(look(cloud)) == wanted


def test_cyborg_does_not_answer(cloud):
    cloud.cyborg.instead["/v2/accelerator_requests"] = ("503 No", "text/plain", "")
    with pytest.raises(CloudUnusable, match="Cyborg was asked GET /accelerator_requests: HTTP 503"):
        look(cloud)
