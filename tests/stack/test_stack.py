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

"""The stack itself: real services, started and left behind as if they had never run."""

# The imports below stand after the check that they can succeed.
# ruff: noqa: E402

import logging
import os
import subprocess
import sys
import threading

import pytest

for _name in ("cyborg", "placement"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: cyborg-ext-drivers[stack]")

from cyborg.common import exception, nova_client, rpc
from cyborg.conf import CONF
from cyborg.objects.driver_objects import (
    driver_attach_handle,
    driver_attribute,
    driver_controlpath_id,
    driver_deployable,
    driver_device,
)
from cyborg.privsep import sys_admin_pctxt

from cyborg_ext_drivers.testing.stack import NoValidHost, PlacementRefused, Stack

ADDRESS = '{"bus": "3b", "device": "00", "domain": "0000", "function": "0"}'
VIRTUAL = '{"bus": "3b", "device": "00", "domain": "0000", "function": "1"}'
ANY_GPU = {"resources:PGPU": "1", "trait:CUSTOM_GPU_ACME": "required"}


class OneCard:
    """A driver whose host has one card; without handles the card is gone."""

    def __init__(self, handles=(ADDRESS,), accelerators=None, traits=("CUSTOM_GPU_ACME",)):
        self.handles = handles
        self.accelerators = accelerators
        self.traits = traits

    def discover(self):
        if not self.handles:
            return []
        return [
            driver_device.DriverDevice(
                vendor="acme",
                model="Fast",
                type="GPU",
                std_board_info="{}",
                vendor_board_info="{}",
                stub=False,
                controlpath_id=driver_controlpath_id.DriverControlPathID(
                    cpid_type="PCI", cpid_info=ADDRESS
                ),
                deployable_list=[self._deployable()],
            )
        ]

    def _deployable(self):
        attributes = [("rc", "PGPU"), *((f"trait_{trait}", trait) for trait in self.traits)]
        return driver_deployable.DriverDeployable(
            name=f"{CONF.host}_0000:3b:00.0",
            driver_name="ACME",
            num_accelerators=self.accelerators or len(self.handles),
            attribute_list=[
                driver_attribute.DriverAttribute(key=key, value=value) for key, value in attributes
            ],
            attach_handle_list=[
                driver_attach_handle.DriverAttachHandle(
                    attach_type="PCI", attach_info=info, in_use=False
                )
                for info in self.handles
            ],
        )


@pytest.fixture
def card():
    return OneCard()


@pytest.fixture
def stack(card):
    with Stack(driver_objects=[card]) as started:
        yield started


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


def test_the_agent_can_be_restarted_with_other_drivers(stack, card):
    stack.report()
    stack.new_tracker()
    stack.clear_writes()
    stack.report()
    assert stack.writes() == []

    stack.new_tracker(drivers=["fake_driver"], driver_objects=[])
    stack.report()

    assert [device.type for device in stack.devices()] == ["FPGA"]
    with pytest.raises(exception.InvalidDriver):
        stack.new_tracker(drivers=["no_such_driver"])


def test_the_drivers_objects_go_over_the_wire(stack, card):
    seen = []
    discover = card.discover
    card.discover = lambda: seen.extend(discover()) or seen
    stack.report()

    assert not hasattr(seen[0].deployable_list[0], "id")
    seen[0].deployable_list[0].attribute_list[1].value = "CUSTOM_CHANGED_LATER"
    assert stack.devices()[0].deployables[0].traits == ("CUSTOM_GPU_ACME",)


def test_options_and_configuration_files_reach_the_drivers(tmp_path):
    file = tmp_path / "operator.conf"
    file.write_text("[DEFAULT]\nhost = elsewhere\n[agent]\nenabled_drivers = fake_driver\n")
    options = {"gpu_devices": {"enabled_vgpu_types": ["nvidia-35", "nvidia-36"]}}
    state = tmp_path / "state"

    with Stack(config_files=[file], options=options, state_dir=state) as stack:
        assert CONF.gpu_devices.enabled_vgpu_types == ["nvidia-35", "nvidia-36"]
        assert (CONF.host, CONF.state_path) == ("compute-1", str(state))
        stack.report()
        assert len(stack.devices()) == 1
    assert state.is_dir()


def test_warnings_are_kept(stack, capfd):
    logging.getLogger("acme").warning("too %s", "hot")
    logging.getLogger("acme").info("just right")

    assert stack.logs == ["WARNING acme: too hot"]


def test_privileged_calls_can_run_in_this_process():
    assert sys_admin_pctxt.client_mode
    with Stack(in_process_privileges=True):
        assert not sys_admin_pctxt.client_mode
    assert sys_admin_pctxt.client_mode


def test_two_stacks_after_each_other_share_nothing(card):
    with Stack(driver_objects=[card]) as first:
        first.report()
        first.create_profile("same", [ANY_GPU])
        first.bind("same")
        reported = first.devices()
    with Stack(host="compute-2") as second:
        assert (second.devices(), second.providers(), second.writes()) == ([], [], [])
        assert CONF.host == "compute-2"
        second.create_profile("same", [ANY_GPU])
        with pytest.raises(PlacementRefused, match="404"):
            second.placement("GET", "/traits/CUSTOM_GPU_ACME")
    with Stack(driver_objects=[card]) as third:
        third.report()
        third.bind([ANY_GPU])
        assert third.devices() == reported


def test_nothing_is_left_behind(card):
    with Stack(driver_objects=[card]) as warm:
        warm.report()
    CONF.set_override("host", "before")
    real = nova_client.NovaAPI
    threads, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))

    with Stack(driver_objects=[card]) as stack:
        stack.report()
        stack.bind([ANY_GPU])
        directory = stack.directory
        assert directory.is_dir()

    assert not directory.exists()
    assert set(threading.enumerate()) == threads
    assert len(os.listdir("/proc/self/fd")) == files
    assert (nova_client.NovaAPI, rpc.TRANSPORT) == (real, None)
    assert CONF.host == "before"
    CONF.clear_override("host")


def test_a_configuration_read_before_is_read_again(tmp_path):
    file = tmp_path / "cyborg.conf"
    file.write_text("[DEFAULT]\nhost = from-the-file\n")
    CONF(["--config-file", str(file)], project="cyborg")

    with Stack():
        assert CONF.host == "compute-1"

    assert (CONF.host, CONF.config_file) == ("from-the-file", [str(file)])
    CONF.reset()


def test_without_cyborg_the_import_says_what_to_install():
    program = "import sys; sys.modules['cyborg'] = None; import cyborg_ext_drivers.testing.stack"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert last.endswith("install 'cyborg-ext-drivers[stack]'")
