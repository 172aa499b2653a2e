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

"""Runs drivers on hosts, each driver in a process that sees the host as its own."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from cyborg_ext_drivers import errors
from cyborg_ext_drivers.testing import _umockdev
from cyborg_ext_drivers.testing.conformance.codes import Violation

_MOST_SECONDS = 3600


@dataclasses.dataclass(frozen=True)
class Place:
    """A host to try a driver on; one in a snapshot is described first (:mod:`.captured`)."""

    name: str
    #: ``fake``: a described host, by its name or file; ``root``: a directory with sys/ in it.
    kind: str
    where: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one driver on one host."""

    driver: str
    host: str
    devices: int
    violations: tuple[Violation, ...]
    #: Why it could not be tried; empty when it was.
    impossible: str = ""


class CannotRun(errors.ExtDriversError):
    """Something that a trial needs is not on this machine, or its process failed."""


def check_tools() -> None:
    """Raise when this machine has not what drivers are tried with.

    :raises UmockdevMissing: without umockdev.
    :raises CannotRun: without lspci, Cyborg or Placement.
    """
    _umockdev.environment("/")
    if shutil.which("lspci") is None:
        raise CannotRun("lspci is not on this machine; install the package pciutils")
    for package in ("cyborg", "placement"):
        if importlib.util.find_spec(package) is None:
            raise CannotRun(
                f"there is no Python package {package}: install 'cyborg-ext-drivers[stack]'"
            )


def try_driver(
    driver: str,
    places: Sequence[Place],
    settings: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Outcome]:
    """Return what a driver does on each of the hosts.

    :param driver: its entry point in ``cyborg.accelerator.driver``.
    :param settings: further content of cyborg.conf, group to option to value.
    :raises UmockdevMissing: without umockdev.
    :raises CannotRun: when the process fails.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
        request, answer = (pathlib.Path(directory, name) for name in ("request", "answer"))
        hosts = [dataclasses.asdict(place) for place in places]
        asked = {"driver": driver, "hosts": hosts, "settings": settings or {}}
        request.write_text(json.dumps(asked))
        _run(directory, str(request), str(answer))
        return [_outcome(driver, row) for row in json.loads(answer.read_text())]


def _run(directory: str, *arguments: str) -> None:
    # Until a host is chosen nothing is redirected; the preloaded library stays for all of it.
    environment = {**os.environ, **_umockdev.environment("/"), "TMPDIR": directory}
    del environment["UMOCKDEV_DIR"]
    command = [sys.executable, "-m", "cyborg_ext_drivers.testing.conformance.child", *arguments]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CannotRun(f"the driver did not end within {_MOST_SECONDS} seconds") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise CannotRun(f"the process that runs the driver failed: {said[-1]}")


def _outcome(driver: str, row: dict) -> Outcome:
    found = tuple(Violation(code, driver, row["host"], text) for code, text in row.get("found", ()))
    impossible = row.get("impossible", "")
    return Outcome(driver, row["host"], row.get("devices", 0), found, impossible)
