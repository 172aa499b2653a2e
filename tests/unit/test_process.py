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

"""A program with a time limit: its end, its last words, and what it leaves behind."""

import os
import signal
import time

import pytest

from cyborg_ext_drivers.report import process


def shell(script, seconds=60, grace=5):
    return process.run(["/bin/sh", "-c", script], seconds, grace)


def is_alive(pid):
    """Return whether a process runs; one that has ended and is not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends(pid):
    """Return whether a process ends within some seconds."""
    for _ in range(100):
        if not is_alive(pid):
            return True
        time.sleep(0.1)
    return False


def test_the_exit_status_and_the_last_lines_of_both_outputs_are_known():
    ended = shell("echo a; echo b; echo c >&2; echo d; echo; echo e; exit 3")
    assert ended == process.Ended(3, False, ("b", "c", "d", "e"))


def test_a_program_that_says_nothing_has_no_last_lines():
    assert shell("exit 0") == process.Ended(0, False, ())


def test_nothing_comes_from_its_standard_input():
    assert shell("read answer || echo end of input").lines == ("end of input",)


def test_what_only_a_terminal_understands_is_left_out():
    ended = shell(r"printf 'a\r10%%\r\033[1;32m100%%\033[0m\nan \377 and a \007\n'")
    assert ended.lines == ("a", "10%", "100%", "an \ufffd and a")


def test_a_flood_of_output_is_read_and_forgotten():
    ended = shell("head -c 20000000 /dev/zero | tr '\\0' x; echo; echo done")
    assert ended.status == 0
    assert ended.lines[-1] == "done"
    assert sum(map(len, ended.lines)) < 1000


def test_a_program_that_is_killed_has_the_signal_as_its_status():
    assert shell("kill -KILL $$").status == -signal.SIGKILL


def test_a_child_that_holds_the_pipe_is_not_waited_for():
    ended = shell("sleep 300 & echo $!; exit 0", seconds=200)
    (child,) = map(int, ended.lines)
    try:
        assert (ended.status, ended.is_late) == (0, False)
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_what_takes_too_long_is_stopped_with_all_its_children():
    ended = shell("echo writing; sleep 300 & echo $!; wait", seconds=0.5)
    assert (ended.status, ended.is_late) == (-signal.SIGTERM, True)
    assert ended.lines[0] == "writing"
    assert ends(int(ended.lines[1]))


def test_it_may_tidy_up_before_it_is_killed():
    ended = shell("trap 'echo cancelled; exit 1' TERM; while :; do sleep 0.1; done", seconds=0.5)
    assert (ended.status, ended.is_late) == (1, True)
    assert ended.lines[-1] == "cancelled"


def test_what_ignores_that_is_killed():
    ended = shell("trap '' TERM; sleep 300 & echo $!; wait; sleep 300", seconds=0.5, grace=0.5)
    assert (ended.status, ended.is_late) == (-signal.SIGKILL, True)
    assert ends(int(ended.lines[0]))


def test_one_that_floods_is_stopped_in_time():
    began = time.monotonic()
    ended = shell("while :; do echo still writing; done", seconds=1)
    assert ended.is_late
    assert set(ended.lines) == {"still writing"}
    assert time.monotonic() - began < 60


def test_files_that_it_makes_are_not_for_everybody_to_write(tmp_path):
    before = os.umask(0)
    try:
        shell(f"touch {tmp_path}/made")
    finally:
        os.umask(before)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o644


def test_what_is_no_program_is_an_error():
    with pytest.raises(OSError):
        process.run(["/there/is/no/such/program"], 1)
