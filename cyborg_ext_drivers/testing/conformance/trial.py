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

"""One driver on one host: what it reports, what Cyborg makes of it, what changes it.

It runs in a process of its own, to which the host is its own (:mod:`.running`).
"""

import contextlib
import dataclasses
import os
import pathlib
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cyborg.common import constants

from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.conformance import rules
from cyborg_ext_drivers.testing.conformance.record import record
from cyborg_ext_drivers.testing.stack import Stack

HOSTNAME, OTHER_HOSTNAME = "compute-1", "compute-2"
Found = Iterator[tuple[str, str]]
Report = list[dict[str, Any]]


class Impossible(Exception):
    """The driver cannot be tried; the text says why."""


@dataclasses.dataclass
class Trial:
    """A driver, the root of a host, and the fake host at it where that can be changed."""

    driver: str
    root: pathlib.Path
    fake: FakeHost | None = None
    settings: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    #: How many devices it reported.
    devices: int = 0

    def run(self) -> Found:
        """Yield each violation as code and evidence.

        :raises Impossible: when the driver cannot be loaded, or has no ``discover``.
        """
        with self._stack(HOSTNAME) as stack:
            driver = self._load(stack)
            try:
                first = record(driver.discover())
            except Exception as error:
                yield "discovery-fails", _said(error)
                return
            self.devices = len(first)
            yield from rules.judge(first, HOSTNAME, constants.DEVICE_TYPE)
            if first:
                yield from self._steady(driver, first)
                yield from self._taken(stack, first)
        if not first:
            return
        yield from self._other_name(first)
        if self.fake is not None:
            with self._stack(HOSTNAME) as stack:
                yield from self._changed(self._load(stack), first)
            yield from self._held(rules.handles(first))

    def _stack(self, hostname: str) -> Stack:
        # The machine's own name, which is another one than [DEFAULT] host of cyborg.conf here.
        socket.gethostname = lambda: hostname.replace("compute", "node")
        state = tempfile.mkdtemp(dir=os.environ["TMPDIR"])
        options: dict[str, dict[str, Any]] = {
            # For drivers that can look elsewhere than at /; others overlook it.
            "ext_drivers": {"host_root": self.root, "state_dir": f"{state}/ext"},
        }
        for group, values in self.settings.items():
            options[group] = {**options.get(group, {}), **values}
        return Stack(
            hostname, [self.driver], options=options, state_dir=state, in_process_privileges=True
        )

    def _load(self, stack: Stack) -> Any:
        try:
            (driver,) = stack.new_tracker().acc_drivers
        except Exception as error:
            raise Impossible(f"it cannot be loaded: {_said(error)}") from None
        if not callable(getattr(driver, "discover", None)):
            raise Impossible("it has no discover(), so no agent can use it")
        return driver

    def _steady(self, driver: Any, first: Report) -> Found:
        yield from _differences("report-unsteady", "a second discovery", first, driver)
        physical = _physical_functions(rules.handles(first))
        yield from rules.together(first, physical)

    def _taken(self, stack: Stack, first: Report) -> Found:
        try:
            stack.report()
            stack.clear_writes()
            stack.report()
        except Exception as error:
            yield "report-fails", _said(error)
            return
        there = {device.cpid_info for device in stack.devices()}
        providers = {provider.name: provider for provider in stack.providers()}
        for device in first:
            names = [part["name"] for part in device["deployables"]]
            gone = [name for name in names if name not in providers]
            if device["cpid_info"] not in there or gone:
                what = ", ".join(map(str, gone)) or device["cpid_info"]
                logged = [line for line in stack.logs if line.startswith("ERROR")]
                said = f"; logged: {logged[-1].splitlines()[0][:200]}" if logged else ""
                said += "; the driver calls it a stub" if device["stub"] is True else ""
                yield "report-not-taken", f"{what} is not in Placement{said}"
        if stack.writes():
            written = ", ".join(" ".join(each) for each in stack.writes()[:2])
            yield "idle-report-writes", f"the second report of the same host: {written}"
        for part in (part for device in stack.devices() for part in device.deployables):
            known = providers.get(part.name)
            if known is not None and set(known.traits) != set(part.traits):
                lost = ", ".join(sorted(set(part.traits) ^ set(known.traits)))
                yield "traits-differ", f"{part.name}: {lost}"

    def _other_name(self, first: Report) -> Found:
        with self._stack(OTHER_HOSTNAME) as stack:
            try:
                second = record(self._load(stack).discover())
            except Exception:
                return
        both = _names(first) & _names(second)
        for name in sorted(both):
            yield "name-not-unique", f"{name} on {HOSTNAME} and on {OTHER_HOSTNAME}"

    def _changed(self, driver: Any, first: Report) -> Found:
        """Yield what changes the report though the hardware stays; each change is undone."""
        with contextlib.suppress(Exception):
            driver.discover()
        for code, what, change in _changes(self.fake, rules.handles(first)):
            with self.fake.undone(), _environment():
                try:
                    change(self.fake)
                except (ValueError, LookupError, OSError):
                    continue
                yield from _differences(code, what, first, driver)
            with contextlib.suppress(Exception):
                driver.discover()

    def _held(self, addresses: list[str]) -> Found:
        """Yield whether a card that goes while an instance has it stops the host's report."""
        there = {str(each.address) for each in self.fake.description.functions}
        gone = [address for address in addresses if address in there]
        with self._stack(HOSTNAME) as stack, self.fake.undone():
            try:
                stack.report()
                _bind_all(stack)
            except Exception:
                return
            held = {
                rules.address_of(handle.info)
                for device in stack.devices()
                for part in device.deployables
                for handle in part.attach_handles
                if handle.in_use
            }
            for address in (each for each in gone if each in held):
                self.fake.remove_function(address)
                try:
                    stack.report()
                except Exception as error:
                    yield (
                        "held-device-stops-report",
                        f"a card that an instance has is gone for once: {_said(error)}",
                    )
                return


