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

"""The driver inside Cyborg's agent, in front of the real conductor and the real Placement."""

import json
import os
import pathlib

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg_ext_drivers.testing import FakeHost, described_hosts, load
from cyborg_ext_drivers.testing.demo import find_drivers
from cyborg_ext_drivers.testing.stack import Stack

DRIVER = "ext_nvidia_gpu_driver"
T4 = [{"resources:PGPU": "1", "trait:CUSTOM_NVIDIA_T4": "required"}]


def stack_on(fake, *drivers, **more):
    options = {"ext_drivers": {"host_root": str(fake.root)}}
    return Stack(drivers=drivers or [DRIVER], options=options, **more)


@pytest.mark.parametrize("name", described_hosts())
def test_what_is_expected_reaches_placement(name):
    expected = load(name).expected.reported
    with FakeHost.named(name) as fake, stack_on(fake, *find_drivers([])) as stack:
        stack.report()
        providers = {provider.name: provider for provider in stack.providers()}
        assert set(providers) == {f"compute-1_{row.address}" for row in expected}
        for row in expected:
            provider = providers[f"compute-1_{row.address}"]
            assert provider.inventories == {row.resource_class: len(row.handles)}
            if row.traits:
                assert sorted(provider.traits) == sorted(row.traits)
        handles = {
            json.loads(handle.info)["bus"]
            for device in stack.devices()
            for deployable in device.deployables
            for handle in deployable.attach_handles
        }
        assert len(handles) <= len(expected)


@pytest.mark.parametrize("name", ["two-t4", "mixed-models"])
def test_a_second_report_of_an_unchanged_host_writes_nothing(name):
    with FakeHost.named(name) as fake, stack_on(fake) as stack:
        stack.report()
        assert stack.writes()
        stack.clear_writes()
        stack.report()
        stack.new_tracker()
        stack.report()
        assert stack.writes() == []


def test_a_host_without_accelerators_reports_nothing_and_warns_of_nothing():
    with FakeHost.named("no-accelerators") as fake, stack_on(fake) as stack:
        (driver,) = stack.new_tracker().acc_drivers
        assert driver.discover() == []
        stack.report()
        assert stack.devices() == []
        assert not [line for line in stack.logs if "cyborg_ext_drivers" in line]


def test_an_instance_gets_the_address_of_the_card():
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        (bound,) = stack.bind(T4)
        addresses = [row.address.to_json() for row in load("two-t4").expected.reported]
        assert bound.type == "PCI"
        assert bound.info in [json.loads(address) for address in addresses]


def test_every_field_of_every_object_is_set():
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        (driver,) = stack.new_tracker().acc_drivers
        for device in driver.discover():
            objects = [device, device.controlpath_id, *device.deployable_list]
            for deployable in device.deployable_list:
                objects += [*deployable.attribute_list, *deployable.attach_handle_list]
                keys = [attribute.key for attribute in deployable.attribute_list]
                assert keys[0] == "rc"
                assert all(key.startswith("trait_") for key in keys[1:])
                assert deployable.num_accelerators == len(deployable.attach_handle_list)
            for each in objects:
                unset = [name for name in each.fields if not each.obj_attr_is_set(name)]
                assert not unset, (type(each).__name__, unset)
                given = set(each.fields) - {"created_at", "updated_at"}
                assert all(getattr(each, name) is not None for name in given)


def test_an_unreadable_bus_raises_so_that_no_device_is_deleted():
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        before = stack.providers()
        fake.make_directory_unlistable()
        with pytest.raises(Exception, match="cannot be listed"):
            stack.report()
        assert stack.providers() == before


def test_a_card_without_a_catalogue_entry_is_reported_with_a_warning_said_once():
    with FakeHost() as fake, stack_on(fake) as stack:
        fake.add_function(
            "0000:3b:00.0", vendor="10de", device="ffe0", class_="030200", iommu_group=1
        )
        stack.report()
        stack.report()
        (provider,) = stack.providers()
        assert sorted(provider.traits) == [
            "CUSTOM_GPU_NVIDIA",
            "CUSTOM_GPU_PRODUCT_ID_FFE0",
            "CUSTOM_NVIDIA_FFE0",
            "OWNER_CYBORG",
        ]
        (warning,) = [line for line in stack.logs if "unknown-device" in line]
        assert "/etc/cyborg/ext_catalog.d" in warning and "10de:ffe0" in warning


