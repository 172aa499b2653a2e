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

"""What NVIDIA's management library says of the host's cards, asked in a child process.

NVML sees what is bound to ``nvidia`` only, needs libraries that fit the loaded module, and can
hang or crash (NVIDIA/go-nvml issue 152, NVIDIA/open-gpu-kernel-modules issue 1333).  So it tells of
health and use, and never decides what is reported.  The child is :mod:`._nvml_child`; it is started
only when somebody asks, a function is bound to ``nvidia``, and the library can be this host's.

Next stop: :mod:`cyborg_ext_drivers.checks.nvml`.
"""

import contextlib
import enum
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.host._nvml_document import Document, Gpu, InvalidDocument, read_document
from cyborg_ext_drivers.host.bus import PciFunctions
from cyborg_ext_drivers.host.kernel import BOOT_ID
from cyborg_ext_drivers.host.sysfs import Tree

__all__ = ["DRIVER", "VENDOR", "Gpu", "Nvml", "NvmlAnswer", "State"]

DRIVER = "nvidia"
VENDOR = "10de"
#: Where the loaded module says its version.
MODULE_VERSION = "/sys/module/nvidia/version"
_CHILD = str(pathlib.Path(__file__).with_name("_nvml_child.py"))
_MOST_BYTES = 4 << 20
# Of what it says besides, the end is kept; a library may be talkative.
_MOST_COMPLAINT = 16 << 20
_KEPT_COMPLAINT = 1 << 16
# A process that is killed is gone in milliseconds, or waits in the kernel for long.
_REAPING_SECONDS = 0.5


class State(enum.Enum):
    """How NVML answered."""

    ANSWERED = "answered"
    #: Nothing is bound to ``nvidia``, or the library is not known to be this host's.
    NOT_ASKED = "not-asked"
    #: The Python package nvidia-ml-py is not installed.
    NO_BINDING = "no-binding"
    NO_LIBRARY = "no-library"
    DRIVER_NOT_LOADED = "driver-not-loaded"
    VERSION_MISMATCH = "version-mismatch"
    NO_PERMISSION = "no-permission"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    #: What the child printed is not what it prints.
    MALFORMED = "malformed"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


# nvmlReturn_t in nvml.h, without NVML_ERROR_.
_STATES = {
    "NO_BINDING": State.NO_BINDING,
    "LIBRARY_NOT_FOUND": State.NO_LIBRARY,
    "DRIVER_NOT_LOADED": State.DRIVER_NOT_LOADED,
    "LIB_RM_VERSION_MISMATCH": State.VERSION_MISMATCH,
    "NO_PERMISSION": State.NO_PERMISSION,
    # A cgroup keeps the device away (nvml.h).
    "OPERATING_SYSTEM": State.NO_PERMISSION,
    "TIMEOUT": State.TIMEOUT,
}


class NvmlAnswer(NamedTuple):
    """What NVML says at one moment."""

    state: State
    #: Why it says no more, in words.
    detail: str = ""
    driver_version: str | None = None
    nvml_version: str | None = None
    #: The file that was loaded.
    library: str | None = None
    gpus: tuple[Gpu, ...] = ()

    def gpu(self, address: PciAddress) -> Gpu | None:
        """Return what is said of the card at an address; NVML's function number is always 0."""
        return next((each for each in self.gpus if each.address == address), None)


class Nvml:
    """NVML as one host has it; answers once for each look."""

    def __init__(self, tree: Tree, children: "Children | None" = None):
        self._tree = tree
        self._children = children or Children()
        self._answer: NvmlAnswer | None = None

    @property
    def answer(self) -> NvmlAnswer | None:
        """What was answered in this look, ``None`` where nobody asked."""
        return self._tree.nvml_answer or self._answer

    def again(self, tree: Tree) -> "Nvml":
        """Return the same to be asked anew, for another look at the host."""
        return Nvml(tree, self._children)

    def ask(self, functions: PciFunctions, library: str = "", timeout: float = 5.0) -> NvmlAnswer:
        """Return what NVML says of this host; nothing that goes wrong there is raised.

        :param library: the path of ``libnvidia-ml.so.1``, empty for what the loader finds.  Below
            a root that is not the running machine NVML is asked only if it is given.
        :param timeout: for so many seconds the answer is waited for.
        """
        if self._tree.nvml_answer is not None:
            return self._tree.nvml_answer
        if self._answer is None:
            self._answer = self._asked(functions, library, timeout)
        if self._answer.state is not State.NOT_ASKED:
            # It may be another one next time, and nothing that can be read tells.
            self._tree.doubt()
        return self._answer

    def _asked(self, functions: PciFunctions, library: str, timeout: float) -> NvmlAnswer:
        bound = [str(each.address) for each in functions.select(_is_nvidia) if _is_bound(each)]
        if not bound:
            return NvmlAnswer(State.NOT_ASKED, "no function is bound to nvidia")
        if not library and not self._is_this_machine():
            return NvmlAnswer(
                State.NOT_ASKED, "this is a copy of a host, and NVML would tell of another one"
            )
        return self._with_commands(answer_of(self._children.run([library, *bound], timeout)))

    def _is_this_machine(self) -> bool:
        """Return whether the root shows the machine that this runs on, as in a container."""
        if self._tree.is_live:
            return True
        try:
            here = self._tree.text(BOOT_ID)
            return here is not None and here == Tree("/").text(BOOT_ID)
        except ReadError:
            return False

    def _with_commands(self, answer: NvmlAnswer) -> NvmlAnswer:
        gpus = [
            gpu._replace(
                processes=tuple(
                    each._replace(command=self._command(each.pid)) for each in gpu.processes
                )
            )
            if gpu.processes is not None
            else gpu
            for gpu in answer.gpus
        ]
        return answer._replace(gpus=tuple(gpus))

    def _command(self, pid: int) -> str | None:
        """Return the name of a process, ``None`` where it is gone or hidden (proc(5))."""
        try:
            return self._tree.text(f"/proc/{pid}/comm") or None
        except ReadError:
            return None


