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

"""vGPU through mediated devices: whether the card can have what the options ask of it.

``[gpu_devices] enabled_vgpu_types`` and ``[vgpu_<type>] device_addresses`` of cyborg.conf name
the cards, as for Cyborg's own driver.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.reading import unreadable
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.kernel import MODULES
from cyborg_ext_drivers.host.mdev import TYPES, VGPU_MODULE, MediatedParent
from cyborg_ext_drivers.host.nvml import DRIVER, VENDOR
from cyborg_ext_drivers.host.pci import PciFunction

VGPU_TYPE_UNKNOWN = Code(
    "vgpu-type-unknown",
    Severity.BLOCKER,
    "The card does not offer the type of vGPU that is asked for",
    "[gpu_devices] enabled_vgpu_types and [vgpu_<type>] device_addresses of cyborg.conf give the "
    "card a type that its driver does not list. The numbers of the types differ between models "
    "and change with the driver's release.",
    "Write one of the types that the card offers, and restart cyborg-agent",
)
VGPU_TYPES_MIXED = Code(
    "vgpu-types-mixed",
    Severity.BLOCKER,
    "Two types of vGPU are asked of one card",
    "How many instances of one type fit depends on how many of the other there are, so a card "
    "that has both promises more than it holds. It is one device of Cyborg's, with one type.",
    "Name the card, or its virtual functions, in [vgpu_<type>] device_addresses of one type only, "
    "and restart cyborg-agent",
)
VGPU_NOT_SUPPORTED = Code(
    "vgpu-not-supported",
    Severity.BLOCKER,
    "The card offers no mediated devices as it is",
    "A type of vGPU is asked of the card, and its driver lists none below the card or its virtual "
    "functions, or does not say how many the card holds.",
    "Make the card offer its types, or take it out of [vgpu_<type>] device_addresses in "
    "cyborg.conf and restart cyborg-agent",
)
VENDOR_DRIVER_MISSING = Code(
    "vendor-driver-missing",
    Severity.BLOCKER,
    "The driver that makes vGPUs of the card does not run",
    "Types of vGPU are offered by NVIDIA's vGPU host driver, which is another package than the "
    "driver for computing, and only while it holds the card.",
    "Install NVIDIA's vGPU host driver and boot again",
)
MDEV_IGNORED_BY_NOVA = Code(
    "mdev-ignored-by-nova",
    Severity.WARNING,
    "Nova gives no instance a vGPU of Cyborg's",
    "Nova's libvirt driver attaches Cyborg's handles of type PCI. Those of type MDEV it leaves "
    "out, with all others of the same instance, and boots the instance without a device (nova, "
    "virt/libvirt/driver.py).",
    "Offer vGPUs through Nova ([devices] enabled_mdev_types in nova.conf), unless something else "
    "than Nova attaches them",
)
MDEV_IN_USE = Code(
    "mdev-in-use",
    Severity.BLOCKER,
    "Mediated devices live on the card",
    "The card's driver serves them and does not let go of the card; if it were taken away, they "
    "would go with it. So the card cannot be given away whole.",
    "Remove the mediated devices once nothing uses them, or name the card in [vgpu_<type>] "
    "device_addresses of cyborg.conf to offer vGPUs of it",
)

_OPTION = "[vgpu_{}] device_addresses"
_AS_IT_SHOULD_BE = (
    "Nothing is to be done where instances of Cyborg's have them; others take the room of what "
    "Cyborg hands out, so remove those"
)


class VgpuCheck(Check):
    """The type is known, the card can have it, and nothing is made of what is given whole."""

    codes = (
        VGPU_TYPE_UNKNOWN,
        VGPU_TYPES_MIXED,
        VGPU_NOT_SUPPORTED,
        VENDOR_DRIVER_MISSING,
        MDEV_IGNORED_BY_NOVA,
        MDEV_IN_USE,
    )
    precedence = 45

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether mediated devices live on what an instance would get."""
        parent = MediatedParent(surroundings.host.tree, accelerator.function)
        devices = parent.devices
        yield _in_use(parent, devices) if devices else _passed(MDEV_IN_USE, parent)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what keeps a card from having the vGPUs that are asked of it."""
        partition = accelerator.partition
        if partition is None:
            return
        parents = _parents(accelerator, surroundings)
        yield from _not_known(accelerator, parents)
        if partition.others:
            yield _mixed(accelerator)
        elif partition.doubt:
            pass
        elif partition.handles:
            yield from _of_others(accelerator, parents)
            yield _ignored(accelerator)
        elif not partition.excluded or partition.functions:
            yield _unavailable(accelerator, parents, surroundings)
        for parent in parents:
            if devices := parent.devices:
                found = _in_use(parent, devices)
                yield found._replace(lowered=Severity.INFO, remedy=_AS_IT_SHOULD_BE)


def _parents(accelerator: Accelerator, surroundings: Surroundings) -> list[MediatedParent]:
    """Return all functions of a card below which mediated devices may live."""
    card, host = accelerator.function, surroundings.host
    found = (card, *host.functions.virtual_functions_of(card))
    return [MediatedParent(host.tree, each) for each in found]


def _passed(code: Code, parent: MediatedParent) -> Passed:
    path = parent.path if not parent.is_one else parent.function.path
    return Passed(code, ((path, "absent" if not parent.is_one else "no mediated device"),))


def _in_use(parent: MediatedParent, devices: tuple[str, ...]) -> Finding:
    function = parent.function
    some = f"{devices[0]} and others" if len(devices) > 1 else devices[0]
    live = "mediated devices live" if len(devices) > 1 else "mediated device lives"
    kinds = sorted({parent.type_of(each) or "a type that is not known" for each in devices})
    path = function.path_of(devices[0])
    return MDEV_IN_USE.finding(
        function.address,
        f"{len(devices)} {live} on {function}, of {', '.join(kinds)}: {some}",
        (path, kinds[0]),
        remedy=f"Remove each once nothing uses it (echo 1 > {path}/remove){_or_offer(function)}",
    )


def _or_offer(function: PciFunction) -> str:
    identity = function.identity
    if identity is None or identity.id.vendor != VENDOR:
        return ""
    return (
        ", or name the card in [vgpu_<type>] device_addresses of cyborg.conf to offer vGPUs of it"
    )


def _mixed(accelerator: Accelerator) -> Finding:
    partition = accelerator.partition
    kinds = (partition.type, *partition.others)
    return VGPU_TYPES_MIXED.finding(
        accelerator.address,
        f"The options give it vGPUs of {' and of '.join(kinds)}",
        *((_OPTION.format(kind), f"names {accelerator.function} or parts of it") for kind in kinds),
    )


def _ignored(accelerator: Accelerator) -> Finding:
    partition = accelerator.partition
    return MDEV_IGNORED_BY_NOVA.finding(
        accelerator.address,
        f"What it has of type {partition.type} ({len(partition.handles)}) are handles of type "
        "MDEV, and Nova boots an instance without them",
        (_OPTION.format(partition.type), accelerator.function),
    )


def _not_known(accelerator: Accelerator, parents: list[MediatedParent]) -> Iterator[Finding]:
    """Yield why it is not known whether the card can have the type, and what it offers now."""
    partition = accelerator.partition
    if partition.doubt is None:
        return
    yield unreadable(accelerator.function, partition.doubt)
    named = {each.address for each in partition.functions}
    offering = (each for each in parents if each.is_one and each.function.address in named)
    without = (each for each in offering if each.type(partition.type) is None)
    if parent := next(without, None):
        yield _unknown(accelerator, parent)._replace(lowered=Severity.WARNING)


def _of_others(accelerator: Accelerator, parents: list[MediatedParent]) -> Iterator[Finding]:
    """Yield which of the virtual functions that were meant offer nothing, though others do."""
    partition = accelerator.partition
    named = {each.address for each in partition.functions}
    for parent in parents:
        function = parent.function
        is_part = function.address in named and function != accelerator.function
        if is_part and not parent.is_one:
            yield _held_by(function, accelerator)._replace(lowered=Severity.WARNING)
    for address in partition.missing:
        yield VGPU_NOT_SUPPORTED.finding(
            address,
            f"{_OPTION.format(partition.type)} names {address}, and there is no such function",
            (accelerator.function.path_of("virtfn0"), "others"),
            remedy=f"{_enable(accelerator.function)}, or take it out of "
            f"{_OPTION.format(partition.type)} in cyborg.conf and restart cyborg-agent",
        )._replace(lowered=Severity.WARNING)


def _held_by(function: PciFunction, accelerator: Accelerator) -> Finding:
    driver = function.driver or "no driver"
    return VENDOR_DRIVER_MISSING.finding(
        function.address,
        f"{function} is bound to {driver}, which makes no vGPUs of type "
        f"{accelerator.partition.type}",
        (function.path_of("driver"), function.driver or "absent"),
        remedy=f"Bind {function} to nvidia, the vGPU host driver, or take it out of "
        f"{_OPTION.format(accelerator.partition.type)} in cyborg.conf and restart cyborg-agent",
    )


def _unavailable(
    accelerator: Accelerator, parents: list[MediatedParent], surroundings: Surroundings
) -> Finding:
    """Return why a card has none of what is asked of it."""
    kind = accelerator.partition.type
    named = {each.address for each in accelerator.partition.functions}
    offering = [each for each in parents if each.is_one]
    meant = [each for each in offering if each.function.address in named]
    for parent in meant:
        if (found := parent.type(kind)) is not None:
            path = found.path_of("description")
            return VGPU_NOT_SUPPORTED.finding(
                accelerator.address,
                f"The driver does not say how many of {kind} the card holds",
                (path, "absent"),
                remedy="Install a release of the vGPU host driver that writes max_instance there; "
                "available_instances changes with what is made, so it is no measure",
            )
    if meant:
        return _unknown(accelerator, meant[0])
    if not named:
        return _not_there(accelerator, kind)
    return _without_types(accelerator, kind, surroundings)


def _unknown(accelerator: Accelerator, parent: MediatedParent) -> Finding:
    kind, found = accelerator.partition.type, []
    for id in parent.type_ids:
        offered = parent.type(id)
        name = offered.name if offered else id
        found.append(id if name == id else f"{id} ({name})")
    return VGPU_TYPE_UNKNOWN.finding(
        accelerator.address,
        f"It does not offer the type {kind}",
        (f"{parent.path}/{kind}", "absent"),
        (parent.path, ", ".join(found) or "empty"),
        remedy=f"Write one of the types that it offers in [gpu_devices] enabled_vgpu_types, with "
        f"its own [vgpu_<type>], and restart cyborg-agent: {', '.join(found) or 'there is none'}",
    )


def _not_there(accelerator: Accelerator, kind: str) -> Finding:
    function = accelerator.function
    return VGPU_NOT_SUPPORTED.finding(
        function.address,
        f"{_OPTION.format(kind)} names virtual functions of it, and they are not there",
        (function.path_of("virtfn0"), "absent" if not function.virtual_functions else "others"),
        remedy=_enable(function),
    )


def _enable(function: PciFunction) -> str:
    return (
        f"Enable its virtual functions with NVIDIA's own tool (/usr/lib/nvidia/sriov-manage -e "
        f"{function}), after each boot"
    )


def _without_types(accelerator: Accelerator, kind: str, surroundings: Surroundings) -> Finding:
    """Return why neither the card nor what is named of it offers any type."""
    function, kernel = accelerator.function, surroundings.host.kernel
    absent = (function.path_of(TYPES), "absent")
    if function.driver != DRIVER:
        return _held_by(function, accelerator)
    for each in accelerator.partition.functions:
        path = "nvidia/current_vgpu_type"
        if each is not function and each.directory.has("nvidia"):
            return VGPU_NOT_SUPPORTED.finding(
                function.address,
                "Its virtual functions are for the vendor-specific VFIO framework, in which there "
                "are no mediated devices",
                (each.path_of(path), "present"),
                absent,
                remedy=f"Take it out of {_OPTION.format(kind)} in cyborg.conf and restart "
                "cyborg-agent; this kernel and driver make vGPUs in another way",
            )
    if not kernel.has_module(VGPU_MODULE):
        return VENDOR_DRIVER_MISSING.finding(
            function.address,
            f"It offers no types of vGPU: the module {VGPU_MODULE} is not loaded",
            absent,
            (f"{MODULES}/{VGPU_MODULE}", "absent"),
            remedy="Install NVIDIA's vGPU host driver in the place of the driver for computing, "
            "and boot again",
        )
    parts = [each for each in accelerator.partition.functions if each is not function]
    if parts and all(each.driver != DRIVER for each in parts):
        return _held_by(parts[0], accelerator)
    total = function.total_virtual_functions
    if total and not function.virtual_functions:
        return VGPU_NOT_SUPPORTED.finding(
            function.address,
            "It offers no types of vGPU, and its virtual functions, which may, are not enabled",
            absent,
            (function.path_of("virtfn0"), "absent"),
            remedy=_enable(function),
        )
    return VGPU_NOT_SUPPORTED.finding(
        function.address,
        f"It offers no types of vGPU, though the module {VGPU_MODULE} is loaded",
        absent,
        remedy="See whether NVIDIA supports vGPU on this model and whether it is in display mode "
        f"(displaymodeselector), or take it out of {_OPTION.format(kind)} in cyborg.conf and "
        "restart cyborg-agent",
    )
