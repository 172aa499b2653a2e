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
"""What a copy of a host cannot tell, so that nobody takes a gap for an answer.

A real host has each of these; a copy made by another tool has what that tool wants.
"""

from collections.abc import Callable
from typing import NamedTuple

from cyborg_ext_drivers.errors import EnumerationError, ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.iommu import GROUPS
from cyborg_ext_drivers.host.kernel import COMMAND_LINE, MODULES, RELEASE
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.host.topology import parents_of

#: Whether the host has an IOMMU at all is not known then.
NO_GROUPS = (
    "IOMMU groups are not in it: whether the IOMMU is on, and whether a card is alone in its "
    "group, is not known (iommu-disabled, no-iommu-group, iommu-group-shared)"
)
_OF_EACH_KERNEL = ("/sys/kernel/notes", "/sys/kernel/uevent_seqnum")
_GENERAL = (
    "What is configured of Cyborg and Nova, and what NVML says, is not in it: claimed-by-nova, "
    "in-tree-driver-enabled, driver-not-enabled and what NVML would tell are not answered"
)


class _Question(NamedTuple):
    """Something that a host tells and a copy may lack."""

    is_told: Callable[[Host, list[PciFunction]], bool]
    sentence: str


def of(tree: Tree) -> tuple[str, ...]:
    """Return, a sentence each, what the copy of a host does not tell."""
    host = Host(tree=tree)
    try:
        functions = [each for each in host.functions if each.identity is not None]
    except EnumerationError:
        return ()
    found = [each.sentence for each in _QUESTIONS if not _is_told(each, host, functions)]
    return (*found, _GENERAL)


def is_partial(host: Host) -> bool:
    """Return whether it is what other tools copy: no kernel gives its release there."""
    return not host.tree.is_live and not _has(host, RELEASE)


def _is_told(question: _Question, host: Host, functions: list[PciFunction]) -> bool:
    try:
        return question.is_told(host, functions)
    except ReadError:
        # It is there, at least.
        return True


def _has(host: Host, path: str) -> bool:
    above, _, name = path.rpartition("/")
    try:
        return host.tree.directory(above).has(name)
    except ReadError:
        return False


def _any_has(*names: str) -> Callable[[Host, list[PciFunction]], bool]:
    def is_told(host: Host, functions: list[PciFunction]) -> bool:
        return any(each.directory.has(name) for each in functions for name in names)

    return is_told


def _somewhere(path: str) -> Callable[[Host, list[PciFunction]], bool]:
    return lambda host, functions: _has(host, path)


def _is_whole(host: Host, functions: list[PciFunction]) -> bool:
    """Return whether all files of functions were copied, so that an absent one is an answer."""
    return any(
        each.directory.has("uevent") and each.directory.has("resource") for each in functions
    )


def _entries(*names: str) -> Callable[[Host, list[PciFunction]], bool]:
    has_any = _any_has(*names)
    return lambda host, functions: _is_whole(host, functions) or has_any(host, functions)


def _of_vga(host: Host, functions: list[PciFunction]) -> bool:
    displays = [each for each in functions if each.identity.pci_class.base_and_sub == "0300"]
    return not displays or _any_has("boot_vga")(host, displays)


def _drivers(host: Host, functions: list[PciFunction]) -> bool:
    return _any_has("uevent", "driver")(host, functions)


def _groups(host: Host, functions: list[PciFunction]) -> bool:
    # No kernel without the latter, whatever it knows of IOMMUs.
    if any(_has(host, path) for path in (GROUPS, *_OF_EACH_KERNEL)):
        return True
    return _any_has("iommu_group")(host, functions)


def _listed_groups(host: Host, functions: list[PciFunction]) -> bool:
    if not _any_has("iommu_group")(host, functions):
        # None are known, or there are none.
        return True
    names = host.tree.names(GROUPS) or ()
    return any(_has(host, f"{GROUPS}/{name}/reserved_regions") for name in names)


def _topology(host: Host, functions: list[PciFunction]) -> bool:
    bridges = [each for each in functions if each.identity.pci_class.base_and_sub == "0604"]
    return not bridges or any(parents_of(each) for each in functions)


_QUESTIONS = (
    _Question(_groups, NO_GROUPS),
    _Question(
        _listed_groups,
        "What firmware reserves in a group is not in it (iommu-reserved-region)",
    ),
    _Question(
        _drivers,
        "Drivers are not in it: each function looks unbound (iommu-group-shared, companion-bound, "
        "owned-by-host-driver, set-aside, vendor-driver-missing)",
    ),
    _Question(
        _any_has("config"),
        "Configuration space is not in it: whether a card answers is not known "
        "(config-space-dead), and a virtual function without its link looks like a card",
    ),
    _Question(
        _entries("sriov_totalvfs", "physfn", "virtfn0"),
        "SR-IOV is not in it: a virtual function looks like a card, and its card like one that "
        "could be given away (vfs-enabled, vfs-expected, vf-count-mismatch)",
    ),
    _Question(_any_has("resource"), "Registers are not in it: bar-unassigned is not answered"),
    _Question(
        _entries("reset"), "Resets are not in it: each card seems to have none (no-reset-method)"
    ),
    _Question(_any_has("power_state"), "Power states are not in it: powered-off is not answered"),
    _Question(
        _of_vga, "boot_vga is not in it: a card that the console is on looks free (console-device)"
    ),
    _Question(
        _any_has("subsystem_vendor", "uevent"),
        "Subsystem ids are not in it: products that share an id get no model trait",
    ),
    _Question(
        _any_has("revision"),
        "Revisions are not in it: products that share an id get no model trait",
    ),
    _Question(_any_has("numa_node"), "NUMA nodes are not in it"),
    _Question(_topology, "What a card hangs below is not in it: parents of a card are not known"),
    _Question(_somewhere(RELEASE), "The kernel's release is not in it"),
    _Question(
        _somewhere(COMMAND_LINE),
        "The kernel's command line is not in it (iommu-disabled names no word of it, "
        "interrupt-remapping-missing)",
    ),
    _Question(_somewhere(MODULES), "Modules and their parameters are not in it (vfio-denylisted)"),
    _Question(
        _somewhere("/sys/class/iommu"),
        "The IOMMUs themselves are not in it: which there are is not known",
    ),
)
