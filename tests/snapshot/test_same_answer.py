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

import dataclasses
import gzip
import json
import os
import random
import re
import socket
from argparse import Namespace

import pytest

from cyborg_ext_drivers.cli import rows
from cyborg_ext_drivers.cli.device import fields_of
from cyborg_ext_drivers.cli.looking import Looking
from cyborg_ext_drivers.cli.traits import counted
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.bus import walk
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Decision, Ledger
from cyborg_ext_drivers.report.state import StateFile
from cyborg_ext_drivers.snapshot import archive
from cyborg_ext_drivers.snapshot.captured import CapturedTree
from cyborg_ext_drivers.snapshot.redact import redacted
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost, Oddity, described_hosts
from cyborg_ext_drivers.testing._oddities import KINDS
from cyborg_ext_drivers.testing.nvml_stub import NoCompiler
from tests.properties.strategies import ATTRIBUTES, HOST_PATHS

#: So many hosts with oddities are drawn; ``CYBORG_EXT_SNAPSHOT_ODDITIES`` draws more.
MANY = int(os.environ.get("CYBORG_EXT_SNAPSHOT_ODDITIES", "40"))
BUS = "/sys/bus/pci/devices"
CARD = "0000:3b:00.0"


def answers(root=None, snapshot=None):
    """Return what the subcommands show as JSON: each row, each function, each trait."""
    options = Namespace(host_root=root, snapshot=snapshot, fake=None, config_file=None)
    try:
        with Looking().looking(options) as view:
            decisions = view.decisions()
            known = {each.assessment.function.name for each in decisions}
            others = (each for each in view.host.functions if each.name not in known)
            decisions += [Decision(rows.of_no_accelerator(each, view), None) for each in others]
            return json.dumps(
                {
                    "host": [rows.of_decision(each, view) for each in decisions],
                    "device": [fields_of(each, view) for each in decisions],
                    "traits": counted(view),
                },
                indent=1,
                default=str,
            )
    except ExtDriversError as error:
        return str(error)


def printed(diagnose, address, *options):
    """Return all that the command prints: exit code, output, error output."""
    given = ("-f", "json", *options)
    return [
        diagnose("host", "--long", *given),
        diagnose("host", "--long", "--all", *given),
        diagnose("traits", *given),
        diagnose("device", address, *given),
    ]


@pytest.fixture
def saved(diagnose, tmp_path):
    """Save a host and return the options that mean its snapshot."""

    def save(root, *options):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.tar.gz"
        code, _, err = diagnose("snapshot", "save", path, "--host-root", root, *options)
        assert code == 0, err
        return str(path)

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
def test_each_described_host_answers_from_its_snapshot(name, saved, tmp_path):
    with FakeHost.named(name) as fake:
        ask_nvml(fake)
        there = answers(root=str(fake.root))
        raw = saved(fake.root, "--raw")
    assert answers(snapshot=raw) == there
    # Redacted, but for the name of the host.
    without = redacted(archive.read(raw), socket.gethostname(), (), bytes(32))
    path = tmp_path / "redacted.tar.gz"
    path.write_bytes(archive.to_bytes(without))
    # What is replaced may be longer, and the same stands for the same.
    assert without_secrets(answers(snapshot=str(path))) == without_secrets(there)


