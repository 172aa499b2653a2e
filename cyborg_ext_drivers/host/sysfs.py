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

"""Bounded, typed reads below the root of one host.

Nothing else in the package opens a file under /sys or /proc.  A read answers with
a value, with ``None`` when the file is absent, or raises
:class:`~cyborg_ext_drivers.errors.Unreadable` or
:class:`~cyborg_ext_drivers.errors.Malformed`: three different answers, as the kernel
gives them (Documentation/filesystems/sysfs.rst; ENOENT for an attribute of a function
that has gone, ENODEV for one that goes while it is read).

Paths are the host's own (``/sys/...``) whatever the root is, so evidence reads the same
on the host and on a copy of it.  Next stop: :mod:`cyborg_ext_drivers.host.pci`.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from cyborg_ext_drivers.errors import Malformed, ReadError, Unreadable

# A sysfs attribute is at most one page (Documentation/filesystems/sysfs.rst).
_PAGE = 4096
# A FIFO or a device in the place of an attribute must neither block nor be followed.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCATE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_LINKS = 40
#: Files that the kernel fills in once, when it finds a PCI function; the same file then has
#: the same content (drivers/pci/pci-sysfs.c).
CONSTANT = frozenset(
    ("vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device")
)
# File systems take their time stamps from a clock that ticks every few milliseconds.
_RECENT_NS = 50_000_000


class Directory:
    """One directory of the host; its files are named without a slash.

    Each entry is read at most once, so all who ask see the same.  Prints as the host's
    path: ``/sys/bus/pci/devices/0000:3b:00.0``.
    """

    __slots__ = (
        "_files",
        "_heads",
        "_links",
        "_listings",
        "_presences",
        "_versions",
        "path",
        "real",
        "was_absent",
    )

    def __init__(self, path: str, real: str):
        self.path = path
        #: Where it lies on the machine that runs this; the host's path below a root.
        self.real = real
        self.was_absent = False
        self._files: dict[str, bytes | ReadError | None] = {}
        self._heads: dict[tuple[str, int], bytes | None] = {}
        self._links: dict[str, str | None] = {}
        self._listings: dict[str, list[str] | None] = {}
        self._presences: dict[str, bool] = {}
        self._versions: dict[str, tuple[int, int, int] | None] = {}

    def __str__(self) -> str:
        return self.path

    def path_of(self, name: str) -> str:
        """Return the host's path of one entry, for evidence."""
        return f"{self.path}/{name}"

    def fetch(self, names: Iterable[str], parent: int | None = None) -> None:
        """Read several small files at one go; later reads of them answer from here.

        :param parent: a descriptor of this directory, where one is open anyway.
        """
        here = f"{self.real}/" if parent is None else ""
        for name in names:
            try:
                if name in CONSTANT:
                    self._versions[name] = _version(here + name, parent)
                self._files[name] = _read(here + name, parent)
            except OSError as error:
                self._files[name] = Unreadable(self.path_of(name), _reason(error))

    def data(self, name: str) -> bytes | None:
        """Return what a small file holds, ``None`` when it is absent.

        :raises Unreadable: when the kernel refuses.
        :raises Malformed: when it holds more than a page.
        """
        if name not in self._files:
            self.fetch((name,))
        data = self._files[name]
        if isinstance(data, ReadError):
            raise data
        if data is not None and len(data) > _PAGE:
            raise Malformed(self.path_of(name), shown(data), f"at most {_PAGE} bytes long")
        return data

    def head(self, name: str, size: int) -> bytes | None:
        """Return the first *size* bytes of a binary file, or fewer; ``None`` when absent.

        :raises Unreadable: when the kernel refuses.
        """
        key = name, size
        if key not in self._heads:
            try:
                self._heads[key] = _read(f"{self.real}/{name}", size=size)
            except OSError as error:
                raise Unreadable(self.path_of(name), _reason(error)) from None
        return self._heads[key]

    def link(self, name: str) -> str | None:
        """Return the last part of a link's target, ``None`` when the link is absent.

        The link is read, never followed.

        :raises Unreadable: when the kernel refuses.
        :raises Malformed: when it is no link.
        """
        if name not in self._links:
            try:
                self._links[name] = _read_link(f"{self.real}/{name}")
            except OSError as error:
                if error.errno == errno.EINVAL:
                    raise Malformed(self.path_of(name), "no link", "a symbolic link") from None
                raise Unreadable(self.path_of(name), _reason(error)) from None
        target = self._links[name]
        return None if target is None else target.rstrip("/").rpartition("/")[2]

    def names(self, child: str = "") -> list[str] | None:
        """Return the names of all entries in the kernel's order, ``None`` when it is absent.

        :param child: list this directory below instead; a link is not followed.
        :raises Unreadable: when the kernel refuses.
        """
        if child not in self._listings:
            path = f"{self.real}/{child}" if child else self.real
            try:
                self._listings[child] = _list(path)
            except OSError as error:
                shown_path = self.path_of(child) if child else self.path
                raise Unreadable(shown_path, _reason(error)) from None
        return self._listings[child]

    def has(self, name: str) -> bool:
        """Return whether an entry is there, whatever it is and whoever may read it.

        :raises Unreadable: when the kernel refuses.
        """
        if name not in self._presences:
            try:
                self._presences[name] = _is_there(f"{self.real}/{name}")
            except OSError as error:
                raise Unreadable(self.path_of(name), _reason(error)) from None
        return self._presences[name]

    def is_unchanged(self, parent: int | None = None) -> bool:
        """Return whether all that was read of it reads the same now.

        :param parent: a descriptor of this directory, where one is open anyway.
        """
        here = f"{self.real}/" if parent is None else ""
        try:
            for name, data in self._files.items():
                version = self._versions.get(name)
                if version is not None and version == _version(here + name, parent):
                    continue
                if _read(here + name, parent) != data:
                    return False
            for (name, size), data in self._heads.items():
                if _read(here + name, parent, size) != data:
                    return False
            for name, target in self._links.items():
                if _read_link(here + name, parent) != target:
                    return False
            for name, was_there in self._presences.items():
                if _is_there(here + name, parent) is not was_there:
                    return False
            for child, names in self._listings.items():
                if _list(here + (child or "."), parent) != names:
                    return False
        except OSError:
            return False
        return True

    def text(self, name: str) -> str | None:
        """Return a file's text without surrounding white space, ``None`` when absent.

        :raises ReadError: when it cannot be read or is no text.
        """
        data = self.data(name)
        if data is None:
            return None
        try:
            return data.decode().strip()
        except UnicodeDecodeError:
            raise Malformed(self.path_of(name), shown(data), "text") from None

    def hexadecimal(self, name: str, digits: int) -> str | None:
        """Return a number such as ``0x10de`` as *digits* lower-case digits, ``None`` when absent.

        :raises ReadError: when it cannot be read or is no such number.
        """
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text, 16)
        except ValueError:
            number = -1
        if number < 0 or number >> (4 * digits) or "_" in text:
            raise Malformed(self.path_of(name), text, f"a hexadecimal number of {digits} digits")
        return f"{number:0{digits}x}"

    def integer(self, name: str) -> int | None:
        """Return a decimal number, ``None`` when the file is absent.

        :raises ReadError: when it cannot be read or is no such number.
        """
        text = self.text(name)
        if text is None:
            return None
        if not text.removeprefix("-").isdecimal() or not text.isascii():
            raise Malformed(self.path_of(name), text, "a decimal number")
        return int(text)

    def flag(self, name: str) -> bool | None:
        """Return a 0 or 1, ``None`` when the file is absent.

        :raises ReadError: when it cannot be read or is neither.
        """
        text = self.text(name)
        if text is None:
            return None
        if text not in ("0", "1"):
            raise Malformed(self.path_of(name), text, "0 or 1")
        return text == "1"