def test_the_operators_catalogue_names_the_card_and_a_bad_file_costs_itself_only():
    with FakeHost() as fake:
        fake.add_function(
            "0000:3b:00.0", vendor="10de", device="ffe0", class_="030200", iommu_group=1
        )
        good = 'devices: [{id: "10de:ffe0", kind: GPU, model: MY-CARD, name: My card}]'
        fake.write_file("/etc/cyborg/ext_catalog.d/a.yaml", good)
        fake.write_file("/etc/cyborg/ext_catalog.d/b.yaml", "devices: [{id: 10de, kind: GPU}]")
        with stack_on(fake) as stack:
            stack.report()
            (provider,) = stack.providers()
            assert "CUSTOM_NVIDIA_MY_CARD" in provider.traits
            (error,) = [line for line in stack.logs if line.startswith("ERROR")]
            assert "b.yaml" in error and "line 1" in error and "devices[0]" in error


@pytest.mark.parametrize(
    "option, value", [("host_root", "relative/path"), ("host_root", "/no/such/directory")]
)
def test_a_malformed_option_stops_the_driver_at_load(option, value):
    with Stack(drivers=[DRIVER], options={"ext_drivers": {option: value}}) as stack:
        with pytest.raises(Exception) as caught:
            stack.report()
    assert option in str(caught.value) and value in str(caught.value)


def test_a_host_name_that_no_provider_can_have_stops_the_driver_at_load():
    hostname = ".".join(("a" * 63, "b" * 63, "c" * 62))
    with FakeHost.named("two-t4") as fake, stack_on(fake, host=hostname) as stack:
        with pytest.raises(Exception, match=r"\[DEFAULT\] host = .*allowed are 1 to 187"):
            stack.report()


def under_umockdev(fake, monkeypatch):
    """Let lspci, which in-tree drivers run, see the fake host."""
    from cyborg_ext_drivers.testing import UmockdevMissing

    if not any(pathlib.Path(d, "lspci").exists() for d in os.get_exec_path()):
        pytest.skip("lspci (Debian package pciutils) is not installed")
    try:
        environment = fake.umockdev_environment()
    except UmockdevMissing as error:
        pytest.skip(str(error))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_moving_from_the_in_tree_driver_keeps_providers_and_allocations(monkeypatch):
    with FakeHost.named("two-t4") as fake:
        under_umockdev(fake, monkeypatch)
        with stack_on(fake, "nvidia_gpu_driver", in_process_privileges=True) as stack:
            stack.report()
            in_tree = {p.name: p for p in stack.providers()}
            assert len(in_tree) == 2
            groups = [{"resources:PGPU": "1", "trait:CUSTOM_NVIDIA_1EB8": "required"}]
            (bound,) = stack.bind(groups)
            stack.new_tracker(drivers=[DRIVER])
            for _ in range(2):
                stack.report()
            ours = {p.name: p for p in stack.providers()}
            assert {n: p.uuid for n, p in ours.items()} == {n: p.uuid for n, p in in_tree.items()}
            for name, provider in ours.items():
                assert provider.allocations == in_tree[name].allocations or provider.allocations
                assert set(in_tree[name].traits) < set(provider.traits)
                assert "CUSTOM_NVIDIA_T4" in provider.traits
            assert sum(bool(provider.allocations) for provider in ours.values()) == 1
            stack.unbind([bound])


def has_nvidia(name):
    return any(function.vendor == "10de" for function in load(name).functions)


@pytest.mark.parametrize("name", filter(has_nvidia, described_hosts()))
def test_in_tree_and_ours_agree_on_every_gpu_that_both_report(name, monkeypatch):
    """In-tree reports also what cannot be attached, and misses wide domains and class 0380.

    It takes a virtual function for a whole card.
    """
    description = load(name)
    virtual = {function.address for function in description.functions if function.physfn}
    with FakeHost.named(name) as fake:
        under_umockdev(fake, monkeypatch)
        with stack_on(fake, "nvidia_gpu_driver", in_process_privileges=True) as stack:
            in_tree, ours = (
                {d.controlpath_id.cpid_info: d for d in driver.discover()}
                for driver in stack.new_tracker(drivers=["nvidia_gpu_driver", DRIVER]).acc_drivers
            )
    skipped = {address.to_json() for address in description.expected.skipped.keys() | virtual}
    assert set(in_tree) - skipped == set(ours)
    for cpid, device in ours.items():
        (mine,), (theirs,) = device.deployable_list, in_tree[cpid].deployable_list
        assert (mine.name, mine.num_accelerators) == (theirs.name, theirs.num_accelerators)
        assert [(h.attach_type, h.attach_info) for h in mine.attach_handle_list] == [
            (h.attach_type, h.attach_info) for h in theirs.attach_handle_list
        ]
        assert {a.value for a in theirs.attribute_list} <= {a.value for a in mine.attribute_list}
        assert (device.type, device.vendor) == (in_tree[cpid].type, in_tree[cpid].vendor)
