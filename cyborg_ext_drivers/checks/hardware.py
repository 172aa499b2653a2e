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

"""Whether the card answers and can be addressed."""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.pci import PciFunction

CONFIG_SPACE_DEAD = Code(
    "config-space-dead",
    Severity.BLOCKER,
    "The card does not answer",
    "All of its configuration space reads ff, as the kernel fills in for a function that does not "
    "answer (drivers/pci/access.c): it fell off the bus, lost power, or a reset failed.",
    "Reset the card or power the host off and on; if it stays so, the card or its slot is broken",
    is_fault=True,
)
DOMAIN_TOO_WIDE = Code(
    "domain-too-wide",
    Severity.BLOCKER,
    "The PCI domain has more than four digits",
    "Behind Intel VMD, domains start at 10000. Nova and QEMU stop at ffff (Nova bug 1897528), so "
    "the function cannot be attached.",
    "Switch VMD off for the slot in the firmware",
)


BAR_UNASSIGNED = Code(
    "bar-unassigned",
    Severity.BLOCKER,
    "A memory region of the card has no address",
    "Neither firmware nor kernel found room for a base address register of the card. No driver, "
    "on the host or in an instance, can use the card.",
    "Enable 'Above 4G Decoding' (and large or resizable BARs) in the firmware and boot again",
)
NO_RESET_METHOD = Code(
    "no-reset-method",
    Severity.INFO,
    "The kernel cannot reset this function alone",
    "Without a reset, what an instance left in the card's memory may be seen by the next. VFIO can "
    "still reset a slot or bus as a whole when it holds all functions there.",
    "Bind all functions of the card to vfio-pci; look for a newer firmware of the card",
)
POWERED_OFF = Code(
    "powered-off",
    Severity.BLOCKER,
    "The card has no power and does not wake",
    "The kernel says D3cold, and runtime power management does not count it as merely asleep. "
    "D3hot and a suspended card are sleep, which does no harm.",
    "Power the slot or the host off and on, and look at the kernel log for the card",
    is_fault=True,
)
VFIO_DENYLISTED = Code(
    "vfio-denylisted",
    Severity.BLOCKER,
    "The kernel refuses to give this model to vfio-pci",
    "vfio-pci keeps a list of models with a security erratum and refuses to bind to them "
    "(drivers/vfio/pci/vfio_pci.c).",
    "Only if you accept the erratum: set the parameter disable_denylist of the module vfio_pci",
)
# drivers/vfio/pci/vfio_pci.c and include/linux/pci_ids.h: QAT C3xxx, C62x and DH895xCC with
# their virtual functions, DSA and IAX of Sapphire Rapids.
_DENYLIST = frozenset(("19e2", "19e3", "37c8", "37c9", "0435", "0443", "0b25", "0cfe"))
_ASLEEP = frozenset(("suspended", "suspending", "resuming"))


class HardwareCheck(Check):
    """It answers, has power and an address, and VFIO takes it."""

    codes = (
        CONFIG_SPACE_DEAD,
        DOMAIN_TOO_WIDE,
        BAR_UNASSIGNED,
        NO_RESET_METHOD,
        POWERED_OFF,
        VFIO_DENYLISTED,
    )
    precedence = 30

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is wrong with the hardware."""
        function = accelerator.function
        yield from self.examine_divided(accelerator, surroundings)
        yield _width(function)
        yield _regions(function)
        yield _reset(function)
        yield denylisted(function, surroundings) or Passed(
            VFIO_DENYLISTED, ((function.path_of("device"), function.identity.id),)
        )

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether it is dead; its virtual functions are then dead as well."""
        if not accelerator.inferred:
            yield _power(accelerator.function)
            yield _life(accelerator.function)


def denylisted(function: PciFunction, surroundings: Surroundings) -> Finding | None:
    """Return why vfio-pci refuses a function's model, ``None`` when it does not.

    :raises ReadError: when it cannot be told.
    """
    identity = function.identity
    if identity is None or identity.id.vendor != "8086" or identity.id.device not in _DENYLIST:
        return None
    kernel = surroundings.host.kernel
    if kernel.module_parameter("vfio_pci", "disable_denylist") == "Y":
        return None
    return VFIO_DENYLISTED.finding(
        function.address,
        f"{identity.id} is on the list of models that vfio-pci refuses",
        (function.path_of("device"), identity.id),
    )


def _power(function: PciFunction) -> Finding | Passed:
    path = function.path_of("power_state")
    if function.power_state != "D3cold" or function.runtime_status in _ASLEEP:
        return Passed(POWERED_OFF, ((path, function.power_state or "absent"),))
    return POWERED_OFF.finding(
        function.address,
        "It is in D3cold and not merely asleep",
        (path, "D3cold"),
        (function.path_of("power/runtime_status"), function.runtime_status or "absent"),
    )


def _life(function: PciFunction) -> Finding | Passed:
    path, header = function.path_of("config"), function.header
    if not header:
        # Without a copy of it, or asleep in D3cold, nothing can be said against it.
        return Passed(CONFIG_SPACE_DEAD, ((path, "not read"),))
    if header != b"\xff" * len(header):
        return Passed(CONFIG_SPACE_DEAD, ((path, f"{len(header)} bytes, not all ff"),))
    return CONFIG_SPACE_DEAD.finding(
        function.address,
        "Its configuration space reads ff throughout",
        (path, f"ff in all of {len(header)} bytes"),
    )


def _width(function: PciFunction) -> Finding | Passed:
    if not function.address.is_wide:
        return Passed(DOMAIN_TOO_WIDE, ((function.path, function.name),))
    return DOMAIN_TOO_WIDE.finding(
        function.address,
        f"Its domain {function.address.domain:x} is larger than ffff",
        (function.path, function.name),
    )


def _regions(function: PciFunction) -> Finding | Passed:
    path = function.path_of("resource")
    for region in function.regions:
        if region.is_memory and region.is_unassigned:
            return BAR_UNASSIGNED.finding(
                function.address,
                f"Its memory region {region.number} of {region.size >> 20} MiB has no address",
                (path, f"line {region.number + 1}: flags {region.flags:#x}"),
            )
    return Passed(BAR_UNASSIGNED, ((path, "no region is unassigned"),))


def _reset(function: PciFunction) -> Finding | Passed:
    path = function.path_of("reset")
    if function.has_reset:
        return Passed(NO_RESET_METHOD, ((path, "present"),))
    return NO_RESET_METHOD.finding(
        function.address, "The kernel has no way to reset this function alone", (path, "absent")
    )
