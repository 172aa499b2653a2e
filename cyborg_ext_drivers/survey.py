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

"""The pipeline: a host, its accelerators, and what is to be said of each.

The drivers and the command keep a :class:`Surveyor` each and ask it the same question, so what
the command says is what the agent reports.

Next stop: :mod:`cyborg_ext_drivers.drivers`.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from cyborg_ext_drivers import catalog as catalogs
from cyborg_ext_drivers import checks as checks_room
from cyborg_ext_drivers import families as families_room
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.catalog import Catalog
from cyborg_ext_drivers.checks.base import Check, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.identity import NEVER_ACCELERATORS, bystander
from cyborg_ext_drivers.checks.reading import HELD, UNREADABLE, is_doubt, unreadable
from cyborg_ext_drivers.checks.sriov import VFS_ENABLED, as_meant, disagreement, enabled_on, unnamed
from cyborg_ext_drivers.errors import ConfigurationError, Malformed, ReadError, Unreadable
from cyborg_ext_drivers.families.base import Accelerator, Deployable, Family, Sibling
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.bus import PciFunctions
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.sysfs import Trace
from cyborg_ext_drivers.options import Options, Selector

T = TypeVar("T")
# Offset and stride of virtual functions have 16 bits each, but no card is known to have more than
# 256 of them; those, behind an offset of no more than 256, end two buses on.
_MOST_BUSES_ON = 2


class Verdict(enum.Enum):
    """What becomes of an accelerator."""

    REPORTED = "reported"
    SKIPPED = "skipped"
    HELD = "held"

    def __str__(self) -> str:
        return self.value


@dataclasses.dataclass(frozen=True)
class Assessment:
    """What is to be said of one function that is, or might be, an accelerator."""

    function: PciFunction
    #: ``None`` for a candidate that no family recognises, and for one that cannot be read.
    accelerator: Accelerator | None
    findings: tuple[Finding, ...]
    passed: tuple[Passed, ...] = ()
    deployables: tuple[Deployable, ...] = ()

    @property
    def address(self) -> PciAddress:
        """The address by which Cyborg knows it."""
        return self.function.address

    @property
    def is_accelerator(self) -> bool:
        """Whether it is one, or might be: not so for a display that merely looks like one."""
        if self.accelerator is None:
            return self.is_held or (self.reason is not None and self.reason.code is UNREADABLE)
        return self.reason is None or self.reason.code not in NEVER_ACCELERATORS

    @property
    def verdict(self) -> Verdict:
        """Whether it is reported; a blocker skips it, unless it was reported before."""
        if self.is_held:
            return Verdict.HELD
        return Verdict.SKIPPED if self.reason else Verdict.REPORTED

    @functools.cached_property
    def reason(self) -> Finding | None:
        """The finding that keeps it from being reported, ``None`` when nothing does."""
        return next((f for f in self.findings if f.is_blocker or f.code is HELD), None)

    @property
    def is_held(self) -> bool:
        """Whether Cyborg is told what it was told before."""
        return bool(self.findings) and self.findings[-1].code is HELD


@dataclasses.dataclass(frozen=True)
class Survey:
    """All that is to be said of a host, by address."""

    assessments: tuple[Assessment, ...]
    #: What the options ask of cards that the host does not have, a sentence each.
    unmet: tuple[str, ...] = ()

    @property
    def reported(self) -> tuple[Assessment, ...]:
        """The accelerators that can be attached."""
        return tuple(a for a in self.assessments if a.reason is None)

    @property
    def skipped(self) -> tuple[Assessment, ...]:
        """The others, each with at least one finding that says why."""
        return tuple(a for a in self.assessments if a.reason is not None)


class VirtualFunction(NamedTuple):
    """A virtual function, which is part of a card and never one itself."""

    function: PciFunction
    #: The address of the physical function.
    of: PciAddress
    #: The family that would know it, ``None`` when none of those that are asked does.
    family: Family | None
    #: Whether the physical function cannot speak for it.
    is_orphan: bool = False


Outcome = Assessment | VirtualFunction


class Surveyor:
    """The families, checks and catalogue by which hosts are looked at; loaded once.

    :raises ConfigurationError: when ``ignore_findings`` names a code that no check has.
    """

    def __init__(
        self,
        options: Options | None = None,
        families: Sequence[Family] | None = None,
        checks: Sequence[Check] | None = None,
        catalog: Catalog | None = None,
    ):
        self.options = options or Options()
        self.families = _by_right(
            families_room.load() if families is None else families, self.options
        )
        self.checks = tuple(
            sorted(
                checks_room.load() if checks is None else checks,
                key=lambda check: check.precedence,
            )
        )
        self.catalog = catalog or catalogs.load(self.options.below_root("catalog_dir"))
        self._refuse_unknown_codes()
        self._memories: dict[tuple[Family, ...] | None, _Memory] = {}

    def _refuse_unknown_codes(self) -> None:
        known = {code.name for check in self.checks for code in check.codes}
        for name in sorted(self.options.ignore_findings - known):
            raise ConfigurationError(
                "ignore_findings", name, f"there is no such finding; known are {sorted(known)}"
            )

    def survey(self, host: Host, only: Iterable[str] | None = None) -> Survey:
        """Return what is to be said of the host's accelerators and candidates.

        :param only: names of families; then nothing is said of others' cards, nor of
            functions that merely have the class of an accelerator.
        :raises EnumerationError: when the host's PCI functions cannot be listed.
        """
        chosen = self.families
        if only is not None:
            wanted = set(only)
            chosen = tuple(family for family in chosen if family.name in wanted)
        surroundings = Surroundings(host, self.options, self.catalog, self.families)
        memory = self._memories.setdefault(None if only is None else chosen, _Memory())
        names = memory.candidates(
            host.functions,
            lambda identity: (
                self._is_of(identity, chosen) or (only is None and self._is_candidate(identity))
            ),
        )
        found = memory.recall(
            host, names, lambda function: self._assess(function, chosen, surroundings)
        )
        assessed = [each for each in found if isinstance(each, Assessment)]
        parts = [each for each in found if isinstance(each, VirtualFunction)]
        return Survey(
            _with_parts(
                assessed, parts, lambda of: self._elsewhere(of, surroundings), self._judged
            ),
            self._unmet(host, chosen),
        )

    def unmet(self, host: Host) -> tuple[str, ...]:
        """Return, a sentence each, what the options ask of cards that the host does not have.

        :raises EnumerationError: when the host's PCI functions cannot be listed.
        """
        return self._unmet(host, self.families)

    def _unmet(self, host: Host, families: Iterable[Family]) -> tuple[str, ...]:
        said = (each for family in families for each in family.unmet(host, self.options))
        return tuple(dict.fromkeys(said))

    def look_closer(self, assessment: Assessment, host: Host) -> Assessment:
        """Return an assessment with what is not looked at in a survey, for people.

        It changes nothing about whether the card is reported.
        """
        if assessment.accelerator is None:
            return assessment
        surroundings = Surroundings(host, self.options, self.catalog, self.families)
        asked = [(each, each.look_closer) for each in self.checks]
        found, passed = self._ask(asked, assessment.accelerator, surroundings)
        lowered = (_of_closer_look(each) for each in found)
        # What keeps a card stands last.
        held = len(assessment.findings) - assessment.is_held
        findings = (*assessment.findings[:held], *lowered, *assessment.findings[held:])
        return dataclasses.replace(
            assessment,
            findings=tuple(dict.fromkeys(findings)),
            passed=(*assessment.passed, *passed),
        )

    def family_of(self, identity: Identity) -> Family | None:
        """Return the family whose card a function of this identity is, ``None`` for others."""
        kind = self.catalog.kind(identity)
        return next((each for each in self.families if each.recognises(identity, kind)), None)

    def _is_of(self, identity: Identity, chosen: tuple[Family, ...]) -> bool:
        """Return whether it is a card of one of these families, as far as that can be told."""
        family = self.family_of(identity)
        return family in chosen or (family is None and not identity.pci_class.code)

    def _is_candidate(self, identity: Identity) -> bool:
        return identity.pci_class.is_accelerator or self.catalog.is_candidate(identity)

    def _as_chosen(
        self, accelerator: Accelerator, deployables: tuple[Deployable, ...]
    ) -> tuple[Deployable, ...]:
        """Return deployables with the traits and the resource class that the operator wants."""

        options = self.options
        if not options.extra_traits and not options.resource_classes:
            return deployables
        return tuple(_as_chosen(each, accelerator, options) for each in deployables)

    def _judged(self, finding: Finding) -> Finding:
        is_ignored = finding.code.name in self.options.ignore_findings
        return finding._replace(is_ignored=is_ignored)

    def _assess(
        self, function: PciFunction, chosen: tuple[Family, ...], surroundings: Surroundings
    ) -> "Outcome | None":
        if function.identity is None:
            assert function.failure is not None
            return Assessment(function, None, (unreadable(function, function.failure),))
        family = self.family_of(function.identity)
        if family is None and not function.identity.pci_class.code:
            # Most families know their cards by the class.
            error = Unreadable(function.path_of("class"), "it is missing")
            return Assessment(function, None, (unreadable(function, error),))
        if family not in chosen:
            family = None
        try:
            if (address := function.physical_function) is not None:
                return self._part(function, address, family, surroundings)
            function.fetch()
            if function.is_virtual:
                # Its link to the physical function is still to come.
                return None
            if family is None:
                return Assessment(function, None, (bystander(function, surroundings),))
            managed = self._managed(function, family, surroundings.host)
            if function not in managed:
                # It is told of with its card.
                return None
            accelerator = self._accelerator(function, family, managed, surroundings)
            partition = family.partition(accelerator, surroundings.host, self.options)
            if partition is not None:
                return self._partitioned(accelerator._replace(partition=partition), surroundings)
            parts = family.parts_of(accelerator)
            if parts == (function,) and not self._is_divided(accelerator, function, surroundings):
                return self._whole(accelerator, surroundings)
            return self._shared_out(accelerator, parts, surroundings)
        except ReadError as error:
            return Assessment(function, None, (unreadable(function, error),))

    def manager_of(self, function: PciFunction, host: Host) -> PciFunction | None:
        """Return the function that manages the card to which another one of its slot belongs.

        ``None`` for what is a card of its own, or part of none.

        :raises ReadError: when it cannot be told.
        """
        family = function.identity and self.family_of(function.identity)
        if not family:
            return None
        manager = _managers(self._slot_of(function, family, host), family)[function]
        return None if manager is function else manager

    def _managed(
        self, function: PciFunction, family: Family, host: Host
    ) -> tuple[PciFunction, ...]:
        """Return the functions of the card that a function manages, itself and others of its slot.

        Nothing where another one manages it.

        :raises ReadError: when one of them cannot be identified, or not told from a virtual one.
        """
        managers = _managers(self._slot_of(function, family, host), family)
        return tuple(each for each, manager in managers.items() if manager is function)

    def _slot_of(self, function: PciFunction, family: Family, host: Host) -> list[Sibling]:
        """Return a function and the other physical ones of its slot that may make one card."""
        slot = [Sibling(function, self.catalog.product(function.identity))]
        others = host.functions.in_slot_of(function) if family.has_several_functions else ()
        for each in others:
            if each.identity is None:
                raise each.failure or Unreadable(each.path, "what it is cannot be told")
            if self.family_of(each.identity) is family and not each.is_virtual:
                slot.append(Sibling(each, self.catalog.product(each.identity)))
        return slot

    def _is_divided(
        self, accelerator: Accelerator, function: PciFunction, surroundings: Surroundings
    ) -> bool:
        if not function.virtual_functions:
            return False
        virtual = surroundings.host.functions.virtual_functions_of(function)
        return accelerator.family.is_divided_by(virtual, self.options)

    def _whole(self, accelerator: Accelerator, surroundings: Surroundings) -> Assessment:
        """Return what is to be said of a card that one instance gets as it is."""
        deployables = self._as_chosen(accelerator, accelerator.family.deployables(accelerator))
        findings, passed = self._examine(accelerator, surroundings)
        return Assessment(accelerator.function, accelerator, findings, passed, deployables)

    def _partitioned(self, accelerator: Accelerator, surroundings: Surroundings) -> Assessment:
        """Return what is to be said of a card of which the host's driver makes parts."""
        function = accelerator.function
        deployables = self._as_chosen(accelerator, accelerator.family.deployables(accelerator))
        of_card, passed = self._examine(accelerator, surroundings, is_divided=True)
        findings = [*of_card]
        if enabled := function.virtual_functions:
            _, wrong = self._agreeing(function, enabled, surroundings)
            findings.extend(map(_of_part, wrong) if deployables else wrong)
            whole = self._judged(enabled_on(function, enabled))
            findings.append(
                as_meant(whole) if deployables else whole._replace(lowered=Severity.INFO)
            )
        if not deployables:
            # There is nothing to report, whatever is ignored.
            findings = [each._replace(is_ignored=False) for each in findings]
        return Assessment(
            function, accelerator, tuple(dict.fromkeys(findings)), passed, deployables
        )

    def _shared_out(
        self,
        accelerator: Accelerator,
        parts: Sequence[PciFunction],
        surroundings: Surroundings,
    ) -> Assessment:
        """Return what is to be said of a card of which several functions are given away.

        Where one of these is divided, its virtual functions are given in its place.
        """
        given, findings, divided = [], [], []
        for part in parts:
            if not self._is_divided(accelerator, part, surroundings):
                given.append(part)
                continue
            virtual, wrong = self._agreeing(part, part.virtual_functions, surroundings)
            given += virtual
            findings += wrong
            divided.append(self._judged(enabled_on(part, part.virtual_functions)))
        assessment = self._of_parts(accelerator, findings, given, surroundings)
        if assessment.accelerator.given or _is_unreadable(assessment):
            # That is how it should be, or it is not known whether it is.
            divided = [as_meant(each) for each in divided]
        return dataclasses.replace(assessment, findings=(*assessment.findings, *divided))

    def _agreeing(
        self,
        card: PciFunction,
        addresses: Sequence[PciAddress],
        surroundings: Surroundings,
    ) -> tuple[list[PciFunction], list[Finding]]:
        """Return the virtual functions that a card names and that say so too, and the others."""
        virtual, findings = [], []
        for address in dict.fromkeys(addresses):
            each = surroundings.host.functions.get(address)
            wrong = disagreement(card, address, each)
            if wrong or each is None:
                findings.append(self._judged(wrong))
            else:
                virtual.append(each)
        return virtual, findings

    def _of_parts(
        self,
        accelerator: Accelerator,
        findings: list[Finding],
        given: Sequence[PciFunction],
        surroundings: Surroundings,
    ) -> Assessment:
        """Return the assessment of a card that is given away by these of its functions."""
        attachable = []
        for function in sorted(given, key=lambda each: each.address):
            said = self._examine_part(accelerator, function, surroundings)
            findings.extend(said)
            if not any(each.is_blocker for each in said):
                attachable.append(function)
        if attachable or any(each.code is UNREADABLE and each.is_blocker for each in findings):
            findings = [_of_part(each) for each in findings]
        of_card, passed = self._examine(accelerator, surroundings, is_divided=True)
        accelerator = accelerator._replace(given=tuple(attachable))
        deployables = accelerator.family.deployables(accelerator) if attachable else ()
        return Assessment(
            accelerator.function,
            accelerator,
            tuple(dict.fromkeys((*of_card, *findings))),
            passed,
            self._as_chosen(accelerator, deployables),
        )

    def _examine_part(
        self, accelerator: Accelerator, function: PciFunction, surroundings: Surroundings
    ) -> tuple[Finding, ...]:
        part = accelerator._replace(
            function=function,
            manager=accelerator.function,
            companions=(),
            others=(),
            given=(),
            inferred=None,
            card_identity=accelerator.identity,
        )
        if function.identity is None:
            findings = (unreadable(function, function.failure),)
        else:
            findings, _ = self._examine(part, surroundings)
        # They are told among those of the card.
        return tuple(each._replace(message=f"{function}: {each.message}") for each in findings)

    def _part(
        self,
        function: PciFunction,
        address: PciAddress,
        family: Family | None,
        surroundings: Surroundings,
    ) -> "Outcome":
        """Return to which card a virtual function belongs, or why it can be to none."""
        card = surroundings.host.functions.get(address)
        if card is None or card.identity is None:
            return VirtualFunction(function, address, family, is_orphan=True)
        is_virtual = card.physical_function is not None
        if is_virtual or card.identity.id.vendor != function.identity.id.vendor:
            what = "a physical function" if is_virtual else "a function of the same vendor"
            error = Malformed(function.path_of("physfn"), str(address), what)
            return Assessment(function, None, (unreadable(function, error),))
        return VirtualFunction(function, address, family)

    def _elsewhere(
        self, parts: Sequence["VirtualFunction"], surroundings: Surroundings
    ) -> Assessment:
        """Return the assessment of a card of which only virtual functions are to be seen."""
        virtual = [each.function for each in parts]
        first, family = virtual[0], parts[0].family
        card = surroundings.host.functions.get(parts[0].of) or PciFunction(
            surroundings.host.tree, str(parts[0].of), None
        )
        inferred = self.catalog.physical_function_of(first.identity)
        try:
            product = self.catalog.product(inferred, first.revision) if inferred else None
        except ReadError as error:
            return Assessment(card, None, (unreadable(first, error),))
        if product is None or product.model is None or not family.is_divisible:
            error = Unreadable(card.path, "the function is not there to say what card it is")
            return Assessment(card, None, (unreadable(card, card.failure or error),))
        vendor = self.catalog.vendor(inferred.id.vendor) or inferred.id.vendor
        accelerator = Accelerator(
            family, card, vendor, product, given=tuple(virtual), inferred=inferred
        )
        findings = []
        if card.failure is not None:
            # It is there: whoever knows what it was before, knows better.
            findings.append(unreadable(card, card.failure)._replace(lowered=Severity.WARNING))
        return self._of_parts(accelerator, findings, virtual, surroundings)

    def _accelerator(
        self,
        function: PciFunction,
        family: Family,
        managed: Sequence[PciFunction],
        surroundings: Surroundings,
    ) -> Accelerator:
        identity = function.identity
        others = (each for each in managed if each is not function)
        return Accelerator(
            family,
            function,
            self.catalog.vendor(identity.id.vendor) or identity.id.vendor,
            self.catalog.product(identity, function.revision),
            tuple(
                sibling
                for sibling in surroundings.host.functions.in_slot_of(function)
                if sibling.identity is None or self.catalog.companion(sibling.identity)
            ),
            tuple(sorted(others, key=lambda each: each.address)),
        )

    def _examine(
        self, accelerator: Accelerator, surroundings: Surroundings, is_divided: bool = False
    ) -> tuple[tuple[Finding, ...], tuple[Passed, ...]]:
        asked = [
            (each, each.examine_divided if is_divided else each.examine) for each in self.checks
        ]
        return self._ask(asked, accelerator, surroundings)

    def _ask(
        self,
        asked: Sequence[tuple[Check, Callable]],
        accelerator: Accelerator,
        surroundings: Surroundings,
    ) -> tuple[tuple[Finding, ...], tuple[Passed, ...]]:
        findings: list[Finding] = []
        passed: list[Passed] = []
        for check, examine in asked:
            try:
                for outcome in examine(accelerator, surroundings):
                    (passed if isinstance(outcome, Passed) else findings).append(outcome)
            except ReadError as error:
                found = unreadable(accelerator.function, error)
                if check.can_block:
                    findings.append(found)
                elif found not in findings:
                    # No card is lost for what would be a warning at most.
                    findings.append(found._replace(lowered=Severity.INFO))
        if self.options.ignore_findings:
            findings = [self._judged(finding) for finding in findings]
        if len(findings) > 1:
            # Several checks may stumble over the same unreadable attribute.
            findings = list(dict.fromkeys(findings))
        return tuple(findings), tuple(passed)