def without_secrets(text):
    """Return a text without what is different in a snapshot that is redacted."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    return re.sub(r'("serial(_number)?\\*": \\*")[^"\\]*', r"\1SERIAL", text)


@pytest.mark.parametrize("name", ["two-t4", "a40-with-vgpu-on-virtual-functions"])
def test_the_command_prints_the_same_of_host_and_snapshot(name, diagnose, saved):
    with FakeHost.named(name) as fake:
        address = str(next(f.address for f in fake.description.functions if f.driver == "nvidia"))
        there = printed(diagnose, address, "--host-root", fake.root)
        path = saved(fake.root)
    assert printed(diagnose, address, "--snapshot", path) == there


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
def test_what_cannot_be_read_cannot_be_read_in_the_snapshot_either(oddity, saved):
    with FakeHost.named("two-t4") as fake:
        fake.inject(oddity)
        there = answers(root=str(fake.root))
        path = saved(fake.root)
    assert answers(snapshot=path) == there


@pytest.mark.parametrize("seed", range(MANY))
def test_whatever_is_odd_on_a_host_is_as_odd_in_its_snapshot(seed, saved):
    drawn = random.Random(seed)
    with FakeHost.named(drawn.choice(described_hosts())) as fake:
        functions = [str(function.address) for function in fake.description.functions]
        for _ in range(drawn.randint(1, 3)):
            kind = drawn.choice(KINDS)
            value = drawn.choice(("0", "../x", "/etc")) if kind in ("holds", "link") else ""
            if drawn.random() < 0.7:
                name = drawn.choice(ATTRIBUTES)
                fake.inject(Oddity.of(drawn.choice(functions), name, kind, value))
            else:
                fake.inject(Oddity(kind, drawn.choice(HOST_PATHS), value))
        there = answers(root=str(fake.root))
        path = saved(fake.root, "--raw")
    assert answers(snapshot=path) == there


def test_what_is_a_directory_by_mistake_stays_one_when_what_is_above_was_listed_first(saved):
    with FakeHost.named("iommu-off-on-command-line") as fake:
        fake.inject(Oddity.of("0000:17:00.0", "numa_node", "directory"))
        there = answers(root=str(fake.root))
        path = saved(fake.root)
    assert "EISDIR" in there
    assert answers(snapshot=path) == there


def test_what_the_operator_decided_is_in_the_snapshot(saved):
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
        there = answers(root=str(fake.root))
        raw, path = saved(fake.root, "--raw"), saved(fake.root)
    assert "claimed-by-nova" in there
    assert answers(snapshot=raw) == there
    here = answers(snapshot=path)
    assert here == there.replace("compute-1", "redacted-host")


@pytest.mark.parametrize("is_raw", [True, False])
def test_a_card_that_is_held_is_held_in_the_snapshot(is_raw, saved):
    name = socket.gethostname()
    with FakeHost.named("two-t4") as fake:
        host = Host(fake.root)
        ledger = Ledger(name, Options())
        ledger.settle(Surveyor().survey(host), host)
        directory = str(fake.path("/var/lib/cyborg/ext_drivers"))
        StateFile(directory, "ext_nvidia_gpu_driver", name).save(ledger.entries)
        fake.bind(CARD, "pci-stub")
        there = answers(root=str(fake.root))
        path = saved(fake.root, *["--raw"] * is_raw)
    assert '"held"' in there
    assert answers(snapshot=path) == there


def test_the_order_in_which_the_kernel_lists_functions_stays(saved):
    with FakeHost.named("two-t4") as fake:
        there = list(walk(Host(fake.root).tree).uevents)
        path = saved(fake.root)
    captured = archive.read(path).captured
    assert list(walk(CapturedTree(captured)).uevents) == there


#: Files of the configuration that are refused, each in another way.
REFUSED = {
    "no option": ("cyborg/cyborg.conf", "[database]\nhunter2 is no option\n"),
    "no section": ("cyborg/cyborg.conf", "[database\nconnection = hunter2\n"),
    "password in a section's name": ("cyborg/cyborg.conf", "[database hunter2\n"),
    "no start": ("cyborg/cyborg.conf", "password = hunter2\n"),
    "continued": ("cyborg/cyborg.conf", " hunter2\n"),
    "no text": ("cyborg/cyborg.conf", "\udcff\udcfe"),
    "selector": ("cyborg/cyborg.conf", "[ext_drivers]\nexclude = T4\n"),
    "number": ("cyborg/cyborg.conf", "[ext_drivers]\nwithdraw_after = never\n"),
    "host": ("cyborg/cyborg.conf", "[DEFAULT]\nhost = $nothing\n"),
    "vGPU": ("cyborg/cyborg.conf", "[gpu_devices]\nenabled_vgpu_types = nvidia-1\n"),
    "Nova": ("nova/nova.conf", "[pci\ndevice_spec = hunter2\n"),
    "Nova's value": ("nova/nova.conf", "[pci]\ndevice_spec = $nothing\n"),
}


@pytest.mark.parametrize("options", [(), ("--raw",)])
@pytest.mark.parametrize("what", REFUSED)
def test_a_host_whose_configuration_is_refused_is_saved(what, options, diagnose, tmp_path):
    file, text = REFUSED[what]
    path = tmp_path / "host.tar.gz"
    commands = [("host",), ("device", CARD), ("traits",), ("snapshot", "describe")]
    with FakeHost.named("two-t4") as fake:
        fake.path("/etc/cyborg").mkdir(parents=True, exist_ok=True)
        fake.path("/etc/nova").mkdir(parents=True, exist_ok=True)
        fake.path(f"/etc/{file}").write_bytes(text.encode("utf-8", "surrogateescape"))
        there = [diagnose(*each, "--host-root", fake.root) for each in commands]
        code, _, err = diagnose("snapshot", "save", path, *options, "--host-root", fake.root)
    assert code == 0 and "Saved without what is configured: " in err
    assert [each[0] for each in there] == [2] * len(commands)
    if what in ("no option", "password in a section's name", "continued", "no text"):
        there = [
            (code, out, re.sub(r": '[^']*'\n$", ": 'redacted'\n", e)) for code, out, e in there
        ]
    assert [diagnose(*each, "--snapshot", path) for each in commands] == there
    assert b"hunter2" not in gzip.decompress(path.read_bytes())
    assert json.loads(diagnose("snapshot", "show", path, "-f", "json")[1])["refused"]
    (tmp_path / "empty.conf").write_text("")
    code, out, _ = diagnose("host", "--snapshot", path, "--config-file", tmp_path / "empty.conf")
    assert code == 0 and out.count("reported") == 3


def test_what_is_configured_of_cyborg_is_saved_though_nova_is_refused(diagnose, tmp_path):
    with FakeHost.named("two-t4") as fake:
        fake.write_file("/etc/cyborg/cyborg.conf", "[ext_drivers]\nexclude = 0000:d8:*\n")
        fake.write_file("/etc/nova/nova.conf", "[pci\n")
        diagnose("snapshot", "save", tmp_path / "it", "--host-root", fake.root)
    assert archive.read(str(tmp_path / "it")).options["cyborg"] == {"exclude": ["0000:d8:*"]}


def test_a_refusal_does_nothing_to_the_terminal(diagnose, tmp_path):
    with FakeHost.named("two-t4") as fake:
        fake.write_file("/etc/nova/nova.conf", "[pci\n")
        diagnose("snapshot", "save", tmp_path / "it", "--host-root", fake.root)
    snapshot = archive.read(str(tmp_path / "it"))
    manifest = {**snapshot.manifest, "refused": "\x1b[2J no"}
    (tmp_path / "it").write_bytes(
        archive.to_bytes(dataclasses.replace(snapshot, manifest=manifest))
    )
    code, out, err = diagnose("host", "--snapshot", tmp_path / "it")
    assert (code, out, err) == (2, "", "cyborg-ext-diagnose: \\x1b[2J no\n")
