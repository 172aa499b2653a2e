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

"""A host in memory, which answers as its files did when they were captured.

What a read means is told by :mod:`cyborg_ext_drivers.host.directory` alone; here are only the raw
answers, errors included, by the rules of path_resolution(7).  What was not captured is absent.

Next stop: :mod:`cyborg_ext_drivers.snapshot.capture`.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cyborg_ext_drivers.errors import ReadError, Unreadable
from cyborg_ext_drivers.host._reading import PAGE as _PAGE
from cyborg_ext_drivers.host._reading import (
    WORDS,
    Head,
    is_there,
    list_names,
    read_link,
    reason,
)
from cyborg_ext_drivers.host.directory import Directory
from cyborg_ext_drivers.host.nvml import NvmlAnswer, State
from cyborg_ext_drivers.host.sysfs import Tree

# NAME_MAX and PATH_MAX of Linux, and how many links it follows.
_LONGEST_NAME = 255
_LONGEST_PATH = 4095
_MOST_LINKS = 40
_NOT_ASKED = NvmlAnswer(
    State.NOT_ASKED, "this is a copy of a host, and NVML would tell of another one"
)


class File(NamedTuple):
    """A file and the beginning of what it holds, as far as it was read."""

    data: bytes


class Link(NamedTuple):
    """A symbolic link, its target as it is written there."""

    target: str


class Folder(NamedTuple):
    """A directory; what is in it, :meth:`Captured.names` tells."""

    #: Why it could not be listed, though what is in it could be reached; 0 where it could.
    errno: int = 0


class Failure(NamedTuple):
    """What could not be read, and why; nothing below it can be either."""

    errno: int
    is_directory: bool = False


class Present(NamedTuple):
    """What was there and was not read, such as a file that can only be written."""


Node = File | Link | Folder | Failure | Present


class LeadsOut(Exception):
    """A link leads above the host's root."""


