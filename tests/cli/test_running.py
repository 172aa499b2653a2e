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

"""The command as it runs: on this machine, alone, and for as long as it is to watch."""

import json
import logging
import os
import subprocess
import sys

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost


def test_watch_tells_what_changed():
    """Where udev does not speak of the host, it looks every second."""
    with FakeHost.named("two-t4") as fake:
        command = [sys.executable, "-m", "cyborg_ext_drivers.cli.app", "watch"]
        watching = subprocess.Popen(
            [*command, "--host-root", str(fake.root), "-f", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in watching.stderr:
            if line.startswith("Watching"):
                break
        first = str(Surveyor().survey(Host(fake.root)).reported[0].address)
        fake.move_to_group(first, None)
        change = json.loads(watching.stdout.readline())
        watching.kill()
        watching.communicate()
    assert change["address"] == first
    assert (change["before"], change["after"]) == ("reported", "skipped")
    assert change["reason"] == "no-iommu-group"


def test_watch_ends_after_so_many_seconds(diagnose):
    code, out, _ = diagnose("watch", "--fake", "two-t4", "--for", "0.1")
    assert (code, out) == (0, "")


@pytest.mark.parametrize(
    "arguments", [[], ["host", "--all"], ["traits"], ["codes"], ["watch", "--for", "0"]]
)
def test_on_this_very_machine_it_gives_an_answer(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "cyborg_ext_drivers.cli.app", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert "cannot be listed" in done.stderr or "cannot be used" in done.stderr
    else:
        assert done.stdout or arguments[:1] == ["watch"]


def test_it_needs_neither_cyborg_nor_pyudev_nor_pynvml(tmp_path):
    """What is not installed cannot be imported; a stand-in that fails says the same."""
    for name in ("cyborg", "pyudev", "pynvml", "fixtures"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name} here')\n")
    with FakeHost.named("two-t4") as fake:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "cyborg_ext_drivers.cli.app", "host"),
                *("--host-root", str(fake.root), "-f", "json"),
            ],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert [row["verdict"] for row in json.loads(done.stdout)] == ["reported", "reported"]


def test_a_process_that_runs_the_command_keeps_its_own_logging(diagnose):
    """It would collect whatever its libraries say, in a handler more for each run."""
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    assert diagnose("-v", "host", "--fake", "two-t4")[0] == 0
    assert (root.level, root.handlers) == before
