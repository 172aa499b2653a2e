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

"""The stack by itself: started, restarted, and left behind as if it had never run."""

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
from cyborg.privsep import sys_admin_pctxt

from cyborg_ext_drivers.testing.stack import PlacementRefused, Stack

ANY_GPU = {"resources:PGPU": "1", "trait:CUSTOM_GPU_ACME": "required"}


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