class _Memory:
    """The conclusions of the last survey, each with all that it rests on.

    Everything is read again in every survey.  What reads the same leads to the same
    conclusion, so it is not drawn anew; that is most of the work on a quiet host.
    """

    def __init__(self) -> None:
        self._uevents: Mapping[str, object] = {}
        self._candidates: list[str] = []
        self._conclusions: dict[str, tuple[Trace, Outcome]] = {}

    def candidates(self, functions: PciFunctions, wanted: Callable[[Identity], bool]) -> list[str]:
        """Return the names of the functions to look at, by address."""
        if functions.uevents != self._uevents:
            self._candidates = [function.name for function in functions.select(wanted)]
            self._uevents = functions.uevents
        return self._candidates

    def recall(
        self, host: Host, names: list[str], assess: Callable[[PciFunction], Outcome | None]
    ) -> list[Outcome]:
        """Return an assessment of each, made anew unless nothing that it rests on changed."""
        before, self._conclusions = self._conclusions, {}
        uevents = host.functions.uevents
        holds = host.tree.holds_once()
        assessed = []
        for name in names:
            trace, assessment = before.get(name, (None, None))
            if trace is None or not trace.holds(holds, uevents):
                with host.tree.tracing() as trace:
                    function = host.functions.get(name)
                    assessment = assess(function) if function is not None else None
            if assessment is not None:
                assessed.append(assessment)
                is_fine = isinstance(assessment, VirtualFunction) or (
                    assessment.reason is None and not _is_doubtful(assessment)
                )
                if is_fine and trace.is_lasting:
                    self._conclusions[name] = trace, assessment
        return assessed