class Captured:
    """The files of one host by their absolute paths, links not followed.

    Directories above what is added are added with it.

    :param is_live: whether they were captured on the host itself; a copy of one below another
        root words some errors differently.
    """

    def __init__(self, is_live: bool = False):
        self.is_live = is_live
        self._nodes: dict[str, Node] = {"/": Folder()}
        self._names: dict[str, dict[str, None]] = {"/": {}}
        #: What NVML said, ``None`` where it was not asked.
        self.nvml_answer: NvmlAnswer | None = None
        #: udev's names of vendor and model, by address.
        self.udev_names: Mapping[str, tuple[str | None, str | None]] = {}

    @property
    def nodes(self) -> Mapping[str, Node]:
        """What is at each path."""
        return self._nodes

    def add_file(self, path: str, data: bytes) -> None:
        """Add a file with the beginning of its content, up to a page and a byte if it is longer."""
        known = self._nodes.get(path)
        if not isinstance(known, File) or len(known.data) <= len(data):
            self._add(path, File(data))

    def add_link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, Link(target))

    def add_directory(
        self, path: str, names: Iterable[str] | None = None, failure: int = 0
    ) -> None:
        """Add a directory.

        :param names: all that is in it, in the kernel's order; ``None`` where it was not listed,
            and then it has what is added below it.
        :param failure: the errno for which it cannot be listed, though what is added below it
            can be read.
        """
        if not isinstance(self._nodes.get(path), Folder) or failure:
            self._add(path, Folder(failure))
        if names is None:
            return
        listed = list(names)
        self._names[path] = dict.fromkeys([*listed, *self._names.get(path, ())])
        for name in listed:
            self._nodes.setdefault(_joined(path, name), Present())

    def add_failure(self, path: str, errno: int, is_directory: bool = False) -> None:
        """Add what cannot be read, and why."""
        self._add(path, Failure(errno, is_directory))

    def add_present(self, path: str) -> None:
        """Add what is there and was not read."""
        if path not in self._nodes:
            self._add(path, Present())

    def add(self, path: str, node: Node) -> None:
        """Add a node as it is."""
        self._add(path, node)

    def replace(self, path: str, node: Node) -> None:
        """Let something else be where something is, its place among its neighbours kept."""
        if path not in self._nodes:
            raise ValueError(f"nothing is at {path!r}")
        self._nodes[path] = node

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names of what is known in a directory, in the kernel's order."""
        return tuple(self._names.get(path, ()))

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Yield each path and what is there, what is above before what is below."""
        ahead = ["/"]
        while ahead:
            path = ahead.pop()
            yield path, self._nodes[path]
            ahead.extend(_joined(path, name) for name in reversed(self._names.get(path, {})))

    def _add(self, path: str, node: Node) -> None:
        if not path.startswith("/") or (path != "/" and _is_odd(path)):
            raise ValueError(f"{path!r} is no absolute path")
        self._nodes[path] = node
        while path != "/":
            above, _, name = path.rpartition("/")
            above = above or "/"
            self._names.setdefault(above, {})[name] = None
            known = self._nodes.get(above)
            if known is not None and not isinstance(known, Present):
                return
            self._nodes[above] = Folder()
            path = above

    # The raw reads of host/_reading.py

    def locate(self, path: str, is_strict: bool = True, follow_last: bool = True) -> str:
        """Return where a path ends, links followed as the host would.

        :param is_strict: whether every step must be there.
        :raises OSError: as the kernel would.
        :raises LeadsOut: when a link leads above the root of a copy.
        """
        if len(path) > _LONGEST_PATH:
            raise _error(errno.ENAMETOOLONG)
        here = ""
        ahead = path.split("/")[::-1]
        links, is_absolute = 0, False
        while ahead:
            part = ahead.pop()
            if not part:
                continue
            if is_strict:
                self._enter(here or "/")
            if part == ".":
                continue
            if part == "..":
                if not here and not self.is_live:
                    raise LeadsOut
                here = here.rpartition("/")[0]
                continue
            if len(part) * 4 > _LONGEST_NAME and len(os.fsencode(part)) > _LONGEST_NAME:
                raise _error(errno.ENAMETOOLONG)
            there = f"{here}/{part}"
            node = self._nodes.get(there)
            if node is None and is_strict:
                raise _error(errno.ENOENT)
            if isinstance(node, Link) and (ahead or follow_last):
                links += 1
                is_absolute |= node.target.startswith("/")
                if links > _MOST_LINKS:
                    if is_absolute and not self.is_live:
                        raise OSError(0, "its links lead in a circle")
                    raise _error(errno.ELOOP)
                if node.target.startswith("/"):
                    here = ""
                ahead.extend(node.target.split("/")[::-1])
                continue
            here = there
        return here or "/"

    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory at a path without links."""
        node = self._nodes.get(path)
        return isinstance(node, Folder) or (isinstance(node, Failure) and node.is_directory)

    def _enter(self, path: str) -> None:
        node = self._nodes.get(path)
        if isinstance(node, Failure) and node.is_directory:
            raise _error(node.errno)
        if node is not None and not isinstance(node, Folder | Present):
            raise _error(errno.ENOTDIR)

    def _at(self, path: str) -> Node | None:
        try:
            return self._nodes[self.locate(path, follow_last=False)]
        except FileNotFoundError:
            return None

    def read(self, path: str, size: int = _PAGE + 1) -> bytes | None:
        """Answer as :func:`cyborg_ext_drivers.host._reading.read` would."""
        node = self._at(path)
        if isinstance(node, File):
            return node.data[:size]
        if isinstance(node, Link):
            raise _error(errno.ELOOP)
        if isinstance(node, Folder) or (isinstance(node, Failure) and node.is_directory):
            raise _error(errno.EISDIR)
        if isinstance(node, Failure):
            raise _error(node.errno)
        return None

    def read_link(self, path: str) -> str | None:
        """Answer as :func:`cyborg_ext_drivers.host._reading.read_link` would."""
        node = self._at(path)
        if node is not None and not isinstance(node, Link):
            raise _error(errno.EINVAL)
        return node.target if node is not None else None

    def is_there(self, path: str) -> bool:
        """Answer as :func:`cyborg_ext_drivers.host._reading.is_there` would."""
        return self._at(path) is not None

    def list_names(self, path: str) -> list[str] | None:
        """Answer as :func:`cyborg_ext_drivers.host._reading.list_names` would."""
        try:
            # What ends in a dot is the directory that a link leads to.
            here = self.locate(path.removesuffix("/."), follow_last=path.endswith("/."))
        except FileNotFoundError:
            return None
        node = self._nodes[here]
        if isinstance(node, Folder | Failure) and node.errno:
            is_directory = isinstance(node, Folder) or node.is_directory
            raise _error(node.errno if is_directory else errno.ENOTDIR)
        if isinstance(node, Present):
            return None
        if not isinstance(node, Folder):
            raise _error(errno.ENOTDIR)
        return list(self._names.get(here, ()))


