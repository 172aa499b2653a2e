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

"""The ids that FPGAs tell of what is programmed into them: 128 bits each.

The kernel prints them as 32 digits (afu_id in drivers/fpga/dfl-afu-main.c, compat_id in
drivers/fpga/fpga-region.c), XRT as a UUID's text, people with or without dashes.  All zeros is
what an empty place reads as, all ones what a card reads as that does not answer.

Next stop: :mod:`cyborg_ext_drivers.host.fpga`.
"""

import re

from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.directory import Directory, shown

_EXPECTED = "an id of 32 hexadecimal digits, neither all 0 nor all f"
_ID = re.compile(
    r"(?:0[xX])?([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
)


def normalised(text: str) -> str | None:
    """Return an id as 32 lower-case digits, ``None`` when the text is none."""
    match = _ID.fullmatch(text.strip())
    if match is None:
        return None
    digits = match[1].replace("-", "").lower()
    return None if digits in ("0" * 32, "f" * 32) else digits


def read_id(directory: Directory, name: str) -> str | None:
    """Return the id that a file holds, ``None`` when it is absent.

    :raises ReadError: when it cannot be read or holds no id.
    """
    text = directory.text(name)
    return None if text is None else _checked(directory, name, text)


def read_ids(directory: Directory, name: str) -> tuple[str, ...] | None:
    """Return the ids that a file holds, one on each line, ``None`` when it is absent.

    :raises ReadError: when it cannot be read or a line is no id.
    """
    text = directory.text(name)
    if text is None:
        return None
    lines = filter(None, map(str.strip, text.splitlines()))
    return tuple(_checked(directory, name, line) for line in lines)


def _checked(directory: Directory, name: str, text: str) -> str:
    found = normalised(text)
    if found is None:
        raise Malformed(directory.path_of(name), shown(text.encode()), _EXPECTED)
    return found