def survey(host: Host, options: Options | None = None) -> Survey:
    """Return what is to be said of a host, with everything that is installed.

    :raises EnumerationError: when the host's PCI functions cannot be listed.
    """
    return Surveyor(options).survey(host)


def _as_chosen(deployable: Deployable, accelerator: Accelerator, options: Options) -> Deployable:
    """Return a deployable as the operator wants it who names the card, or what is given of it."""
    addresses = {handle.address for handle in deployable.handles}
    named = [(accelerator.address, accelerator.identity)]
    named += [(f.address, f.identity) for f in accelerator.given if f.address in addresses]

    def chosen(pairs: Iterable[tuple[Selector, T]]) -> Iterator[T]:
        return (value for selector, value in pairs if any(selector.matches(*n) for n in named))

    extra = [trait for traits in chosen(options.extra_traits) for trait in traits]
    return deployable._replace(
        traits=tuple(dict.fromkeys((*deployable.traits, *extra))),
        resource_class=next(chosen(options.resource_classes), deployable.resource_class),
    )


def _with_parts(
    assessed: list[Assessment],
    parts: list[VirtualFunction],
    elsewhere: Callable[[Sequence[VirtualFunction]], Assessment],
    judged: Callable[[Finding], Finding],
) -> tuple[Assessment, ...]:
    """Return the assessments by address, each card with what its virtual functions say of it."""
    cards = {each.address: each for each in assessed}
    for address, of_card in _by_card(parts).items():
        orphans = [each for each in of_card if each.is_orphan and each.family]
        if orphans:
            doubts = [f for each in assessed if _may_be_of(each, orphans) for f in each.findings]
            card = elsewhere(orphans)
            cards[address] = dataclasses.replace(card, findings=(*card.findings, *doubts))
        elif address in cards:
            cards[address] = _confronted(cards[address], of_card, judged)
    # A virtual function that cannot be identified is told of with its card.
    named = {
        address
        for each in cards.values()
        if any(finding.code is VFS_ENABLED for finding in each.findings)
        for address in _virtual_functions(each)
        if _can_be_of(address, each.address)
    }
    kept = (each for each in cards.values() if each.address not in named)
    return tuple(sorted(kept, key=lambda each: each.address))


