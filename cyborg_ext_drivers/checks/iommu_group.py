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

"""Whether the other members of an IOMMU group let it be given to a virtual machine.

A user can claim an IOMMU group only if no member is bound to a driver that lets the kernel
do DMA (drivers/iommu/iommu.c, DMA ownership since Linux 5.19; before that
drivers/vfio/vfio.c gives the same answer in ordinary cases).  libvirt's managed mode moves
the function that is attached and none of its neighbours.

Next stop: :mod:`cyborg_ext_drivers.checks.iommu`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.iommu import IommuGroup
from cyborg_ext_drivers.host.pci import PciFunction, is_vfio

# They declare that DMA is managed elsewhere (driver_managed_dma in their pci_driver).
_NEUTRAL_DRIVERS = frozenset(("pcieport", "pci-stub"))

IOMMU_GROUP_SHARED = Code(
    "iommu-group-shared",
    Severity.BLOCKER,
    "Another member of the IOMMU group is held by the host",
    "All members of a group go to one virtual machine or to none. A member that is bound to a "
    "driver of the host keeps the group from being given away, and libvirt moves only the "
    "function that is attached.",
    "Enable ACS in the firmware or move one of the cards to another slot, so that they get "
    "groups of their own",
)
IOMMU_GROUP_SHARED_ACCELERATORS = Code(
    "iommu-group-shared-accelerators",
    Severity.BLOCKER,
    "Another accelerator of the same IOMMU group is offered instead",
    "One virtual machine owns a whole group, so of several accelerators in a group only one can "
    "be used at a time. The one with the lowest address is offered.",
    "Enable ACS in the firmware or move one of the cards to another slot, so that they get "
    "groups of their own",
)


def is_held_by_host(function: PciFunction) -> bool:
    """Return whether a driver of the host keeps the function's group from being given away.

    :raises ReadError: when the driver cannot be read.
    """
    return not _is_neutral(function.driver)


def _is_neutral(driver: str | None) -> bool:
    """Return whether a member on this driver, or on none, leaves its group free."""
    return driver is None or driver in _NEUTRAL_DRIVERS or is_vfio(driver)


def viability(
    accelerator: Accelerator, group: IommuGroup, surroundings: Surroundings
) -> Iterator[Finding | Passed]:
    """Yield each other member that keeps the accelerator's group from being given away.

    :raises ReadError: when a member or its driver cannot be read.
    """
    own = {accelerator.function.name, *(function.name for function in accelerator.companions)}
    others = [name for name in _members_of(group, surroundings) if name not in own]
    is_viable = True
    for name in others:
        finding = _member(accelerator, group, name, surroundings)
        if finding:
            is_viable = False
            yield finding
    if is_viable:
        yield Passed(IOMMU_GROUP_SHARED, ((group.path, " ".join(group.members or others)),))


def _members_of(group: IommuGroup, surroundings: Surroundings) -> tuple[str, ...]:
    """Return the names of a group's members, the function itself included.

    :raises ReadError: when they cannot be read.
    """
    if group.members is not None:
        return group.members
    # A copy of a host may lack /sys/kernel; the functions' own links say the same.
    surroundings.host.tree.doubt()
    return surroundings.host.functions.by_group.get(group.number, ())


def _member(
    accelerator: Accelerator, group: IommuGroup, name: str, surroundings: Surroundings
) -> Finding | None:
    host = surroundings.host
    function = host.functions.get(name)
    driver = function.driver if function else host.iommu.driver_of(group, name)
    is_accelerator = function is not None and surroundings.is_accelerator(function)
    if not _is_neutral(driver):
        return IOMMU_GROUP_SHARED.finding(
            accelerator.address,
            f"It shares IOMMU group {group.number} with {name}, which the host's driver "
            f"{driver} holds",
            (f"{group.path}/{name}/driver", driver),
            remedy=_remedy_for(name, function, driver, is_accelerator),
        )
    # What manages the same card is not given away.
    is_own = accelerator.manager is not None and accelerator.manager.name == name
    is_first = is_accelerator and not is_own and function.address < accelerator.address
    if is_first and not function.virtual_functions:
        return IOMMU_GROUP_SHARED_ACCELERATORS.finding(
            accelerator.address,
            f"It shares IOMMU group {group.number} with the accelerator {name}; of a group only "
            "the one with the lowest address is offered",
            (group.path, " ".join(group.members or (name,))),
        )
    return None


def _remedy_for(
    name: str, function: PciFunction | None, driver: str | None, is_accelerator: bool
) -> str:
    """Return what frees a group of a member; never to take a card that the host needs."""
    if is_accelerator:
        return f"Bind {name} to vfio-pci as well. {IOMMU_GROUP_SHARED.remedy}"
    if function and function.identity and function.identity.pci_class.base == "06":
        return f"Unbind the bridge {name} from {driver}. {IOMMU_GROUP_SHARED.remedy}"
    return IOMMU_GROUP_SHARED.remedy
