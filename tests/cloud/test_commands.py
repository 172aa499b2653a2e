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

"""The two commands as an operator runs them."""

# The imports below stand after the check that they can succeed.
# ruff: noqa: E402

import json
import pathlib
import subprocess
import sys

import jsonschema
import pytest

for _name in ("cyborg", "placement", "openstack"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: cyborg-ext-drivers[stack,cloud]")

from cyborg_ext_drivers.cloud import findings

SCHEMAS = pathlib.Path(__file__).parents[2] / "doc/source/schema"
LONG = {"resources:PGPU": "1", **{f"trait:CUSTOM_GPU_OF_SOME_MAKER_{n}": "required" for n in "ABC"}}


def rows(out, schema):
    told = json.loads(out)
    jsonschema.validate(told, json.loads((SCHEMAS / schema).read_text()))
    return told


def test_a_sound_cloud(cloud, diagnose):
    cloud.stack.report()
    cloud.forget()
    code, out, _err = diagnose("cloud", "check", "--os-cloud", "small")
    assert (code, out.startswith("No broken link: 1 device on 1 host,")) == (0, True)
    code, out, _err = diagnose("cloud", "check", "--host", "compute-1", "--profile", "rackspace")
    assert (code, "profile-unknown" in out) == (1, True)
    assert diagnose("cloud", "arqs")[:2] == (0, "0 accelerator requests: none left over.\n")
    assert cloud.methods() == {"GET"}


def test_a_broken_link_as_table_and_as_json(cloud, diagnose):
    cloud.stack.report()
    cloud.stack.create_profile("a-profile-with-a-name-that-goes-on-and-on-for-some-time", [LONG])
    code, out, _err = diagnose("cloud", "check")
    assert code == 1
    assert max(map(len, out.splitlines())) <= 120
    assert "$ openstack accelerator device profile show" in out and "3 broken links" in out

    code, out, _err = diagnose("cloud", "check", "-f", "json")
    assert code == 1
    told = rows(out, "cloud-check.json")
    assert {row["code"] for row in told} == {"profile-trait-nowhere"}


def test_what_is_unknown_is_no_success(cloud, diagnose):
    cloud.stack.report()
    cloud.compute.instead["/os-services"] = ("500 Oh", "text/plain", "")
    code, out, _err = diagnose("cloud", "check", "-f", "json")
    (row,) = rows(out, "cloud-check.json")
    assert (code, row["code"], row["project"]) == (2, "unknown", "Nova")
    code, out, _err = diagnose("cloud", "check")
    assert (code, max(map(len, out.splitlines())) <= 120) == (2, True)


def test_an_orphan(cloud, diagnose):
    cloud.stack.report()
    (bound,) = cloud.stack.bind([{"resources:PGPU": "1"}])
    cloud.forget()
    code, out, _err = diagnose("cloud", "arqs")
    assert code == 1 and f"$ openstack accelerator arq delete {bound.request}" in out
    assert max(map(len, out.splitlines())) <= 120
    code, out, _err = diagnose("cloud", "arqs", "-f", "json")
    (row,) = rows(out, "cloud-arqs.json")
    assert (row["verdict"], row["instance"]) == ("orphan", bound.instance)
    assert cloud.methods() == {"GET"}

    cloud.compute.instead["/servers"] = ("403 Forbidden", "text/plain", "")
    code, out, _err = diagnose("cloud", "arqs")
    assert code == 2 and "arq delete" not in out and "1 unknown" in out


def test_a_cloud_that_is_not_there(cloud, diagnose):
    code, out, err = diagnose("cloud", "check", "--os-cloud", "nowhere")
    assert (code, out) == (2, "")
    assert "No cloud can be asked" in err and "nowhere" in err and "Traceback" not in err
    cloud.cyborg.instead["/v2/accelerator_requests"] = ("500 Oh", "text/plain", "")
    code, out, err = diagnose("cloud", "arqs")
    assert (code, out) == (2, "") and "GET /accelerator_requests: HTTP 500" in err


def test_no_cloud_is_named(tmp_path, diagnose, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("OS_CLOUD", "OS_CLIENT_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    for command in ("check", "arqs"):
        code, out, err = diagnose("cloud", command)
        assert (code, out, len(err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize("text", ["clouds: 5", "clouds: {small: 5}", "- small"])
@pytest.mark.parametrize("command", ["check", "arqs"])
def test_a_clouds_yaml_that_is_none(tmp_path, diagnose, monkeypatch, text, command):
    file = tmp_path / "clouds.yaml"
    file.write_text(text)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    code, out, err = diagnose("cloud", command, "--os-cloud", "small")
    assert (code, out) == (2, "") and "No cloud can be asked" in err and "Traceback" not in err


def test_without_openstacksdk(tmp_path):
    """A sentence and exit code 2; other subcommands do not ask for it."""
    program = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('openstack', 'keystoneauth1'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from cyborg_ext_drivers.cli.app import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    def run(*argv):
        # Libraries of Cyborg before 16 warn of eventlet.
        command = [sys.executable, "-W", "ignore", "-c", program, *argv]
        return subprocess.run(command, capture_output=True, text=True)

    for name in ("check", "arqs"):
        done = run("cloud", name, "--os-cloud", "small")
        assert (done.returncode, done.stdout) == (2, "")
        assert "install 'cyborg-ext-drivers[cloud]'" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for words in (("suggest", "--cloud"), ("check", "t4", "--os-cloud", "small")):
        done = run("profile", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "install 'cyborg-ext-drivers[cloud]'" in done.stderr
    assert run("codes").returncode == 0
    assert run("profile", "suggest", "--fake", "two-t4").returncode == 0


@pytest.mark.parametrize("given", ["-1", "inf", "nan", "soon"])
def test_a_time_to_settle_that_is_none(given, diagnose):
    code, _out, err = diagnose("cloud", "arqs", f"--settle={given}")
    assert code == 2 and "no number of seconds from 0 to 3600" in err


def test_each_code_is_in_the_manual():
    manual = (SCHEMAS.parent / "cloud.rst").read_text()
    for code in findings.CODES:
        assert f"``{code.name}``" in manual
