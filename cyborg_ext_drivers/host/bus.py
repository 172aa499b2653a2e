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


"""All PCI functions of a host, found by one walk over the bus.

Read: ``uevent`` of each function in ``/sys/bus/pci/devices``, which anybody may and which
waits for no lock.  A function is looked at more closely only when its ``uevent`` does not
say what it is.

Next stop: :mod:`cyborg_ext_drivers.families.base`.
"""

import functools
from collections.abc import Callable, Iterator

from cyborg_ext_drivers.address import PciAddress, is_sysfs_name
from cyborg_ext_drivers.errors import EnumerationError, Malformed, ReadError, Unreadable
from cyborg_ext_drivers.host.directory import shown
from cyborg_ext_drivers.host.identity import Identity, PciId, is_nonsense
from cyborg_ext_drivers.host.pci import DEVICES, PciFunction
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.host.topology import parents_of


class PciFunctions:
    """All PCI functions of a host at one moment, sorted by address.

    A :class:`PciFunction` is made only of those that somebody asks for; a host may have
    thousands that nobody does.
    """

    def __init__(self, tree: Tree, uevents: dict[str, bytes | None | ReadError]):
        self._tree = tree
        #: What the bus says of each entry, to compare one walk with another.
        self.uevents = uevents
        self._made: dict[str, PciFunction | None] = {}

    def __len__(self) -> int:
        return sum(map(is_sysfs_name, self.uevents))

    def __iter__(self) -> Iterator[PciFunction]:
        yield from self.select(lambda identity: True)

    def select(self, wanted: Callable[[Identity], bool]) -> list[PciFunction]:
        """Return the functions of a wanted identity, and those that cannot be identified."""
        is_wanted = functools.cache(wanted)
        made = []
        for name, uevent in self.uevents.items():
            identity = _identity(uevent)
            if identity is None or is_wanted(identity):
                made.append(self.get(name))
        kept = (f for f in made if f and (f.identity is None or is_wanted(f.identity)))
        return sorted(kept, key=lambda function: function.address)

    @functools.cached_property
    def by_group(self) -> dict[int, tuple[str, ...]]:
        """The functions' names by IOMMU group, from their own links.

        For copies of a host that lack /sys/kernel.  A function whose link cannot be read is
        in none.
        """
        groups: dict[int, list[str]] = {}
        for function in self:
            try:
                group = function.iommu_group
            except ReadError:
                continue
            if group is not None:
                groups.setdefault(group, []).append(function.name)
        return {group: tuple(sorted(names)) for group, names in groups.items()}

    def in_slot_of(self, function: PciFunction) -> tuple[PciFunction, ...]:
        """Return the other functions with the same domain, bus and device."""
        names = (function.name[:-1] + digit for digit in "01234567")
        others = (self.get(name) for name in names if name != function.name)
        return tuple(other for other in others if other is not None)

    def virtual_functions_of(self, card: PciFunction) -> tuple[PciFunction, ...]:
        """Return the virtual functions of a card that the bus has, by address.

        :raises ReadError: when the card's links to them cannot be read.
        """
        found = (self.get(address) for address in sorted(set(card.virtual_functions)))
        return tuple(each for each in found if each is not None)

    def ids_above(self, function: PciFunction) -> tuple[PciId, ...]:
        """Return the ids of the bridges above a function, the root port's first.

        One that cannot be identified is left out.

        :raises ReadError: when the link to the function's attributes leads nowhere.
        """
        bridges = (self.get(name) for name in parents_of(function))
        return tuple(each.identity.id for each in bridges if each and each.identity)

    def get(self, address: PciAddress | str) -> PciFunction | None:
        """Return the function at an address, ``None`` when there is none."""
        name = str(address)
        uevent = self.uevents.get(name)
        self._tree.note(name, uevent)
        if name not in self.uevents or not is_sysfs_name(name):
            return None
        if name not in self._made:
            self._made[name] = _look(self._tree, name, uevent)
        return self._made[name]


def walk(tree: Tree) -> PciFunctions:
    """Return all PCI functions that the host has now.

    A function that goes away in mid-walk is left out, as if it had gone before.

    :raises EnumerationError: when the bus itself cannot be listed.
    """
    try:
        return PciFunctions(tree, tree.read_each(DEVICES, "uevent", _says_what_it_is))
    except Unreadable as error:
        raise EnumerationError(error.path, error.reason) from None


def _says_what_it_is(uevent: bytes) -> bool:
    return Identity.of_uevent(uevent) is not None


def _identity(uevent: bytes | None | ReadError) -> Identity | None:
    return Identity.of_uevent(uevent) if isinstance(uevent, bytes) else None


def _look(tree: Tree, name: str, uevent: bytes | None | ReadError) -> PciFunction | None:
    """Identify a function, by its id files where its ``uevent`` does not say what it is.

    One without any of them has gone in the meantime: ``None``.
    """
    identity = _identity(uevent)
    if identity is not None:
        return PciFunction(tree, name, identity)
    path = f"{DEVICES}/{name}"
    failure = _failure(uevent, f"{path}/uevent")
    try:
        directory = tree.directory(path)
        identity = Identity.of_files(directory)
    except ReadError as error:
        return PciFunction(tree, name, None, failure or error)
    if identity is None:
        files = (directory.data(file) for file in ("class", "vendor", "device"))
        if not uevent and not any(files):
            return None
        failure = failure or Unreadable(f"{path}/vendor", "vendor or device is missing")
    return PciFunction(tree, name, identity, failure)


def _failure(uevent: bytes | None | ReadError, path: str) -> ReadError | None:
    """Return what is wrong with a ``uevent`` that gives no identity; absence is not."""
    if isinstance(uevent, ReadError):
        return uevent
    if uevent and is_nonsense(uevent):
        return Malformed(path, shown(uevent), "the uevent of a PCI function")
    return None