def _managers(slot: Sequence[Sibling], family: Family) -> dict[PciFunction, PciFunction]:
    """Return by which function of a slot the card of each is managed."""
    return {
        each.function: family.manager_of(each, [other for other in slot if other is not each])
        for each in slot
    }


def _virtual_functions(assessment: Assessment) -> tuple[PciAddress, ...]:
    try:
        return assessment.function.virtual_functions
    except ReadError:
        return ()


def _is_unreadable(assessment: Assessment) -> bool:
    return any(each.code is UNREADABLE and each.is_blocker for each in assessment.findings)


def _is_doubtful(assessment: Assessment) -> bool:
    """Return whether something of it could not be read, whatever that does to the card."""
    return any(map(is_doubt, assessment.findings))


def _can_be_of(address: PciAddress, card: PciAddress) -> bool:
    """Return whether the address can be a virtual function's, as these follow their card's.

    PCI Express Base Specification, SR-IOV: First VF Offset and VF Stride.
    """
    is_behind = address > card and address.domain == card.domain
    return is_behind and address.bus - card.bus <= _MOST_BUSES_ON


def _may_be_of(assessment: Assessment, parts: Sequence[VirtualFunction]) -> bool:
    """Return whether a function that cannot be told may be another virtual one of a card."""
    function, first = assessment.function, parts[0]
    if assessment.accelerator or not _is_unreadable(assessment):
        return False
    if not _can_be_of(function.address, first.of):
        return False
    if function.identity is not None:
        return function.identity.id == first.function.identity.id
    near, here = first.function.address, function.address
    return (here.domain, here.bus) == (near.domain, near.bus)


