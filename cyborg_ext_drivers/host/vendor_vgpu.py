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

"""What a virtual function says of its vGPU, where NVIDIA's driver itself is its VFIO provider.

Read: ``nvidia/current_vgpu_type`` and ``nvidia/creatable_vgpu_types`` of a virtual function.
The folder is NVIDIA's, without an entry in the kernel's documentation; its layout is told in
Nova's manual (Attaching virtual GPU devices to guests, for Ubuntu 24.04 and later) and in the
README of NVIDIA/vgpu-device-manager.  A physical function has no such folder.

The type is what the operator wrote.  The name of a type is to be seen only while one more of
it could be created, so nothing that is to stay may rest on a name.

Next stop: :mod:`cyborg_ext_drivers.families.nvidia`.
"""

import re
from typing import NamedTuple

from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.directory import Directory, shown

FOLDER = "nvidia"
CURRENT, CREATABLE = "current_vgpu_type", "creatable_vgpu_types"
_LINE = re.compile(r"([0-9]{1,10})[ \t]*:[ \t]*(\S(?:.*\S)?)[ \t]*")
_HEADER = re.compile(r"ID[ \t]*:.*")
# Of 32 bits in the driver's interface (nvmlVgpuTypeId_t).
_MOST = 0xFFFFFFFF


class VgpuType(NamedTuple):
    """A type of vGPU: ``1145 (NVIDIA L40S-1B)``."""

    id: int
    name: str

    def __str__(self) -> str:
        return f"{self.id} ({self.name})"


class VendorVgpu:
    """The vGPU of one virtual function; its files are read when they are asked for."""

    def __init__(self, directory: Directory):
        self._directory = directory

    @property
    def current(self) -> int | None:
        """The id of the type that the function has, ``None`` while it has none.

        The driver writes 0 for none; an empty file, and one that is not there yet, say the same.

        :raises ReadError: when it cannot be read or is no number.
        """
        text = self._directory.text(CURRENT)
        if not text:
            return None
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else -1
        if not 0 <= number <= _MOST:
            raise self._malformed(CURRENT, text, "the number of a type of vGPU")
        return number or None

    @property
    def creatable(self) -> tuple[VgpuType, ...]:
        """The types of which one more could be created now, by id; none on a full card.

        The header line is not always there.

        :raises ReadError: when they cannot be read or a line is no number, colon and name.
        """
        lines = (self._directory.text(CREATABLE) or "").splitlines()
        found = set()
        for line in filter(None, map(str.strip, lines)):
            match = _LINE.fullmatch(line)
            if match and int(match[1]) <= _MOST and match[2].isprintable():
                found.add(VgpuType(int(match[1]), match[2]))
            elif not _HEADER.fullmatch(line):
                raise self._malformed(CREATABLE, line, "the number of a type, a colon and a name")
        return tuple(sorted(found))

    @property
    def current_path(self) -> str:
        """The host's path of the file that holds the type."""
        return self._directory.path_of(CURRENT)

    @property
    def creatable_path(self) -> str:
        """The host's path of the file that lists what could be created."""
        return self._directory.path_of(CREATABLE)

    def _malformed(self, name: str, text: str, expected: str) -> Malformed:
        return Malformed(self._directory.path_of(name), shown(text.encode()), expected)