def _bind_all(stack: Stack) -> None:
    """Let instances take one accelerator of each deployable's resource class."""
    classes = {part.resource_class for device in stack.devices() for part in device.deployables}
    for name in sorted(filter(None, classes)):
        with contextlib.suppress(Exception):
            stack.bind([{f"resources:{name}": "1"}])


def _changes(fake: FakeHost, addresses: list[str]) -> Iterator[tuple[str, str, Callable]]:
    there = {str(each.address): each for each in fake.description.functions}
    for address in (each for each in addresses if each in there):
        code = "report-follows-driver"
        yield code, f"{address} bound to nothing", lambda fake, a=address: fake.unbind(a)
        yield code, f"{address} bound to vfio-pci", lambda fake, a=address: fake.bind(a, "vfio-pci")
        yield "report-follows-power", f"{address} asleep", lambda fake, a=address: _suspend(fake, a)
        for name in ("vendor", "class", "uevent", "numa_node"):
            yield (
                "report-follows-reading",
                f"{name} of {address} unreadable",
                lambda fake, a=address, n=name: fake.make_unreadable(a, n),
            )
        # One card tells what there is to tell, and a host may have hundreds of them.
        break
    bus = "/sys/bus/pci/devices"
    code = "empty-when-unlistable"
    yield code, f"{bus} cannot be listed", lambda fake: fake.make_directory_unlistable(bus)
    yield code, "lspci is missing", lambda fake: os.environ.update(PATH="/nonexistent")


def _suspend(fake: FakeHost, address: str) -> None:
    fake.set_attribute(address, "power_state", "D3cold")
    fake.set_attribute(address, "power/runtime_status", "suspended")


def _differences(code: str, what: str, first: Report, driver: Any) -> Found:
    """Yield how a report differs from the first one; to raise is no difference."""
    try:
        now = record(driver.discover())
    except Exception:
        return
    if now == first:
        return
    lost = sorted(_names(first) - _names(now))
    if code == "report-follows-reading" and lost:
        code = "shorter-when-unreadable"
    yield code, f"{what}: {_difference(first, now)}"


def _difference(first: Report, now: Report) -> str:
    lost, new = sorted(_names(first) - _names(now)), sorted(_names(now) - _names(first))
    if lost or new:
        parts = [f"without {', '.join(lost[:3])}"] if lost else []
        parts += [f"with {', '.join(new[:3])}"] if new else []
        return f"the report is {' and '.join(parts)}"
    if sorted(map(repr, first)) == sorted(map(repr, now)):
        return "the order of the devices is another one"
    pairs = [(old, new) for old, new in zip(first, now) if old != new]
    fields = sorted({name for old, new in pairs for name in old if old[name] != new[name]})
    return f"{', '.join(fields) or 'the order'} of {len(pairs)} devices differ"


def _names(report: Report) -> set[str]:
    return {part["name"] for device in report for part in device["deployables"]}


def _physical_functions(addresses: list[str]) -> dict[str, str]:
    """Return the physical function of each virtual one, as this process's own /sys has it."""
    found = {}
    for address in addresses:
        with contextlib.suppress(OSError):
            link = os.readlink(f"/sys/bus/pci/devices/{address}/physfn")
            found[address] = os.path.basename(link)
    return found


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = os.environ["PATH"]
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {' '.join(lines)[:200]}"
