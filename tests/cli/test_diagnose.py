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

"""The command, as an operator runs it."""

import csv
import io
import json
import re
import shlex
import sys

import pytest
import yaml

from cyborg_ext_drivers import checks
from cyborg_ext_drivers.cli.app import with_default
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost, described_hosts
from cyborg_ext_drivers.testing.nvml_stub import NoCompiler
from tests.cli.contract import CONTRACT, long_json


@pytest.mark.parametrize(
    "given, wanted",
    [
        ([], ["host"]),
        (["--long"], ["host", "--long"]),
        (["-f", "json"], ["host", "-f", "json"]),
        (["-c", "traits"], ["host", "-c", "traits"]),
        (["--fake", "device"], ["host", "--fake", "device"]),
        (["-v", "--fake", "x"], ["-v", "host", "--fake", "x"]),
        (["--log-file", "f", "--all"], ["--log-file", "f", "host", "--all"]),
        (["traits"], ["traits"]),
        (["--debug", "device", "3b:00.0"], ["--debug", "device", "3b:00.0"]),
        (["--version"], ["--version"]),
        (["--help"], ["--help"]),
    ],
)
def test_without_a_subcommand_it_is_host(given, wanted):
    assert with_default(given) == wanted


@pytest.mark.parametrize("name", described_hosts())
def test_its_verdicts_are_those_of_the_survey_and_match_the_schema(name, diagnose):
    with FakeHost.named(name) as fake:
        survey = Surveyor().survey(Host(fake.root))
    code, rows = long_json(diagnose, "--fake", name)
    assert all(set(row) >= CONTRACT for row in rows)
    assert {row["address"]: row["verdict"] for row in rows} == {
        str(each.address): str(each.verdict) for each in survey.assessments
    }
    wanting = [each for each in survey.skipped if each.is_accelerator]
    assert code == (1 if wanting else 0)


@pytest.mark.parametrize("name", ["two-t4", "gpu-with-bound-audio", "bmc-display-only"])
def test_every_format_of_every_openstack_tool(name, diagnose):
    for arguments, read in (
        (("-f", "json"), json.loads),
        (("-f", "yaml"), yaml.safe_load),
        (("-f", "csv"), lambda text: list(csv.DictReader(io.StringIO(text)))),
    ):
        _, out, _ = diagnose("host", "--fake", name, "-c", "address", "-c", "verdict", *arguments)
        rows = read(out)
        assert rows
        assert all(set(row) == {"address", "verdict"} for row in rows)
    _, out, _ = diagnose("host", "--fake", name, "-f", "value", "-c", "address")
    assert re.fullmatch(r"([0-9a-f:.]+\n)+", out)


def test_below_the_table_stands_what_to_run_next(diagnose):
    code, out, _ = diagnose("--fake", "two-t4")
    assert code == 0
    assert out.splitlines()[-1] == (
        "2 of 2 accelerators reported. Next: cyborg-ext-diagnose traits --fake two-t4"
    )
    code, out, _ = diagnose("--fake", "gpu-with-bound-audio")
    assert code == 1
    address = re.search(r"^\| (0000:\S+)", out, re.MULTILINE)[1]
    assert out.splitlines()[-1].endswith(
        f"cyborg-ext-diagnose device {address} --fake gpu-with-bound-audio"
    )
    code, out, _ = diagnose("--fake", "no-accelerators")
    assert code == 0
    assert "No accelerator was found" in out


@pytest.mark.parametrize("name", ["two-t4", "gpu-with-bound-audio", "no-accelerators"])
def test_what_to_run_next_can_be_pasted_and_looks_at_the_same_host(name, diagnose, tmp_path):
    file = tmp_path / "an agent's.conf"
    file.write_text("[ext_drivers]\nvfio_only = true\n")
    with FakeHost.named(name) as fake:
        here = ("--host-root", fake.root, "--config-file", file)
        _, out, _ = diagnose(*here)
        command, *words = shlex.split(out.splitlines()[-1].partition("Next: ")[2])
        assert command == "cyborg-ext-diagnose"
        assert words[-4:] == [str(word) for word in here]
        code, out, err = diagnose(*words)
        assert code in (0, 1) and out and not err


