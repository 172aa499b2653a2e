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

"""By which of its two ways NVIDIA's driver makes vGPUs of a card on this host.

There are mediated devices, which have a bus of their own, and the vendor-specific VFIO framework
of newer kernels and drivers (Nova's manual, Attaching virtual GPU devices to guests).  Which of
them a host has is seen by the files alone, not by a release.

Next stop: :mod:`cyborg_ext_drivers.checks.vendor_vfio`.
"""

from collections.abc import Iterator, Sequence

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.vendor_vfio import VendorPart, creatable_on, parts_of
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.mdev import TYPES
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.vendor_vgpu import FOLDER

VGPU_FRAMEWORK = Code(
    "vgpu-framework",
    Severity.INFO,
    "How the card's vGPUs are made and attached",
    "Either each vGPU is a mediated device, or each is a virtual function with a type, which "
    "stays with NVIDIA's driver. The kernel and the release of the driver decide which; neither "
    "can be switched by an option.",
    "Nothing is to be done",
)
_MOST_NAMED = 6


class VgpuFrameworkCheck(Check):
    """How vGPUs are made of a card that is divided, or could be."""

    codes = (VGPU_FRAMEWORK,)
    precedence = 44

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield how vGPUs are made of a card, unless it shows no sign of any."""
        if accelerator.manager is None:
            yield from _examined(accelerator, surroundings)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield how the vGPUs of a card are made."""
        yield from _examined(accelerator, surroundings)


def _examined(accelerator: Accelerator, surroundings: Surroundings) -> Iterator[Finding | Passed]:
    card = accelerator.function
    if accelerator.identity.id.vendor != "10de" or accelerator.inferred:
        return
    virtual = surroundings.host.functions.virtual_functions_of(card)
    if virtual or card.directory.has(TYPES):
        yield _framework(card, virtual, parts_of(virtual))


def _framework(
    card: PciFunction, virtual: Sequence[PciFunction], parts: Sequence[VendorPart]
) -> Finding:
    if parts:
        return _vendor_framework(card, parts)
    for each in (card, *virtual):
        if each.directory.has(TYPES):
            return VGPU_FRAMEWORK.finding(
                card.address,
                "This host makes vGPUs as mediated devices",
                (each.path_of(TYPES), "present"),
                remedy="Name the card in [vgpu_<type>] device_addresses of cyborg.conf to offer "
                "vGPUs of it; where it is named, nothing is to be done. Virtual functions with a "
                "type of their own come "
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


def _vendor_framework(card: PciFunction, parts: Sequence[VendorPart]) -> Finding:
    given = [part for part in parts if part.current]
    free = [part.function for part in parts if not part.current]
    types = creatable_on(free)
    named = [str(each) for each in types[:_MOST_NAMED]]
    named += ["and others"] if len(types) > _MOST_NAMED else []
    could = ", ".join(named) or "nothing"
    kinds = ", ".join(map(str, sorted({part.current for part in given})))
    others = f", and {could} could be created on the others" if free else ""
    message = (
        f"NVIDIA's driver serves its virtual functions itself: {len(given)} of {len(parts)} have "
        f"a type{f' ({kinds})' if kinds else ''}{others}"
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
