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

"""What can be seen of one machine; nothing else reads /sys or /proc."""

import functools
import os

from cyborg_ext_drivers.host.bus import PciFunctions, walk
from cyborg_ext_drivers.host.fabric import Fabric
from cyborg_ext_drivers.host.iommu import Iommu
from cyborg_ext_drivers.host.kernel import Kernel
from cyborg_ext_drivers.host.numa import GpuMemory
from cyborg_ext_drivers.host.nvml import Nvml
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.host.tsm import Tsm
from cyborg_ext_drivers.host.udev import Udev

__all__ = ["Host"]


class Host:
    """One machine at one moment, read below a root.

    What was read once stays as it was, so that all checks see the same machine; a new
    look takes a new ``Host`` (:meth:`again`).
    """

    def __init__(
        self,
        root: str | os.PathLike = "/",
        tree: Tree | None = None,
        before: "Host | None" = None,
    ):
        self.tree = tree or Tree(root)
        self.nvml = before.nvml.again(self.tree) if before else Nvml(self.tree)
        self.kernel = Kernel(self.tree)
        self.iommu = Iommu(self.tree)

    def again(self) -> "Host":
        """Return the same machine to be read anew."""
        return Host(tree=self.tree.again(), before=self)

    @functools.cached_property
    def functions(self) -> PciFunctions:
        """All PCI functions of the host.

        :raises EnumerationError: when the bus cannot be listed.
        """
        return walk(self.tree)

    @functools.cached_property
    def fabric(self) -> Fabric:
        """What connects the host's GPUs beside PCI Express.

        :raises EnumerationError: when the bus cannot be listed.
        """
        return Fabric(self.tree, self.functions)

    @functools.cached_property
    def gpu_memory(self) -> GpuMemory:
        """Which NUMA nodes are memory of GPUs."""
        return GpuMemory(self.tree)

    @functools.cached_property
    def tsm(self) -> Tsm:
        """The TEE Security Managers of the host."""
        return Tsm(self.tree)

    @functools.cached_property
    def udev(self) -> Udev:
        """What udev knows, for people's eyes."""
        return Udev(self.tree)
