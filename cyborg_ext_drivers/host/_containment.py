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


"""What keeps a read below the root of the host that is looked at.

Next stop: :mod:`cyborg_ext_drivers.host.sysfs`.
"""

import errno
import os
from collections.abc import Callable

from cyborg_ext_drivers.errors import Unreadable
from cyborg_ext_drivers.host._reading import LOCATE, place_of, read_link, reason

_MOST_LINKS = 40


def follow(root: str, path: str) -> str:
    """Follow *path* link by link as the host would and return where it ends below the root.

    :raises Unreadable: when it would end above the root or nowhere.
    """
    done: list[str] = []
    ahead = path.split("/")[::-1]
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
        target = _target("/".join([root, *done, part]), path)
        if target is None:
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Unreadable(path, "its links lead in a circle")
        if target.startswith("/"):
            done = []
        ahead.extend(target.split("/")[::-1])
    return "/".join([root, *done])


def _target(here: str, path: str) -> str | None:
    """Return where a step on the way leads to, ``None`` when it is absent or no link."""
    try:
        return read_link(here)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise Unreadable(path, reason(error)) from None


class Containment:
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
            descriptor = os.open(real, LOCATE)
        except OSError:
            return None
        try:
            if place_of(descriptor) != real:
                return None
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        version = (status.st_dev, status.st_ino, status.st_mtime_ns)
        seen = self._seen.get(above)
        if seen is None or seen[0] != version:
            try:
                with os.scandir(real) as entries:
                    links = frozenset(entry.name for entry in entries if entry.is_symlink())
            except OSError:
                return None
            seen = self._seen[above] = (version, links)
        return seen[1]
