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


"""The ledger as a file, so that a restart of the agent forgets nothing.

One small JSON file per driver and ``[DEFAULT] host``, in ``[ext_drivers] state_dir``::

    {"version": 1, "driver": "ext_nvidia_gpu_driver", "host": "compute-1",
     "cards": {"0000:3b:00.0": {"missed": 0, "reason": null, "iommu_group": 31,
                                "report": {...}}}}

It is replaced as a whole (rename(2)), so that whoever reads it, after whatever crash, finds
the old one or the new one.

Next stop: :mod:`cyborg_ext_drivers.report.driver`.
"""

import contextlib
import dataclasses
import glob
import json
import os
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

from oslo_log import log

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.host.text import UnusableFile, read_text
from cyborg_ext_drivers.report import contract
from cyborg_ext_drivers.report.contract import DeployableReport, DeviceReport
from cyborg_ext_drivers.report.ledger import Entry

LOG = log.getLogger(__name__)
VERSION = 1
_MOST_BYTES = 64 << 20


class StateError(ExtDriversError):
    """The file of a ledger cannot be read, or is none of this driver and host."""

    def __init__(self, path: str, reason: str):
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path} does not tell what was reported before: {self.reason}"


class StateFile:
    """Where the ledger of one driver on one host is kept."""

    def __init__(self, directory: str, driver: str, hostname: str):
        self.path = os.path.join(directory, f"{driver}.{urllib.parse.quote(hostname, '')}.json")
        self._directory = directory
        self._driver = driver
        self._hostname = hostname
        self._is_written = True

    def read(self) -> dict[str, Entry]:
        """Return what the file holds, by address; nothing where there is none.

        :raises StateError: when it cannot be read or holds something else.
        """
        try:
            os.lstat(self.path)
            return self._entries(json.loads(read_text(self.path, _MOST_BYTES)))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(self.path, error.strerror or str(error)) from None
        except UnusableFile as error:
            raise StateError(self.path, str(error)) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            raise StateError(self.path, f"it is damaged ({reason})") from None

    def load(self) -> dict[str, Entry]:
        """Return what the file holds; one that is of no use is set aside with a warning."""
        try:
            return self.read()
        except StateError as error:
            LOG.warning("%s. %s; cards are reported as they are now", error, self._set_aside())
            return {}

    def save(self, entries: Mapping[str, Entry]) -> None:
        """Replace the file; where that cannot be done, one warning says so."""
        document = {
            "version": VERSION,
            "driver": self._driver,
            "host": self._hostname,
            "cards": {name: dataclasses.asdict(entry) for name, entry in entries.items()},
        }
        try:
            os.makedirs(self._directory, exist_ok=True)
            _replace(self.path, json.dumps(document, indent=1, sort_keys=True).encode())
        except OSError as error:
            if self._is_written:
                LOG.warning(
                    "%s cannot be written (%s); what is reported is remembered until the agent "
                    "ends. Let the user of cyborg-agent write to %s, or set [ext_drivers] "
                    "state_dir",
                    self.path,
                    error.strerror or error,
                    self._directory,
                )
            self._is_written = False
        else:
            self._is_written = True

    def others(self) -> dict[str, set[str]]:
        """Return what the same driver told of this machine by other host names, by path."""
        prefix = os.path.join(glob.escape(self._directory), f"{self._driver}.")
        found = {}
        for path in sorted(glob.glob(f"{prefix}*.json")):
            hostname = urllib.parse.unquote(path[len(self._directory) + 1 :])
            hostname = hostname.removeprefix(f"{self._driver}.").removesuffix(".json")
            if path != self.path:
                with contextlib.suppress(StateError):
                    found[path] = set(StateFile(self._directory, self._driver, hostname).read())
        return found

    def _set_aside(self) -> str:
        """Rename the file and return what became of it."""
        aside = f"{self.path}.{time.strftime('%Y%m%dT%H%M%S')}"
        try:
            os.replace(self.path, aside)
        except OSError as error:
            return f"It cannot be set aside ({error.strerror or error})"
        return f"It is set aside as {aside}"

    def _entries(self, document: Any) -> dict[str, Entry]:
        for key, mine in (
            ("version", VERSION),
            ("driver", self._driver),
            ("host", self._hostname),
        ):
            if document[key] != mine:
                raise ValueError(f"{key} is {document[key]!r}, not {mine!r}")
        return {name: _entry(name, raw) for name, raw in document["cards"].items()}


def _entry(name: str, raw: Any) -> Entry:
    report = _report(raw["report"])
    faults = contract.violations(report)
    if faults or PciAddress.parse(name).to_json() != report.cpid_info:
        raise ValueError("; ".join(faults) or f"{name} has the report of another card")
    entry = Entry(report, raw["missed"], raw["reason"], raw["iommu_group"])
    if type(entry.missed) is not int or entry.missed < 0:
        raise ValueError(f"missed is {entry.missed!r}")
    if not isinstance(entry.reason, str | None) or not isinstance(entry.iommu_group, int | None):
        raise ValueError(f"reason is {entry.reason!r}, iommu_group {entry.iommu_group!r}")
    return entry


def _report(raw: Any) -> DeviceReport:
    parts = tuple(
        DeployableReport(
            _text(part["name"]),
            _text(part["driver_name"]),
            _pairs(part["attributes"]),
            _pairs(part["handles"]),
        )
        for part in raw["deployables"]
    )
    names = [field.name for field in dataclasses.fields(DeviceReport)]
    texts = {name: _text(raw[name]) for name in names if name != "deployables"}
    return DeviceReport(**texts, deployables=parts)


def _pairs(raw: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(one), _text(other)) for one, other in raw)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _replace(path: str, data: bytes) -> None:
    """Put a new file in the place of an old one, safely on the disk first."""
    new = f"{path}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o644), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
