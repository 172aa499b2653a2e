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


"""The files of one host, below a root.

Nothing else in the package opens a file under /sys or /proc.  Paths are the host's own
(``/sys/...``) whatever the root is, so evidence reads the same on the host and on a copy of
it.  What a read answers, :mod:`cyborg_ext_drivers.host.directory` tells.

Next stop: :mod:`cyborg_ext_drivers.host.pci`.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cyborg_ext_drivers.errors import ReadError, Unreadable
from cyborg_ext_drivers.host._containment import follow
from cyborg_ext_drivers.host._entries import Entries
from cyborg_ext_drivers.host._reading import LIST, LOCATE, place_of, reason
from cyborg_ext_drivers.host.directory import Directory


class Tree:
    """The files of one host below a root, ``/`` on the host itself.

    Below any other root, a directory that a link leads out of the root is not followed:
    absolute links are taken as the host would take them, the rest is unreadable.
    """

    #: What NVML said, and udev's names by address, when the files were captured; ``None`` where
    #: both can be asked.  Other kinds of trees have them.
    nvml_answer: Any = None
    udev_names: Mapping[str, tuple[str | None, str | None]] | None = None

    def __init__(self, root: str | os.PathLike = "/"):
        self.root = os.path.realpath(root)
        #: Whether this is the running machine itself.
        self.is_live = self.root == "/"
        self._entries: dict[tuple[str, str], Entries] = {}
        self._begin()

    def _begin(self) -> None:
        self._directories: dict[str, Directory] = {}
        self._traces: list[Trace] = []

    def again(self) -> "Tree":
        """Return the same files to be read anew."""
        fresh = type(self).__new__(type(self))
        vars(fresh).update(vars(self))
        fresh._begin()
        return fresh

    @contextlib.contextmanager
    def tracing(self) -> Iterator["Trace"]:
        """Note all that is read meanwhile, so that one can tell later whether it still holds."""
        trace = Trace()
        self._traces.append(trace)
        try:
            yield trace
        finally:
            self._traces.pop()

    def doubt(self) -> None:
        """Note that a conclusion rests on more than can be traced, so it is not to be kept."""
        for trace in self._traces:
            trace.is_lasting = False

    def note(self, function: str, uevent: object) -> None:
        """Note that a conclusion rests on what the bus said of a function."""
        for trace in self._traces:
            trace.functions[function] = uevent

    def directory(self, path: str, fetch: Iterable[str] = ()) -> Directory:
        """Return a directory of the host by its absolute path.

        One that is absent answers every read with ``None``.

        :param fetch: small files to read at the same go.
        :raises Unreadable: when the kernel refuses or a link leads out of the root.
        """
        directory = self._directories.get(path)
        if directory is None:
            directory = self._directories[path] = self._find(path, fetch)
        for trace in self._traces:
            trace.directories[path] = directory
        return directory

    def holds(self, directory: Directory) -> bool:
        """Return whether all that was read of a directory reads the same now."""
        if self.is_live:
            return directory.is_unchanged()
        try:
            descriptor = os.open(self.root + directory.path, LOCATE)
        except FileNotFoundError:
            return directory.was_absent and not os.path.lexists(directory.real)
        except OSError:
            return False
        try:
            is_same = place_of(descriptor) == directory.real
            return is_same and directory.is_unchanged(descriptor)
        finally:
            os.close(descriptor)

    def holds_once(self) -> Callable[[Directory], bool]:
        """Return :meth:`holds` for one look around, in which each directory is read once.

        Most conclusions rest on /proc as well as on a card.
        """
        answers: dict[int, bool] = {}

        def holds(directory: Directory) -> bool:
            key = id(directory)
            if key not in answers:
                answers[key] = self.holds(directory)
            return answers[key]

        return holds

    def text(self, path: str) -> str | None:
        """Return the text of one file by its absolute path; see :meth:`Directory.text`."""
        parent, _, name = path.rpartition("/")
        return self.directory(parent).text(name)

    def names(self, path: str) -> list[str] | None:
        """Return a directory's entries by its absolute path; see :meth:`Directory.names`."""
        return self.directory(path).names()

    def read_each(
        self, path: str, file: str, is_settled: Callable[[bytes], bool]
    ) -> dict[str, bytes | None | ReadError]:
        """Return one small file of every directory below *path*: the cheap way to see a bus.

        The value is ``None`` where the file is absent and an error where it has no usable
        value, so one bad entry costs nothing but itself.

        :param is_settled: tells of a content that it stays as long as its directory does; it
            is not read again while the entry, by its inode, is the same.
        :raises Unreadable: when *path* itself is absent or cannot be listed.
        """
        real = self.directory(path).real
        if (path, file) not in self._entries:
            self._entries[path, file] = Entries(self.root, path, file)
        try:
            parent = os.open(real, LIST)
            try:
                found, unusual = self._entries[path, file].read(parent, real, is_settled)
            finally:
                os.close(parent)
        except OSError as error:
            raise Unreadable(path, reason(error)) from None
        return found | {name: self._read_slowly(f"{path}/{name}", file) for name in unusual}

    def _read_slowly(self, path: str, file: str) -> bytes | None | ReadError:
        """Read what the quick way could not, to learn why."""
        try:
            return self.directory(path).data(file)
        except ReadError as error:
            return error

    def _made(self, path: str, real: str, was_absent: bool = False) -> Directory:
        return Directory(path, real, was_absent)

    def _find(self, path: str, fetch: Iterable[str]) -> Directory:
        if self.is_live:
            directory = self._made(path, path)
            directory.fetch(fetch)
            return directory
        try:
            descriptor = os.open(self.root + path, LOCATE)
        except FileNotFoundError:
            real = follow(self.root, path)
            return self._made(path, real, was_absent=not os.path.isdir(real))
        except OSError as error:
            raise Unreadable(path, reason(error)) from None
        try:
            real = place_of(descriptor)
            if not real.startswith(f"{self.root}/"):
                return self._made(path, follow(self.root, path))
            directory = self._made(path, real)
            directory.fetch(fetch, descriptor)
            return directory
        finally:
            os.close(descriptor)


class Trace:
    """All that was read to come to a conclusion."""

    __slots__ = ("directories", "functions", "is_lasting")

    def __init__(self) -> None:
        self.is_lasting = True
        self.directories: dict[str, Directory] = {}
        self.functions: dict[str, object] = {}

    def holds(
        self, is_unchanged: Callable[[Directory], bool], uevents: Mapping[str, object]
    ) -> bool:
        """Return whether all of it reads the same now, so that the conclusion stands."""
        for name, uevent in self.functions.items():
            if uevents.get(name) != uevent:
                return False
        return all(map(is_unchanged, self.directories.values()))