class Tree:
    """The files of one host below a root, ``/`` on the host itself.

    Below any other root, a directory that a link leads out of the root is not followed:
    absolute links are taken as the host would take them, the rest is unreadable.
    """

    def __init__(self, root: str | os.PathLike = "/"):
        self._containments: dict[str, _Containment] = {}
        self._settled: dict[str, tuple[tuple, dict[str, tuple[int, bytes]]]] = {}
        self._begin(os.path.realpath(root))

    def _begin(self, root: str) -> None:
        self.root = root
        self._is_live = self.root == "/"
        self._prefix = "" if self._is_live else self.root
        self._inside = self._prefix + "/"
        self._directories: dict[str, Directory] = {}
        self._traces: list[Trace] = []

    @property
    def is_live(self) -> bool:
        """Whether this is the running machine itself."""
        return self._is_live

    def again(self) -> "Tree":
        """Return the same files to be read anew."""
        fresh = Tree.__new__(Tree)
        fresh._containments = self._containments
        fresh._settled = self._settled
        fresh._begin(self.root)
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
        if self._is_live:
            return directory.is_unchanged()
        try:
            descriptor = os.open(self._prefix + directory.path, _LOCATE)
        except FileNotFoundError:
            return directory.was_absent and not os.path.lexists(directory.real)
        except OSError:
            return False
        try:
            return os.readlink(
                f"/proc/self/fd/{descriptor}"
            ) == directory.real and directory.is_unchanged(descriptor)
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

    def _find(self, path: str, fetch: Iterable[str]) -> Directory:
        if self._is_live:
            directory = Directory(path, path)
            directory.fetch(fetch)
            return directory
        try:
            descriptor = os.open(self._prefix + path, _LOCATE)
        except FileNotFoundError:
            directory = self._walk(path)
            directory.was_absent = not os.path.isdir(directory.real)
            return directory
        except OSError as error:
            raise Unreadable(path, _reason(error)) from None
        try:
            real = os.readlink(f"/proc/self/fd/{descriptor}")
            if not real.startswith(self._inside):
                return self._walk(path)
            directory = Directory(path, real)
            directory.fetch(fetch, descriptor)
            return directory
        finally:
            os.close(descriptor)

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
        try:
            parent = os.open(real, _LIST)
        except OSError as error:
            raise Unreadable(path, _reason(error)) from None
        try:
            known, is_quiet = self._settled_below(path, parent)
            if self._is_live:
                is_inside = _always
            elif real == self._prefix + path:
                is_inside = self._containment(path, parent)
            else:
                # The links of a bus that lies elsewhere mean something else.
                is_inside = _never
            found: dict[str, bytes | ReadError | None] = {}
            with os.scandir(parent) as entries:
                for name, inode in [(entry.name, entry.inode()) for entry in entries]:
                    if name in known and known[name][0] == inode:
                        found[name] = known[name][1]
                        continue
                    data = _read_quickly(f"{name}/{file}", parent) if is_inside(name) else None
                    if data is None:
                        found[name] = self._read_slowly(f"{path}/{name}", file)
                        continue
                    found[name] = data
                    if is_quiet and is_settled(data):
                        known[name] = (inode, data)
            return found
        finally:
            os.close(parent)

    def _read_slowly(self, path: str, file: str) -> bytes | None | ReadError:
        """Read what the quick way could not, to learn why."""
        try:
            return self.directory(path).data(file)
        except ReadError as error:
            return error

    def _settled_below(self, path: str, parent: int) -> tuple[dict[str, tuple[int, bytes]], bool]:
        """Return what is known of a directory's entries, and whether more may be remembered.

        kernfs gives each entry an inode number of its own; other file systems use one again,
        but then the directory's time of change tells, unless it is too recent to be sure.
        """
        status = os.fstat(parent)
        version = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if path not in self._settled or self._settled[path][0] != version:
            self._settled[path] = (version, {})
        return self._settled[path][1], time.time_ns() - status.st_mtime_ns > _RECENT_NS

    def _containment(self, path: str, parent: int) -> Callable[[str], bool]:
        """Return a quick test for the entries of one directory; see :class:`_Containment`."""
        if path not in self._containments:
            self._containments[path] = _Containment(self.root, path)
        return self._containments[path].begin(parent)

    def _walk(self, path: str) -> Directory:
        """Follow *path* link by link as the host would, never above the root."""
        done: list[str] = []
        ahead = [part for part in reversed(path.split("/")) if part]
        links = 0
        while ahead:
            part = ahead.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    raise Unreadable(path, "a link leads out of the host's root")
                done.pop()
                continue
            here = "/".join([self.root, *done, part])
            try:
                target = os.readlink(here)
            except FileNotFoundError:
                done.append(part)
                continue
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise Unreadable(path, _reason(error)) from None
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise Unreadable(path, "its links lead in a circle")
            if target.startswith("/"):
                done = []
            ahead.extend(reversed(target.split("/")))
        return Directory(path, "/".join([self.root, *done]))


