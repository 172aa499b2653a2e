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

"""Memory of GPUs that the kernel has as NUMA nodes, as on NVIDIA Grace.

Read: ``/proc/driver/nvidia/gpus/<address>/numa_status`` (open-gpu-kernel-modules, nv-procfs.c),
which is there while the driver ``nvidia`` holds the card, and
``/sys/devices/system/node/has_cpu`` (Documentation/ABI/stable/sysfs-devices-node).
"""

import re

from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.directory import shown
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.sysfs import Tree

GPUS = "/proc/driver/nvidia/gpus"
HAS_CPU = "/sys/devices/system/node/has_cpu"

_NODE = re.compile(r"^Node:\s*(-?[0-9]{1,6})\s*$", re.MULTILINE)
_STATUS = re.compile(r"^Status:\s*(\S.*?)\s*$", re.MULTILINE)
_RANGES = re.compile(r"(?:[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*)?")


class GpuMemory:
    """Which NUMA nodes are memory of GPUs."""

    def __init__(self, tree: Tree):
        self._tree = tree

    def node_of(self, function: PciFunction) -> int | None:
        """Return the node that a GPU's memory is online as, ``None`` when it is none.

        :raises ReadError: when the driver's file cannot be read or tells no node.
        """
        path = status_path(function)
        text = self._tree.text(path)
        if not text:
            return None
        node, status = _NODE.search(text), _STATUS.search(text)
        if not (node and status):
            raise Malformed(path, shown(text.encode()), "the lines Node and Status")
        is_online = status[1] == "online" and int(node[1]) >= 0
        return int(node[1]) if is_online else None

    @property
    def with_cpus(self) -> str | None:
        """The nodes that have processors, as the kernel lists them: ``0,8``; ``None`` if absent.

        :raises ReadError: when they cannot be read or are no such list.
        """
        text = self._tree.text(HAS_CPU)
        if text is not None and not _RANGES.fullmatch(text):
            raise Malformed(HAS_CPU, shown(text.encode()), "a list of nodes")
        return text

    def has_cpus(self, node: int) -> bool | None:
        """Return whether a node has processors, ``None`` where the kernel does not say.

        :raises ReadError: when it cannot be read.
        """
        listed = self.with_cpus
        if listed is None:
            return None
        ranges = (part.partition("-") for part in listed.split(",") if part)
        return any(int(first) <= node <= int(last or first) for first, _, last in ranges)


def status_path(function: PciFunction) -> str:
    """Return the host's path of what the driver says of a GPU's memory."""
    return f"{GPUS}/{function}/numa_status"
