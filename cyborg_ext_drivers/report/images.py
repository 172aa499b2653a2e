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

"""What an image for an FPGA is, told by its first bytes.

Cyborg's agent names every image ``<uuid>xxxx.gbs`` (cyborg.agent.manager), so the name tells
nothing.  Sources: OPAE's ``fpgasupdate`` (python/opae.admin) for Intel, XRT's ``xclbin.h`` and
``firmware_image.cpp`` for Xilinx.

Next stop: :mod:`cyborg_ext_drivers.report.tools`.
"""

import os
import stat
import struct
from typing import NamedTuple

from cyborg_ext_drivers.errors import ExtDriversError

# The first word of block 0, with which OPAE's secure updates begin.
_SECURE_UPDATE = (0xB6EAFD19).to_bytes(4, "little")
_AXLF = b"xclbin2\0"
# struct axlf: magic, signature length, reserved, key block, unique id; m_header; m_sections.
_HEADER = 8 + 4 + 28 + 256 + 8
_NUMBER_OF_SECTIONS = _HEADER + 144
_SECTIONS = _HEADER + 152
# struct axlf_section_header: kind, name, padding, offset, size.
_SECTION = struct.Struct("<I16s4xQQ")
# As XRT's own limit in firmware_image.cpp.
_MOST_SECTIONS = 10000
_HEAD = _SECTIONS + _MOST_SECTIONS * _SECTION.size

# enum axlf_section_kind
_BITSTREAM, _MEM_TOPOLOGY, _CONNECTIVITY, _IP_LAYOUT = 0, 6, 7, 8
_MCS, _BMC, _PDI, _PARTITION_METADATA, _ASK_FLASH = 12, 13, 18, 20, 24
_FLASH = frozenset((_MCS, _BMC, _ASK_FLASH))
_USER = frozenset((_MEM_TOPOLOGY, _CONNECTIVITY, _IP_LAYOUT))


class UnusableImage(ExtDriversError):
    """A path that names no image."""

    def __init__(self, path: object, reason: str):
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"The image {self.path!r} cannot be used: {self.reason}"


class Image(NamedTuple):
    """An image that is a file with something in it."""

    #: Absolute, so that no tool takes it for an option.
    path: str
    size: int
    #: As much of its beginning as all section headers of a container need.
    head: bytes

    @property
    def is_secure_update(self) -> bool:
        """Whether it is a signed update of a card's flash, for Intel's ``fpgasupdate``."""
        return self.head.startswith(_SECURE_UPDATE)

    @property
    def sections(self) -> frozenset[int] | None:
        """The kinds of the sections of a container of Xilinx (xclbin, xsabin).

        ``None`` for any other file, and for a container that is damaged or cut off.
        """
        if not self.head.startswith(_AXLF) or len(self.head) < _SECTIONS:
            return None
        (number,) = struct.unpack_from("<I", self.head, _NUMBER_OF_SECTIONS)
        if not 0 < number <= _MOST_SECTIONS or len(self.head) < _SECTIONS + number * _SECTION.size:
            return None
        headers = [
            _SECTION.unpack_from(self.head, _SECTIONS + index * _SECTION.size)
            for index in range(number)
        ]
        if any(offset + size > self.size for _kind, _name, offset, size in headers):
            return None
        return frozenset(kind for kind, *_rest in headers)

    @property
    def is_user_partition(self) -> bool:
        """Whether it is an xclbin: what runs in the user's partition of a shell."""
        kinds = self.sections or frozenset()
        return bool(kinds & _USER) and not kinds & _FLASH

    @property
    def is_shell_partition(self) -> bool:
        """Whether it is a shell that is loaded onto a base and not written to flash."""
        kinds = self.sections or frozenset()
        return (
            _PARTITION_METADATA in kinds
            and bool(kinds & {_BITSTREAM, _PDI})
            and not kinds & (_FLASH | _USER)
        )


def read(path: object) -> Image:
    """Return the image at an absolute path.

    :raises UnusableImage: when it is no regular file (a link is none), is empty or cannot be read.
    """
    if not isinstance(path, str) or not os.path.isabs(path):
        raise UnusableImage(path, "it is no absolute path")
    try:
        with open(path, "rb", opener=_opened) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise UnusableImage(path, "it is no regular file")
            head = file.read(_HEAD)
    except (OSError, ValueError) as error:
        raise UnusableImage(path, getattr(error, "strerror", None) or str(error)) from None
    if not head:
        raise UnusableImage(path, "it is empty")
    return Image(path, about.st_size, head)


def _opened(path: str, flags: int) -> int:
    # A FIFO would be waited for without O_NONBLOCK.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
