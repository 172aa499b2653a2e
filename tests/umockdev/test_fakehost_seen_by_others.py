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

"""Other people's programs, unmodified, see the fake host as they would a real one."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from cyborg_ext_drivers.testing import FakeHost, UmockdevMissing, described_hosts

LSPCI_LINE = re.compile(r"^(\S+) .*?\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]")


@pytest.fixture(params=described_hosts())
def fake(request):
    with FakeHost.named(request.param) as host:
        yield host


def run(fake, *command):
    """Run a program that believes to be on the fake host and return what it prints."""
    try:
        environment = {**os.environ, **fake.umockdev_environment()}
    except UmockdevMissing as error:
        pytest.skip(str(error))
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_python(fake, code):
    return json.loads(run(fake, sys.executable, "-c", textwrap.dedent(code)).splitlines()[-1])


@pytest.fixture
def lspci():
    if shutil.which("lspci") is None:
        pytest.skip("lspci is not on this machine; install the package pciutils")


@pytest.mark.usefixtures("lspci")
class TestLspci:
    """pciutils, which Cyborg's in-tree drivers ask."""

    def test_it_lists_every_function_with_class_and_ids(self, fake):
        found = {}
        for line in run(fake, "lspci", "-nn", "-D").splitlines():
            address, code, vendor, device = LSPCI_LINE.match(line).groups()
            found[address] = (code, vendor, device)
        assert found == {
            str(function.address): (function.class_[:4], function.vendor, function.device)
            for function in fake.description.functions
        }

    def test_it_knows_driver_and_subsystem(self, fake):
        found = {}
        for block in run(fake, "lspci", "-Dvmmknn").split("\n\n"):
            rows = dict(line.split(":\t", 1) for line in block.splitlines() if ":\t" in line)
            if rows:
                found[rows["Slot"]] = (rows.get("Driver"), rows.get("IOMMUGroup"))
        has_groups = any((fake.root / "sys/kernel/iommu_groups").iterdir())
        assert found == {
            str(function.address): (
                function.driver,
                str(function.iommu_group)
                if has_groups and function.iommu_group is not None
                else None,
            )
            for function in fake.description.functions
        }

    def test_it_reads_a_bridge_and_the_bars_of_a_card(self):
        with FakeHost.named("two-t4") as fake:
            bridge = run(fake, "lspci", "-v", "-D", "-s", "0000:3a:00.0")
            card = run(fake, "lspci", "-v", "-D", "-s", "0000:3b:00.0")
        assert "Bus: primary=3a, secondary=3b, subordinate=3b" in bridge
        assert "(64-bit, prefetchable) [size=256M]" in card

    def test_it_follows_a_change(self):
        with FakeHost.named("two-t4") as fake:
            fake.bind("0000:3b:00.0", "nouveau")
            fake.remove_function("0000:d8:00.0")
            text = run(fake, "lspci", "-Dk")
        assert "Kernel driver in use: nouveau" in text
        assert "0000:d8:00.0" not in text


def test_pyudev_lists_every_function_with_its_driver(fake):
    pytest.importorskip("pyudev")
    found = run_python(
        fake,
        """
        import json, pyudev
        devices = pyudev.Context().list_devices(subsystem="pci")
        print(json.dumps({d.sys_name: [d.driver, d.attributes.asstring("class")] for d in devices}))
        """,
    )
    assert found == {
        str(function.address): [function.driver, f"0x{function.class_}"]
        for function in fake.description.functions
    }


def test_pyudev_finds_the_bridge_above_and_the_device_nodes_below():
    pytest.importorskip("pyudev")
    with FakeHost.named("bmc-display-only") as fake:
        found = run_python(
            fake,
            """
            import json, pyudev
            display = pyudev.Devices.from_name(pyudev.Context(), "pci", "0000:03:00.0")
            nodes = [child.device_node for child in display.children]
            print(json.dumps([display.parent.sys_name, nodes, display.properties["PCI_SUBSYS_ID"]]))
            """,
        )
    assert found == ["0000:02:00.0", ["/dev/dri/card0"], "1A03:2000"]


