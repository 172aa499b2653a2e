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


"""One small file of every entry of a directory: the quick way to see a bus.

Next stop: :mod:`cyborg_ext_drivers.host.sysfs`.
"""

import os
from collections.abc import Callable

from cyborg_ext_drivers.host._containment import Containment
from cyborg_ext_drivers.host._reading import entries_of, is_recent, read_quickly


class Entries:
    """The entries of one directory and what one file of each says.

    Kept from one look at the host to the next, as some of what was read is settled: it
    stays as long as the directory does and the entry, by its inode, is the same.
    """

    def __init__(self, root: str, path: str, file: str):
        self._is_live = root == "/"
        self._real = root + path
        self._file = file
        self._containment = Containment(root, path)
        self._version: tuple[int, int, int] | None = None
        self._settled: dict[str, tuple[int, bytes]] = {}

    def read(
        self, parent: int, real: str, is_settled: Callable[[bytes], bool]
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return what each says by its name, and the names of those that are unusual.

        :param parent: a descriptor of the directory, which lies at *real*.
        :param is_settled: tells of a content that it stays.
        :raises OSError: when the directory cannot be listed.
        """
        is_inside = self._inside(parent, real)
        is_quiet = self._forget_what_changed(parent)
        known = self._settled
        found: dict[str, bytes] = {}
        unusual = []
        for name, inode in entries_of(parent):
            if name in known and known[name][0] == inode:
                found[name] = known[name][1]
                continue
            data = read_quickly(f"{name}/{self._file}", parent) if is_inside(name) else None
            if data is None:
                unusual.append(name)
                continue
            found[name] = data
            if is_quiet and is_settled(data):
                known[name] = (inode, data)
        return found, unusual

    def _inside(self, parent: int, real: str) -> Callable[[str], bool]:
        """Return the test for entries that may be read without a closer look."""
        if self._is_live:
            return lambda name: True
        if real != self._real:
            # The links of a bus that lies elsewhere mean something else.
            return lambda name: False
        return self._containment.begin(parent)

    def _forget_what_changed(self, parent: int) -> bool:
        """Forget all if the directory has changed; return whether more may be remembered.

        kernfs gives each entry an inode number of its own; other file systems use one again,
        but then the directory's time of change tells, unless it is too recent to be sure.
        """
        status = os.fstat(parent)
        version = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if version != self._version:
            self._version = version
            self._settled = {}
        return not is_recent(status.st_mtime_ns)
