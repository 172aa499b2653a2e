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

"""vGPUs that NVIDIA's driver serves itself, one for each virtual function.

There are two ways to a vGPU: mediated devices, which have a bus of their own, and the
vendor-specific VFIO framework of newer kernels and drivers, in which a virtual function has a
type and stays with the driver ``nvidia`` (Nova's manual, Attaching virtual GPU devices to
guests).  Which of them a host has is seen by the files alone, not by a release.

Next stop: :mod:`cyborg_ext_drivers.checks.fabric`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.mdev import TYPES
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.vendor_vgpu import CURRENT, FOLDER, VgpuType

VGPU_FRAMEWORK = Code(
    "vgpu-framework",
    Severity.INFO,
    "How the card's vGPUs are made and attached",
    "Either each vGPU is a mediated device, or each is a virtual function with a type, which "
    "stays with NVIDIA's driver. The kernel and the release of the driver decide which; neither "
    "can be switched by an option.",
    "Nothing is to be done",
)
VGPU_TYPE_UNSET = Code(
    "vgpu-type-unset",
    Severity.BLOCKER,
    "A virtual function has no type of vGPU",
    "Where NVIDIA's driver serves virtual functions itself, one without a type is of no use to an "
    "instance, and vfio-pci cannot take it.",
    "Write the number of a type to nvidia/current_vgpu_type of the virtual function, after each "
    "boot",
)
VENDOR_VFIO_NOT_ATTACHABLE = Code(
    "vendor-vfio-not-attachable",
    Severity.BLOCKER,
    "Nova would take the virtual function away from NVIDIA's driver",
    "Nova attaches what Cyborg gives with managed='yes'. libvirt then binds it to vfio-pci, which "
    "a virtual function that NVIDIA's driver serves refuses (EINVAL), so the instance does not "
    "start. It is to be attached with managed='no'.",
    "Offer it through Nova ([pci] device_spec with managed = no), or set [ext_drivers] "
    "report_vendor_vfio where what attaches it does not use managed='yes'",
)
VENDOR_VFIO_TYPES_MIXED = Code(
    "vendor-vfio-types-mixed",
    Severity.BLOCKER,
    "The virtual functions of the card have several types of vGPU",
    "A card is one resource provider, whose attach handles are equal: an instance that asks for "
    "one type could get the other.",
    "Give all virtual functions of the card the same type",
)


_MOST_NAMED = 6


class _Part(NamedTuple):
    """A virtual function that NVIDIA's driver serves, and its type."""

    function: PciFunction
    current: int | None
    path: str


class VendorVfioCheck(Check):
    """The virtual functions have a type, all the same, and what attaches them leaves them be."""

    codes = (
        VGPU_FRAMEWORK,
        VGPU_TYPE_UNSET,
        VENDOR_VFIO_NOT_ATTACHABLE,
        VENDOR_VFIO_TYPES_MIXED,
    )
    precedence = 46

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what the vGPUs of a card are; of one virtual function, whether it has a type."""
        if accelerator.identity.id.vendor != "10de":
            return
        if accelerator.physical_function:
            yield _of_part(accelerator)
            return
        virtual = surroundings.host.functions.virtual_functions_of(accelerator.function)
        if not virtual:
            if accelerator.function.directory.has(TYPES):
                yield _framework(accelerator.function, virtual, [])
            return
        parts = _parts(virtual)
        yield _framework(accelerator.function, virtual, parts)
        given = [part for part in parts if part.current]
        if given:
            yield _not_attachable(accelerator, given)
        elif parts:
            yield _unset(accelerator, parts)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is to be said of a card whose virtual functions the operator offers."""
        if accelerator.identity.id.vendor != "10de" or accelerator.inferred:
            return
        virtual = surroundings.host.functions.virtual_functions_of(accelerator.function)
        parts = _parts(virtual)
        if not parts:
            if accelerator.partition and accelerator.partition.handles:
                yield _framework(accelerator.function, virtual, parts)
            return
        yield _framework(accelerator.function, virtual, parts)
        given = [part for part in parts if part.current]
        if given:
            yield _not_attachable(accelerator, given)._replace(lowered=Severity.WARNING)
        if len({part.current for part in given}) > 1:
            yield _mixed(accelerator, given)


def _parts(virtual: Sequence[PciFunction]) -> list[_Part]:
    served = ((each, each.vendor_vgpu) for each in virtual)
    return [_Part(each, vgpu.current, vgpu.current_path) for each, vgpu in served if vgpu]


