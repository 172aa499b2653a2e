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

"""A fake host is made of a description, and a wrong one is named."""

import contextlib
import os
import subprocess
import sys

import hypothesis
import pytest
from hypothesis import strategies

from cyborg_ext_drivers import testing
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.testing import (
    DescriptionError,
    FakeHost,
    HostDescription,
    UnknownHost,
    described_hosts,
    load,
)
from tests.unit.fake_tree import ADDRESS, T4, TYPES, UUID, dangling_links, read, tree_of

FPGA = "0000:d8:00.0"
PAC = {
    "vendor": "8086",
    "device": "0b2b",
    "class_": "120000",
    "fpga": {
        "engine": {"interface_id": "3" * 32, "ports": 2},
        "ports": [{"afu_id": "1" * 32}, {"afu_id": "2" * 32}],
    },
}


class TestBeforeSetUp:
    """The same calls build a host and change one."""

    changes = (
        lambda fake: fake.bind(ADDRESS, "vfio-pci"),
        lambda fake: fake.unbind(ADDRESS),
        lambda fake: fake.move_to_group(ADDRESS, 40),
        lambda fake: fake.move_to_group(ADDRESS, None),
        lambda fake: fake.set_attribute(ADDRESS, "label", "x"),
        lambda fake: fake.remove_attribute(ADDRESS, "numa_node"),
        lambda fake: fake.make_unreadable(ADDRESS, "config"),
        lambda fake: fake.make_readable(ADDRESS, "config"),
        lambda fake: fake.make_directory_unlistable(),
        lambda fake: fake.make_directory_listable(),
        lambda fake: fake.enable_virtual_functions("0000:af:00.0", 3, driver="vfio-pci"),
        lambda fake: fake.disable_virtual_functions("0000:af:00.0"),
        lambda fake: fake.remove_function("0000:af:00.4"),
        lambda fake: fake.remove_function("0000:af:00.0"),
        lambda fake: fake.bind("0000:af:00.0", "nvidia"),
        lambda fake: fake.create_mediated_device("0000:af:00.0", "nvidia-223", UUID),
        lambda fake: fake.remove_mediated_device(UUID),
        lambda fake: fake.set_iommu(False),
        lambda fake: fake.set_iommu("vfio-noiommu"),
        lambda fake: fake.set_iommu("amd"),
        lambda fake: fake.write_file("/proc/cmdline", "quiet"),
        lambda fake: fake.write_file("/etc/nova/nova.conf", None),
        lambda fake: fake.set_modules(["mdev"]),
        lambda fake: fake.bind(FPGA, "dfl-pci"),
        lambda fake: fake.unbind(FPGA),
        lambda fake: fake.release_port(FPGA, 1),
        lambda fake: fake.assign_port(FPGA, 1),
        lambda fake: fake.set_afu_id(FPGA, 0, "5" * 32),
        lambda fake: fake.enable_virtual_functions(FPGA, 1, driver="dfl-pci"),
        lambda fake: fake.disable_virtual_functions(FPGA),
        lambda fake: fake.remove_function(FPGA),
        lambda fake: fake.put_back(FPGA),
    )

    @staticmethod
    def a_host():
        fake = FakeHost()
        fake.add_function(ADDRESS, **T4, driver="nvidia", iommu_group=27)
        fake.add_function("0000:af:00.0", **T4, sriov_totalvfs=4, mdev_types=TYPES, drm=["card0"])
        for address in (FPGA, "0000:d9:00.0"):
            fake.add_function(address, **PAC, driver="dfl-pci", sriov_totalvfs=2)
        return fake

    @hypothesis.settings(max_examples=60, deadline=None)
    @hypothesis.given(strategies.lists(strategies.sampled_from(changes), max_size=8))
    def test_a_changed_host_is_one_laid_out_like_that(self, changes):
        """Whatever the changes, the tree is that of a host which was so from the start."""
        with self.a_host() as changed:
            anew = self.a_host()
            for change in changes:
                for fake in (changed, anew):
                    with contextlib.suppress(LookupError, ValueError):
                        change(fake)
            with anew:
                after, wanted = tree_of(changed), tree_of(anew)
        assert after == wanted

    def test_the_root_is_there_only_while_it_is_set_up(self):
        fake = FakeHost()
        with pytest.raises(RuntimeError, match="not set up"):
            fake.path("/sys")
        with fake:
            root = fake.root
            assert root.is_dir()
        assert not root.exists()
        with fake:
            assert fake.root != root

    def test_the_description_follows(self, fake):
        fake.bind(ADDRESS, "vfio-pci")
        (function,) = fake.description.functions
        assert (function.driver, function.address) == ("vfio-pci", PciAddress.parse(ADDRESS))
        with FakeHost(fake.description) as again:
            assert tree_of(again).keys() <= tree_of(fake).keys()
            assert dangling_links(again) == []


