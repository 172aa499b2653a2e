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

"""The NVSwitches of a host, and how its Fabric Manager is set.

Read: the bus, and ``/usr/share/nvidia/nvswitch/fabricmanager.cfg``, in which the line
``FABRIC_MODE=`` names the mode (NVIDIA Fabric Manager User Guide, Fabric Manager Config
Options).  The Fabric Manager may as well run in a container or in a service VM; then the file is
not there, or says nothing of it.

Next stop: :mod:`cyborg_ext_drivers.checks.fabric`.
"""

import functools
import re

from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.bus import PciFunctions
from cyborg_ext_drivers.host.directory import shown
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import DEVICES, PciFunction
from cyborg_ext_drivers.host.sysfs import Tree

FOLDER, FILE = "/usr/share/nvidia/nvswitch", "fabricmanager.cfg"
CONFIGURATION = f"{FOLDER}/{FILE}"
#: What FABRIC_MODE may be.
BARE_METAL, SHARED, VGPU = 0, 1, 2

# The package's own has 10 KiB, most of it remarks.
_MOST_BYTES = 1 << 16
_MODE = re.compile(rb"^[ \t]*FABRIC_MODE[ \t]*=([^\r\n#]*)", re.MULTILINE)


class Fabric:
    """What connects the GPUs of one host beside PCI Express."""

    def __init__(self, tree: Tree, functions: PciFunctions):
        self._tree = tree
        self._functions = functions

    @property
    def switches(self) -> tuple[PciFunction, ...]:
        """The NVSwitches that are PCI functions, by address.

        Those of HGX B200 and B300 are none (ibid., Systems Using Fourth Generation NVSwitches).
        """
        # What is not there is asked for as well: it may come.
        self._tree.names(DEVICES)
        found = (self._functions.get(name) for name in self._names)
        return tuple(each for each in found if each is not None)

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        found = self._functions.select(is_switch)
        return tuple(each.name for each in found if each.identity is not None)

    @property
    def mode(self) -> int | None:
        """The mode that the Fabric Manager of the host is set to, ``None`` without its file.

        0 is for bare metal and for one instance that has all GPUs and switches of a board, 1
        keeps the switches on the host for instances that have some GPUs, 2 does so for vGPUs.
        Without the line it is 0.

        :raises ReadError: when the file cannot be read or the mode is no number.
        """
        data = self._tree.directory(FOLDER).head(FILE, _MOST_BYTES)
        if data is None:
            return None
        values = [value.strip().strip(b"\"'") for value in _MODE.findall(data)]
        if not values:
            return BARE_METAL
        if not re.fullmatch(b"[0-9]{1,3}", values[-1]):
            raise Malformed(CONFIGURATION, shown(values[-1]), "the number of a FABRIC_MODE")
        return int(values[-1])


def is_switch(identity: Identity) -> bool:
    """Return whether a function is an NVSwitch: a bridge of NVIDIA's that is none to PCI.

    nvidia-nvswitch, the driver of the switches, takes vendor 10de, class 0680
    (open-gpu-kernel-modules, linux_nvswitch.c).
    """
    return identity.id.vendor == "10de" and identity.pci_class.base_and_sub == "0680"