class _Containment:
    """Tells for the links in one directory whether they stay below the root.

    Following each link to its end costs as much as reading through it.  sysfs links a
    bus's entries by ``../../../devices/...``, so a look at the text and one at each
    directory above is enough; what was seen there is remembered until that changes.
    """

    def __init__(self, root: str, path: str):
        self._root = root
        self._up = "../" * (path.count("/") - 1) + "devices/"
        self._seen: dict[str, tuple[tuple[int, int, int], frozenset[str]]] = {}

    def begin(self, parent: int) -> Callable[[str], bool]:
        """Return the test for one walk through the directory open as *parent*."""
        links: dict[str, frozenset[str] | None] = {}

        def is_inside(name: str) -> bool:
            try:
                above, _, last = os.readlink(name, dir_fd=parent).rpartition("/")
            except OSError:
                return False
            try:
                outward = links[above]
            except KeyError:
                outward = links[above] = self._links_in(above)
            return outward is not None and last not in outward

        return is_inside

    def _links_in(self, above: str) -> frozenset[str] | None:
        """Return the links in a directory below /sys/devices, ``None`` if it is elsewhere."""
        below = above.removeprefix(self._up)
        if below == above or ".." in below.split("/"):
            return None
        real = f"{self._root}/sys/devices/{below}"
        try:
            descriptor = os.open(real, _LOCATE)
        except OSError:
            return None
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}") != real:
                return None
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        version = (status.st_dev, status.st_ino, status.st_mtime_ns)
        seen = self._seen.get(above)
        if seen is None or seen[0] != version:
            with os.scandir(real) as entries:
                links = frozenset(entry.name for entry in entries if entry.is_symlink())
            seen = self._seen[above] = (version, links)
        return seen[1]


