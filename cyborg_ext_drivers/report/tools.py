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

"""The makers' tools that write images to FPGAs: which one, how it is called, how it failed.

============= ================ ===========================================================
image         tool             called with
============= ================ ===========================================================
Intel's GBS   ``fpgaconf``     ``--bus 0x3b --device 0x00 --function 0x0 FILE``
secure update ``fpgasupdate``  ``FILE 0000:3b:00.0``
xclbin        ``xbmgmt``       ``program --device 0000:3b:00.0 --user FILE``
shell         ``xbmgmt``       ``program --device 0000:3b:00.0 --shell FILE``
other         ``xbmgmt``       ``program --device 0000:3b:00.0 --base --image FILE``
============= ================ ===========================================================

Sources: OPAE's fpgaconf.md and fpgasupdate.py; XRT's xbmgmt.rst and SubCmdProgram.cpp.

Next stop: :mod:`cyborg_ext_drivers.report.privileged`.
"""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.report import process
from cyborg_ext_drivers.report.images import Image

# Where the makers' packages put them; looked at after PATH, which sudo replaces.
_DIRECTORIES = ("/usr/bin", "/usr/local/bin", "/opt/xilinx/xrt/bin")


class Tool(NamedTuple):
    """A program of a maker."""

    name: str
    #: Where an operator gets it.
    package: str


FPGACONF = Tool("fpgaconf", "Intel's OPAE SDK (package opae or opae-tools)")
FPGASUPDATE = Tool("fpgasupdate", "Intel's OPAE SDK (package opae or opae.admin)")
XBMGMT = Tool("xbmgmt", "AMD's Xilinx Runtime (package xrt)")


class ToolMissing(ExtDriversError):
    """A tool is not installed."""

    def __init__(self, tool: str, directories: str, package: str):
        self.tool = tool
        self.directories = directories
        self.package = package
        super().__init__(tool, directories, package)

    def __str__(self) -> str:
        return f"There is no {self.tool} in {self.directories}: install {self.package}"


class ToolFailed(ExtDriversError):
    """A tool did not do what it was called for; knows the last lines of what it said."""

    def __init__(self, tool: str, reason: str, lines: tuple[str, ...] = ()):
        self.tool = tool
        self.reason = reason
        self.lines = tuple(lines)
        super().__init__(tool, reason, self.lines)

    def __str__(self) -> str:
        said = f"its last lines: {' | '.join(self.lines)}" if self.lines else "it said nothing"
        return f"{self.tool} {self.reason}; {said}"


class Call(NamedTuple):
    """A tool with its arguments before and after the name of the image."""

    tool: Tool
    before: tuple[str, ...]
    after: tuple[str, ...] = ()
    #: The end that the image's name must have; empty where the tool does not look at it.
    suffix: str = ""


def of_intel(address: PciAddress, image: Image) -> Call:
    """Return how Intel's tools write an image; what they do not know, fpgaconf refuses."""
    if image.is_secure_update:
        return Call(FPGASUPDATE, (), (str(address),))
    # Older ones lack it, and know no other domain.
    segment = ("--segment", f"0x{address.domain:04x}") if address.domain else ()
    bus, device = f"0x{address.bus:02x}", f"0x{address.device:02x}"
    function = f"0x{address.function:x}"
    return Call(FPGACONF, (*segment, "--bus", bus, "--device", device, "--function", function))


def of_xilinx(address: PciAddress, image: Image) -> Call:
    """Return how xbmgmt writes an image.

    It asks before it writes a base, and takes the end of its input for a yes.  Of shells and
    bases it reads only those whose names end in ``.xsabin`` (DSAInfo in firmware_image.cpp);
    a file that is no container keeps its name, so that xbmgmt does not take it for one.
    """
    program = ("program", "--device", str(address))
    if image.is_user_partition:
        return Call(XBMGMT, (*program, "--user"))
    if image.is_shell_partition:
        return Call(XBMGMT, (*program, "--shell"), suffix=".xsabin")
    suffix = "" if image.sections is None else ".xsabin"
    return Call(XBMGMT, (*program, "--base", "--image"), suffix=suffix)


def run(call: Call, image: Image, seconds: float) -> None:
    """Let a tool write an image.

    :raises ToolMissing: when it is not installed.
    :raises ToolFailed: when it cannot be started, fails or takes longer than *seconds*.
    """
    path = _find(call.tool)
    name = call.tool.name
    try:
        with _named(image.path, call.suffix) as file:
            ended = process.run([path, *call.before, file, *call.after], seconds)
    except OSError as error:
        raise ToolFailed(name, f"({path}) cannot be started: {error.strerror or error}") from None
    if ended.is_late or ended.status:
        raise ToolFailed(name, _reason(ended, seconds), ended.lines)


def _find(tool: Tool) -> str:
    paths = os.environ.get("PATH", "").split(os.pathsep)
    directories = os.pathsep.join(dict.fromkeys((*filter(os.path.isabs, paths), *_DIRECTORIES)))
    found = shutil.which(tool.name, path=directories)
    if found is None:
        raise ToolMissing(tool.name, directories.replace(os.pathsep, ", "), tool.package)
    return found


@contextlib.contextmanager
def _named(path: str, suffix: str) -> Iterator[str]:
    """Provide a name of a file that ends in *suffix*."""
    if not suffix:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="cyborg-ext-program-") as directory:
        link = os.path.join(directory, f"image{suffix}")
        os.symlink(path, link)
        yield link


def _reason(ended: process.Ended, seconds: float) -> str:
    if ended.is_late:
        outcome = " and does not end" if ended.status is None else ""
        return f"was stopped{outcome}, as it took longer than program_timeout = {seconds} seconds"
    if ended.status < 0:
        words = signal.strsignal(-ended.status) or "unknown"
        return f"was ended by signal {-ended.status} ({words})"
    return f"ended with exit status {ended.status}"