def _by_card(parts: Iterable[VirtualFunction]) -> dict[PciAddress, list[VirtualFunction]]:
    cards: dict[PciAddress, list[VirtualFunction]] = {}
    for each in parts:
        cards.setdefault(each.of, []).append(each)
    return cards


def _confronted(
    assessment: Assessment,
    parts: Sequence[VirtualFunction],
    judged: Callable[[Finding], Finding],
) -> Assessment:
    """Return an assessment with the virtual functions that the card itself does not name."""
    if assessment.accelerator is None or _is_unreadable(assessment):
        # What cannot be told already keeps it from being reported anew.
        return assessment
    named = set(_virtual_functions(assessment))
    others = tuple(each.function.name for each in parts if each.function.address not in named)
    if not others:
        return assessment
    finding = judged(unnamed(assessment.function, others))
    if assessment.accelerator.given or assessment.accelerator.partition:
        finding = _of_part(finding)
    return dataclasses.replace(assessment, findings=(*assessment.findings, finding))


def _of_closer_look(finding: Finding) -> Finding:
    return finding._replace(lowered=Severity.WARNING) if finding.is_blocker else finding


def _of_part(finding: Finding) -> Finding:
    """Return a finding of one function of a card of which others are given away.

    What cannot be read of one might as well keep one that an instance holds from the report.
    """
    if not finding.is_blocker or finding.code is UNREADABLE:
        return finding
    return finding._replace(lowered=Severity.WARNING)


def _by_right(families: Iterable[Family], options: Options) -> tuple[Family, ...]:
    """Return families in the order in which they may claim a card: enabled ones first.

    Every driver comes to the same order, so no card is reported by two of them.
    """
    enabled = options.enabled_drivers
    return tuple(sorted(families, key=lambda each: bool(enabled) and each.driver not in enabled))
