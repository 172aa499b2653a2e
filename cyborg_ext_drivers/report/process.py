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

"""A program that is run with a time limit, and the end of what it said.

Next stop: :mod:`cyborg_ext_drivers.report.tools`.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

# So long it is waited for after SIGTERM, in which fpgasupdate tidies up, and after SIGKILL.
_GRACE = 5.0
_TICK = 0.05
_MOST_KEPT = 16 << 10
# More than a pipe holds, so that the last words of a program that has ended are among it.
_MOST_AT_ONCE = 1 << 20
_MOST_LINES = 4
_MOST_COLUMNS = 200
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ended(NamedTuple):
    """How a program ended."""

    #: Its exit status, or the number of a signal with a minus; ``None`` if nothing ends it.
    status: int | None
    #: Whether it was stopped, as it took too long.
    is_late: bool
    #: The last lines that it wrote to its standard output and error.
    lines: tuple[str, ...]


def run(command: Sequence[str], seconds: float, grace: float = _GRACE) -> Ended:
    """Run a program with nothing on its standard input and wait for its end.

    What it leaves behind is not waited for, even if that holds the pipe of its output.  When
    the time is over, its process group gets SIGTERM and then SIGKILL.

    :raises OSError: when it cannot be started.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        # That of a privsep daemon is 0.
        umask=0o022,
        start_new_session=True,
    )
    with process.stdout:
        tail = _Tail(process.stdout.fileno())
        is_late = True
        try:
            is_late = not _waited(process.pid, seconds, tail)
        finally:
            if is_late:
                _stop(process.pid, grace, tail)
        status = process.wait() if _has_ended(process.pid) else None
        return Ended(status, is_late, tail.lines())


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended; its number stays its own until it is waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _waited(pid: int, seconds: float, tail: "_Tail") -> bool:
    """Wait for the end of a child, and return whether it came."""
    until = time.monotonic() + seconds
    while True:
        # In this order: what it has said before its end is in the pipe then.
        has_ended = _has_ended(pid)
        tail.read()
        if has_ended or time.monotonic() >= until:
            return has_ended
        time.sleep(_TICK)


def _stop(pid: int, grace: float, tail: "_Tail") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        _waited(pid, grace, tail)


class _Tail:
    """The end of what comes out of a pipe."""

    def __init__(self, number: int):
        os.set_blocking(number, False)
        self._number = number
        self._kept = b""

    def read(self) -> None:
        """Read what is there."""
        left = _MOST_AT_ONCE
        with contextlib.suppress(BlockingIOError):
            while left > 0 and (data := os.read(self._number, 1 << 16)):
                left -= len(data)
                self._kept = (self._kept + data)[-_MOST_KEPT:]

    def lines(self) -> tuple[str, ...]:
        """Return the last lines, without what only a terminal understands."""
        text = _ESCAPES.sub("", self._kept.decode(errors="replace"))
        # A progress bar writes over its line.
        lines = (
            "".join(filter(str.isprintable, line)).strip() for line in re.split(r"[\r\n]+", text)
        )
        return tuple(line[:_MOST_COLUMNS] for line in lines if line)[-_MOST_LINES:]
