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


"""One directory of the host, and what its files say: text, numbers, flags, links.

A read answers with a value, with ``None`` when the file is absent, or raises
:class:`~cyborg_ext_drivers.errors.Unreadable` or
:class:`~cyborg_ext_drivers.errors.Malformed`: three different answers, as the kernel
gives them.

Next stop: :mod:`cyborg_ext_drivers.host.sysfs`.
"""

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from cyborg_ext_drivers.errors import Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host._reading import (
    PAGE,
    is_there,
    list_names,
    read,
    read_head,
    read_link,
    reason,
    version,
)

#: Files that the kernel fills in once, when it finds a PCI function; the same file then has
#: the same content (drivers/pci/pci-sysfs.c).
CONSTANT = frozenset(
    ("vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device")
)
# NAME_MAX of Linux.
_LONGEST_NAME = 255
# Python takes more for white space, and more for digits, than the kernel writes.
_SPACE = " \t\n\r\f\v"
_HEXADECIMAL = re.compile("(0[xX])?[0-9a-fA-F]+")


class Directory:
    """One directory of the host; its files are named without a slash.

    Each entry is read at most once, so all who ask see the same.  Prints as the host's
    path: ``/sys/bus/pci/devices/0000:3b:00.0``.
    """

    __slots__ = ("_answers", "_files", "_versions", "path", "real", "was_absent")

    def __init__(self, path: str, real: str, was_absent: bool = False):
        self.path = path
        #: Where it lies on the machine that runs this; the host's path below a root.
        self.real = real
        self.was_absent = was_absent
        self._files: dict[str, bytes | ReadError | None] = {}
        self._versions: dict[str, tuple[int, int, int] | None] = {}
        self._answers: dict[tuple[Callable, str], Any] = {}

    def __str__(self) -> str:
        return self.path

    def path_of(self, name: str) -> str:
        """Return the host's path of one entry, for evidence."""
        return f"{self.path}/{name}"

    def resolved(self) -> str:
        """Return where it lies with all links followed, the root that is looked at included."""
        return os.path.realpath(self.real)

    def fetch(self, names: Iterable[str], parent: int | None = None) -> None:
        """Read several small files at one go; later reads of them answer from here.

        :param parent: a descriptor of this directory, where one is open anyway.
        """
        for name in names:
            try:
                self._files[name] = self._read(name, parent)
            except OSError as error:
                self._files[name] = Unreadable(self.path_of(name), reason(error), error.errno)

    def _read(self, name: str, parent: int | None) -> bytes | None:
        """Return the raw content of a small file; the one place where it comes from."""
        here = name if parent is not None else f"{self.real}/{name}"
        if name in CONSTANT:
            self._versions[name] = version(here, parent)
        return read(here, parent)

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
        if data is not None and len(data) > PAGE:
            raise Malformed(self.path_of(name), shown(data), f"at most {PAGE} bytes long")
        return data

    def head(self, name: str, size: int) -> bytes | None:
        """Return the first *size* bytes of a binary file, or fewer; ``None`` when absent.

        :raises Unreadable: when the kernel refuses.
        """
        return self._ask(read_head(size), name)

    def link(self, name: str) -> str | None:
        """Return the last part of a link's target, ``None`` when the link is absent.

        The link is read, never followed.

        :raises Unreadable: when the kernel refuses.
        :raises Malformed: when it is no link, or to what has no printable name.
        """
        target = self._ask(read_link, name)
        if target is None:
            return None
        last = target.rstrip("/").rpartition("/")[2]
        if not last.isprintable() or len(last) > _LONGEST_NAME:
            raise Malformed(self.path_of(name), shown(os.fsencode(target)), "a link to a name")
        return last

    def names(self, child: str = "") -> list[str] | None:
        """Return the names of all entries in the kernel's order, ``None`` when it is absent.

        What cannot be printed of a name is escaped, so nothing is found by it.

        :param child: list this directory below instead; a link is not followed.
        :raises Unreadable: when the kernel refuses.
        """
        names = self._ask(list_names, child)
        return (
            names if names is None or "".join(names).isprintable() else list(map(_spelled, names))
        )

    def has(self, name: str) -> bool:
        """Return whether an entry is there, whatever it is and whoever may read it.

        :raises Unreadable: when the kernel refuses.
        """
        return self._ask(is_there, name)

    def is_unchanged(self, parent: int | None = None) -> bool:
        """Return whether all that was read of it reads the same now.

        :param parent: a descriptor of this directory, where one is open anyway.
        """
        here = f"{self.real}/" if parent is None else ""
        try:
            for name, data in self._files.items():
                known = self._versions.get(name)
                if known is not None and known == version(here + name, parent):
                    continue
                if read(here + name, parent) != data:
                    return False
            for (ask, name), answer in self._answers.items():
                if ask(here + (name or "."), parent) != answer:
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
            return data.decode().strip(_SPACE)
        except UnicodeDecodeError:
            raise Malformed(self.path_of(name), shown(data), "text") from None

    def hexadecimal(self, name: str, digits: int) -> str | None:
        """Return a number such as ``0x10de`` as *digits* lower-case digits, ``None`` when absent.

        :raises ReadError: when it cannot be read or is no such number.
        """
        text = self.text(name)
        if text is None:
            return None
        number = int(text, 16) if _HEXADECIMAL.fullmatch(text) else -1
        if number < 0 or number >> (4 * digits):
            raise self._malformed(name, text, f"a hexadecimal number of {digits} digits")
        return f"{number:0{digits}x}"

    def integer(self, name: str) -> int | None:
        """Return a decimal number, ``None`` when the file is absent.

        :raises ReadError: when it cannot be read or is no such number.
        """
        text = self.text(name)
        if text is None:
            return None
        if not text.removeprefix("-").isdecimal() or not text.isascii():
            raise self._malformed(name, text, "a decimal number")
        return int(text)

    def flag(self, name: str) -> bool | None:
        """Return a 0 or 1, ``None`` when the file is absent.

        :raises ReadError: when it cannot be read or is neither.
        """
        text = self.text(name)
        if text is None:
            return None
        if text not in ("0", "1"):
            raise self._malformed(name, text, "0 or 1")
        return text == "1"

    def word(self, name: str, words: Collection[str]) -> str | None:
        """Return one of some words, ``None`` when the file is absent.

        :raises ReadError: when it cannot be read or holds anything else.
        """
        text = self.text(name)
        if text is not None and text not in words:
            raise self._malformed(name, text, f"one of {', '.join(words)}")
        return text

    def _malformed(self, name: str, text: str, expected: str) -> Malformed:
        """Return the error for a text, of which it shows the beginning."""
        return Malformed(self.path_of(name), shown(text.encode()), expected)

    def _ask(self, ask: Callable, name: str) -> Any:
        """Return what a raw read answers of an entry, of the directory itself for no name."""
        key = ask, name
        if key not in self._answers:
            try:
                self._answers[key] = self._raw(ask, name)
            except OSError as error:
                path = self.path_of(name) if name else self.path
                if ask is read_link and error.errno == errno.EINVAL:
                    raise Malformed(path, "no link", "a symbolic link") from None
                raise Unreadable(path, reason(error)) from None
        return self._answers[key]

    def _raw(self, ask: Callable, name: str) -> Any:
        """Return what a raw read answers; the one place where it comes from."""
        # The dot follows the link that a function's own directory is on the bus.
        return ask(f"{self.real}/{name or '.'}")


def _spelled(name: str) -> str:
    return name if name.isprintable() else shown(os.fsencode(name))


def shown(data: bytes) -> str:
    """Return the beginning of unexpected content, printable and short."""
    text = data[:80].decode("ascii", "backslashreplace").strip().replace("\n", " ")
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text + ("..." if len(data) > 80 else "")
