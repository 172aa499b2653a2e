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

"""Keeps the files below a root as the machine is now."""

from collections.abc import Iterable
from typing import Literal

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.testing import _function_tree, _platform
from cyborg_ext_drivers.testing._files import Files, Link, Special, Tree
from cyborg_ext_drivers.testing._machine import Machine

#: ``all``, or ``identity`` for what says which functions there are and how they hang
#: together: enough for a walk of the bus, and several times as quick to lay.
Attributes = Literal["all", "identity"]

_FUNCTIONS = "/sys/devices/pci"


class Layout:
    """The tree of one machine; remembers what it laid, so that it writes only changes."""

    def __init__(self, files: Files, machine: Machine, attributes: Attributes):
        self._files = files
        self._machine = machine
        self._detailed = attributes == "all"
        self._shared: Tree = {}
        self._laid: dict[PciAddress, Tree] = {}
        self._given: Tree = {}
        nodes = (function.numa_node for function in machine.functions.values())
        self._nodes = max(nodes, default=0) + 1 or 1

    def refresh(self, addresses: Iterable[PciAddress] | None = None) -> None:
        """Bring the files of some functions up to date, of all when none is named.

        What all functions share comes first, and what the description says of single files
        last, so that links and files find their directories.
        """
        shared = self._shared_entries()
        self._files.update(self._shared, shared)
        self._shared = shared
        for address in sorted(self._touched(addresses)):
            laid = self._function_entries(address)
            self._files.update(self._laid.pop(address, {}), laid)
            if laid:
                self._laid[address] = laid
        given = self._given_entries()
        self._files.update(self._given, given)
        self._given = given

    def _touched(self, addresses: Iterable[PciAddress] | None) -> set[PciAddress]:
        """Return the functions that change when some do: physical functions, bridges above."""
        known = self._machine.functions
        if addresses is None:
            return {*self._laid, *known}
        touched = set(addresses)
        for function in [known[address] for address in touched if address in known]:
            touched |= {function.physfn, function.parent} & known.keys()
        return touched

    def _shared_entries(self) -> Tree:
        tree = self._without_given(_platform.entries(self._machine, self._nodes))
        given = self._machine.host.files
        own = {path for path in self._machine.blocked if not path.startswith(_FUNCTIONS)}
        return self._blocked(tree, own - given.keys())

    def _function_entries(self, address: PciAddress) -> Tree:
        function = self._machine.functions.get(address)
        if function is None:
            return {}
        tree = _function_tree.entries(self._machine, function, self._nodes, self._detailed)
        return self._blocked(self._without_given(tree), self._blocked_in(address))

    def _blocked_in(self, address: PciAddress) -> set[str]:
        """Return the blocked paths of a function, without those of functions below it."""
        here = f"{self._machine.directory(address)}/"
        own = {path for path in self._machine.blocked if path.startswith(here)}
        below = {str(each) for each in self._machine.functions} if own else set()
        return {path for path in own if path.removeprefix(here).split("/")[0] not in below}

    def _given_entries(self) -> Tree:
        given = self._machine.host.files.items()
        tree = {path: _platform.content(text) for path, text in given if text is not None}
        return self._blocked(tree, self._machine.blocked & tree.keys())

    def _without_given(self, tree: Tree) -> Tree:
        """Leave out the files that the description itself speaks of."""
        given = self._machine.host.files
        return {path: e for path, e in tree.items() if path not in given} if given else tree

    def _blocked(self, tree: Tree, own: set[str]) -> Tree:
        """Put something unreadable at a tree's own blocked paths, and nothing below any.

        A link cannot be unreadable; in its place is a file, of which readlink says EINVAL.
        """
        if not self._machine.blocked:
            return tree
        above = tuple(f"{path}/" for path in self._machine.blocked)
        kept = {path: entry for path, entry in tree.items() if not path.startswith(above)}
        for path in own:
            kept[path] = b"" if isinstance(tree.get(path), Link) else Special.UNREADABLE
        return kept
