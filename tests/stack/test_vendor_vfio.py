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

"""vGPUs that NVIDIA's driver serves, as Cyborg and Placement see them when they are offered."""

import json

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.stack import Stack

VIRTUAL = [f"0000:18:00.{number}" for number in (4, 5, 6, 7)]
TRAIT = "CUSTOM_NVIDIA_26B9_VGPU_{}"


@pytest.fixture
def fake():
    with FakeHost.named("l40s-vgpu-types-set") as fake:
        yield fake


def stack_on(fake, **options):
    options = {"ext_drivers": {"host_root": str(fake.root), **options}}
    return Stack(drivers=["ext_nvidia_gpu_driver"], options=options)


def set_type(fake, *functions, to):
    for each in functions:
        fake.set_attribute(each, "nvidia/current_vgpu_type", str(to))


def test_nothing_is_offered_unless_the_operator_says_so(fake):
    with stack_on(fake) as stack:
        stack.report()
        assert not stack.providers()


def test_an_instance_asks_for_the_type_and_gets_a_function_that_has_it(fake):
    with stack_on(fake, report_vendor_vfio=True) as stack:
        stack.report()
        (provider,) = stack.providers()
        assert provider.name == "compute-1_0000:18:00.0"
        assert provider.inventories == {"VGPU": 4}
        request = [{"resources:VGPU": "1", f"trait:{TRAIT.format(1150)}": "required"}]
        (bound,) = stack.bind(request)
        assert bound.type == "PCI"
        assert "{domain}:{bus}:{device}.{function}".format(**bound.info) in VIRTUAL
        stack.unbind([bound])


def test_another_type_on_all_of_them_is_another_trait_of_the_same_provider(fake):
    with stack_on(fake, report_vendor_vfio=True, withdraw_after=1) as stack:
        stack.report()
        (before,) = stack.providers()
        set_type(fake, *VIRTUAL, to=1145)
        stack.report()
        (after,) = stack.providers()
        assert after.uuid == before.uuid and after.inventories == {"VGPU": 4}
        assert TRAIT.format(1150) in before.traits and TRAIT.format(1145) in after.traits
        assert TRAIT.format(1150) not in after.traits


def handles(stack):
    (device,) = stack.devices()
    (deployable,) = device.deployables
    return sorted(json.loads(each.info)["function"] for each in deployable.attach_handles)


def test_types_that_are_taken_away_and_given_anew_leave_the_right_handles(fake):
    with stack_on(fake, report_vendor_vfio=True, withdraw_after=1) as stack:
        stack.report()
        set_type(fake, VIRTUAL[0], to=0)
        stack.report()
        (provider,) = stack.providers()
        assert provider.inventories == {"VGPU": 3}
        # Which handle goes is not tested here: Cyborg looks for it by its deployable alone
        # (attach_handle_get_by_filters leaves attach_info out) and takes the newest one.
        assert len(handles(stack)) == 3
        set_type(fake, *VIRTUAL, to=0)
        stack.report()
        assert not stack.providers()
        set_type(fake, *VIRTUAL[1:], to=1150)
        stack.report()
        assert handles(stack) == ["5", "6", "7"]


def test_what_could_be_created_changes_nothing_in_the_cloud(fake):
    with stack_on(fake, report_vendor_vfio=True) as stack:
        stack.report()
        stack.clear_writes()
        fake.set_attribute(VIRTUAL[1], "nvidia/creatable_vgpu_types", "1150 : NVIDIA L40S-2Q")
        stack.report()
        assert stack.writes() == []
