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

"""GPUs of a board with NVSwitches, given away without the switches.

Such a GPU has no NVLink of its own to others, and CUDA in an instance waits for the fabric
(error 802) until the Fabric Manager has activated a partition with this GPU.  Sources: NVIDIA
Fabric Manager User Guide, Virtualization Models; NVIDIA/gpu-operator pulls 2045 and 2602.

Next stop: :mod:`cyborg_ext_drivers.checks.grace`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.fabric import BARE_METAL, CONFIGURATION, SHARED, VGPU

FABRIC_MANAGER_NEEDED = Code(
    "fabric-manager-needed",
    Severity.WARNING,
    "The GPU is on a board with NVSwitches, which the instance does not get",
    "NVLink between the GPUs of an HGX board goes through its switches, which stay with the host. "
    "An instance that gets some of the GPUs can use them only when the Fabric Manager runs in "
    "shared NVSwitch mode (FABRIC_MODE=1), or for vGPUs in vGPU mode (FABRIC_MODE=2), and a "
    "partition with just these GPUs is active. Otherwise CUDA in the instance stops with error "
    "802, system not yet initialized.",
    "Set FABRIC_MODE of the Fabric Manager, restart it, and activate the partition of the GPU "
    "before the instance starts",
)
# Not a PCI card, so on a board; and SXM2 is on boards without switches only.
_MODULE, _WITHOUT_SWITCH = "SXM", "SXM2"
# Modules that have no SXM in their names (NVIDIA Fabric Manager User Guide, NVSwitch-Based
# Systems; pci.ids): H20 and its kin.
_MODULES = frozenset(("10de:2329", "10de:232c", "10de:230e"))
# HGX B200 and B300, which come as boards of eight only, with the fourth generation of switches.
# These are no PCI functions; the host manages them through ConnectX-7 functions on the board.
_FOURTH_GENERATION = frozenset(("10de:2901", "10de:3182"))
_NAMES = {BARE_METAL: "bare metal", SHARED: "shared NVSwitch", VGPU: "vGPU"}


class FabricCheck(Check):
    """The Fabric Manager is set for instances that have some GPUs of a board."""

    codes = (FABRIC_MANAGER_NEEDED,)
    precedence = 70

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether a GPU that is given away whole can have its NVLink."""
        if not accelerator.manager:
            yield from _examine(accelerator, surroundings.host, SHARED)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether vGPUs can have the NVLink of their GPU."""
        yield from _examine(accelerator, surroundings.host, VGPU)


def _examine(accelerator: Accelerator, host: Host, wanted: int) -> Iterator[Finding | Passed]:
    switches = _switches(accelerator, host)
    if switches is None:
        return
    mode = host.fabric.mode
    seen = (CONFIGURATION, "absent" if mode is None else f"FABRIC_MODE={mode}")
    evidence = (*switches, seen)
    if mode == wanted:
        yield Passed(FABRIC_MANAGER_NEEDED, evidence)
        return
    said = (
        "and no configuration of the Fabric Manager is to be seen here"
        if mode is None
        else f"and the Fabric Manager is set to mode {mode} ({_NAMES.get(mode, 'not known')})"
    )
    yield FABRIC_MANAGER_NEEDED.finding(
        accelerator.address,
        f"It is on a board with NVSwitches, which stay with the host, {said}",
        *evidence,
        remedy=_remedy(accelerator, mode, wanted),
    )


def _switches(accelerator: Accelerator, host: Host) -> tuple[tuple[str, object], ...] | None:
    """Return what tells that a GPU is on a board with NVSwitches, ``None`` where nothing does.

    A host may have such a board and PCI Express cards beside it; the switches alone tell
    nothing, and neither does the place of a card among the bridges.
    """
    identity = accelerator.identity
    if str(identity.id) in _FOURTH_GENERATION:
        return ((accelerator.function.path_of("device"), identity.id),)
    if identity.id.vendor != "10de" or not _is_module(accelerator):
        return None
    return tuple((each.path, each.identity) for each in host.fabric.switches) or None


def _is_module(accelerator: Accelerator) -> bool:
    model = accelerator.model or ""
    is_sxm = _MODULE in model and _WITHOUT_SWITCH not in model
    return is_sxm or str(accelerator.identity.id) in _MODULES


def _remedy(accelerator: Accelerator, mode: int | None, wanted: int) -> str:
    activate = "activate a partition with this GPU before the instance starts"
    bridges = (
        "; leave the ConnectX-7 functions that manage the switches with the host (grep -l SW_MNG "
        "/sys/class/infiniband/*/device/vpd names them)"
        if str(accelerator.identity.id) in _FOURTH_GENERATION
        else ""
    )
    if mode is None:
        return (
            f"Run the Fabric Manager with FABRIC_MODE={wanted} (here, or in a service VM or "
            f"container that has the switches) and {activate}{bridges}"
        )
    return (
        f"Set FABRIC_MODE={wanted} in {CONFIGURATION}, restart nvidia-fabricmanager, and "
        f"{activate}{bridges}"
    )
