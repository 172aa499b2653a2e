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

In the vendor-specific VFIO framework a virtual function has a type and stays with the driver
``nvidia`` (Nova's manual, Attaching virtual GPU devices to guests).

Next stop: :mod:`cyborg_ext_drivers.checks.fabric`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.vendor_vgpu import CURRENT, FOLDER, VgpuType

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


class VendorPart(NamedTuple):
    """A virtual function that NVIDIA's driver serves, and its type."""

    function: PciFunction
    current: int | None
    path: str


class VendorVfioCheck(Check):
    """The virtual functions have a type, all the same, and what attaches them leaves them be."""

    codes = (
        VGPU_TYPE_UNSET,
        VENDOR_VFIO_NOT_ATTACHABLE,
        VENDOR_VFIO_TYPES_MIXED,
    )
    precedence = 46

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether the virtual functions have a type; of one of them, whether it has."""
        if accelerator.identity.id.vendor != "10de":
            return
        if accelerator.manager:
            yield _of_part(accelerator)
            return
        virtual = surroundings.host.functions.virtual_functions_of(accelerator.function)
        parts = parts_of(virtual)
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
        parts = parts_of(virtual)
        given = [part for part in parts if part.current]
        if given:
            found = _not_attachable(accelerator, given)
            yield found._replace(lowered=Severity.WARNING, remedy=_SET_ALREADY)
        if len({part.current for part in given}) > 1:
            yield _mixed(accelerator, given)


def parts_of(virtual: Sequence[PciFunction]) -> list[VendorPart]:
    """Return those virtual functions that NVIDIA's driver serves, with their types.

    :raises ReadError: when the type of one cannot be read.
    """
    served = ((each, each.vendor_vgpu) for each in virtual)
    return [VendorPart(each, vgpu.current, vgpu.current_path) for each, vgpu in served if vgpu]


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
        remedy=_FULL if _is_full(function) else _how_to_set(function, [function]),
    )


_FULL = "Nothing is to be done: no type fits on the card beside those that it has"


def _is_full(function: PciFunction) -> bool:
    """Return whether nothing could be created on a function that has no type."""
    try:
        vgpu = function.vendor_vgpu
        return vgpu is not None and not vgpu.creatable
    except ReadError:
        return False


def _how_to_set(function: PciFunction, free: Sequence[PciFunction]) -> str:
    if not any(each.vendor_vgpu for each in free):
        return (
            f"Bind {function} to nvidia, the vGPU host driver, and give it a type then: echo "
            f"<number> > {function.path_of(FOLDER)}/{CURRENT}"
        )
    try:
        types = creatable_on(free)
    except ReadError:
        # They are an example and no more; another check tells of it.
        types = ()
    example = types[0].id if types else "<number>"
    what = f" ({types[0].name})" if types else ""
    return (
        f"Give it a type after each boot: echo {example} > {function.path_of(FOLDER)}/{CURRENT}"
        f"{what}"
    )


def creatable_on(functions: Sequence[PciFunction]) -> tuple[VgpuType, ...]:
    """Return what could be created on the first of some virtual functions that has no type.

    It is the same for all of a card.

    :raises ReadError: when the list cannot be read.
    """
    for each in functions:
        vgpu = each.vendor_vgpu
        if vgpu and not vgpu.current:
            return vgpu.creatable
    return ()


_SET_ALREADY = (
    "Nothing is to be done where what attaches it does not use managed='yes'; where Nova does, "
    "switch [ext_drivers] report_vendor_vfio off and offer it through Nova ([pci] device_spec with "
    "managed = no)"
)


def _not_attachable(accelerator: Accelerator, given: Sequence[VendorPart]) -> Finding:
    which = f"{given[0].function}{' and others' if len(given) > 1 else ''}"
    have = "has" if len(given) == 1 else "have"
    return VENDOR_VFIO_NOT_ATTACHABLE.finding(
        accelerator.address,
        f"Of its virtual functions {len(given)} {have} a type of vGPU ({which}), and Nova would "
        "take them away from NVIDIA's driver",
        (given[0].path, given[0].current),
    )


def _unset(accelerator: Accelerator, parts: Sequence[VendorPart]) -> Finding:
    return VGPU_TYPE_UNSET.finding(
        accelerator.address,
        f"None of its {len(parts)} virtual functions has a type of vGPU",
        (parts[0].path, 0),
        remedy=_how_to_set(parts[0].function, [each.function for each in parts]),
    )


def _mixed(accelerator: Accelerator, given: Sequence[VendorPart]) -> Finding:
    kinds = {part.current: part for part in reversed(given)}
    return VENDOR_VFIO_TYPES_MIXED.finding(
        accelerator.address,
        f"Its virtual functions have the types {', '.join(map(str, sorted(kinds)))}",
        *((kinds[kind].path, kind) for kind in sorted(kinds)),
    )
