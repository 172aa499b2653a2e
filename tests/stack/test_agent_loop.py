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

"""An agent that runs for months needs no more memory, descriptors or log than one of a day.

Hosts change in most cycles here, and all of it over and over: after each round the host is as
it was before, so whatever has grown since was left behind.  ``CYBORG_EXT_FUZZ_CYCLES`` says
how many cycles go through the real conductor (200 without it); ``tox -e fuzz`` makes 5,000.
"""

import contextlib
import dataclasses
import gc
import logging
import os
import pathlib
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.stack import Stack

DRIVER = "ext_nvidia_gpu_driver"
FIRST, SECOND = "0000:3b:00.0", "0000:d8:00.0"
STATE = "/var/lib/cyborg/ext_drivers"
CYCLES = int(os.environ.get("CYBORG_EXT_FUZZ_CYCLES", "200"))
#: So many cycles fill what is kept for good: what is imported late, remembered texts, pools.
WARM_UP = 100
#: A driver alone is quick, so it makes more cycles.
ALONE = 5
#: Bytes that a process may hold more or less at any moment; a leak of one number a cycle is more.
#: Python 3.10 goes on filling caches of code that has run a thousand times, a few bytes in each.
SLACK = 16384 if sys.version_info >= (3, 11) else 1 << 18


# What happens


@dataclasses.dataclass(frozen=True)
class Step:
    """What happens to the host before one cycle, and how many lines the log has of it."""

    name: str
    change: Callable[[FakeHost], object] = lambda fake: None
    lines: int = 0


def power(state: str, runtime: str) -> Callable[[FakeHost], object]:
    """Return the change to what the kernel says of the first card's power."""

    def change(fake: FakeHost) -> None:
        fake.set_attribute(FIRST, "power_state", state)
        fake.set_attribute(FIRST, "power/runtime_status", runtime)

    return change


STEPS = (
    Step("nothing"),
    Step("bound to the host's driver", lambda fake: fake.bind(FIRST, "nvidia")),
    Step("nothing"),
    Step("set aside", lambda fake: fake.bind(FIRST, "pci-stub"), lines=1),
    Step("bound to vfio-pci", lambda fake: fake.bind(FIRST, "vfio-pci"), lines=1),
    Step("unbound", lambda fake: fake.unbind(FIRST)),
    Step("unreadable", lambda fake: fake.make_unreadable(FIRST, "numa_node"), lines=1),
    Step("still unreadable"),
    Step("readable", lambda fake: fake.make_readable(FIRST, "numa_node"), lines=1),
    Step("gone for a moment", lambda fake: fake.remove_function(SECOND), lines=1),
    Step("back", lambda fake: fake.put_back(SECOND), lines=1),
    Step("asleep", power("D3hot", "suspended")),
    Step("without power", power("D3cold", "error"), lines=1),
    Step("awake", power("D0", "active"), lines=1),
    Step("without group", lambda fake: fake.move_to_group(FIRST, None), lines=1),
    Step("in another group", lambda fake: fake.move_to_group(FIRST, 31), lines=1),
    Step("in its group", lambda fake: fake.move_to_group(FIRST, 27)),
    Step("taken out", lambda fake: fake.remove_function(SECOND), lines=1),
    Step("still out"),
    Step("withdrawn", lines=1),
    Step("forgotten"),
    Step("put in again", lambda fake: fake.put_back(SECOND), lines=1),
)


# What is left behind


@dataclasses.dataclass(frozen=True)
class Traces:
    """What a process and its host hold at one moment, after all garbage was collected."""

    descriptors: int
    threads: int
    #: How many objects there are of the drivers' own classes.
    objects: int
    #: Names and sizes of the files of the state.
    state: dict[str, int]

    @classmethod
    def of(cls, fake: FakeHost) -> "Traces":
        """Return what is held now; what a server's threads still hold is waited for."""
        for thread in threading.enumerate():
            if "process_request_thread" in thread.name:
                thread.join(10)
        gc.collect()
        return cls(
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            sum(is_own(type(each)) for each in gc.get_objects()),
            {path.name: path.stat().st_size for path in fake.path(STATE).iterdir()},
        )