def _of_part(accelerator: Accelerator) -> Finding | Passed:
    function = accelerator.function
    vgpu = function.vendor_vgpu
    if vgpu and vgpu.current:
        return Passed(VGPU_TYPE_UNSET, ((vgpu.current_path, vgpu.current),))
    path = vgpu.current_path if vgpu else function.path_of(FOLDER)
    return VGPU_TYPE_UNSET.finding(
        function.address,
        "It has no type of vGPU" if vgpu else "NVIDIA's driver serves no vGPU of it",
        (path, 0 if vgpu else "absent"),
        remedy=_how_to_set(function, _creatable([function])),
    )


def _how_to_set(function: PciFunction, types: Sequence[VgpuType]) -> str:
    example = types[0].id if types else "<number>"
    what = f" ({types[0].name})" if types else ""
    return (
        f"Give it a type after each boot: echo {example} > {function.path_of(FOLDER)}/{CURRENT}"
        f"{what}"
    )


def _creatable(functions: Sequence[PciFunction]) -> tuple[VgpuType, ...]:
    """Return what could be created on the first of some virtual functions that has no type.

    It is the same for all of a card.
    """
    for each in functions:
        vgpu = each.vendor_vgpu
        if vgpu and not vgpu.current:
            return vgpu.creatable
    return ()


def _framework(
    card: PciFunction, virtual: Sequence[PciFunction], parts: Sequence[_Part]
) -> Finding:
    if parts:
        return _vendor_framework(card, parts)
    for each in (card, *virtual):
        if each.directory.has(TYPES):
            return VGPU_FRAMEWORK.finding(
                card.address,
                "This host makes vGPUs as mediated devices",
                (each.path_of(TYPES), "present"),
                remedy="Nothing is to be done. Virtual functions with a type of their own come "
                "with kernels from about 6.8 on (Ubuntu 24.04, RHEL 10) and NVIDIA's vGPU host "
                "driver for those, on cards from Ampere on; the files alone tell",
            )
    return VGPU_FRAMEWORK.finding(
        card.address,
        "Its virtual functions offer vGPUs in neither way, as mediated devices or with a type of "
        "their own",
        (virtual[0].path_of(TYPES), "absent"),
        (virtual[0].path_of(FOLDER), "absent"),
        remedy="Load NVIDIA's vGPU host driver (not the one for computing) and enable the virtual "
        f"functions with its tool, /usr/lib/nvidia/sriov-manage -e {card}; disable them if the "
        "card is to be given away whole",
    )


def _vendor_framework(card: PciFunction, parts: Sequence[_Part]) -> Finding:
    given = [part for part in parts if part.current]
    free = [part.function for part in parts if not part.current]
    types = _creatable(free)
    named = [str(each) for each in types[:_MOST_NAMED]]
    named += ["and others"] if len(types) > _MOST_NAMED else []
    could = ", ".join(named) or "nothing"
    kinds = ", ".join(map(str, sorted({part.current for part in given})))
    message = (
        f"NVIDIA's driver serves its virtual functions itself: {len(given)} of {len(parts)} have "
        f"a type{f' ({kinds})' if kinds else ''}, and {could} could be created on the others"
    )
    evidence: list[tuple[str, object]] = [(parts[0].path, parts[0].current or 0)]
    if free:
        evidence.append((free[0].vendor_vgpu.creatable_path, could))
    return VGPU_FRAMEWORK.finding(
        card.address,
        message,
        *evidence,
        remedy="Nothing is to be done. Mediated devices, which Cyborg's agent makes itself, come "
        "with kernels before about 6.8 (RHEL 9, Ubuntu 22.04) and NVIDIA's vGPU host driver for "
        "those",
    )


def _not_attachable(accelerator: Accelerator, given: Sequence[_Part]) -> Finding:
    which = f"{given[0].function}{' and others' if len(given) > 1 else ''}"
    return VENDOR_VFIO_NOT_ATTACHABLE.finding(
        accelerator.address,
        f"Of its virtual functions {len(given)} have a type of vGPU ({which}), and Nova would "
        "take them away from NVIDIA's driver",
        (given[0].path, given[0].current),
    )


def _unset(accelerator: Accelerator, parts: Sequence[_Part]) -> Finding:
    return VGPU_TYPE_UNSET.finding(
        accelerator.address,
        f"None of its {len(parts)} virtual functions has a type of vGPU",
        (parts[0].path, 0),
        remedy=_how_to_set(parts[0].function, _creatable([each.function for each in parts])),
    )


def _mixed(accelerator: Accelerator, given: Sequence[_Part]) -> Finding:
    kinds = {part.current: part for part in reversed(given)}
    return VENDOR_VFIO_TYPES_MIXED.finding(
        accelerator.address,
        f"Its virtual functions have the types {', '.join(map(str, sorted(kinds)))}",
        *((kinds[kind].path, kind) for kind in sorted(kinds)),
    )