def test_a_host_of_hundreds_can_be_laid_by_its_identity_alone():
    functions = tuple(
        testing.FunctionDescription(
            address=PciAddress(0, bus, device, 0),
            vendor="10de",
            device="1eb8",
            class_="030200",
            driver="vfio-pci",
        )
        for bus in range(1, 17)
        for device in range(32)
    )
    with FakeHost(HostDescription(functions=functions), attributes="identity") as fake:
        names = os.listdir(fake.path("/sys/bus/pci/devices"))
        assert len(names) == len(functions) == 512
        assert not fake.path("/sys/bus/pci/devices/0000:01:00.0/config").exists()
        fake.set_attribute("0000:01:00.0", "numa_node", "1")
        assert read(fake, "numa_node", "0000:01:01.0") == "-1\n"


class TestDescriptions:
    """Reading descriptions, and what is said of wrong ones."""

    def test_every_fault_is_named_with_path_and_line(self, tmp_path):
        file = tmp_path / "host.yaml"
        file.write_text(
            "name: wrong\n"
            "host:\n"
            "  iommu: vt-d\n"
            "  functions:\n"
            '  - {address: "0000:3b:00.0", vendor: "10de", device: 1000, class: "030200"}\n'
            '  - address: "3b:00.0"\n'
            '    vendor: "10DE"\n'
            '    device: "1eb8"\n'
            "    clas: 030200\n"
            "expected: {reported: none}\n"
        )
        with pytest.raises(DescriptionError) as caught:
            load(file)
        assert str(caught.value).splitlines() == [
            f"{file} describes no host:",
            "  expected.reported: 'none' is not a list of devices (line 10)",
            "  host.functions[0].device: 1000 is not four hexadecimal digits in quotes: "
            '"10de" (line 5)',
            "  host.functions[1]: the key class is missing (line 6)",
            "  host.functions[1].clas: the key is unknown; did you mean class (line 9)",
            "  host.functions[1].address: '3b:00.0' is not a PCI address as sysfs prints it, in "
            'quotes: "0000:3b:00.0" (line 6)',
            "  host.functions[1].vendor: '10DE' is not four hexadecimal digits in quotes: "
            '"10de" (line 7)',
            "  host.iommu: 'vt-d' is not true, false or one of intel, amd, smmu, off-in-firmware, "
            "off-on-command-line, none, vfio-noiommu, xen (line 3)",
        ]

    @pytest.mark.parametrize(
        "functions, fault",
        [
            ([{}, {}], "host.functions[1].address: 0000:3b:00.0 is described twice"),
            ([{"physfn": "0000:3c:00.0"}], "functions[0].physfn: 0000:3c:00.0 is no function"),
            ([{"parent": "0000:3b:00.0"}], "functions[0].parent: the function lies below itself"),
            ([{"boot_vga": 1}], "functions[0].boot_vga: only class 0300 has this file"),
            (
                [{"sriov_totalvfs": 2, "sriov_numvfs": 3}],
                "numvfs: it is larger than sriov_totalvfs",
            ),
        ],
    )
    def test_a_contradiction_is_named(self, functions, fault):
        usual = {"address": ADDRESS, "vendor": "10de", "device": "1eb8", "class": "030200"}
        with pytest.raises(DescriptionError) as caught:
            FakeHost.from_mapping({"host": {"functions": [usual | each for each in functions]}})
        assert fault in str(caught.value)

    def test_an_expectation_of_nothing_is_named(self):
        expected = {
            "reported": [{"address": ADDRESS, "resource_class": "PGPU", "handles": [ADDRESS]}],
            "skipped": {"0000:5e:00.0": "iommu-disabled"},
        }
        with pytest.raises(DescriptionError) as caught:
            HostDescription.from_mapping({"host": {"functions": []}, "expected": expected})
        assert [fault.path for fault in caught.value.faults] == [
            ("expected", "reported", 0, "address"),
            ("expected", "reported", 0, "handles", 0),
            ("expected", "skipped", "0000:5e:00.0"),
        ]

    @pytest.mark.parametrize(
        "text, fault",
        [
            ("", "the description: None is not a map with at least the key host"),
            ("host: [", "the description: it is no YAML"),
            ("host: {functions: []}\nhost: {functions: []}", "host: the key is repeated (line 2)"),
        ],
    )
    def test_a_file_that_is_no_description_is_named(self, tmp_path, text, fault):
        file = tmp_path / "host.yaml"
        file.write_text(text)
        with pytest.raises(DescriptionError) as caught:
            FakeHost.from_file(file)
        assert fault in str(caught.value)

    def test_what_the_tree_has_no_place_for_is_kept(self):
        host = {
            "functions": [
                {
                    "address": ADDRESS,
                    "vendor": "10de",
                    "device": "2335",
                    "class": "030200",
                    "extra": {"nvidia_current_vgpu_type": 1237},
                }
            ],
            "arch": "x86_64",
            "iommu": True,
            "nvml": "mismatch",
            "nvml_lists": [ADDRESS],
            "nvml_library": "570.195",
            "nvidia_driver": "580.159.01",
            "mdev_bus": "absent",
            "nova_pci_device_spec": [ADDRESS],
        }
        with FakeHost.from_mapping({"host": host}) as fake:
            assert fake.description.extra["nvml_lists"] == [ADDRESS]
            assert "580.159.01" in fake.path("/proc/driver/nvidia/version").read_text()
            assert not fake.path("/sys/class/mdev_bus").exists()

    def test_an_unknown_name_brings_the_nearest(self):
        with pytest.raises(UnknownHost, match="'two-t5'; there is two-t4"):
            FakeHost.named("two-t5")

    def test_the_public_names(self):
        assert sorted(testing.__all__) == [
            "Bar",
            "DescriptionError",
            "Expectation",
            "FakeHost",
            "Fault",
            "FunctionDescription",
            "HostDescription",
            "MediatedDevice",
            "MediatedType",
            "Oddity",
            "Reported",
            "UmockdevMissing",
            "UnknownFunction",
            "UnknownHost",
            "described_hosts",
            "load",
        ]

    def test_importing_it_is_cheap(self):
        code = "import sys, cyborg_ext_drivers.testing; print(*sys.modules)"
        names = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded = {name.partition(".")[0] for name in names.stdout.split()}
        assert not {"cyborg", "jsonschema", "oslo_config", "pyudev"} & loaded


