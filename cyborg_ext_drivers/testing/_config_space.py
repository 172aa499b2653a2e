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

"""The first 256 bytes of a function's configuration space.

Offsets: include/uapi/linux/pci_regs.h.  Vendor and device of a virtual function read ff
while the rest has values (PCIe base specification, 9.3.4.1).
"""

import struct

from cyborg_ext_drivers.testing._description import FunctionDescription

_SIZE = 256
_STATUS_HAS_CAPABILITIES = 0x0010
_COMMAND_IN_USE = 0x0406
_POWER_MANAGEMENT, _EXPRESS = 0x01, 0x10
_AT_POWER, _AT_EXPRESS = 0x40, 0x60


def image(
    function: FunctionDescription, registers: list[int], buses_below: tuple[int, int]
) -> bytes:
    """Return the bytes as root reads them."""
    if function.config is not None:
        return function.config
    data = bytearray(_SIZE)
    _put_header(data, function)
    if function.is_bridge:
        struct.pack_into("<BBB", data, 0x18, function.address.bus, *buses_below)
    else:
        vendor, device = (int(part, 16) for part in function.subsystem.split(":"))
        struct.pack_into("<6I", data, 0x10, *registers)
        struct.pack_into("<HH", data, 0x2C, vendor, device)
    _put_capabilities(data, function)
    return bytes(data)


def _put_header(data: bytearray, function: FunctionDescription) -> None:
    is_virtual = function.physfn is not None
    is_in_use = function.driver is not None and not function.is_on_vfio
    struct.pack_into(
        "<HHHHB",
        data,
        0,
        0xFFFF if is_virtual else int(function.vendor, 16),
        0xFFFF if is_virtual else int(function.device, 16),
        _COMMAND_IN_USE if is_in_use else 0,
        _STATUS_HAS_CAPABILITIES,
        int(function.revision, 16),
    )
    data[0x09:0x0C] = bytes.fromhex(function.class_)[::-1]
    data[0x0E] = 1 if function.is_bridge else 0


def _put_capabilities(data: bytearray, function: FunctionDescription) -> None:
    """Add power management and PCI Express: version 2, an endpoint or a root port."""
    data[0x34] = _AT_POWER
    struct.pack_into("<BBH", data, _AT_POWER, _POWER_MANAGEMENT, _AT_EXPRESS, 0x0003)
    kind = 0x4 if function.is_bridge else 0x0
    struct.pack_into("<BBHI", data, _AT_EXPRESS, _EXPRESS, 0, kind << 4 | 2, 0x10008000)
