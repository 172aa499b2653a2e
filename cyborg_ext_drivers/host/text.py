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

"""The files that an operator writes, read whole and never waited for.

A path may lead to anything: a FIFO that nobody writes to, a device that does something when it
is opened, a directory, a file without end.  What is no file of reasonable size is refused.

Next stop: :mod:`cyborg_ext_drivers.catalog`.
"""

import errno
import os
import stat

from cyborg_ext_drivers.errors import ExtDriversError

# What stands where there is to be no file, as in --config-file /dev/null.
_NULL = os.makedev(1, 3)
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class UnusableFile(ExtDriversError):
    """A file that an operator wrote, or that stands in the place of one, cannot be used."""

    def __init__(self, reason: str, errno: int | None = None):
        self.reason = reason
        #: What the kernel said, ``None`` when it let the file be read or was not asked.
        self.errno = errno
        super().__init__(reason, errno)

    @property
    def is_denied(self) -> bool:
        """Whether it is there and merely not for this user to read."""
        return self.errno in (errno.EACCES, errno.EPERM)

    def __str__(self) -> str:
        return self.reason


def read_text(path: str, most_bytes: int) -> str:
    """Return what a UTF-8 text file holds; ``/dev/null`` is an empty one.

    :raises UnusableFile: when it cannot be read, is no file, too large or no UTF-8 text.
    """
    data = read_bytes(path, most_bytes)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnusableFile(f"line {line}: it is no UTF-8 text") from None


def read_bytes(path: str, most_bytes: int) -> bytes:
    """Return what a file holds; ``/dev/null`` is an empty one.

    :raises UnusableFile: when it cannot be read, is no file or too large.
    """
    try:
        data = _read(path, most_bytes + 1)
    except OSError as error:
        raise UnusableFile(error.strerror or str(error), error.errno) from None
    if len(data) > most_bytes:
        raise UnusableFile(f"it is larger than {most_bytes >> 20} MiB")
    return data


def _read(path: str, size: int) -> bytes:
    # Opening a device may do something, so it is looked at before; and again afterwards.
    if _is_null(os.stat(path)):
        return b""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return b"" if _is_null(os.fstat(descriptor)) else file.read(size)


def _is_null(status: os.stat_result) -> bool:
    """Tell ``/dev/null`` from a file; whatever is neither is refused."""
    if stat.S_ISREG(status.st_mode):
        return False
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL:
        return True
    kind = next((kind for is_kind, kind in _KINDS if is_kind(status.st_mode)), "something else")
    raise UnusableFile(f"it is {kind} and no file")
