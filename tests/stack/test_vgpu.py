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

"""vGPUs before the real conductor and Placement, beside Cyborg's own driver and by its agent."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap
import uuid

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg.agent.rpcapi import AgentAPI

from cyborg_ext_drivers.testing import FakeHost, UmockdevMissing
from cyborg_ext_drivers.testing.stack import NoValidHost, Stack

DRIVER = "ext_nvidia_gpu_driver"
T4, A40 = "0000:3b:00.0", "0000:41:00.0"
ON_T4, ON_A40 = "t4-on-vgpu-host-driver", "a40-with-vgpu-on-virtual-functions"


def vgpu(kind, *addresses):
    """Return the options that ask a type of vGPU of cards."""
    return {
        "gpu_devices": {"enabled_vgpu_types": [kind]},
        f"vgpu_{kind}": {"device_addresses": list(addresses)},
    }


class Agent:
    """What answers the conductor's calls on the host; it does as the kernel is asked to."""

    def __init__(self, fake):
        self.fake = fake

    def create(self, _api, _context, _hostname, pci_addr, asked_type, ah_uuid):
        types = self.fake.path(f"/sys/class/mdev_bus/{pci_addr}/mdev_supported_types")
        (types / asked_type / "create").chmod(0o600)
        (types / asked_type / "create").write_text(ah_uuid)
        (device,) = self.fake.obey()
        assert (str(device.parent), device.type, device.uuid) == (pci_addr, asked_type, ah_uuid)

    def remove(self, _api, _context, _hostname, pci_addr, asked_type, ah_uuid):
        types = self.fake.path(f"/sys/class/mdev_bus/{pci_addr}/mdev_supported_types")
        assert (types / asked_type / "devices" / ah_uuid / "remove").exists()
        self.fake.remove_mediated_device(ah_uuid)


def stack_on(fake, options):
    return Stack(
        drivers=[DRIVER], options={"ext_drivers": {"host_root": str(fake.root)}, **options}
    )


@pytest.mark.parametrize(
    ("name", "card", "kind", "trait", "number"),
    [
        (ON_T4, T4, "nvidia-223", "CUSTOM_NVIDIA_1EB8_T4_2B", 8),
        (ON_A40, A40, "nvidia-557", "CUSTOM_NVIDIA_2235_A40_12Q", 4),
    ],
)
def test_placement_has_one_provider_and_nothing_moves_it(
    name, card, kind, trait, number, monkeypatch
):
    """The conductor has a device made for each instance, and Cyborg is told the same before."""
    with FakeHost.named(name) as fake, stack_on(fake, vgpu(kind, card)) as stack:
        agent = Agent(fake)
        monkeypatch.setattr(AgentAPI, "create_vgpu_mdev", lambda *given: agent.create(*given))
        monkeypatch.setattr(AgentAPI, "remove_vgpu_mdev", lambda *given: agent.remove(*given))
        stack.report()
        (provider,) = stack.providers()
        assert provider.name == f"compute-1_{card}"
        assert provider.inventories == {"VGPU": number}
        assert trait in provider.traits
        groups = [{"resources:VGPU": "1", f"trait:{trait}": "required"}]
        devices = fake.path("/sys/bus/mdev/devices")
        bound = []
        for count in range(1, number + 1):
            bound += stack.bind(groups)
            assert len(list(devices.iterdir())) == count
            stack.clear_writes()
            stack.report()
            assert stack.writes() == []
        assert {each.type for each in bound} == {"MDEV"}
        assert len({json.dumps(each.info, sort_keys=True) for each in bound}) == number
        with pytest.raises(NoValidHost):
            stack.bind(groups)
        stack.clear_writes()
        stack.new_tracker()
        stack.report()
        assert stack.writes() == []
        stack.unbind(bound)
        assert list(devices.iterdir()) == []


def test_a_malformed_option_stops_the_driver_at_load():
    with FakeHost.named(ON_T4) as fake, stack_on(fake, vgpu("nvidia-223", "gpu0")) as stack:
        with pytest.raises(Exception, match=r"\[vgpu_nvidia-223\] device_addresses = gpu0"):
            stack.report()


