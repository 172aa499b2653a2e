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

"""NVIDIA's Multi-Instance GPU mode: a card in it, its instances, and vGPUs that these back.

Only NVML tells of the mode, so it decides nothing; but a card that an instance gets whole may be
in it still, and a vGPU of the other kind cannot be made.
"""

from collections.abc import Iterator, Sequence

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.nvml import said, told_of
from cyborg_ext_drivers.families import nvidia, vgpu
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.nvml import Gpu, NvmlAnswer
from cyborg_ext_drivers.host.pci import PciFunction

MIG_ENABLED = Code(
    "mig-enabled",
    Severity.WARNING,
    "The card is in MIG mode",
    "A card in Multi-Instance GPU mode is cut into parts on the host. Given away whole it may be "
    "in that mode still, and an instance has to cut it again; a change of the mode "
    "takes effect at the next reset only.",
    "nvidia-smi -mig 0 for this card, and a reset of it, turns the mode off; leave it on if "
    "instances are meant to have MIG",
)
VGPU_MIG_MODE = Code(
    "vgpu-mig-mode",
    Severity.WARNING,
    "The type of vGPU and the card's MIG mode do not fit together",
    "A MIG-backed vGPU, of a type such as A100-1-5C, has a MIG instance of its own and is made of "
    "a card in MIG mode only; on most cards a time-sliced one, of a type such as A100-5C, is made "
    "while the mode is off only (NVIDIA vGPU Software User Guide, Configuring a GPU for "
    "MIG-Backed vGPUs).",
    "Change the card's MIG mode while nothing uses it, or ask for a type that fits",
)


class MigCheck(Check):
    """Whether a card is in MIG mode, and whether the vGPUs that it is to have fit that."""

    codes = (MIG_ENABLED, VGPU_MIG_MODE)
    precedence = 91

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether a card that is given away whole is in MIG mode.

        :raises ReadError: when it cannot be told whether it has virtual functions.
        """
        is_divided = bool(accelerator.function.virtual_functions)
        yield from _examined(accelerator, surroundings, is_divided)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether the vGPUs of a card can be made in the mode that it is in."""
        yield from _examined(accelerator, surroundings, is_divided=True)


def _examined(
    accelerator: Accelerator, surroundings: Surroundings, is_divided: bool
) -> Iterator[Finding | Passed]:
    told = told_of(accelerator, surroundings)
    if told is None or told[1].mig is None:
        return
    yield _mode_of(accelerator, *told, is_divided)
    virtual = surroundings.host.functions.virtual_functions_of(accelerator.function)
    yield from _types_in_mode(accelerator, *told, virtual)


def _mode_of(
    accelerator: Accelerator, answer: NvmlAnswer, gpu: Gpu, is_divided: bool
) -> Finding | Passed:
    is_on, will_be_on = gpu.mig
    shown = said(answer, f"MIG mode {_mode(is_on)}, pending {_mode(will_be_on)}")
    if not is_on and not will_be_on:
        return Passed(MIG_ENABLED, (shown,))
    finding = MIG_ENABLED.finding(
        accelerator.function.address,
        _message(gpu, is_on, will_be_on),
        shown,
        remedy=None
        if is_on == will_be_on
        else "Reset the card while nothing uses it, so that "
        f"the pending mode takes effect: nvidia-smi --gpu-reset -i {accelerator.function}",
    )
    # Parts of such a card may well be backed by MIG.
    return finding._replace(lowered=Severity.INFO) if is_divided else finding


def _message(gpu: Gpu, is_on: bool, will_be_on: bool) -> str:
    if is_on != will_be_on:
        return f"MIG mode is {_mode(is_on)} and will be {_mode(will_be_on)} after the next reset"
    if not gpu.instances:
        return "It is in MIG mode, and has no MIG instance"
    names = ", ".join(sorted({each.name for each in gpu.instances if each.name}))
    count = len(gpu.instances)
    kinds = f": {names}" if names else ""
    return f"It is in MIG mode and has {count} MIG instance{'s'[: count != 1]}{kinds}"


def _types_in_mode(
    accelerator: Accelerator, answer: NvmlAnswer, gpu: Gpu, virtual: Sequence[PciFunction]
) -> Iterator[Finding | Passed]:
    """Yield whether the vGPUs that a card is to have can be made of it in its MIG mode."""
    is_on, _ = gpu.mig
    for name in _types_of(accelerator, gpu, virtual):
        backed = vgpu.is_backed_by_mig(name)
        shown = said(answer, f"MIG mode {_mode(is_on)}")
        if backed == is_on:
            yield Passed(VGPU_MIG_MODE, (shown,))
            continue
        yield VGPU_MIG_MODE.finding(
            accelerator.function.address,
            f"A vGPU of type {name} is {'MIG-backed' if backed else 'time-sliced'}, and MIG mode "
            f"of the card is {_mode(is_on)}",
            shown,
            remedy=f"Turn the mode {_mode(backed)} while nothing uses the card (nvidia-smi -mig "
            f"{int(backed)} -i {accelerator.function}, and a reset of it), or ask for a type that "
            f"is {'time-sliced' if backed else 'MIG-backed'}",
        )


def _types_of(accelerator: Accelerator, gpu: Gpu, virtual: Sequence[PciFunction]) -> list[str]:
    """Return the names of the types of vGPU that a card is to have, as far as they are known."""
    if accelerator.partition:
        name, kind = accelerator.partition.name, accelerator.partition.type
        # A number says nothing.
        return [name] if name and name != kind else []
    known = {each.id: each.name for each in gpu.supported_vgpus or ()}
    ids = {nvidia.vgpu_type_of(each) for each in virtual} - {None}
    return [name for id in sorted(ids) if (name := known.get(id))]


def _mode(is_on: bool) -> str:
    return "on" if is_on else "off"
