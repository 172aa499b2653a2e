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
"""Tells whether anything below a directory was opened, whoever opens it and by what name.

The kernel says it (inotify(7)).  An audit hook of Python would not do: of what is opened
below a descriptor it knows the relative name only, and it stays for good.
"""

import ctypes
import os
import pathlib

_OPENED, _READ = 0x20, 0x01
_LIBC = ctypes.CDLL(None, use_errno=True)


class Watch:
    """What lies below a directory now, watched until :meth:`close`."""

    def __init__(self, top: pathlib.Path):
        self._descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        for directory in (top, *(path for path in top.rglob("*") if path.is_dir())):
            path = os.fsencode(directory)
            if _LIBC.inotify_add_watch(self._descriptor, path, _OPENED | _READ) < 0:
                raise OSError(ctypes.get_errno(), f"inotify_add_watch {directory}")

    def has_seen(self) -> bool:
        """Return whether anything was opened or read since this was asked last."""
        try:
            return bool(os.read(self._descriptor, 1 << 16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Watch no longer."""
        os.close(self._descriptor)