def test_an_address_without_a_card_is_in_the_log_once():
    with FakeHost.named(ON_T4) as fake:
        with stack_on(fake, vgpu("nvidia-223", T4, "0000:5e:00.0")) as stack:
            stack.report()
            stack.report()
            (line,) = [each for each in stack.logs if "0000:5e:00.0" in each]
    assert "[vgpu_nvidia-223] device_addresses" in line and "no PCI function" in line


def as_the_agent(fake, code, tmp_path, options=None):
    """Run code with Cyborg's own modules on the fake host, and return what it prints."""
    if not any(pathlib.Path(d, "lspci").exists() for d in os.get_exec_path()):
        pytest.skip("lspci (Debian package pciutils) is not installed")
    try:
        environment = os.environ | fake.umockdev_environment()
    except UmockdevMissing as error:
        pytest.skip(str(error))
    lines = ["[DEFAULT]", "host = compute-1"]
    for group, values in (options or {}).items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {','.join(value)}" for name, value in values.items()]
    file = tmp_path / "cyborg.conf"
    file.write_text("\n".join(lines) + "\n")
    script = f"""
import json, uuid
from cyborg.conf import CONF
import cyborg.privsep
cyborg.privsep.sys_admin_pctxt.set_client_mode(False)
CONF([], project="cyborg", default_config_files=[{str(file)!r}], default_config_dirs=[])
{textwrap.dedent(code)}
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SHOWN = """
def shown(devices):
    return {
        device.controlpath_id.cpid_info: [
            (
                part.name,
                part.num_accelerators,
                [(h.attach_type, h.attach_info) for h in part.attach_handle_list],
                sorted(a.value for a in part.attribute_list),
            )
            for part in device.deployable_list
        ]
        for device in devices
    }
"""


@pytest.mark.parametrize("kind", ["nvidia-222", "nvidia-223", "nvidia-232", "nvidia-234"])
def test_before_ampere_in_tree_and_ours_say_the_same(kind, tmp_path):
    options = vgpu(kind, T4)
    with FakeHost.named(ON_T4) as fake:
        fake.create_mediated_device(T4, kind, str(uuid.uuid4()))
        in_tree = as_the_agent(
            fake,
            SHOWN
            + """
from cyborg.accelerator.drivers.gpu.nvidia.driver import NVIDIAGPUDriver
print(json.dumps(shown(NVIDIAGPUDriver().discover())))
""",
            tmp_path,
            options,
        )
        with stack_on(fake, options) as stack:
            (driver,) = stack.new_tracker().acc_drivers
            namespace = {}
            exec(SHOWN, namespace)
            ours = json.loads(json.dumps(namespace["shown"](driver.discover())))
    assert ours.keys() == in_tree.keys() and len(ours) == 1
    for cpid, ((name, number, handles, values),) in in_tree.items():
        ((our_name, our_number, our_handles, our_values),) = ours[cpid]
        assert (our_name, our_number, our_handles) == (name, number, handles)
        assert set(values) <= set(our_values) and "VGPU" in values


@pytest.mark.parametrize(
    ("name", "card", "kind"), [(ON_T4, T4, "nvidia-223"), (ON_A40, A40, "nvidia-557")]
)
def test_the_agent_makes_the_device_at_the_address_of_the_handle(name, card, kind, tmp_path):
    with FakeHost.named(name) as fake:
        with stack_on(fake, vgpu(kind, card)) as stack:
            stack.report()
            infos = [
                json.loads(handle.info)
                for device in stack.devices()
                for deployable in device.deployables
                for handle in deployable.attach_handles
            ]
        assert infos
        made = as_the_agent(
            fake,
            f"""
from cyborg.accelerator.drivers.gpu.utils import create_mdev_privileged
made = []
for info in {infos[:1]!r}:
    address = "{{domain}}:{{bus}}:{{device}}.{{function}}".format_map(info)
    made.append((address, info["asked_type"], create_mdev_privileged(
        address, info["asked_type"], str(uuid.uuid4()))))
print(json.dumps(made))
""",
            tmp_path,
        )
        devices = fake.obey()
        assert [[str(each.parent), each.type, each.uuid] for each in devices] == made
        for parent, _, name in made:
            assert fake.path(f"/sys/bus/pci/devices/{parent}/{name}/mdev_type").exists()
