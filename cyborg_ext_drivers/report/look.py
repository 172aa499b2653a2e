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

"""The machine as the drivers of one agent see it when it asks them all in a row.

Walking the bus is most of a discovery on a quiet host.  The agent asks its drivers one right
after the other, so the second one takes the walk of the first: they see one machine at one
moment, and several drivers cost little more than one.

Next stop: :mod:`cyborg_ext_drivers.report.driver`.
"""

import contextlib
import time
import weakref
from collections.abc import Iterator

from cyborg_ext_drivers.host import Host

# Between two drivers the agent does next to nothing; whatever takes longer is another round.
_MOST_SECONDS_BETWEEN = 0.002


class Look:
    """A host that is looked at by several drivers in rounds."""

    def __init__(self, root: str):
        self._host = Host(root)
        self._seen_by: set[int] = set()
        self._left_at: float | None = None

    def join(self) -> None:
        """Let a driver begin, which knows nothing of rounds before."""
        self._left_at = None

    @contextlib.contextmanager
    def host(self, driver: object) -> Iterator[Host]:
        """Provide the host as it is in this round, to each driver once."""
        is_late = self._left_at is None or time.monotonic() - self._left_at > _MOST_SECONDS_BETWEEN
        if is_late or id(driver) in self._seen_by:
            self._host = self._host.again()
            self._seen_by = set()
        self._seen_by.add(id(driver))
        try:
            yield self._host
        finally:
            self._left_at = time.monotonic()


_LOOKS: "weakref.WeakValueDictionary[str, Look]" = weakref.WeakValueDictionary()


def at(root: str) -> Look:
    """Return what the drivers share that look at this root; it lasts as long as they do."""
    look = _LOOKS.get(root)
    if look is None:
        look = _LOOKS[root] = Look(root)
    look.join()
    return look
