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

"""Writes below a temporary root, whatever the host's paths are.

A tree is a mapping from the host's path to what lies there.  Going from one tree to
another touches only what differs, so that a change under test looks as it does on a
host: one link goes, one file has another text, the rest stays.
"""

import contextlib
import dataclasses
import enum
import errno
import os
import shutil
import socket
from collections.abc import Mapping

_MEMORY = "/dev/shm"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_GONE_WITH_ITS_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link, given by the host's path of its target and laid relative."""

    target: str


@dataclasses.dataclass(frozen=True, slots=True)
class LinkAsWritten:
    """A symbolic link whose target is laid as it is, wherever that leads."""

    target: str


@dataclasses.dataclass(frozen=True, slots=True)
class LinkOutside:
    """A symbolic link to an entry of the directory that lies beside the root."""

    name: str
    is_absolute: bool


class Special(enum.Enum):
    """What lies at a path and is neither a readable file nor a link."""

    #: A directory that is there even when it is empty, and goes with all that it holds.
    DIRECTORY = enum.auto()
    #: A file that takes commands, such as ``remove``; sysfs gives it mode 0200.
    WRITE_ONLY = enum.auto()
    #: A link to itself: opening it fails with ELOOP, for root as well.
    UNREADABLE = enum.auto()
    #: A FIFO that nobody writes to.
    PIPE = enum.auto()
    #: A FIFO that somebody holds open for writing and never writes to.
    HELD_PIPE = enum.auto()
    #: A socket's file: opening it fails with ENXIO.
    SOCKET = enum.auto()


Entry = bytes | Link | LinkAsWritten | LinkOutside | Special
Tree = Mapping[str, Entry]


