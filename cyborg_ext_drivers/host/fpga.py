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

"""What the driver of an Intel FPGA shows below one PCI function: engines, ports and their ids.

Two layouts, which are found by the names of directories alone:

- DFL, in the kernel since 4.19 (Documentation/fpga/dfl.rst, Documentation/ABI/testing/
  sysfs-platform-dfl-fme, sysfs-platform-dfl-port and sysfs-class-fpga-region)::

      fpga_region/regionN/dfl-fme.M/{bitstream_id,ports_num}
      fpga_region/regionN/dfl-fme.M/dfl-fme-region.P/fpga_region/regionQ/compat_id
      fpga_region/regionN/dfl-port.K/{id,afu_id}

- the older driver outside the kernel, of OPAE 1.x (mock trees of OFS/opae-sdk)::

      fpga/intel-fpga-dev.N/intel-fpga-fme.M/{bitstream_id,ports_num,pr/interface_id}
      fpga/intel-fpga-dev.N/intel-fpga-port.K/{id,afu_id}

The driver's name says nothing: there are hosts with one layout and the other's driver.  A port
is where it is used: on the physical function, or on the virtual function that it was given to.
N, M, P, Q and K count over the whole host and change from boot to boot, so nothing rests on them.

Next stop: :mod:`cyborg_ext_drivers.host.fpga_id`.
"""

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from cyborg_ext_drivers.host.directory import Directory
from cyborg_ext_drivers.host.fpga_id import read_id
from cyborg_ext_drivers.host.sysfs import Tree

REGIONS, DEVICES = "fpga_region", "fpga"
_REGION = re.compile(r"region([0-9]{1,9})")
_DEVICE = re.compile(r"intel-fpga-dev\.([0-9]{1,9})")
_ENGINE = re.compile(r"(?:dfl|intel-fpga)-fme\.([0-9]{1,9})")
_PORT = re.compile(r"(?:dfl|intel-fpga)-port\.([0-9]{1,9})")
_ENGINE_REGION = re.compile(r"dfl-fme-region\.([0-9]{1,9})")


class InterfaceId(NamedTuple):
    """Which images fit a region that can be reprogrammed, and the file that says so."""

    id: str
    path: str

    def __str__(self) -> str:
        return self.id


class _Part:
    """A directory below the function that stands for a part of the FPGA."""

    def __init__(self, tree: Tree, path: str):
        self._tree = tree
        #: The host's path, for evidence.
        self.path = path

    def __str__(self) -> str:
        return self.path

    def path_of(self, attribute: str) -> str:
        """Return the host's path of an attribute, for evidence."""
        return f"{self.path}/{attribute}"

    @property
    def _directory(self) -> Directory:
        return self._tree.directory(self.path)


class ManagementEngine(_Part):
    """The FPGA management engine (FME), through which a card is reprogrammed."""

    @property
    def interface_ids(self) -> tuple[InterfaceId, ...]:
        """Which images fit its regions, each id once, in the order of the regions.

        None where nothing can be reprogrammed: the kernel answers ENOENT for a region without
        an id, which is the same as absent.

        :raises ReadError: when they cannot be listed or read, or one is no id.
        """
        found: dict[str, InterfaceId] = {}
        for path, name in self._interface_files():
            directory = self._tree.directory(path)
            id = read_id(directory, name)
            if id is not None:
                found.setdefault(id, InterfaceId(id, directory.path_of(name)))
        return tuple(found.values())

    @property
    def bitstream_id(self) -> str | None:
        """What is in the part that stays (``0x202000200000237``), ``None`` when it is absent.

        :raises ReadError: when it cannot be read or is no number of 64 bits.
        """
        digits = self._directory.hexadecimal("bitstream_id", 16)
        return None if digits is None else f"0x{int(digits, 16):x}"

    @property
    def ports_num(self) -> int | None:
        """How many ports the card has, wherever they are, ``None`` when it is absent.

        :raises ReadError: when it cannot be read or is no number.
        """
        return self._directory.integer("ports_num")

    def _interface_files(self) -> Iterator[tuple[str, str]]:
        for name in _numbered(self._directory, _ENGINE_REGION):
            regions = self.path_of(f"{name}/{REGIONS}")
            for region in _numbered(self._tree.directory(regions), _REGION):
                yield f"{regions}/{region}", "compat_id"
        yield self.path_of("pr"), "interface_id"


class Port(_Part):
    """A port with the accelerated function (AFU) behind it, which is what an instance gets."""

    @property
    def number(self) -> int | None:
        """Which port of the card it is, ``None`` when the driver does not say.

        :raises ReadError: when it cannot be read or is no number.
        """
        return self._directory.integer("id")

    @property
    def afu_id(self) -> str | None:
        """Which function is programmed into it, ``None`` when the file is absent.

        It is read from the card: EBUSY while the port is disabled, which it is while it is
        being reset or reprogrammed (drivers/fpga/dfl-afu-main.c).

        :raises ReadError: when it cannot be read or is no id.
        """
        return read_id(self._directory, "afu_id")


class FpgaView:
    """What can be seen of an FPGA below one PCI function; each file is read when asked for.

    :param path: the host's path of the function.
    """

    def __init__(self, tree: Tree, path: str):
        self._tree = tree
        #: The host's path of the function.
        self.path = path

    @property
    def is_shown(self) -> bool:
        """Whether a driver shows the FPGA below this function.

        :raises ReadError: when it cannot be told.
        """
        return bool(self._devices)

    @property
    def engines(self) -> tuple[ManagementEngine, ...]:
        """Its management engines: one on the function that manages the card, none elsewhere.

        :raises ReadError: when they cannot be listed.
        """
        return tuple(ManagementEngine(self._tree, path) for path in self._parts(_ENGINE))

    @property
    def ports(self) -> tuple[Port, ...]:
        """The ports that this function has now; those given to virtual functions are there.

        :raises ReadError: when they cannot be listed.
        """
        return tuple(Port(self._tree, path) for path in self._parts(_PORT))

    @functools.cached_property
    def _devices(self) -> tuple[str, ...]:
        """The paths of the directories that stand for the FPGA as one."""
        return tuple(
            f"{self.path}/{folder}/{name}"
            for folder, pattern in ((REGIONS, _REGION), (DEVICES, _DEVICE))
            for name in _numbered(self._tree.directory(f"{self.path}/{folder}"), pattern)
        )

    def _parts(self, pattern: re.Pattern) -> Iterator[str]:
        for device in self._devices:
            for name in _numbered(self._tree.directory(device), pattern):
                yield f"{device}/{name}"


def _numbered(directory: Directory, pattern: re.Pattern) -> list[str]:
    """Return the names of a form, in the order of their numbers: region2 before region10."""
    matches = filter(None, map(pattern.fullmatch, directory.names() or ()))
    return [match[0] for match in sorted(matches, key=lambda match: (int(match[1]), match[0]))]