@pytest.mark.parametrize("name", ["mixed-models", "gpu-with-bound-audio", "hgx-a100"])
@pytest.mark.parametrize("more", [(), ("--long",), ("--all",)])
def test_a_piped_table_cuts_nothing_off(name, more, diagnose):
    _, rows = long_json(diagnose, "--fake", name)
    _, out, _ = diagnose("host", "--fake", name, *more)
    lines = [line.split("|")[1:-1] for line in out.splitlines() if line.startswith("|")]
    columns = ["".join(cell.strip() for cell in column) for column in zip(*lines)]
    for row in rows:
        for text in (row["address"], row["reason"] or "", *row["traits"]):
            assert any(text in column for column in columns), text
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("name", ["mixed-models", "gpu-with-bound-audio", "v100-pairs-in-groups"])
@pytest.mark.parametrize("command", [("host",), ("host", "--long"), ("host", "--all"), ("traits",)])
def test_on_a_terminal_a_table_fits_120_columns(name, command, diagnose, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _, out, _ = diagnose(*command, "--fake", name)
    assert max(map(len, out.splitlines())) <= 120


def test_all_says_of_the_other_functions_why_they_are_none(diagnose):
    _, out, _ = diagnose("host", "--all", "--fake", "gpu-with-bound-audio", "-f", "json")
    rows = json.loads(out)
    with FakeHost.named("gpu-with-bound-audio") as fake:
        assert len(rows) == len(Host(fake.root).functions)
    _, out, _ = diagnose("host", "--all", "--fake", "gpu-with-bound-audio", "--max-width", "300")
    assert "the card's HDMI and DisplayPort audio" in out
    assert [row["address"] for row in rows] == sorted(row["address"] for row in rows)


def test_device_tells_everything_of_one_function(diagnose):
    with FakeHost.named("gpu-with-bound-audio") as fake:
        (skipped,) = Surveyor().survey(Host(fake.root)).skipped
    address = str(skipped.address)
    code, out, _ = diagnose(
        "device", address.removeprefix("0000:"), "--fake", "gpu-with-bound-audio", "-f", "json"
    )
    shown = json.loads(out)
    assert code == 1
    assert shown["address"] == address
    assert shown["reason"] == "companion-bound"
    assert shown["report"] is None
    assert {"address", "driver", "id", "class"} <= set(shown["group_members"][0])
    outcomes = {(check["code"], check["outcome"]) for check in shown["checks"]}
    assert {("companion-bound", "blocker"), ("iommu-group-shared", "fine")} <= outcomes
    assert all(check["evidence"] for check in shown["checks"])
    assert shown["parents"]
    assert shown["link"]["most_width"] == 16
    _, out, _ = diagnose("device", address, "--fake", "gpu-with-bound-audio")
    assert "What to do: Bind" in out


def test_device_shows_word_for_word_what_cyborg_gets(diagnose):
    with FakeHost.named("two-t4") as fake:
        first = Surveyor().survey(Host(fake.root)).reported[0]
    code, out, _ = diagnose("device", first.address, "--fake", "two-t4", "-f", "json")
    report = json.loads(out)["report"]
    assert code == 0
    assert report["cpid_info"] == first.address.to_json()
    assert report["deployables"][0]["handles"] == [["PCI", first.address.to_json()]]
    assert ["rc", "PGPU"] in report["deployables"][0]["attributes"]


@pytest.mark.parametrize("with_serials", [False, True])
def test_device_shows_what_nvml_says_of_a_card(diagnose, tmp_path, with_serials):
    with FakeHost.named("a100-in-mig-mode") as fake:
        try:
            library = fake.nvml_library
        except NoCompiler as error:
            pytest.skip(str(error))
        config = tmp_path / "cyborg.conf"
        config.write_text(
            f"[ext_drivers]\nnvml_library = {library}\nreport_serials = {with_serials}\n"
        )
        arguments = ("--host-root", str(fake.root), "--config-file", str(config))
        _, out, _ = diagnose("device", "17:00.0", *arguments, "-f", "json")
        said = json.loads(out)["nvml"]
        _, text, _ = diagnose("device", "17:00.0", *arguments, "-c", "nvml")
        fake.set_nvml("mismatch")
        _, out, _ = diagnose("device", "17:00.0", *arguments, "-f", "json")
    assert said["mig"]["is_on"] and len(said["mig"]["instances"]) == 3
    assert said["processes"] == [{"pid": 31337, "command": "python3", "memory_mib": 8192}]
    assert (said["memory_mib"], said["remapped_rows"]["correctable"]) == (40960, 1)
    assert ("uuid" in said, "serial" in said) == (with_serials, with_serials)
    assert "pid 31337, command python3" in text
    assert json.loads(out)["nvml"].startswith("version-mismatch: ")


def test_device_shows_nothing_of_nvml_where_it_is_not_asked(diagnose):
    _, out, _ = diagnose("device", "3b:00.0", "--fake", "two-t4", "-f", "json")
    assert json.loads(out)["nvml"] is None


def test_an_address_that_is_not_there_lists_the_nearest(diagnose):
    code, out, err = diagnose("device", "0000:3b:00.1", "--fake", "two-t4")
    assert code == 2
    assert not out
    assert "there is no PCI function 0000:3b:00.1; the nearest are 0000:3b:00.0" in err


def test_an_address_that_is_none_is_one_clear_sentence(diagnose):
    code, _, err = diagnose("device", "gpu0", "--fake", "two-t4")
    assert code == 2
    assert "'gpu0' is not a PCI address" in err


def test_traits_lists_what_a_profile_can_name(diagnose):
    _, out, _ = diagnose("traits", "--fake", "two-t4", "-f", "json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["PGPU"]["type"] == "resource class"
    assert rows["PGPU"]["accelerators"] == 2
    assert rows["CUSTOM_NVIDIA_T4"] == {
        "name": "CUSTOM_NVIDIA_T4",
        "type": "trait",
        "devices": 2,
        "accelerators": 2,
        "cards": {"Tesla T4": 2},
    }


def test_codes_lists_every_finding_and_explains_one(diagnose):
    known = {code.name for check in checks.load() for code in check.codes}
    code, out, _ = diagnose("codes", "-f", "json")
    assert code == 0
    assert {row["code"] for row in json.loads(out)} == known
    for name in sorted(known):
        _, out, _ = diagnose("codes", name, "-f", "json")
        (row,) = json.loads(out)
        assert row["explanation"] and row["remedy"] and row["title"]
    code, _, err = diagnose("codes", "iommu-disable")
    assert code == 2
    assert "iommu-disabled" in err
