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


"""A host and its snapshot give the same answer, byte for byte."""

import json
import socket

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.bus import walk
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.report.state import StateFile
from cyborg_ext_drivers.snapshot import archive
from cyborg_ext_drivers.snapshot.captured import CapturedTree
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost, Oddity, described_hosts
from cyborg_ext_drivers.testing.nvml_stub import NoCompiler

BUS = "/sys/bus/pci/devices"
CARD = "0000:3b:00.0"
#: So many functions that are no accelerators are looked at closely.
_MOST_OTHERS = 3


def answers(diagnose, *options):
    """Return what each subcommand says: exit code, output, and error output."""
    given = ("-f", "json", *options)
    said = {("host", "--long", "--all"): diagnose("host", "--long", "--all", *given)}
    said["traits",] = diagnose("traits", *given)
    code, out, _ = said["host", "--long", "--all"]
    rows = json.loads(out) if code != 2 else []
    cards = [row["address"] for row in rows if row["verdict"] == "reported" or row["kind"]]
    others = [row["address"] for row in rows if row["address"] not in cards]
    for address in cards + others[:_MOST_OTHERS]:
        said["device", address] = diagnose("device", address, *given)
    return said


@pytest.fixture
def saved(diagnose, tmp_path):
    """Save a host and return the options that mean its snapshot."""

    def save(root, *options):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.tar.gz"
        code, _, err = diagnose("snapshot", "save", path, "--host-root", root, *options)
        assert code == 0, err
        return path

    return save


def ask_nvml(fake):
    """Let NVML be asked about the host, where that is described."""
    if any(function.nvml for function in fake.description.functions):
        try:
            fake.write_file(
                "/etc/cyborg/cyborg.conf",
                f"[ext_drivers]\nnvml_library = {fake.nvml_library}\n"
                "[agent]\nenabled_drivers = ext_nvidia_gpu_driver\n",
            )
        except NoCompiler as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("name", described_hosts())
def test_each_described_host_answers_from_its_snapshot(name, diagnose, saved):
    with FakeHost.named(name) as fake:
        ask_nvml(fake)
        there = answers(diagnose, "--host-root", fake.root)
        raw, redacted = saved(fake.root, "--raw"), saved(fake.root)
    assert answers(diagnose, "--snapshot", raw) == there
    snapshot = archive.read(str(redacted))
    kinds = {each["kind"] for each in snapshot.manifest["redactions"]}
    if kinds <= {"UUID", "comment", "word of the kernel's command line"} and not any(
        "uuid" in str(each) for each in there.values()
    ):
        assert answers(diagnose, "--snapshot", redacted) == there
    else:
        here = answers(diagnose, "--snapshot", redacted)
        assert {key: code for key, (code, *_) in here.items()} == {
            key: code for key, (code, *_) in there.items()
        }


@pytest.mark.parametrize(
    "oddity",
    [
        Oddity("unreadable", BUS),
        Oddity("unreadable", "/proc/cmdline"),
        Oddity("unreadable", "/sys/kernel/iommu_groups"),
        Oddity("absent", "/sys/kernel/iommu_groups"),
        Oddity("unreadable", "/sys/module"),
        *(
            Oddity.of(CARD, name, kind)
            for name in ("uevent", "vendor", "config", "resource", "driver", "iommu_group", "power")
            for kind in ("unreadable", "absent", "nonsense", "megabytes", "pipe", "directory")
        ),
        Oddity.of(CARD, "physfn", "link", "nowhere"),
        Oddity.of(CARD, "driver", "link-outside"),
        Oddity.of(CARD, "iommu_group", "absolute-link-outside"),
        Oddity.of(CARD, "driver", "long-link"),
        Oddity.of(CARD, "uevent", "binary"),
        Oddity.of(CARD, "config", "socket"),
    ],
    ids=str,
)
def test_what_cannot_be_read_cannot_be_read_in_the_snapshot_either(oddity, diagnose, saved):
    with FakeHost.named("two-t4") as fake:
        fake.inject(oddity)
        there = answers(diagnose, "--host-root", fake.root)
        path = saved(fake.root)
    assert answers(diagnose, "--snapshot", path) == there


def test_what_the_operator_decided_is_in_the_snapshot(diagnose, saved):
    with FakeHost.named("two-t4") as fake:
        fake.write_file(
            "/etc/cyborg/cyborg.conf",
            "[DEFAULT]\nhost = compute-1\n[agent]\nenabled_drivers = ext_nvidia_gpu_driver\n"
            "[ext_drivers]\nexclude = 0000:d8:*\nextra_traits = 10de:* = CUSTOM_MINE\n"
            "extra_traits = 10de:1eb8 = CUSTOM_A,CUSTOM_B\n"
            "resource_classes = 10de:* = CUSTOM_GPUS\n"
            "state_dir = /srv/state\n",
        )
        fake.write_file(
            "/etc/nova/nova.conf",
            '[pci]\ndevice_spec = {"vendor_id": "10de", "product_id": "1eb8"}\n',
        )
        there = answers(diagnose, "--host-root", fake.root)
        raw, redacted = saved(fake.root, "--raw"), saved(fake.root)
    assert "claimed-by-nova" in str(there)
    assert answers(diagnose, "--snapshot", raw) == there
    here = answers(diagnose, "--snapshot", redacted)
    renamed = json.loads(json.dumps(list(there.values())).replace("compute-1", "redacted-host"))
    assert json.loads(json.dumps(list(here.values()))) == renamed


@pytest.mark.parametrize("is_raw", [True, False])
def test_a_card_that_is_held_is_held_in_the_snapshot(is_raw, diagnose, saved):
    name = socket.gethostname()
    with FakeHost.named("two-t4") as fake:
        host = Host(fake.root)
        ledger = Ledger(name, Options())
        ledger.settle(Surveyor().survey(host), host)
        directory = str(fake.path("/var/lib/cyborg/ext_drivers"))
        StateFile(directory, "ext_nvidia_gpu_driver", name).save(ledger.entries)
        fake.bind(CARD, "pci-stub")
        there = answers(diagnose, "--host-root", fake.root)
        path = saved(fake.root, *["--raw"] * is_raw)
    assert '"held"' in str(there)
    assert answers(diagnose, "--snapshot", path) == there


def test_the_order_in_which_the_kernel_lists_functions_stays(saved):
    with FakeHost.named("two-t4") as fake:
        there = list(walk(Host(fake.root).tree).uevents)
        path = saved(fake.root)
    captured = archive.read(str(path)).captured
    assert list(walk(CapturedTree(captured)).uevents) == there
