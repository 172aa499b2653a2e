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

"""What the device is: known, integrated, the console, or no accelerator at all."""

from collections.abc import Iterator

from cyborg_ext_drivers.catalog import Rule
from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.hardware import denylisted
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.pci import PciFunction

UNKNOWN_DEVICE = Code(
    "unknown-device",
    Severity.WARNING,
    "The catalogue does not know the card's model",
    "The card is reported with the traits of its kind, vendor and product id, without one of a "
    "model: a model that was guessed could change later and with it the trait.",
    "Add an entry to a file in /etc/cyborg/ext_catalog.d to give it a model",
)
INTEGRATED_GPU = Code(
    "integrated-gpu",
    Severity.BLOCKER,
    "The graphics processor is part of the machine's processor",
    "An integrated graphics processor shares memory with the host and is not an accelerator card.",
    "Leave it to the host; if the firmware can switch it off, it is not listed any more",
)
CONSOLE_DEVICE = Code(
    "console-device",
    Severity.BLOCKER,
    "The host's console is on this device",
    "The kernel uses it as the default VGA device. Given to an instance, the host loses its "
    "console, and the driver that draws it may not let go of the device.",
    "Make another display controller the primary one in the firmware and boot again",
)
MANAGEMENT_DISPLAY = Code(
    "management-display",
    Severity.BLOCKER,
    "It is the display of the management controller",
    "The graphics of a server's management controller have the class of a GPU and are none.",
    "Leave it to the host; if the firmware can switch it off, it is not listed any more",
)
NOT_AN_ACCELERATOR = Code(
    "not-an-accelerator",
    Severity.BLOCKER,
    "It has the class of an accelerator and is none",
    "The function's class is one that accelerators use, but no driver of this package is for it.",
    "Nothing is to be done, unless it is an accelerator: then no installed driver supports it",
)

#: What has one of these is no accelerator that could be offered, whatever is done.
NEVER_ACCELERATORS = (INTEGRATED_GPU, MANAGEMENT_DISPLAY, NOT_AN_ACCELERATOR)
_EXCLUSIONS = {code.name: code for code in NEVER_ACCELERATORS}


class IdentityCheck(Check):
    """A known model, not integrated, not the console."""

    codes = (
        UNKNOWN_DEVICE,
        INTEGRATED_GPU,
        CONSOLE_DEVICE,
        MANAGEMENT_DISPLAY,
        NOT_AN_ACCELERATOR,
    )
    precedence = 20

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is to be said of the device's identity."""
        if accelerator.manager is None:
            yield from self._examine_card(accelerator, surroundings)
        yield _console(accelerator)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what its identity is; virtual functions of an integrated one can be given away."""
        for outcome in self._examine_card(accelerator, surroundings):
            if outcome.code is not INTEGRATED_GPU:
                yield outcome

    def _examine_card(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        function = accelerator.function
        rule = None if accelerator.inferred else _exclusion(function, surroundings)
        if rule is not None:
            yield _EXCLUSIONS[rule.code].finding(
                function.address,
                f"It is {rule.what}",
                (function.path_of("device"), accelerator.identity.id),
                remedy=_remedy(rule, accelerator, surroundings),
            )
        elif accelerator.product is not None and accelerator.product.is_integrated:
            yield INTEGRATED_GPU.finding(
                function.address,
                f"{accelerator.name} is part of the processor",
                (function.path_of("device"), accelerator.identity.id),
            )
        elif accelerator.model is None:
            yield _unknown(accelerator, surroundings)


def bystander(function: PciFunction, surroundings: Surroundings) -> Finding:
    """Return why a function of an accelerator's class that no family knows is none.

    :raises ReadError: when it cannot be told.
    """
    refused = denylisted(function, surroundings)
    if refused:
        return refused
    identity = function.identity
    rule = _exclusion(function, surroundings)
    code = _EXCLUSIONS[rule.code] if rule else NOT_AN_ACCELERATOR
    message = f"It is {rule.what}" if rule else f"No installed driver is for {identity}"
    return code.finding(
        function.address,
        message,
        (function.path_of("device"), identity.id),
        remedy=rule.remedy if rule else None,
    )


def _exclusion(function: PciFunction, surroundings: Surroundings) -> Rule | None:
    assert function.identity is not None
    functions = surroundings.host.functions
    return surroundings.catalog.exclusion(
        function.identity, function.address, lambda: functions.ids_above(function)
    )


def _remedy(rule: Rule, accelerator: Accelerator, surroundings: Surroundings) -> str | None:
    """Return how to contradict a rule that goes by circumstances, ``None`` for the others."""
    if not rule.unless_below:
        return rule.remedy
    return f"Leave it to the host; if it is a card, add {_entry(accelerator, surroundings)}"


def _entry(accelerator: Accelerator, surroundings: Surroundings) -> str:
    return (
        f'an entry for id "{accelerator.identity.id}" (kind {accelerator.family.kind}, model, '
        f"name) to a file in {surroundings.options.catalog_dir}"
    )


def _unknown(accelerator: Accelerator, surroundings: Surroundings) -> Finding:
    function = accelerator.function
    identity = accelerator.identity
    known = accelerator.product
    message = (
        f"The id {identity.id} stands for {known.name}; the subsystem {identity.subsystem} and "
        f"revision {accelerator.revision} do not decide it"
        if known
        else f"The catalogue has no entry for {identity.id}"
    )
    return UNKNOWN_DEVICE.finding(
        function.address,
        message,
        (function.path_of("device"), identity.id),
        (function.path_of("subsystem_device"), identity.subsystem),
        remedy=f"Add {_entry(accelerator, surroundings)} to give it a model trait",
    )


def _console(accelerator: Accelerator) -> Finding | Passed:
    function = accelerator.function
    path = function.path_of("boot_vga")
    # Only class 0300 has the file; its absence says that it is not the VGA console.
    if function.boot_vga:
        return CONSOLE_DEVICE.finding(
            function.address, "It is the default VGA device of the host", (path, 1)
        )
    if function.is_boot_display:
        return CONSOLE_DEVICE.finding(
            function.address,
            "The firmware's framebuffer, and so the console, is on it",
            (function.path_of("drm/card*/boot_display"), 1),
        )
    return Passed(CONSOLE_DEVICE, ((path, "absent" if function.boot_vga is None else 0),))
