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

"""Images for FPGAs, and stand-ins for the makers' tools that write them."""

import struct

SECURE_UPDATE = (0xB6EAFD19).to_bytes(4, "little") + bytes(1200)
# As the guid 58656F6E-4650-4741-B747-425376303031 stands in a file.
GBS = b"XeonFPGA\xb7GBSv001"[::-1] + struct.pack("<I", 2) + b"{}" + bytes(100)

# enum axlf_section_kind of XRT's xclbin.h
BITSTREAM, MEM_TOPOLOGY, CONNECTIVITY, IP_LAYOUT = 0, 6, 7, 8
MCS, BMC, PDI, PARTITION_METADATA, ASK_FLASH = 12, 13, 18, 20, 24

# What it was called with, and a copy of the file that it was given, beside the script.
RECORD = """\
for each in "$@"; do
  printf '%s\\n' "$each"
  if [ -f "$each" ]; then cat "$each" > "$0.image"; fi
done > "$0.arguments"
"""


def container(*kinds, payload=b"payload!"):
    """Return an xclbin with a section of each kind."""
    start = 456 + 40 * len(kinds)
    sections = b"".join(
        struct.pack("<I16s4xQQ", kind, b"section", start + len(payload) * index, len(payload))
        for index, kind in enumerate(kinds)
    )
    header = struct.pack("<QQQHBBHH16s64s16s16sI4x", *(0,) * 8, *(b"",) * 4, len(kinds))
    head = b"xclbin2\0" + struct.pack("<i28s256sQ", -1, b"\xff" * 28, b"", 0) + header
    assert len(head) == 456
    return head + sections + payload * len(kinds)


class Tools:
    """Stand-ins for the makers' tools in a directory, which has to be on PATH."""

    def __init__(self, directory):
        directory.mkdir()
        self.directory = directory

    def add(self, name, then="", record=True):
        """Put a shell script there that records what it is called with, and then does *then*."""
        script = self.directory / name
        script.write_text(f"#!/bin/sh\n{RECORD if record else ''}{then}\n")
        script.chmod(0o755)
        return script

    def called(self, name):
        """Return with what a tool was called; ``None`` if it was not."""
        record = self.directory / f"{name}.arguments"
        return record.read_text().splitlines() if record.exists() else None

    def image(self, name):
        """Return what was in the file that a tool was given."""
        return (self.directory / f"{name}.image").read_bytes()
