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

"""How many requests a cloud costs, and that pages are followed."""

# The imports below stand after the check that they can succeed.
# ruff: noqa: E402

import json
import time
import uuid

import pytest

for _name in ("cyborg", "placement", "openstack"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: cyborg-ext-drivers[stack,cloud]")

from cyborg.conf import CONF

from cyborg_ext_drivers.cloud import asking, chain, reading
from cyborg_ext_drivers.testing.stack import Stack
from tests.cloud.services import Nova, SmallCloud
from tests.stack.one_card import ADDRESS, VIRTUAL, OneCard

CARDS = range(8)
TRAITS = ("OWNER_CYBORG", "CUSTOM_GPU_ACME")
ANY_GPU = {"resources:PGPU": "1", "trait:CUSTOM_GPU_ACME": "required"}


class ManyCards(OneCard):
    """A driver whose host has so many cards of a kind."""

    def __init__(self, number):
        super().__init__(traits=("OWNER_CYBORG", "CUSTOM_GPU_ACME"))
        self.number = number

    def discover(self):
        found = []
        for bus in range(1, self.number + 1):
            (device,) = super().discover()
            (deployable,) = device.deployable_list
            info = f'{{"bus": "{bus:02x}", "device": "00", "domain": "0000", "function": "0"}}'
            device.controlpath_id.cpid_info = deployable.attach_handle_list[0].attach_info = info
            deployable.name = f"{CONF.host}_0000:{bus:02x}:00.0"
            found.append(device)
        return found


def test_the_number_of_requests_does_not_grow_with_the_devices():
    counted = {}
    for number in (1, 12):
        with Stack(driver_objects=[ManyCards(number)]) as stack:
            with SmallCloud(stack, Nova("compute-1")) as cloud:
                stack.report()
                stack.create_profile("gpu", [ANY_GPU])
                checked = chain.check(cloud.open())
                assert (checked.devices, checked.findings, checked.unknown) == (number, (), ())
                counted[number] = checked.requests
    assert counted[1] == counted[12] <= 19


def test_one_card_of_several_is_broken():
    with Stack(driver_objects=[ManyCards(3)]) as stack:
        with SmallCloud(stack, Nova("compute-1")) as cloud:
            stack.report()
            stack.create_profile("gpu", [ANY_GPU])
            stack.create_profile("three", [ANY_GPU] * 3)
            device = stack.devices()[1].deployables[0]
            path = f"/resource_providers/{device.provider}/inventories/PGPU"
            inventory = stack.placement("GET", path)
            stack.placement("PUT", path, {**inventory, "reserved": 1})
            (finding,) = chain.check(cloud.open()).findings
            assert (finding.code.name, finding.subject) == ("inventory-reserved", device.name)


def test_a_busy_host_is_no_fault_of_a_profile_with_several_groups():
    with Stack(driver_objects=[ManyCards(3)]) as stack:
        with SmallCloud(stack, Nova("compute-1")) as cloud:
            stack.report()
            stack.create_profile("three", [ANY_GPU] * 3)
            stack.bind([ANY_GPU])
            checked = chain.check(cloud.open())
            assert [str(each.code) for each in checked.findings] == ["inventory-used-up"]
            assert not checked.is_broken
            assert chain.check(cloud.open(), profile="three").is_broken


def test_what_is_free_of_a_card_is_less_than_a_group_asks_for():
    third = VIRTUAL.replace('"1"', '"2"')
    card = OneCard(handles=(ADDRESS, VIRTUAL, third), resource_class="VGPU")
    with Stack(driver_objects=[card]) as stack, SmallCloud(stack, Nova("compute-1")) as cloud:
        stack.report()
        stack.create_profile("two", [{"resources:VGPU": "2"}])
        stack.bind([{"resources:VGPU": "1"}] * 2)
        (finding,) = chain.check(cloud.open(), profile="two").findings
        assert finding.code.name == "inventory-used-up"


class Large(asking.Cloud):
    """1,000 hosts with eight cards each: sound, or renamed and without nova-compute."""

    def __init__(self, is_sound):
        super().__init__(None)
        self.state = "up" if is_sound else "down"
        self.root = "" if is_sound else "not-"
        self.hosts = [f"compute-{number}" for number in range(1000)]
        self.cards = [(host, f"{host}_0000:{bus:02x}:00.0") for host in self.hosts for bus in CARDS]

    def get(self, service, path, **parameters):
        self.requests += 1
        key = path.strip("/").split("/")[-1]
        key = {"accelerator_requests": "arqs", "os-services": "services"}.get(key, key)
        key = {"detail": path.split("/")[1].removeprefix("os-")}.get(key, key)
        found = self.told(key)
        if parameters.keys() & {"required", "resources"}:
            found = [row for row in found if row["uuid"] not in self.hosts]
        return {key: found}

    def told(self, key):
        named = [
            (str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), host, name) for host, name in self.cards
        ]
        if key == "traits":
            return list(TRAITS)
        if key == "resource_classes":
            return [{"name": "PGPU"}]
        if key == "devices":
            return [{"uuid": each, "hostname": host, "type": "GPU"} for each, host, _ in named]
        if key == "deployables":
            attributes = json.dumps([{"rc": "PGPU"}, *({f"trait_{t}": t} for t in TRAITS)])
            fields = {"num_accelerators": 1, "attributes_list": attributes}
            return [
                {"uuid": each, "name": name, "rp_uuid": each, "device_id": number, **fields}
                for number, (each, _, name) in enumerate(named)
            ]
        if key == "resource_providers":
            roots = [
                {"uuid": h, "name": self.root + h, "root_provider_uuid": h} for h in self.hosts
            ]
            return roots + [{"uuid": u, "name": n, "root_provider_uuid": h} for u, h, n in named]
        if key == "services":
            return [{"host": h, "state": self.state, "status": "enabled"} for h in self.hosts]
        if key == "hypervisors":
            return [{"hypervisor_hostname": h, "service": {"host": h}} for h in self.hosts]
        return []


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_thousand_hosts_with_eight_thousand_devices(is_sound):
    began = time.monotonic()
    checked = chain.check(Large(is_sound))
    assert (checked.hosts, checked.devices, checked.unknown) == (1000, 8000, ())
    assert checked.requests < 20
    assert len(checked.findings) == (0 if is_sound else 2000)
    assert time.monotonic() - began < 30


def test_pages_are_followed(cloud):
    for number in range(2000):
        cloud.nova.add_host(f"host-{number}")
    found = reading.hypervisors(cloud.open())
    assert (len(found), len({each.name for each in found})) == (2001, 2001)
    assert len(cloud.compute.seen) == 3
