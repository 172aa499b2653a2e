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

"""The package of another maker in ``example_vendor``: through entry points alone it counts."""

import configparser
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from cyborg_ext_drivers import catalog, checks, families
from cyborg_ext_drivers.testing import FakeHost, load
from tests.cli.contract import CONTRACT

EXAMPLE = pathlib.Path(__file__).parents[1] / "example_vendor"
HOST = EXAMPLE / "hosts" / "two-roadrunners.yaml"
SOUND, EARLY = "0000:3b:00.0", "0000:d8:00.0"
CODE = "acme-early-silicon"
_STACK = """
import json, sys
from cyborg_ext_drivers.testing.stack import Stack

options = {"ext_drivers": json.loads(sys.argv[1])}
with Stack(drivers=["acme_npu_driver"], options=options) as stack:
    stack.report()
    group = {"resources:CUSTOM_ACME_NPU": "1", "trait:CUSTOM_ACME_ROADRUNNER": "required"}
    bound = stack.bind([group])
    print(json.dumps({
        "providers": [[each.name, each.inventories, each.traits] for each in stack.providers()],
        "bound": [each.info for each in bound],
        "logs": stack.logs,
    }))
"""


def metadata():
    """Return what the example's own setup.cfg says."""
    said = configparser.ConfigParser(delimiters="=")
    said.optionxform = str
    said.read(EXAMPLE / "setup.cfg")
    return said


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example as pip would install it, from its setup.cfg, without a network."""
    site, said = tmp_path_factory.mktemp("site"), metadata()
    for package in said["options"]["packages"].split():
        patterns = ["*.py", *said["options.package_data"].get(package, "").split()]
        (site / package).mkdir()
        for file in (each for pattern in patterns for each in (EXAMPLE / package).glob(pattern)):
            shutil.copy(file, site / package)
    name, version = said["metadata"]["name"], said["metadata"]["version"]
    information = site / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\n")
    groups = said["options.entry_points"].items()
    (information / "entry_points.txt").write_text(
        "\n".join(f"[{group}]{entries}" for group, entries in groups)
    )
    return site


@pytest.fixture
def run(installed, tmp_path):
    """Run Python where the example is installed; return what came of it."""

    def python(*arguments, path=installed):
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=os.environ
            | {
                "PYTHONPATH": ":".join(filter(None, (str(path), *sys.path))),
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                # Of what Cyborg imports.
                "PYTHONWARNINGS": "ignore",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )

    return python


@pytest.fixture
def diagnose(run):
    """Run the command where the example is installed; return its exit code and JSON."""

    def command(*arguments, **more):
        done = run("-m", "cyborg_ext_drivers.cli.app", *arguments, "-f", "json", **more)
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)

    return command


@pytest.fixture
def fake():
    with FakeHost.from_file(HOST) as host:
        yield host


def test_the_command_shows_its_cards_as_they_are_described(diagnose, fake):
    expected = load(HOST).expected
    code, rows = diagnose("host", "--long", "--host-root", fake.root)
    assert code == 1
    assert all(set(row) >= CONTRACT for row in rows)
    shown = {row["address"]: row for row in rows}
    assert set(shown) == {SOUND, EARLY}
    (sound,) = expected.reported
    assert shown[SOUND]["verdict"] == "reported"
    (deployable,) = shown[SOUND]["deployables"]
    assert deployable["resource_class"] == sound.resource_class
    assert deployable["traits"] == list(sound.traits)
    assert (shown[SOUND]["model"], shown[SOUND]["vendor"]) == ("ROADRUNNER", "ACME")
    assert "CUSTOM_ACME_ROADRUNNER" in sound.traits
    ((early, codes),) = expected.skipped.items()
    assert (str(early), codes) == (EARLY, (CODE,))
    assert (shown[EARLY]["verdict"], shown[EARLY]["reason"]) == ("skipped", CODE)


def test_a_described_host_can_be_named_by_its_path(diagnose):
    code, rows = diagnose("host", "--fake", HOST, "-c", "address")
    assert (code, [row["address"] for row in rows]) == (1, [SOUND, EARLY])


def test_device_tells_its_finding_with_evidence_and_remedy(diagnose, fake):
    for address, outcome, revision in ((SOUND, "fine", "10"), (EARLY, "blocker", "02")):
        _, shown = diagnose("device", address, "--host-root", fake.root)
        (check,) = [each for each in shown["checks"] if each["code"] == CODE]
        evidence = {"path": f"/sys/bus/pci/devices/{address}/revision", "value": revision}
        assert check == {"code": CODE, "outcome": outcome, "evidence": [evidence]}
    (finding,) = [each for each in shown["findings"] if each["code"] == CODE]
    assert finding["remedy"].startswith("Have Acme exchange the card")


def test_codes_lists_and_explains_its_finding(diagnose):
    _, rows = diagnose("codes")
    assert CODE in [row["code"] for row in rows]
    _, (row,) = diagnose("codes", CODE)
    assert "libvirt resets it" in row["explanation"]


def test_ignore_findings_takes_its_code(diagnose, run, fake):
    fake.write_file("/etc/cyborg/cyborg.conf", f"[ext_drivers]\nignore_findings = {CODE}\n")
    code, rows = diagnose("host", "--host-root", fake.root)
    assert code == 0
    assert {row["address"]: row["verdict"] for row in rows} == {
        SOUND: "reported",
        EARLY: "reported",
    }
    without = run(*("-m", "cyborg_ext_drivers.cli.app", "host", "--host-root", fake.root), path="")
    assert without.returncode == 2
    assert "there is no such finding" in without.stderr


def test_without_it_nobody_knows_the_cards(diagnose, fake):
    """So that the tests above show what the package does, and not what ours does anyway."""
    _, rows = diagnose("host", "--host-root", fake.root, path="")
    assert {row["verdict"] for row in rows} <= {"skipped"}
    assert CODE not in {code.name for check in checks.load() for code in check.codes}
    assert "acme_npu" not in {family.name for family in families.load()}
    assert catalog.load().vendor("acce") is None


def test_its_broken_catalogue_file_is_named_and_costs_no_card(run, installed, fake):
    broken = "devices: [{id: acce, kind: AICHIP, name: A}]"
    file = installed / "acme_accelerators" / "catalog.yaml"
    whole = file.read_text()
    file.write_text(broken)
    try:
        done = run(
            *("-m", "cyborg_ext_drivers.cli.app", "host", "--host-root", fake.root, "-f", "json")
        )
    finally:
        file.write_text(whole)
    assert f"A catalogue file is left out: {file}: line 1: devices[0].id" in done.stderr
    sound = json.loads(done.stdout)[0]
    assert (sound["address"], sound["verdict"]) == (SOUND, "reported")


def test_its_driver_reports_to_placement(run, fake):
    pytest.importorskip("cyborg", reason="Cyborg is not installed")
    pytest.importorskip("placement", reason="Placement is not installed")
    done = run("-c", _STACK, json.dumps({"host_root": str(fake.root)}))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    (sound,) = load(HOST).expected.reported
    ((name, inventories, traits),) = seen["providers"]
    assert name == f"compute-1_{SOUND}"
    assert inventories == {"CUSTOM_ACME_NPU": 1}
    assert sorted(traits) == sorted(sound.traits)
    assert [handle["bus"] for handle in seen["bound"]] == ["3b"]
    assert [line for line in seen["logs"] if EARLY in line and CODE in line]


def test_its_own_tests_pass_with_the_plugin_alone(run, tmp_path):
    """The page of the manual that shows them shows all of them."""
    pytest.importorskip("cyborg", reason="Cyborg is not installed")
    pytest.importorskip("placement", reason="Placement is not installed")
    for name in ("hosts", "tests"):
        shutil.copytree(EXAMPLE / name, tmp_path / name)
    done = run("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", tmp_path / "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    if "SKIPPED" in done.stdout:
        pytest.skip("umockdev or lspci is not on this machine")
    assert "4 passed" in done.stdout


def test_the_manual_shows_each_of_its_files():
    """What the manual tells to write is what the example has."""
    manual = (EXAMPLE.parents[1] / "doc/source/adding-a-vendor.rst").read_text()
    files = [
        each for each in EXAMPLE.rglob("*") if each.suffix in (".py", ".yaml", ".cfg", ".toml")
    ]
    tests = "example_vendor/tests/test_acme.py"
    assert (
        f"literalinclude:: ../../tests/{tests}"
        in (EXAMPLE.parents[1] / "doc/source/testing.rst").read_text()
    )
    shown = [each for each in files if each.name not in ("__init__.py", "test_acme.py")]
    assert len(shown) == 7
    for each in shown:
        assert f"literalinclude:: ../../tests/example_vendor/{each.relative_to(EXAMPLE)}" in manual
