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
     "cards": {"0000:3b:00.0": {"missed": 0, "reason": null, "iommu_groups": [31],
                                "boot_id": "5c8f...", "report": {...}}}}

It is replaced as a whole (rename(2)), so that whoever reads it, after whatever crash, finds
the old one or the new one.

Next stop: :mod:`cyborg_ext_drivers.report.driver`.
"""

import contextlib
import dataclasses
import errno
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
_MOST_BYTES = 8 << 20
_OPTION = "[ext_drivers] state_dir"
# The file is as good as it was; the machine is short of something, or its disk does not answer.
_PASSING = frozenset(
    (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT)
)
# Something may be there, and is not for this user, or not at this place, to be read.
_OUT_OF_REACH = frozenset((errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG))


class StateError(ExtDriversError):
    """The file of a ledger cannot be read, or is none of this driver and host."""

    def __init__(self, path: str, reason: str, errno: int | None = None):
        self.path = path
        self.reason = reason
        #: What the kernel said, ``None`` when the file could be read.
        self.errno = errno
        super().__init__(path, reason, errno)

    def __str__(self) -> str:
        return f"{self.path} does not tell what was reported before: {self.reason}"


class StateFile:
    """Where the ledger of one driver on one host is kept."""

    def __init__(self, directory: str, driver: str, hostname: str):
        self.path = os.path.join(directory, f"{driver}.{urllib.parse.quote(hostname, '')}.json")
        self._directory = directory
        self._driver = driver
        self._hostname = hostname
        #: What the file holds, as far as it is known.
        self._kept: Mapping[str, Entry] | None = None
        self._is_warned = False
        self._is_out_of_reach = False

    def read(self) -> dict[str, Entry]:
        """Return what the file holds, by address; nothing where there is none.

        :raises StateError: when it cannot be read or holds something else.
        """
        try:
            os.lstat(self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(self.path, error.strerror or str(error), error.errno) from None
        try:
            return self._entries(json.loads(read_text(self.path, _MOST_BYTES)))
        except UnusableFile as error:
            raise StateError(self.path, error.reason, error.errno) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            raise StateError(self.path, f"it is damaged ({reason})") from None

    def load(self) -> dict[str, Entry]:
        """Return what the file holds.

        One that is damaged or foreign is set aside, and one that is out of reach left alone,
        with a warning.

        :raises StateError: when it cannot be read at the moment; whoever reported without it
            might leave out what an instance holds.
        """
        self._kept = None
        try:
            self._kept = self.read()
        except StateError as error:
            if error.errno in _PASSING:
                raise
            self._is_out_of_reach = error.errno in _OUT_OF_REACH
            remedy = (
                f"Let the user of cyborg-agent read and write it, or set {_OPTION}"
                if self._is_out_of_reach
                else self._set_aside()
            )
            LOG.warning("%s. %s; cards are reported as they are now", error, remedy)
        return dict(self._kept or {})

    def save(self, entries: Mapping[str, Entry]) -> None:
        """See to it that the file holds this; where that cannot be done, one warning says so."""
        is_there = os.path.lexists(self.path) or not entries
        if self._is_out_of_reach or (entries == self._kept and is_there):
            return
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
            self._kept = None
            self._warn(error)
        else:
            self._kept = dict(entries)
            self._is_warned = False

    def others(self) -> dict[str, set[str]]:
        """Return what the same driver told of this machine by other host names, by path."""
        prefix = os.path.join(glob.escape(self._directory), f"{self._driver}.")
        found = {}
        for path in sorted(glob.glob(f"{prefix}*.json")):
            name = os.path.basename(path).removeprefix(f"{self._driver}.").removesuffix(".json")
            if path == self.path:
                continue
            # What is none of this driver's files tells nothing, and is nobody's to mend here.
            with contextlib.suppress(StateError):
                other = StateFile(self._directory, self._driver, urllib.parse.unquote(name))
                found[path] = set(other.read())
        return {path: addresses for path, addresses in found.items() if addresses}

    def _warn(self, error: OSError) -> None:
        if not self._is_warned:
            LOG.warning(
                "%s cannot be written (%s: %s); what is reported is remembered until the agent "
                "ends. Let the user of cyborg-agent write to %s, or set %s",
                self.path,
                error.filename or self.path,
                error.strerror or error,
                self._directory,
                _OPTION,
            )
        self._is_warned = True

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
        entries = {name: self._entry(name, raw) for name, raw in document["cards"].items()}
        _refuse_doubles(entries)
        return entries

    def _entry(self, name: str, raw: Any) -> Entry:
        report = _report(raw["report"])
        address = PciAddress.parse(name)
        if str(address) != name or address.to_json() != report.cpid_info:
            raise ValueError(f"{name} has the report of another card")
        # A card may be given away by other functions of its slot.
        start = f"{self._hostname}_{name[:-1]}"
        faults = contract.violations(report)
        faults += [
            f"{each.name!r} is no deployable of {name} on {self._hostname}"
            for each in report.deployables
            if not each.name.startswith(start)
        ]
        if faults:
            raise ValueError("; ".join(faults))
        return Entry(
            report,
            _count("missed", raw["missed"]),
            _text(raw["reason"], or_none=True),
            tuple(_count("iommu_groups", each) for each in raw["iommu_groups"]),
            _text(raw["boot_id"], or_none=True),
        )


def _refuse_doubles(entries: Mapping[str, Entry]) -> None:
    handles = [
        handle
        for entry in entries.values()
        for deployable in entry.report.deployables
        for handle in deployable.handles
    ]
    if len(set(handles)) != len(handles):
        raise ValueError("two cards have the same attach handle")


def _count(key: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{key} is {value!r}")
    return value


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
    for name in ("std_board_info", "vendor_board_info"):
        if not isinstance(json.loads(texts[name]), dict):
            raise ValueError(f"{name} is no object of JSON")
    return DeviceReport(**texts, deployables=parts)


def _pairs(raw: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(one), _text(other)) for one, other in raw)


def _text(value: Any, or_none: bool = False) -> str | None:
    if value is None and or_none:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    # JSON can hold half of a character, which no database takes.
    value.encode()
    return value


def _replace(path: str, data: bytes) -> None:
    """Put a new file in the place of an old one, safely on the disk first."""
    new = f"{path}.new"
    # Of a crash, or a FIFO that would be waited for.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
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
