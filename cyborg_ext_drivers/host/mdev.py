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

"""Mediated devices of a function, and the types of them that its driver offers.

Read: ``mdev_supported_types`` of the parent and its directories
(Documentation/ABI/testing/sysfs-bus-vfio-mdev, drivers/vfio/mdev/mdev_sysfs.c).  The parent is
the card itself, or each of its virtual functions.

Next stop: :mod:`cyborg_ext_drivers.families.vgpu`.
"""

import re

from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.directory import Directory, shown
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.sysfs import Tree

TYPES = "mdev_supported_types"
#: The module of NVIDIA's vGPU host driver that makes mediated devices.
VGPU_MODULE = "nvidia_vgpu_vfio"

# uuid_is_valid of lib/uuid.c, which every mediated device passes.
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MOST_INSTANCES = re.compile(r"(?:^|[,\s])max_instance\s*=\s*(\d{1,9})(?:[,\s]|$)")
# More than any card can hold; what says more is nonsense, and would be as many rows of Cyborg's.
_MOST = 1024


class MediatedType:
    """One type that a parent offers: ``nvidia-223``, by people called ``GRID T4-2B``."""

    def __init__(self, directory: Directory, id: str):
        self._directory = directory
        self.id = id

    def path_of(self, attribute: str) -> str:
        """Return the host's path of an attribute, for evidence."""
        return self._directory.path_of(attribute)

    @property
    def name(self) -> str:
        """What people call the type; the type's id where the driver has no name for it.

        :raises ReadError: when it cannot be read.
        """
        return self._directory.text("name") or self.id

    @property
    def max_instance(self) -> int | None:
        """How many an empty card holds, by the driver; ``None`` when it has no description.

        ``available_instances`` would say what can be made now, less with each that exists and
        none beside types of another size, so it is not read.

        :raises ReadError: when the description cannot be read or does not say it.
        """
        description = self._directory.data("description")
        if description is None:
            return None
        text = description.decode("utf-8", "replace")
        match = _MOST_INSTANCES.search(text)
        number = int(match[1]) if match and match[1].isascii() else 0
        if not 0 < number <= _MOST:
            path = self._directory.path_of("description")
            raise Malformed(path, shown(description), f"one with max_instance=1 to {_MOST}")
        return number


class MediatedParent:
    """A function below which mediated devices can be made, or which might be one."""

    def __init__(self, tree: Tree, function: PciFunction):
        self._tree = tree
        self.function = function

    @property
    def path(self) -> str:
        """The host's path of the types, for evidence."""
        return self.function.path_of(TYPES)

    @property
    def is_one(self) -> bool:
        """Whether its driver offers mediated devices at all.

        :raises ReadError: when it cannot be told.
        """
        return self.function.directory.has(TYPES)

    @property
    def type_ids(self) -> tuple[str, ...]:
        """The types that it offers now, by name; nothing when it is no parent.

        :raises ReadError: when they cannot be listed.
        """
        names = self.function.directory.names(TYPES) if self.is_one else None
        return tuple(sorted(names or (), key=_by_number))

    def type(self, id: str) -> MediatedType | None:
        """Return one of its types, ``None`` when it does not offer it.

        :raises ReadError: when it cannot be told.
        """
        if not self.is_one or not self._tree.directory(self.path).has(id):
            return None
        return MediatedType(self._tree.directory(f"{self.path}/{id}"), id)

    @property
    def devices(self) -> tuple[str, ...]:
        """The UUIDs of the mediated devices that live on it.

        They lie in the directory of the function.  Its driver takes them along when it leaves.

        :raises ReadError: when they cannot be listed.
        """
        if not self.is_one:
            return ()
        names = self.function.directory.names() or ()
        return tuple(sorted(filter(_UUID.fullmatch, names)))

    def type_of(self, uuid: str) -> str | None:
        """Return of which type a mediated device is, ``None`` when that is not known.

        :raises ReadError: when it cannot be read.
        """
        return self._tree.directory(self.function.path_of(uuid)).link("mdev_type")


def _by_number(id: str) -> tuple[str, int, str]:
    """Order ``nvidia-35`` before ``nvidia-222``."""
    prefix, _, number = id.rpartition("-")
    is_number = number.isascii() and number.isdecimal() and len(number) < 10
    return (prefix, int(number), id) if is_number else (id, -1, id)
