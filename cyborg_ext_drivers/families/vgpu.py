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

"""NVIDIA's vGPU through mediated devices: which functions of a card, how many, which trait.

Before Ampere the host's driver offers the types below the card and makes as many of one there as
the card holds.  From Ampere on it offers them below each virtual function, which holds one, so
that the handles name virtual functions; that is where the agent makes the devices.  Which of the
two a host has depends on card, driver and kernel, and is told by the files alone.

Next stop: :mod:`cyborg_ext_drivers.checks.iommu`.
"""

import re
from collections.abc import Sequence

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ReadError, Unreadable
from cyborg_ext_drivers.families.accelerator import Accelerator, AttachHandle, Partition
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.mdev import MediatedParent, MediatedType
from cyborg_ext_drivers.host.nvml import DRIVER
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.options import Options

_BACKED_BY_MIG = re.compile(r"-[0-9]+-[0-9]+[A-Z]+$")


def partition(accelerator: Accelerator, host: Host, options: Options) -> Partition | None:
    """Return what the options make of a card, ``None`` where they do not name it.

    Without handles where the card has nothing of the kind: that is for a check to explain.

    :raises ReadError: when the host does not say, or contradicts itself for the moment.
    """
    card = accelerator.function
    asked = [pair for pair in options.vgpu_types if _is_of(pair[0], card, host)]
    if not asked:
        return None
    kinds = tuple(dict.fromkeys(kind for _, kind in asked))
    addresses = {address for address, _ in asked}
    named = _named(card, addresses, host)
    excluded = tuple(each for each in named if each is not card and _is_excluded(each, options))
    functions = tuple(each for each in named if each not in excluded)
    there = {card.address, *(each.address for each in named)}
    missing = tuple(sorted(addresses - there))
    bare = Partition(
        kinds[0], others=kinds[1:], functions=functions, excluded=excluded, missing=missing
    )
    if bare.others:
        return bare
    parents = [MediatedParent(host.tree, each) for each in functions]
    virtual = [each for each in parents if each.function is not card]
    if any(each.is_one for each in virtual):
        return _below_virtual_functions(bare, virtual, accelerator)
    whole = next((each for each in parents if each.function is card), None)
    return bare if whole is None else _below_card(bare, whole, accelerator)


def _below_card(bare: Partition, card: MediatedParent, accelerator: Accelerator) -> Partition:
    kind = card.type(bare.type)
    if kind is None:
        return bare._replace(doubt=_doubt(card, [card], bare.type))
    address = card.function.address
    handles = [
        AttachHandle(address, "MDEV", kind.id, number) for number in range(kind.max_instance or 0)
    ]
    return _of_kind(bare, kind, accelerator, handles)


def _below_virtual_functions(
    bare: Partition, parents: Sequence[MediatedParent], accelerator: Accelerator
) -> Partition:
    offered = {each.function.address: each.type(bare.type) for each in parents}
    doubts = (
        _doubt(each, parents, bare.type)
        for each in parents
        if offered[each.function.address] is None
    )
    if doubt := next(filter(None, doubts), None):
        return bare._replace(doubt=doubt)
    kinds = {address: kind for address, kind in sorted(offered.items()) if kind is not None}
    if not kinds:
        return bare
    first = next(iter(kinds.values()))
    # However many virtual functions there are, the card holds no more.  One that has no driver yet
    # keeps its place, so that none is taken back when it gets one.
    places = [
        each.function.address
        for each in parents
        if each.function.address in kinds or each.function.driver is None
    ]
    handles = [
        AttachHandle(address, "MDEV", first.id, 0)
        for address in sorted(places)[: first.max_instance or 0]
        if address in kinds
    ]
    return _of_kind(bare, first, accelerator, handles)


def _doubt(
    parent: MediatedParent, parents: Sequence[MediatedParent], kind: str
) -> Unreadable | None:
    """Return why a type that is not offered now may be offered at another moment.

    Types of another size may go from the list while mediated devices live on the card, and a
    virtual function gets its list some seconds after the driver has it.
    """
    if not parent.is_one:
        if parent.function.physical_function and parent.function.driver == DRIVER:
            reason = "absent, while other virtual functions of the card have it"
            return Unreadable(parent.path, reason)
        return None
    for each in parents:
        if each.devices:
            reason = f"absent, while the mediated device {each.devices[0]} lives on the card"
            return Unreadable(f"{parent.path}/{kind}", reason)
    return None