class CapturedDirectory(Directory):
    """A directory of a host in memory."""

    __slots__ = ("_captured",)

    def __init__(self, captured: Captured, path: str, real: str, was_absent: bool = False):
        super().__init__(path, real, was_absent)
        self._captured = captured

    def resolved(self) -> str:
        """Return where it lies with all links followed."""
        try:
            return self._captured.locate(self.real)
        except (OSError, LeadsOut):
            return self.real

    def is_unchanged(self, parent: int | None = None) -> bool:
        """Return True: what was captured stays as it was."""
        return True

    def _read(self, name: str, parent: int | None) -> bytes | None:
        return self._raw(self._captured.read, name)

    def _raw(self, ask: Callable, name: str) -> Any:
        here = f"{self.real}/{name or '.'}"
        try:
            if isinstance(ask, Head):
                return self._captured.read(here, ask.size)
            return _READS.get(ask, lambda _, path: ask(path))(self._captured, here)
        except LeadsOut:
            raise OSError(0, "a link leads out of the host's root") from None


_READS: dict[Callable, Callable[[Captured, str], Any]] = {
    read_link: Captured.read_link,
    is_there: Captured.is_there,
    list_names: Captured.list_names,
}


class CapturedTree(Tree):
    """The files of a host that was captured; nothing is read from a disk.

    Reads answer as they did on the host, with the same errors.  What was not captured is absent.
    """

    def __init__(self, captured: Captured):
        self.captured = captured
        #: No path of this machine.
        self.root = "captured:"
        self.is_live = False
        self.nvml_answer = captured.nvml_answer or _NOT_ASKED
        self.udev_names = captured.udev_names
        self._begin()

    def holds(self, directory: Directory) -> bool:
        """Return True: what was captured stays as it was."""
        return True

    def read_each(
        self, path: str, file: str, is_settled: Callable[[bytes], bool]
    ) -> dict[str, bytes | None | ReadError]:
        """Return one small file of every directory below *path*.

        :raises Unreadable: when *path* itself is absent or cannot be listed.
        """
        try:
            names = self.captured.list_names(f"{self.directory(path).real}/.")
            if names is None:
                raise _error(errno.ENOENT)
        except OSError as error:
            raise Unreadable(path, reason(error)) from None
        return {name: self._read_slowly(f"{path}/{name}", file) for name in names}

    def _find(self, path: str, fetch: Iterable[str]) -> Directory:
        captured = self.captured
        if captured.is_live:
            directory = CapturedDirectory(captured, path, path)
            directory.fetch(fetch)
            return directory
        try:
            try:
                real = captured.locate(path)
            except FileNotFoundError:
                real = captured.locate(path, is_strict=False)
                absent = not captured.is_directory(real)
                return CapturedDirectory(captured, path, real, was_absent=absent)
            if isinstance(captured.nodes[real], Present):
                return CapturedDirectory(captured, path, real, was_absent=True)
            if not captured.is_directory(real):
                raise _error(errno.ENOTDIR)
        except LeadsOut:
            raise Unreadable(path, "a link leads out of the host's root") from None
        except OSError as error:
            words = reason(error) if error.errno else str(error.strerror)
            raise Unreadable(path, words) from None
        directory = CapturedDirectory(captured, path, real)
        directory.fetch(fetch)
        return directory


def _error(number: int) -> OSError:
    return OSError(number, WORDS.get(number) or os.strerror(number))


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path != "/" else f"/{name}"


def _is_odd(path: str) -> bool:
    return any(part in ("", ".", "..") for part in path[1:].split("/"))