class Finished(NamedTuple):
    """How a child ended."""

    output: bytes
    complaint: bytes
    #: Negative for a signal; ``None`` for one that did not end in time.
    returncode: int | None
    seconds: float
    #: Why none was started.
    failure: str = ""


class Children:
    """Starts one child at a time and leaves none behind."""

    def __init__(self) -> None:
        # One that even SIGKILL does not end: it waits in the kernel.
        self._stuck: subprocess.Popen | None = None

    def run(self, arguments: Iterable[str], seconds: float) -> Finished:
        """Run the child to its end, or for so many seconds at most.

        While one that was killed is still there, no second one joins it.
        """
        if self._stuck is not None:
            if self._stuck.poll() is None:
                return Finished(b"", b"", None, 0, "an earlier question still waits in the kernel")
            self._stuck = None
        started = time.monotonic()
        try:
            child = subprocess.Popen(
                [sys.executable, _CHILD, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                close_fds=True,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Finished(b"", b"", 1, 0, f"it cannot be started: {error}")
        try:
            with child.stdout, child.stderr:
                output, complaint = _read(child, started + seconds)
            returncode = _wait(child, started + seconds)
        finally:
            self._end(child)
        return Finished(output, complaint, returncode, seconds)

    def _end(self, child: subprocess.Popen) -> None:
        """Kill what still runs and reap it; remember one that does not go."""
        if child.poll() is not None:
            return
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        if _wait(child, time.monotonic() + _REAPING_SECONDS) is None:
            self._stuck = child


def _read(child: subprocess.Popen, deadline: float) -> tuple[bytes, bytes]:
    """Return what a child prints until it is done, has printed too much, or is late."""
    left_of = {child.stdout: _MOST_BYTES, child.stderr: _MOST_COMPLAINT}
    texts = {stream: bytearray() for stream in left_of}
    with selectors.DefaultSelector() as selector:
        for stream in texts:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _events in selector.select(left):
                stream: Any = key.fileobj
                data = os.read(stream.fileno(), 1 << 16)
                texts[stream] += data
                left_of[stream] -= len(data)
                del texts[child.stderr][:-_KEPT_COMPLAINT]
                if not data:
                    selector.unregister(stream)
                elif left_of[stream] < 0:
                    return bytes(texts[child.stdout]), bytes(texts[child.stderr])
    return bytes(texts[child.stdout]), bytes(texts[child.stderr])


def _wait(child: subprocess.Popen, deadline: float) -> int | None:
    """Return how a child ended, ``None`` when it is not gone at the deadline."""
    try:
        return child.wait(max(deadline - time.monotonic(), 0.001))
    except subprocess.TimeoutExpired:
        return None


def answer_of(finished: Finished) -> NvmlAnswer:
    """Return what a child that is gone, or not, has answered."""
    if finished.returncode is None and len(finished.output) <= _MOST_BYTES:
        waited = f"it did not answer within {finished.seconds:g} seconds"
        return NvmlAnswer(State.TIMEOUT, finished.failure or waited)
    if finished.failure:
        return NvmlAnswer(State.FAILED, finished.failure)
    if finished.returncode is not None and finished.returncode < 0:
        return NvmlAnswer(State.CRASHED, f"the process ended by {_signal(-finished.returncode)}")
    try:
        document = read_document(finished.output, _MOST_BYTES)
    except InvalidDocument as error:
        return NvmlAnswer(State.MALFORMED, f"{error}{_last_words(finished)}")
    return _answer(document)


def state_of(error: str) -> State:
    """Return what an error of NVML's means, by its name in nvml.h without ``NVML_ERROR_``."""
    return _STATES.get(error, State.FAILED)


def _answer(document: Document) -> NvmlAnswer:
    state, detail = State.ANSWERED, "; ".join(document.faults)
    if document.error is not None:
        name, text = document.error
        state = state_of(name)
        detail = f"{name}: {text}"
    return NvmlAnswer(
        state,
        detail,
        document.driver_version,
        document.nvml_version,
        document.library,
        document.gpus,
    )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_words(finished: Finished) -> str:
    lines = finished.complaint.decode("utf-8", "replace").strip().splitlines()
    words = "".join(c if c.isprintable() else " " for c in lines[-1]) if lines else ""
    return f" ({words[:200]})" if words else ""


def _is_nvidia(identity) -> bool:
    return identity.id.vendor == VENDOR and identity.pci_class.is_accelerator


def _is_bound(function) -> bool:
    """Return whether NVML should list a function; it knows no virtual ones."""
    try:
        return (
            function.identity is not None
            and function.driver == DRIVER
            and function.physical_function is None
        )
    except ReadError:
        return False
