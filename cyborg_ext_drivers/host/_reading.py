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


"""The raw reads of one entry: bounded, never blocking, never through a link.

Each answers with a value, with ``None`` when the entry is absent, or lets the system's
error out (Documentation/filesystems/sysfs.rst; ENOENT for an attribute of a function that
has gone, ENODEV for one that goes while it is read).  A name is taken below *parent*, the
descriptor of a directory, where one is given.

Next stop: :mod:`cyborg_ext_drivers.host.directory`.
"""

import errno
import functools
import itertools
import os
import stat
import time

# A sysfs attribute is at most one page (Documentation/filesystems/sysfs.rst).
PAGE = 4096
LOCATE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A FIFO or a device in the place of an attribute must not block, a link not be followed, a
# terminal not become that of the agent.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
#: What is said of an error that is found here and not by the kernel.
WORDS = {
    errno.ESPIPE: "No file but a pipe or a device",
    errno.E2BIG: "More entries than any host has",
}
# A PCI domain has at most 65536 functions; a host with more entries is none.
_MOST_NAMES = 1 << 17
# File systems take their time stamps from a clock that ticks every few milliseconds.
_RECENT_NS = 50_000_000


def read(path: str, parent: int | None = None, size: int = PAGE + 1) -> bytes | None:
    """Return up to *size* bytes of a file, ``None`` when it is absent.

    Some show routines answer ENOENT for "not used" (fpga-region's compat_id).
    """
    try:
        descriptor = os.open(path, _READ, dir_fd=parent)
        try:
            return os.read(descriptor, size) or _nothing(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None


def _nothing(descriptor: int) -> bytes:
    """Return that a file is empty; a FIFO that nobody writes to is no empty file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.ESPIPE, WORDS[errno.ESPIPE])
    return b""


class Head:
    """The raw read of the first *size* bytes."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, path: str, parent: int | None = None) -> bytes | None:
        """Return the bytes, ``None`` when the file is absent."""
        return read(path, parent, self.size)


@functools.cache
def read_head(size: int) -> Head:
    """Return the raw read of the first *size* bytes."""
    return Head(size)


def read_quickly(path: str, parent: int) -> bytes | None:
    """Return what a small file holds, ``None`` when anything at all is unusual about it."""
    try:
        data = read(path, parent)
    except OSError:
        return None
    return data if data is not None and len(data) <= PAGE else None


def read_link(path: str, parent: int | None = None) -> str | None:
    """Return a link's target as it is written there, ``None`` when the link is absent."""
    try:
        return os.readlink(path, dir_fd=parent)
    except FileNotFoundError:
        return None


def is_there(path: str, parent: int | None = None) -> bool:
    """Return whether there is an entry, whatever it is."""
    try:
        os.stat(path, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def list_names(path: str, parent: int | None = None) -> list[str] | None:
    """Return a directory's entries in the kernel's order, ``None`` when it is absent."""
    try:
        descriptor = os.open(path, LIST | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        return None
    try:
        return [name for name, _inode in entries_of(descriptor)]
    finally:
        os.close(descriptor)


def entries_of(descriptor: int) -> list[tuple[str, int]]:
    """Return name and inode of all entries of an open directory, in the kernel's order."""
    with os.scandir(descriptor) as entries:
        found = [(each.name, each.inode()) for each in itertools.islice(entries, _MOST_NAMES)]
    if len(found) == _MOST_NAMES:
        raise OSError(errno.E2BIG, WORDS[errno.E2BIG])
    return found


def version(path: str, parent: int | None = None) -> tuple[int, int, int] | None:
    """Return what tells one state of a file from another; ``None`` when that is not sure."""
    try:
        status = os.stat(path, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    if is_recent(status.st_mtime_ns):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def is_recent(time_stamp: int) -> bool:
    """Return whether another change now might get the same time stamp."""
    return time.time_ns() - time_stamp < _RECENT_NS


def place_of(descriptor: int) -> str:
    """Return the path of what is open, with all links followed."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


def reason(error: OSError) -> str:
    """Return errno's name and the system's words: ``EIO (Input/output error)``."""
    name = errno.errorcode.get(error.errno or 0, "error")
    return f"{name} ({error.strerror})"
