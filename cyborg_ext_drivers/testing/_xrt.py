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

"""What XRT's drivers show of an Alveo or Versal card below one of its functions.

Source: Xilinx/XRT, mgmt-sysfs.c, xocl_sysfs.c, feature_rom.c.  Where a card has no metadata,
the kernel answers EINVAL for its UUIDs; a file system cannot, so those files are empty.
"""

import uuid

from cyborg_ext_drivers.testing._description import FunctionDescription, Xrt
from cyborg_ext_drivers.testing._files import Entry

MANAGING, USER = "xclmgmt", "xocl"


def entries(function: FunctionDescription, here: str) -> dict[str, Entry]:
    """Return the files of the managing or the user function; nothing under other drivers."""
    if function.xrt is None or function.driver not in (MANAGING, USER):
        return {}
    files = _managing(function.xrt) if function.driver == MANAGING else _user(function.xrt)
    files |= {
        "interface_uuids": _lines(function.xrt.interface_uuids),
        "logic_uuids": _lines(function.xrt.logic_uuids),
    }
    if function.xrt.vbnv is not None:
        address = function.address
        number = address.domain << 16 | address.bus << 8 | address.device << 3 | address.function
        letter = "m" if function.driver == MANAGING else "u"
        files[f"rom.{letter}.{number}/VBNV"] = _lines((function.xrt.vbnv,))
    return {f"{here}/{name}": entry for name, entry in files.items()}


def _managing(xrt: Xrt) -> dict[str, Entry]:
    return {
        "mgmt_pf": b"",
        "ready": _lines((str(int(xrt.ready)),)),
        "mfg": _lines((str(int(xrt.golden)),)),
    }


def _user(xrt: Xrt) -> dict[str, Entry]:
    return {
        "user_pf": b"",
        "ready": _lines((f"{int(xrt.ready):#x}",)),
        "xclbinuuid": _lines((xrt.xclbin_uuid or str(uuid.UUID(int=0)),)),
    }


def _lines(texts: tuple[str, ...]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()
