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

"""Who the card belongs to: to Nova, to an in-tree driver, to nobody by the options."""

import functools
from collections.abc import Iterator

from oslo_log import log

from cyborg_ext_drivers.checks import device_spec
from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.device_spec import DeviceSpec, InvalidDeviceSpec
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.options import Options, Selector

LOG = log.getLogger(__name__)

_NOVAS = "nova.conf [pci] device_spec"
# Cyborg's pci_driver reads it by the rules that Nova has for its own.
_CYBORGS = "cyborg.conf [pci] passthrough_whitelist"
_ENABLED = "cyborg.conf [agent] enabled_drivers"

CLAIMED_BY_NOVA = Code(
    "claimed-by-nova",
    Severity.WARNING,
    "Nova hands out the same card",
    "[pci] device_spec of nova.conf matches the card, so Nova's PCI passthrough and Cyborg would "
    "give it to two instances; the second fails to start. Placement shows it twice, once as "
    "OWNER_NOVA and once as OWNER_CYBORG.",
    "Take the card out of [pci] device_spec in nova.conf and restart nova-compute, or exclude it "
    "in cyborg.conf ([ext_drivers] exclude)",
)
IN_TREE_DRIVER_ENABLED = Code(
    "in-tree-driver-enabled",
    Severity.WARNING,
    "A driver that ships with Cyborg reports the same card",
    "Two drivers report one card under the same control path; Cyborg's conductor drops the second "
    "without a word.",
    "Take the in-tree driver out of [agent] enabled_drivers in cyborg.conf and restart "
    "cyborg-agent; providers and allocations stay",
)
DRIVER_NOT_ENABLED = Code(
    "driver-not-enabled",
    Severity.WARNING,
    "The agent does not load the driver of this card",
    "The card could be reported, but its driver is not in [agent] enabled_drivers of the "
    "cyborg.conf that was read.",
    "Add the driver to [agent] enabled_drivers in cyborg.conf and restart cyborg-agent",
)
CLAIMED_BY_TWO_DRIVERS = Code(
    "claimed-by-two-drivers",
    Severity.WARNING,
    "Another enabled driver is for the same card",
    "Two families recognise the card and the drivers of both are enabled. One of them, the same at "
    "every discovery, reports it; with another choice of drivers its traits may be others.",
    "Take one of the two drivers out of [agent] enabled_drivers in cyborg.conf and restart "
    "cyborg-agent",
)
EXCLUDED_BY_CONFIG = Code(
    "excluded-by-config",
    Severity.BLOCKER,
    "The options keep the card from being offered",
    "include, exclude or vfio_only in [ext_drivers] of cyborg.conf leave it out.",
    "Change the option that is named, if the card is to be offered",
)


