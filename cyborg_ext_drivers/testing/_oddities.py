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

"""What can be odd at one path of a fake host: broken, or legal and rare.

An :class:`Oddity` is a small value, so a case that failed can be written down and played
again.  It is laid in the place of what the description makes there, by :mod:`._layout`.
"""

import dataclasses
from collections.abc import Callable

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.testing._files import (
    Entry,
    Link,
    LinkAsWritten,
    LinkOutside,
    Special,
)

_PAGE = 4096
_MEGABYTES = 2 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Oddity:
    """Something odd at one path: ``nonsense at /sys/bus/pci/devices/0000:3b:00.0/vendor``.

    The kinds, of which the first lines are faults and the last ones legal:

    - ``unreadable``: opening fails with ELOOP, reading a link with EINVAL;
    - ``absent``: a file or link that has gone, a directory with all below it;
    - ``holds``: *value*, a text (which gets a newline) or bytes; ``nonsense``, ``binary``;
      ``megabytes``: what it held, and much more;
    - ``pipe``, ``held-pipe`` (somebody has it open for writing and says nothing),
      ``socket``, ``directory``, ``file``: something else than what should be there;
    - ``link``: to *value*, as it is written; ``loop``: to itself; ``long-link``: to a name
      as long as the kernel allows; ``link-outside`` and ``absolute-link-outside``: out of
      the root to :attr:`FakeHost.outside`, to an entry named like the old link's target;
    - ``empty``, ``bare`` (no newline at the end), ``crlf``, ``upper`` (hexadecimal digits
      in upper case), ``without`` (the lines that begin with *value*).

    The last five change what would be there, and nothing where nothing would be.

    :raises ValueError: when there is no such kind.
    """

    kind: str
    #: The host's path; below the bus's directory it means the function's own.
    path: str
    value: str | bytes = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is nothing odd; there is {', '.join(KINDS)}")

    def __str__(self) -> str:
        value = f" {self.value!r}" if self.value else ""
        return f"{self.kind}{value} at {self.path}"

    @classmethod
    def of(
        cls, address: str | PciAddress, name: str, kind: str, value: str | bytes = ""
    ) -> "Oddity":
        """Return an oddity of one entry of a function's directory."""
        return cls(kind, f"/sys/bus/pci/devices/{address}/{name}", value)

    def change(self, entry: Entry | None) -> Entry | None:
        """Return what lies there instead of an entry; ``None`` is nothing."""
        return _CHANGES[self.kind](self, entry)

    @property
    def content(self) -> bytes:
        """The value as a file holds it."""
        if isinstance(self.value, bytes):
            return self.value
        return (self.value if self.value.endswith("\n") else f"{self.value}\n").encode()


def _unreadable(oddity: Oddity, entry: Entry | None) -> Entry:
    # A link cannot be unreadable; in its place is a file, of which readlink says EINVAL.
    return b"" if isinstance(entry, Link) else Special.UNREADABLE


def _megabytes(oddity: Oddity, entry: Entry | None) -> Entry:
    held = entry if isinstance(entry, bytes) else b""
    return held + b"\n" * (_MEGABYTES - len(held))


def _outside(oddity: Oddity, entry: Entry | None) -> Entry:
    named_like = entry.target if isinstance(entry, Link) else oddity.path
    is_absolute = oddity.kind.startswith("absolute")
    return LinkOutside(named_like.rpartition("/")[2], is_absolute)


def _upper(text: bytes) -> bytes:
    return text.upper().replace(b"0X", b"0x")


def _changed(change: Callable[[bytes, Oddity], bytes]) -> Callable:
    """Return the change of a file's content; nothing else is changed."""
    return lambda oddity, entry: change(entry, oddity) if isinstance(entry, bytes) else entry


def _without(text: bytes, oddity: Oddity) -> bytes:
    start = oddity.value if isinstance(oddity.value, bytes) else oddity.value.encode()
    return b"".join(line for line in text.splitlines(True) if not line.startswith(start))


_CHANGES: dict[str, Callable[[Oddity, Entry | None], Entry | None]] = {
    "unreadable": _unreadable,
    "absent": lambda oddity, entry: None,
    "holds": lambda oddity, entry: oddity.content,
    "nonsense": lambda oddity, entry: b"\tNot what it should be;\r0x, really: \\n %s\n",
    "binary": lambda oddity, entry: bytes(range(256)),
    "megabytes": _megabytes,
    "pipe": lambda oddity, entry: Special.PIPE,
    "held-pipe": lambda oddity, entry: Special.HELD_PIPE,
    "socket": lambda oddity, entry: Special.SOCKET,
    "directory": lambda oddity, entry: Special.DIRECTORY,
    "file": lambda oddity, entry: b"",
    "link": lambda oddity, entry: LinkAsWritten(str(oddity.value)),
    "loop": lambda oddity, entry: LinkAsWritten(oddity.path.rpartition("/")[2]),
    "long-link": lambda oddity, entry: LinkAsWritten("a" * (_PAGE - 1)),
    "link-outside": _outside,
    "absolute-link-outside": _outside,
    "empty": _changed(lambda text, oddity: b""),
    "bare": _changed(lambda text, oddity: text.rstrip(b"\n")),
    "crlf": _changed(lambda text, oddity: text.replace(b"\n", b"\r\n")),
    "upper": _changed(lambda text, oddity: _upper(text)),
    "without": _changed(_without),
}
#: What :attr:`Oddity.kind` may be.
KINDS = tuple(_CHANGES)
