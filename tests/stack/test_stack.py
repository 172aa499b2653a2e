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

"""The stack: real services that take a report, bind and free what is on it."""

# The imports below stand after the check that they can succeed.
# ruff: noqa: E402

import pytest

for _name in ("cyborg", "placement"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: cyborg-ext-drivers[stack]")

from cyborg.common import exception

from cyborg_ext_drivers.testing.stack import NoValidHost, PlacementRefused, Stack
from tests.stack.one_card import ADDRESS, VIRTUAL

ANY_GPU = {"resources:PGPU": "1", "trait:CUSTOM_GPU_ACME": "required"}


def handles_in_use(stack):
    return [
        handle.info
        for device in stack.devices()
        for deployable in device.deployables
        for handle in deployable.attach_handles
        if handle.in_use
    ]


def test_a_report_reaches_cyborg_and_placement(stack):
    stack.report()

    (device,) = stack.devices()
    assert (device.type, device.vendor, device.model) == ("GPU", "acme", "Fast")
    assert (device.hostname, device.cpid_info) == ("compute-1", ADDRESS)
    (deployable,) = device.deployables
    assert deployable.name == "compute-1_0000:3b:00.0"
    assert deployable.resource_class == "PGPU"
    assert [handle.info for handle in deployable.attach_handles] == [ADDRESS]
    (provider,) = stack.providers()
    assert (provider.name, provider.uuid) == (deployable.name, deployable.provider)
    assert provider.traits == deployable.traits == ("CUSTOM_GPU_ACME",)
    assert (provider.inventories, provider.usages) == ({"PGPU": 1}, {"PGPU": 0})
    assert stack.logs == []


def test_a_second_report_of_an_unchanged_host_writes_nothing(stack):
    stack.report()
    before = stack.devices(), stack.providers()
    assert ("POST", "/resource_providers") in stack.writes()
    stack.clear_writes()

    stack.report()

    assert stack.writes() == []
    assert (stack.devices(), stack.providers()) == before


def test_cyborgs_own_fake_driver_is_found_by_its_name():
    with Stack(host="compute-7", drivers=["fake_driver"]) as stack:
        stack.report()
        stack.clear_writes()
        stack.report()

        assert stack.writes() == []
        (provider,) = stack.providers()
        assert provider.name == "compute-7_FakeDevice"
        assert provider.inventories == {"FPGA": 16}


def test_binding_gives_the_handle_that_nova_would_attach(stack):
    stack.report()

    (bound,) = stack.bind([ANY_GPU])

    assert (bound.state, bound.type) == ("Bound", "PCI")
    assert bound.info == {"domain": "0000", "bus": "3b", "device": "00", "function": "0"}
    assert handles_in_use(stack) == [ADDRESS]
    (provider,) = stack.providers()
    assert (bound.provider, provider.usages) == (provider.uuid, {"PGPU": 1})
    assert provider.allocations == (bound.instance,)
    assert stack.nova_events == [(bound.instance, bound.request, "completed")]


def test_one_accelerator_request_is_made_for_each_unit(stack, card):
    card.handles = (ADDRESS, VIRTUAL)
    stack.report()

    bound = stack.bind(stack.create_profile("two", [{"resources:PGPU": "2"}]))

    assert {handle.info["function"] for handle in bound} == {"0", "1"}
    assert len({handle.instance for handle in bound}) == 1


def test_groups_of_a_profile_may_come_from_one_provider(stack, card):
    card.handles = (ADDRESS, VIRTUAL)
    stack.report()

    bound = stack.bind([ANY_GPU, ANY_GPU])

    assert {handle.info["function"] for handle in bound} == {"0", "1"}


def test_unbinding_frees_the_handle_and_the_allocation(stack):
    stack.report()
    bound = stack.bind([ANY_GPU])
    with pytest.raises(NoValidHost, match="CUSTOM_GPU_ACME"):
        stack.bind([ANY_GPU])

    stack.unbind(bound)

    assert handles_in_use(stack) == []
    assert stack.providers()[0].usages == {"PGPU": 0}
    (again,) = stack.bind([ANY_GPU])
    assert again.info == bound[0].info


def test_a_forbidden_trait_leaves_no_candidate(stack):
    stack.report()

    with pytest.raises(NoValidHost, match="!CUSTOM_GPU_ACME"):
        stack.bind([{"resources:PGPU": "1", "trait:CUSTOM_GPU_ACME": "forbidden"}])


def test_a_provider_with_an_allocation_cannot_be_deleted(stack, card):
    stack.report()
    bound = stack.bind([ANY_GPU])

    with pytest.raises(PlacementRefused) as refusal:
        stack.placement("DELETE", f"/resource_providers/{bound[0].provider}")
    assert refusal.value.status == 409

    card.handles = ()
    with pytest.raises(exception.ResourceProviderInUse):
        stack.report()
    stack.unbind(bound)
    stack.report()
    assert (stack.devices(), stack.providers()) == ([], [])


def test_a_bind_that_fails_leaves_nothing_claimed(stack, card):
    card.accelerators = 2
    stack.report()

    with pytest.raises(exception.ResourceNotFound):
        stack.bind([{"resources:PGPU": "2"}])

    assert handles_in_use(stack) == []
    assert stack.providers()[0].usages == {"PGPU": 0}
    assert any("Failed to allocate attach handle" in line for line in stack.logs)


def test_a_profile_that_cyborgs_api_refuses_is_refused(stack):
    with pytest.raises(exception.InvalidParameterValue):
        stack.create_profile("owner", [{"resources:PGPU": "1", "trait:OWNER_CYBORG": "required"}])