def is_own(kind: type) -> bool:
    """Return whether a class is the drivers' own, or what they hand to Cyborg."""
    name = str(kind.__module__)
    if name.startswith("cyborg.objects.driver_objects"):
        return True
    return name.startswith("cyborg_ext_drivers") and ".testing" not in name


def allocated() -> int:
    """Return how many bytes all Python code of this process holds, while that is traced."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Let :func:`allocated` know what is allocated meanwhile."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def resident() -> int:
    """Return how many KiB of memory this process has."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


# The agent


class Lines(logging.Handler):
    """What the drivers log above DEBUG.

    While it is used, nothing else keeps the lines; pytest would, and look like a leak.
    """

    def __init__(self):
        super().__init__(logging.INFO)
        self.count = 0
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self._lines.append(record.getMessage())
        self.count += 1

    def taken(self) -> list[str]:
        """Return the lines since this was asked last."""
        lines, self._lines = self._lines, []
        return lines

    def __enter__(self) -> "Lines":
        logger = logging.getLogger("cyborg_ext_drivers")
        self._before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        return self

    def __exit__(self, *_error) -> None:
        logger = logging.getLogger("cyborg_ext_drivers")
        logger.removeHandler(self)
        logger.setLevel(self._before[0])
        logger.propagate = self._before[1]


@pytest.fixture
def fake() -> Iterator[FakeHost]:
    """Return the host that changes."""
    with FakeHost.named("two-t4") as host:
        yield host


@pytest.fixture
def stack(fake) -> Iterator[Stack]:
    """Return the services."""
    with Stack(drivers=[DRIVER], options={"ext_drivers": {"host_root": str(fake.root)}}) as started:
        yield started


def play(cycles: int, fake: FakeHost, cycle: Callable[[], object], log: Lines) -> int:
    """Let all steps happen over and over, check what is logged, return how many cycles it was."""
    rounds = -(-cycles // len(STEPS))
    for _ in range(rounds):
        for step in STEPS:
            step.change(fake)
            cycle()
            lines = log.taken()
            assert len(lines) == step.lines, (step.name, lines)
    return rounds * len(STEPS)


def test_the_agents_cycles_leave_nothing_behind(fake, stack):
    with Lines() as log:
        stack.report()
        assert "2 reported" in "".join(log.taken())
        play(WARM_UP, fake, stack.report, log)
        before, memory, started = Traces.of(fake), resident(), time.monotonic()
        count = play(CYCLES, fake, stack.report, log)
        spent, after = time.monotonic() - started, Traces.of(fake)
        # For who runs it with --capture=no, or looks why it failed.
        print(
            f"{count} cycles of the agent, {log.count} lines, {spent:.0f} s: "
            f"{before}, {memory} KiB became {after}, {resident()} KiB"
        )
    assert after == before
    assert not [line for line in stack.logs if line.startswith("ERROR")]
    names = {provider.name for provider in stack.providers()}
    assert names == {f"compute-1_{FIRST}", f"compute-1_{SECOND}"}


def test_a_drivers_discoveries_leave_nothing_behind(fake, stack):
    (driver,) = stack.new_tracker().acc_drivers
    with Lines() as log, traced():
        driver.discover()
        log.taken()
        play(WARM_UP, fake, driver.discover, log)
        before, held, memory = Traces.of(fake), allocated(), resident()
        started = time.monotonic()
        count = play(CYCLES * ALONE, fake, driver.discover, log)
        spent, after, holds = time.monotonic() - started, Traces.of(fake), allocated()
        print(
            f"{count} discoveries, {log.count} lines, {spent:.0f} s: "
            f"{before}, {held} bytes, {memory} KiB became {after}, {holds} bytes, {resident()} KiB"
        )
    assert after == before
    assert holds - held < SLACK