class Files:
    """The files of one host below a root.

    :param aside: a directory on the same file system, outside the root.
    :param shared: whether files that hold the same are hard links of one another, which
        takes a fraction of the time and space.
    """

    def __init__(self, root: str, aside: str, *, shared: bool = False):
        self.root = root
        #: A directory beside the root; nothing of it is the host's.
        self.outside = os.path.join(aside, "outside")
        # New content is written here first, so that a reader never sees half of it.
        self._aside = os.path.join(aside, "new")
        self._directories: set[str] = set()
        self._explicit: set[str] = set()
        self._pool: dict[bytes, str] | None = {} if shared else None
        self._writers: dict[str, int] = {}
        self._odd_links: set[str] = set()

    def close(self) -> None:
        """Let go of the pipes that are held open."""
        while self._writers:
            os.close(self._writers.popitem()[1])

    def has(self, path: str) -> bool:
        """Return whether anything lies at a path, be it a link to nowhere."""
        return os.path.lexists(self.root + path)

    def update(self, old: Tree, new: Tree) -> None:
        """Change what lies below the root from one tree into another."""
        gone = old.keys() - new.keys()
        for path in gone:
            self.remove(path)
        for path, entry in new.items():
            if path not in old:
                self._create(path, entry)
            elif old[path] != entry:
                self._replace(path, entry)
        self._prune({path.rpartition("/")[0] for path in gone})

    def _prune(self, directories: set[str]) -> None:
        """Remove directories that were made for what they held, and are empty now."""
        for directory in directories:
            path = directory
            while path and path not in self._explicit and not self._is_beyond_a_link(path):
                try:
                    os.rmdir(self.root + path)
                except FileNotFoundError:
                    pass
                except OSError:
                    break
                self._directories.discard(path)
                path = path.rpartition("/")[0]

    def remove(self, path: str) -> None:
        """Remove a file, a link or a directory with all that it holds."""
        if self._is_beyond_a_link(path):
            return
        real = self.root + path
        self._release(path)
        try:
            os.unlink(real)
        except OSError as error:
            if error.errno in _GONE_WITH_ITS_DIRECTORY:
                return
            shutil.rmtree(real)
            for known in (self._directories, self._explicit):
                known -= {each for each in known if f"{each}/".startswith(f"{path}/")}

    def _create(self, path: str, entry: Entry) -> None:
        if entry is Special.DIRECTORY:
            self._explicit.add(path)
            self._make_directory(path)
            return
        self._make_directory(path.rpartition("/")[0])
        try:
            self._write(self.root + path, path, entry)
        except FileExistsError:
            self._replace(path, entry)

    def _is_beyond_a_link(self, path: str) -> bool:
        """Return whether an odd link leads elsewhere on the way to a path."""
        return any(path.startswith(f"{link}/") for link in self._odd_links)

    def _release(self, path: str) -> None:
        """Let go of the pipes at a path and below it, and of the link there."""
        self._odd_links.discard(path)
        for each in [each for each in self._writers if f"{each}/".startswith(f"{path}/")]:
            os.close(self._writers.pop(each))

    def _replace(self, path: str, entry: Entry) -> None:
        real = self.root + path
        self._release(path)
        if entry is Special.DIRECTORY or (os.path.isdir(real) and not os.path.islink(real)):
            self.remove(path)
        if entry is Special.DIRECTORY:
            self._create(path, entry)
        else:
            self._write(self._aside, path, entry)
            os.replace(self._aside, real)

    def _write(self, real: str, path: str, entry: Entry) -> None:
        if isinstance(entry, bytes):
            self._write_bytes(real, entry)
        elif isinstance(entry, Link):
            os.symlink(os.path.relpath(entry.target, path.rpartition("/")[0]), real)
        elif entry is Special.WRITE_ONLY:
            os.close(os.open(real, _CREATE, 0o200))
        elif entry is Special.UNREADABLE:
            os.symlink(path.rpartition("/")[2], real)
        else:
            self._write_odd(real, path, entry)

    def _write_odd(self, real: str, path: str, entry: Entry) -> None:
        if isinstance(entry, LinkAsWritten | LinkOutside):
            self._odd_links.add(path)
        if isinstance(entry, LinkAsWritten):
            os.symlink(entry.target, real)
        elif isinstance(entry, LinkOutside):
            os.makedirs(self.outside, exist_ok=True)
            target = f"{self.outside}/{entry.name}"
            here = os.path.dirname(self.root + path)
            os.symlink(target if entry.is_absolute else os.path.relpath(target, here), real)
        elif entry is Special.SOCKET:
            _make_socket(real)
        else:
            os.mkfifo(real)
            if entry is Special.HELD_PIPE:
                self._writers[path] = os.open(real, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _write_bytes(self, real: str, content: bytes) -> None:
        if self._pool is not None:
            if content not in self._pool:
                self._pool[content] = f"{self._aside}-{len(self._pool)}"
                _write_file(self._pool[content], content)
            try:
                os.link(self._pool[content], real)
                return
            except OSError as error:
                # The file system's limit of links; one more file will do.
                if error.errno != errno.EMLINK:
                    raise
        _write_file(real, content)

    def _make_directory(self, path: str) -> None:
        if path not in self._directories:
            os.makedirs(self.root + path, exist_ok=True)
            self._directories.add(path)


def quick_place() -> str | None:
    """Return where trees are laid: in memory, unless TMPDIR names another place.

    A hundred thousand entries take a second there, on a disk ten and more.
    """
    has_memory = "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if has_memory else None


def _write_file(real: str, content: bytes) -> None:
    descriptor = os.open(real, _CREATE, 0o644)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _make_socket(real: str) -> None:
    """Make the file of a socket that nobody listens on; its path may be of any length."""
    if os.path.lexists(real):
        raise FileExistsError(real)
    directory, _, name = real.rpartition("/")
    with contextlib.ExitStack() as stack:
        parent = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, parent)
        bound = stack.enter_context(socket.socket(socket.AF_UNIX))
        bound.bind(f"/proc/self/fd/{parent}/{name}")