class OwnershipCheck(Check):
    """Not excluded, not Nova's, reported by one driver and that one enabled."""

    codes = (
        CLAIMED_BY_NOVA,
        IN_TREE_DRIVER_ENABLED,
        DRIVER_NOT_ENABLED,
        CLAIMED_BY_TWO_DRIVERS,
        EXCLUDED_BY_CONFIG,
    )
    precedence = 70

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield who else has a say in the card."""
        options = surroundings.options
        selected = _selected(accelerator, options)
        yield selected
        if isinstance(selected, Finding) and selected.code.name not in options.ignore_findings:
            # Whoever else has it, it is not offered twice.
            return
        yield _claimed(accelerator, options)
        if accelerator.manager is None:
            yield from self._examine_card(accelerator, surroundings)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield who else has a say in the card; what is its virtual functions' is asked of them."""
        options = surroundings.options
        excluding = _matching_selector(accelerator, options.exclude)
        if excluding:
            yield _excluded(accelerator, excluding)
            return
        if (
            accelerator.partition
            and options.include
            and not _is_included(accelerator, options.include)
        ):
            # The operator named it for its type; vfio_only is about cards that the host lets go.
            yield _not_included(accelerator, options.include)
            return
        yield _claimed(accelerator, surroundings.options)
        if accelerator.partition:
            yield from _of_parts(accelerator, options)
        yield from self._examine_card(accelerator, surroundings)

    def _examine_card(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        options = surroundings.options
        if options.enabled_drivers is not None:
            yield _enabled(accelerator, options.enabled_drivers)
            yield from _in_tree(accelerator, options)
            yield _contested(accelerator, surroundings, options.enabled_drivers)


def _of_parts(accelerator: Accelerator, options: Options) -> Iterator[Finding]:
    """Yield who else has a say in the functions below which the agent makes mediated devices."""
    partition = accelerator.partition
    for part in partition.excluded:
        of_part = accelerator._replace(function=part)
        found = _excluded(of_part, _matching_selector(of_part, options.exclude))
        # The others are given away; where there are none, that is why.
        yield found._replace(lowered=Severity.INFO) if partition.handles else found
    for part in partition.functions:
        if part is accelerator.function:
            continue
        claimed = _claimed(accelerator._replace(function=part), options)
        if isinstance(claimed, Finding):
            yield claimed


def _selected(accelerator: Accelerator, options: Options) -> Finding | Passed:
    excluding = _matching_selector(accelerator, options.exclude)
    if excluding:
        return _excluded(accelerator, excluding)
    if options.include and not _is_included(accelerator, options.include):
        return _not_included(accelerator, options.include)
    if options.vfio_only and not accelerator.function.is_on_vfio:
        return _not_set_aside(accelerator)
    return Passed(EXCLUDED_BY_CONFIG, (("[ext_drivers]", "include, exclude, vfio_only"),))


def _is_included(accelerator: Accelerator, include: tuple[Selector, ...]) -> bool:
    """Return whether a function is included, or the card of which it is a virtual function."""
    card, identity = accelerator.manager, accelerator.card_identity
    parts = accelerator.partition.functions if accelerator.partition else ()
    if any(each.matches(part.address, part.identity) for each in include for part in parts):
        return True
    return bool(_matching_selector(accelerator, include)) or (
        card is not None
        and identity is not None
        and any(each.matches(card.address, identity) for each in include)
    )


def _matching_selector(
    accelerator: Accelerator, selectors: tuple[Selector, ...]
) -> Selector | None:
    matching = (s for s in selectors if s.matches(accelerator.address, accelerator.identity))
    return next(matching, None)


def _excluded(accelerator: Accelerator, selector: Selector) -> Finding:
    return _left_out(accelerator, "It is excluded", "exclude", selector)


def _not_included(accelerator: Accelerator, include: tuple[Selector, ...]) -> Finding:
    text = ",".join(map(str, include))
    return _left_out(accelerator, "It is not among what is included", "include", text)


def _left_out(accelerator: Accelerator, message: str, option: str, value: object) -> Finding:
    return EXCLUDED_BY_CONFIG.finding(
        accelerator.address,
        f"{message} by the options",
        (f"[ext_drivers] {option}", value),
        remedy=f"Change [ext_drivers] {option} in cyborg.conf and restart cyborg-agent to offer it",
    )


def _not_set_aside(accelerator: Accelerator) -> Finding:
    driver = accelerator.function.driver
    return EXCLUDED_BY_CONFIG.finding(
        accelerator.address,
        f"It is bound to {driver or 'no driver'}, and vfio_only is set",
        ("[ext_drivers] vfio_only", True),
        (accelerator.function.path_of("driver"), driver or "absent"),
        remedy=f"Bind it to vfio-pci: driverctl set-override {accelerator.function} vfio-pci; "
        "or switch vfio_only off",
    )


def _claimed(accelerator: Accelerator, options: Options) -> Finding | Passed:
    spec = _matching(_NOVAS, options.nova_device_specs, accelerator)
    if spec is None:
        return Passed(CLAIMED_BY_NOVA, ((_NOVAS, "does not match"),))
    return CLAIMED_BY_NOVA.finding(
        accelerator.address, "Nova's [pci] device_spec matches it", (_NOVAS, spec.text)
    )


def _enabled(accelerator: Accelerator, enabled: tuple[str, ...]) -> Finding | Passed:
    driver = accelerator.family.driver
    evidence = (_ENABLED, ",".join(enabled) or "empty")
    if driver in enabled:
        return Passed(DRIVER_NOT_ENABLED, (evidence,))
    return DRIVER_NOT_ENABLED.finding(
        accelerator.address,
        f"Its driver {driver} is not enabled",
        evidence,
        remedy=f"Add {driver} to [agent] enabled_drivers in cyborg.conf and restart cyborg-agent",
    )


def _contested(
    accelerator: Accelerator, surroundings: Surroundings, enabled: tuple[str, ...]
) -> Finding | Passed:
    evidence = ("cyborg.conf [agent] enabled_drivers", ",".join(enabled) or "empty")
    mine = accelerator.family
    for family in surroundings.families_of(accelerator.identity):
        if family is not mine and family.driver in enabled:
            return CLAIMED_BY_TWO_DRIVERS.finding(
                accelerator.address,
                f"{family.driver} is for it as well; {mine.driver} reports it",
                evidence,
            )
    return Passed(CLAIMED_BY_TWO_DRIVERS, (evidence,))


def _in_tree(accelerator: Accelerator, options: Options) -> Iterator[Finding | Passed]:
    enabled = options.enabled_drivers or ()
    evidence = (_ENABLED, ",".join(enabled) or "empty")
    known = accelerator.family.in_tree_drivers(accelerator.identity)
    others = {driver: [evidence] for driver in known if driver in enabled}
    if "pci_driver" in enabled:
        spec = _matching(_CYBORGS, options.cyborg_device_specs, accelerator)
        if spec is not None:
            others["pci_driver"] = [evidence, (_CYBORGS, spec.text)]
    for driver, reasons in others.items():
        yield IN_TREE_DRIVER_ENABLED.finding(
            accelerator.address,
            f"The in-tree driver {driver} is enabled and reports it too",
            *reasons,
            remedy=f"Take {driver} out of [agent] enabled_drivers in cyborg.conf and restart "
            "cyborg-agent; providers and allocations stay",
        )
    if not others:
        yield Passed(IN_TREE_DRIVER_ENABLED, (evidence,))


def _matching(option: str, texts: tuple[str, ...], accelerator: Accelerator) -> DeviceSpec | None:
    address, pci_id = accelerator.address, accelerator.identity.id
    return next((spec for spec in specs(option, texts) if spec.matches(address, pci_id)), None)


@functools.lru_cache(maxsize=8)
def specs(option: str, texts: tuple[str, ...]) -> tuple[DeviceSpec, ...]:
    """Return the parsed values of an option; one that its reader would refuse is logged.

    :param option: file, group and name of the option, for the log.
    """
    parsed: list[DeviceSpec] = []
    for text in texts:
        try:
            parsed.extend(device_spec.parse(text))
        except InvalidDeviceSpec as error:
            LOG.warning("A value of %s cannot be used and is left out: %s", option, error)
    return tuple(parsed)