def test_pyudev_lists_mediated_devices():
    pytest.importorskip("pyudev")
    uuid = "4b20d080-1b54-4048-85b3-a6a62d165c01"
    with FakeHost.named("two-t4") as fake:
        fake.add_function(
            "0000:5e:00.0",
            vendor="10de",
            device="1eb8",
            class_="030200",
            driver="nvidia",
            mdev_types={"nvidia-223": {"name": "GRID T4-2B", "available_instances": 8}},
        )
        fake.create_mediated_device("0000:5e:00.0", "nvidia-223", uuid)
        found = run_python(
            fake,
            """
            import json, pyudev
            devices = pyudev.Context().list_devices(subsystem="mdev")
            print(json.dumps([[d.sys_name, d.parent.sys_name, d.driver] for d in devices]))
            """,
        )
    assert found == [[uuid, "0000:5e:00.0", "nvidia-vgpu-vfio"]]


def test_pyudev_finds_the_regions_and_ports_of_an_fpga():
    pytest.importorskip("pyudev")
    with FakeHost() as fake:
        fake.add_function(
            "0000:3b:00.0",
            vendor="8086",
            device="09c4",
            class_="120000",
            driver="dfl-pci",
            fpga={
                "engine": {"interface_id": "f64e598bea11517fa28e7bc65d885104"},
                "ports": [{"afu_id": "9aeffe5f84570612c000c9660d824272"}],
            },
        )
        found = run_python(
            fake,
            """
            import json, pyudev
            context = pyudev.Context()
            regions = context.list_devices(subsystem="fpga_region")
            ids = [r.attributes.get("compat_id", b"").decode() for r in regions]
            ports = context.list_devices(subsystem="platform", sys_name="dfl-port.0")
            told = [
                [p.driver, p.attributes.asstring("afu_id"), p.find_parent("pci").sys_name]
                for p in ports
            ]
            print(json.dumps([sorted(ids), told]))
            """,
        )
    assert found == [
        ["", "f64e598bea11517fa28e7bc65d885104"],
        [["dfl-port", "9aeffe5f84570612c000c9660d824272", "0000:3b:00.0"]],
    ]


IN_TREE = """
    import json
    from cyborg.conf import CONF
    import cyborg.privsep
    from cyborg.accelerator.drivers.gpu.nvidia.driver import NVIDIAGPUDriver
    from cyborg.objects import register_all

    register_all()
    CONF([], project="cyborg", default_config_files=[], default_config_dirs=[])
    cyborg.privsep.sys_admin_pctxt.set_client_mode(False)
    devices = NVIDIAGPUDriver().discover()
    print(json.dumps([json.loads(device.controlpath_id.cpid_info) for device in devices]))
"""


@pytest.mark.usefixtures("lspci")
def test_cyborgs_own_nvidia_driver_finds_the_same_cards(fake):
    """It takes every NVIDIA display, and cannot read a domain of more than four digits."""
    pytest.importorskip("cyborg")
    found = run_python(fake, IN_TREE)
    assert [f"{a['domain']}:{a['bus']}:{a['device']}.{a['function']}" for a in found] == [
        str(function.address)
        for function in fake.description.functions
        if function.vendor == "10de"
        and function.class_[:4] in ("0300", "0302")
        and not function.address.is_wide
    ]


def test_our_own_reading_is_the_same_under_the_preload_library(fake):
    """The root / under umockdev and the fake root itself give the same functions."""
    code = """
        import json, sys
        from cyborg_ext_drivers.host import Host
        functions = Host({root!r}).functions
        print(json.dumps([[f.name, f.driver, f.iommu_group, str(f.identity)] for f in functions]))
    """
    below = run_python(fake, code.format(root=str(fake.root)))
    assert run_python(fake, code.format(root="/")) == below
    assert [row[0] for row in below] == [str(f.address) for f in fake.description.functions]