class Trace:
    """All that was read to come to a conclusion."""

    __slots__ = ("directories", "functions")

    def __init__(self) -> None:
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


def _always(_name: str) -> bool:
    return True


def _never(_name: str) -> bool:
    return False


def _read(path: str, parent: int | None = None, size: int = _PAGE + 1) -> bytes | None:
    """Return up to *size* bytes, ``None`` when the file is absent.

    Some show routines answer ENOENT for "not used" (fpga-region's compat_id).
    """
    try:
        descriptor = os.open(path, _READ, dir_fd=parent)
        try:
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None


def _version(path: str, parent: int | None) -> tuple[int, int, int] | None:
    """Return what tells one state of a file from another; ``None`` when that is not sure."""
    try:
        status = os.stat(path, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    if time.time_ns() - status.st_mtime_ns < _RECENT_NS:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read_quickly(path: str, parent: int) -> bytes | None:
    """Return what a small file holds, ``None`` when anything at all is unusual about it."""
    try:
        descriptor = os.open(path, _READ, dir_fd=parent)
    except OSError:
        return None
    try:
        data = os.read(descriptor, _PAGE + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= _PAGE else None


def _read_link(path: str, parent: int | None = None) -> str | None:
    try:
        return os.readlink(path, dir_fd=parent)
    except FileNotFoundError:
        return None


def _is_there(path: str, parent: int | None = None) -> bool:
    try:
        os.stat(path, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _list(path: str, parent: int | None = None) -> list[str] | None:
    if parent is None and not os.path.islink(path):
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return None
    try:
        descriptor = os.open(path, _LIST | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        return None
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    """Return errno's name and the system's words: ``EIO (Input/output error)``."""
    name = errno.errorcode.get(error.errno or 0, "error")
    return f"{name} ({error.strerror})"


def shown(data: bytes) -> str:
    """Return the beginning of unexpected content, printable and short."""
    text = data[:80].decode("ascii", "backslashreplace").strip().replace("\n", " ")
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text + ("..." if len(data) > 80 else "")