def slot_of(address):
    return address.domain, address.bus, address.device


@pytest.mark.parametrize("name", described_hosts())
class TestDescribedHosts:
    """What every shipped description keeps to."""

    def test_it_says_what_is_special(self, name):
        host = load(name)
        assert host.name == name
        assert host.title and host.title.endswith(".") and "." not in host.title[:-1]
        assert host.source

    def test_it_is_laid_out_without_a_loose_end(self, name):
        with FakeHost.named(name) as fake:
            assert dangling_links(fake) == []
            names = os.listdir(fake.path("/sys/bus/pci/devices"))
        assert sorted(map(PciAddress.parse, names)) == [
            f.address for f in fake.description.functions
        ]

    def test_it_expects_something_of_every_candidate_and_of_nothing_else(self, name):
        host = load(name)
        candidates = {
            function.address
            for function in host.functions
            if function.class_.startswith(("03", "0b40", "12")) and function.physfn is None
        }
        # NVSwitches are bridges that operators count among the GPUs.
        switches = {f.address for f in host.functions if f.class_.startswith("0680")}
        # A virtual function that names a card of another vendor is told of by itself.
        vendors = {f.address: f.vendor for f in host.functions}
        strays = {f.address for f in host.functions if vendors.get(f.physfn, f.vendor) != f.vendor}
        # A design that is no shell says any class, and is an FPGA all the same.
        designs = {f.address for f in host.functions if (f.vendor, f.device) == ("10ee", "903f")}
        reported = {entry.address for entry in host.expected.reported}
        skipped = host.expected.skipped.keys()
        # An FPGA of several functions is told of by one of them, or by those that are given.
        fpgas = [entry for entry in host.expected.reported if entry.resource_class == "FPGA"]
        handles = {handle for entry in fpgas for handle in entry.handles}
        slots = {slot_of(entry.address) for entry in fpgas}
        parts = {each for each in candidates if each in handles or slot_of(each) in slots}
        told = reported | (skipped - strays)
        assert told | (parts - skipped) == candidates | switches | designs
        assert not reported & skipped
