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
from cyborg_ext_drivers.testing._files import Entry, Files, Tree
from cyborg_ext_drivers.testing._machine import Machine

#: ``all``, or ``identity`` for what says which functions there are and how they hang
#: together: enough for a walk of the bus, and several times as quick to lay.
Attributes = Literal["all", "identity"]


class Layout:
    """The tree of one machine; remembers what it laid, so that it writes only changes."""

    def __init__(self, files: Files, machine: Machine, attributes: Attributes):
        self._files = files
        self._machine = machine
        self._detailed = attributes == "all"
        self._shared: Tree = {}
        self._laid: dict[PciAddress, Tree] = {}
        self._given: Tree = {}
        self._extra: Tree = {}
        nodes = (function.numa_node for function in machine.functions.values())
        self._nodes = max(nodes, default=0) + 1 or 1

    def refresh(self, addresses: Iterable[PciAddress] | None = None) -> None:
        """Bring the files of some functions up to date, of all when none is named.

        What all functions share comes first, and what the description says of single files
        last, so that links and files find their directories.
        """
        odd = self._machine.oddities
        self._lay_extra({path: e for path, e in self._extra.items() if path in odd})
        shared = self._shared_entries()
        self._files.update(self._shared, shared)
        self._shared = shared
        self._lay_functions(sorted(self._touched(addresses)))
        given = self._given_entries()
        self._files.update(self._given, given)
        self._given = given
        self._lay_extra(self._extra_entries() if odd else {})

    def _lay_functions(self, addresses: list[PciAddress]) -> None:
        """Lay some functions all at once: what one of them gives up, another may take."""
        old: dict[str, Entry] = {}
        new: dict[str, Entry] = {}
        for address in addresses:
            old |= self._laid.pop(address, {})
            laid = self._function_entries(address)
            new |= laid
            if laid:
                self._laid[address] = laid
        self._files.update(old, new)

    def _lay_extra(self, extra: Tree) -> None:
        """Lay what is odd and in the place of nothing, after all that has a place."""
        if not extra and not self._extra:
            return
        # What lay in a directory that went has gone with it.
        there = {
            path: entry
            for path, entry in self._extra.items()
            if not self._is_laid(path) and self._files.has(path)
        }
        self._files.update(there, extra)
        self._extra = extra

    def _is_laid(self, path: str) -> bool:
        return any(path in tree for tree in (self._shared, self._given, *self._laid.values()))

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
        return self._odd(self._without_given(_platform.entries(self._machine, self._nodes)))

    def _function_entries(self, address: PciAddress) -> Tree:
        function = self._machine.functions.get(address)
        if function is None:
            return {}
        tree = _function_tree.entries(self._machine, function, self._nodes, self._detailed)
        return self._odd(self._without_given(tree))

    def _given_entries(self) -> Tree:
        given = self._machine.host.files.items()
        return self._odd({p: _platform.content(text) for p, text in given if text is not None})

    def _extra_entries(self) -> Tree:
        """Return what is odd at paths where nothing would be."""
        here = {p: o for p, o in self._machine.oddities.items() if not self._is_laid(p)}
        above = tuple(f"{path}/" for path in self._machine.oddities)
        changed = ((p, oddity.change(None)) for p, oddity in here.items())
        return {p: e for p, e in changed if e is not None and not p.startswith(above)}

    def _without_given(self, tree: Tree) -> Tree:
        """Leave out the files that the description itself speaks of."""
        given = self._machine.host.files
        return {path: e for path, e in tree.items() if path not in given} if given else tree

    def _odd(self, tree: Tree) -> Tree:
        """Change what is odd in a tree; nothing stays below it."""
        odd = self._machine.oddities
        if not odd:
            return tree
        above = tuple(f"{path}/" for path in odd)
        kept = {path: e for path, e in tree.items() if not path.startswith(above)}
        for path in odd.keys() & kept.keys():
            entry = odd[path].change(kept.pop(path))
            if entry is not None:
                kept[path] = entry
        return kept
