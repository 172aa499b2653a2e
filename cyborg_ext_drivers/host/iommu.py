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

"""IOMMU groups and the IOMMUs themselves.

Read: ``/sys/kernel/iommu_groups`` (Documentation/ABI/testing/sysfs-kernel-iommu_groups),
``/sys/class/iommu``, the listing of ``/sys/firmware/acpi/tables``; anybody may.  A host
without an active IOMMU has an empty or no ``iommu_groups``.
"""

from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.host.directory import Directory
from cyborg_ext_drivers.host.kernel import MODULES
from cyborg_ext_drivers.host.sysfs import Tree

GROUPS = "/sys/kernel/iommu_groups"
UNITS = "/sys/class/iommu"
FIRMWARE_TABLES = "/sys/firmware/acpi/tables"
# The name of groups that VFIO makes without an IOMMU (drivers/vfio/group.c).
_UNPROTECTED = "vfio-noiommu"


class IommuGroup:
    """One IOMMU group, the smallest set of functions that can be given away: ``27``."""

    def __init__(self, number: int, directory: Directory, members: tuple[str, ...] | None):
        self.number = number
        self._directory = directory
        #: Names of all members, PCI addresses or other devices; ``None`` when the
        #: group has no listing, as in some copies of a host.
        self.members = members

    def path_of(self, name: str) -> str:
        """Return the host's path of one file of the group, for evidence."""
        return self._directory.path_of(name)

    @property
    def path(self) -> str:
        """The host's path of the listing of members."""
        return self._directory.path_of("devices")

    @property
    def name(self) -> str | None:
        """The group's name; mostly absent.

        :raises ReadError: when it cannot be read.
        """
        return self._directory.text("name")

    @property
    def is_unprotected(self) -> bool:
        """Whether VFIO made it in its no-IOMMU mode, so that it protects nothing.

        :raises ReadError: when it cannot be told.
        """
        return self.name == _UNPROTECTED

    @property
    def reserved_regions(self) -> tuple[tuple[str, str, str], ...]:
        """The regions (start, end, kind) that are set apart; ``direct`` ones forbid VFIO.

        :raises ReadError: when they cannot be read.
        """
        lines = (self._directory.text("reserved_regions") or "").splitlines()
        rows = (line.split() for line in lines)
        return tuple((row[0], row[1], row[2]) for row in rows if len(row) == 3)


class Iommu:
    """The IOMMUs of a host and the groups that they make."""

    def __init__(self, tree: Tree):
        self._tree = tree

    def group(self, number: int) -> IommuGroup:
        """Return a group by its number.

        :raises ReadError: when its members cannot be listed.
        """
        directory = self._tree.directory(f"{GROUPS}/{number}", ("reserved_regions",))
        members = directory.names("devices")
        return IommuGroup(number, directory, None if members is None else tuple(sorted(members)))

    @property
    def has_groups(self) -> bool:
        """Whether an IOMMU has made any group on the host; VFIO's no-IOMMU mode makes others.

        :raises ReadError: when it cannot be told.
        """
        names = self._tree.names(GROUPS) or ()
        parameters = self._tree.directory(f"{MODULES}/vfio/parameters")
        if not parameters.has("enable_unsafe_noiommu_mode"):
            return bool(names)
        return any(self._tree.text(f"{GROUPS}/{name}/name") != _UNPROTECTED for name in names)

    @property
    def units(self) -> tuple[str, ...]:
        """The active IOMMUs: ``dmar0`` (Intel), ``ivhd0`` (AMD), ``smmu3.0x...`` (Arm).

        :raises ReadError: when they cannot be listed.
        """
        return tuple(sorted(self._tree.names(UNITS) or ()))

    @property
    def firmware_tables(self) -> tuple[str, ...] | None:
        """The ACPI tables by which firmware offers an IOMMU: DMAR, IVRS or IORT.

        Machines without ACPI have none.  ``None`` where they cannot be listed: the answer is
        only asked for to explain what is wrong anyway.
        """
        try:
            names = self._tree.names(FIRMWARE_TABLES) or ()
        except ReadError:
            return None
        return tuple(sorted(set(names) & {"DMAR", "IVRS", "IORT"}))

    def driver_of(self, group: IommuGroup, member: str) -> str | None:
        """Return the driver of a member that is no PCI function, ``None`` if unbound.

        :raises ReadError: when it cannot be read.
        """
        return self._tree.directory(f"{GROUPS}/{group.number}/devices/{member}").link("driver")