def _of_kind(
    bare: Partition, kind: MediatedType, accelerator: Accelerator, handles: list[AttachHandle]
) -> Partition:
    name, device = kind.name, accelerator.identity.id.device
    token = trait_name(name, kind.id)
    in_tree = in_tree_trait(name, device)
    older = () if in_tree is None else (in_tree,)
    return bare._replace(name=token, handles=tuple(handles), older=older)


def trait_name(name: str, id: str) -> str:
    """Return what of a type's name goes into its trait: ``GRID T4-2B`` is ``T4-2B``.

    The last word is the type, whatever words of the product stand before it (NVIDIA's
    vgpu-device-manager, pkg/types).  Where that says nothing it is the type's id.
    """
    last = name.split()[-1] if name.split() else ""
    normal = traits.normalise(last)
    # CUSTOM_NVIDIA_1EB8_ goes before it.
    fits = 0 < len(normal) <= traits.MOST_CHARACTERS - len("CUSTOM_NVIDIA_0000_")
    return last if fits else id


def is_backed_by_mig(name: str) -> bool:
    """Return whether a vGPU of this type has a MIG instance of its own: ``GRID A100-1-5C``.

    The number of compute slices stands before the memory in its name (NVIDIA vGPU Software User
    Guide, Virtual GPU Types); the others are time-sliced.
    """
    return _BACKED_BY_MIG.search(name) is not None


def in_tree_trait(name: str, device: str) -> str | None:
    """Return the trait that Cyborg's own driver gives a type, ``None`` when it gives none.

    It takes the second word, which of a product of several words is not the type
    (cyborg.accelerator.drivers.gpu.nvidia.sysinfo).
    """
    words = name.split(" ")
    if len(words) < 2 or not words[1]:
        return None
    spelled = f"CUSTOM_NVIDIA_{device.upper()}_{words[1].replace('-', '_').upper()}"
    try:
        return traits.check(spelled)
    except traits.InvalidTrait:
        return None


def unmet(cards: Sequence[PciFunction], host: Host, options: Options) -> tuple[str, ...]:
    """Return, a sentence each, which addresses in the options are of none of these cards."""
    said = []
    for address, kind in options.vgpu_types:
        try:
            if any(_is_of(address, card, host) for card in cards):
                continue
        except ReadError:
            # What cannot be read is said with the card.
            continue
        function = host.functions.get(address)
        there = "no PCI function" if function is None else f"{function.identity}, no NVIDIA GPU"
        said.append(f"[vgpu_{kind}] device_addresses names {address}, and there is {there}")
    return tuple(said)


def _named(card: PciFunction, addresses: set[PciAddress], host: Host) -> tuple[PciFunction, ...]:
    """Return the functions of a card that are named; the card itself means all of them."""
    virtual = []
    for address in sorted(set(card.virtual_functions)):
        function = host.functions.get(address)
        is_meant = card.address in addresses or address in addresses
        if not is_meant or function is None:
            continue
        if function.failure is not None:
            raise function.failure
        if function.identity is None or function.identity.id.vendor != card.identity.id.vendor:
            # It is of something else, whatever the links say.
            continue
        if function.physical_function == card.address:
            virtual.append(function)
    return (card, *virtual) if card.address in addresses else tuple(virtual)


def _is_excluded(function: PciFunction, options: Options) -> bool:
    return any(each.matches(function.address, function.identity) for each in options.exclude)


def _is_of(address: PciAddress, card: PciFunction, host: Host) -> bool:
    """Return whether an address is a card's, its virtual functions enabled or not.

    :raises ReadError: when it cannot be told.
    """
    if address == card.address:
        return True
    function = host.functions.get(address)
    if function is None or function.identity is None:
        return _could_be_of(address, card)
    try:
        physical = function.physical_function
    except ReadError:
        # That is against the card it may be of, and no other.
        return _could_be_of(address, card)
    if physical is not None:
        return physical == card.address
    # Its link to the physical function may be still to come.
    return _could_be_of(address, card) and function.is_virtual


def _could_be_of(address: PciAddress, card: PciFunction) -> bool:
    """Return whether an address would be one of a card's virtual functions.

    PCI Express Base Specification, SR-IOV: First VF Offset and VF Stride.
    """
    total = card.total_virtual_functions
    if not total or address.domain != card.address.domain:
        return False
    offset = card.directory.integer("sriov_offset")
    stride = card.directory.integer("sriov_stride") or 1
    if offset is None:
        return False
    beyond = _routing_id(address) - _routing_id(card.address) - offset
    return beyond >= 0 and beyond % stride == 0 and beyond // stride < total


def _routing_id(address: PciAddress) -> int:
    return address.bus << 8 | address.device << 3 | address.function
