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

"""Cards that are divided by SR-IOV, and joined again, under a running agent."""

import json

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.stack import NoValidHost, Stack

CARD = "0000:05:00.0"
NAME = f"compute-1_{CARD}"
MI355X = {"vendor": "1002", "device": "75a3", "class_": "120000", "sriov_totalvfs": 256}
VGPU = [{"resources:VGPU": "1", "trait:CUSTOM_AMD_MI355X": "required"}]


@pytest.fixture
def fake():
    with FakeHost() as fake:
        fake.add_function(CARD, **MI355X, driver="amdgpu", iommu_group=40)
        yield fake


@pytest.fixture
def stack(fake):
    options = {"ext_drivers": {"host_root": str(fake.root)}}
    with Stack(drivers=["ext_amd_gpu_driver"], options=options) as stack:
        yield stack


def provider(stack):
    """Return the one provider that the host has."""
    stack.report()
    (found,) = stack.providers()
    assert found.name == NAME
    # Of a class that is not asked for any more, Cyborg tries to rid Placement as a whole.
    errors = (line for line in stack.logs if line.startswith("ERROR"))
    assert not [line for line in errors if "delete resource class record" not in line]
    return found


def handles(stack):
    (device,) = stack.devices()
    (deployable,) = device.deployables
    return sorted(at(json.loads(handle.info)) for handle in deployable.attach_handles)


def at(info):
    """Return the address of an attach handle."""
    return "{domain}:{bus}:{device}.{function}".format(**info)


@pytest.mark.parametrize("count", [1, 2, 63, 256])
def test_the_handles_follow_the_virtual_functions_and_the_provider_stays(fake, stack, count):
    first = provider(stack)
    assert first.inventories == {"PGPU": 1}
    for _ in range(2):
        addresses = fake.enable_virtual_functions(CARD, count, device="75b3")
        divided = provider(stack)
        assert divided.uuid == first.uuid
        assert divided.inventories == {"VGPU": count}
        assert handles(stack) == sorted(map(str, addresses))
        fake.disable_virtual_functions(CARD)
        joined = provider(stack)
        assert joined.uuid == first.uuid
        assert joined.inventories == {"PGPU": 1}
        assert handles(stack) == [CARD]


@pytest.mark.parametrize("counts", [(8, 4), (4, 8, 3), (2, 1, 256)])
def test_another_number_is_right_when_the_card_was_seen_undivided_before(fake, stack, counts):
    """Of a list that only loses some, Cyborg would delete the newest rows, whichever was meant."""
    for count in counts:
        addresses = fake.enable_virtual_functions(CARD, count, device="75b3")
        assert provider(stack).inventories == {"VGPU": count}
        assert handles(stack) == sorted(map(str, addresses))
        fake.disable_virtual_functions(CARD)
        provider(stack)


def test_each_instance_gets_a_virtual_function_of_its_own(fake, stack):
    addresses = fake.enable_virtual_functions(CARD, 3, device="75b3")
    provider(stack)
    bound = [handle for _ in range(3) for handle in stack.bind(VGPU)]
    assert sorted(at(handle.info) for handle in bound) == sorted(map(str, addresses))
    with pytest.raises(NoValidHost):
        stack.bind(VGPU)
    stack.unbind(bound)


def test_a_virtual_function_that_comes_or_goes_leaves_what_instances_hold(fake, stack):
    fake.enable_virtual_functions(CARD, 4, device="75b3")
    provider(stack)
    (bound,) = stack.bind(VGPU)
    others = [address for address in handles(stack) if address != at(bound.info)]
    fake.bind(others[0], "pci-stub")
    # What fails is held, and what is gone for good goes; which row of its own Cyborg deletes for
    # it is Cyborg's choice (doc/source/sriov.rst).
    counts = [provider(stack).inventories["VGPU"] for _ in range(3)]
    assert counts == [4, 4, 3]
    fake.unbind(others[0])
    after = provider(stack)
    assert after.inventories == {"VGPU": 4} and after.allocations
    stack.unbind([bound])


def test_nothing_is_written_while_a_virtual_function_cannot_be_read(fake, stack):
    (first, *_) = fake.enable_virtual_functions(CARD, 4, device="75b3")
    before = provider(stack)
    stack.clear_writes()
    fake.make_unreadable(first, "iommu_group")
    for _ in range(5):
        assert provider(stack) == before
    assert stack.writes() == []
