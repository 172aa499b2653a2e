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
from collections.abc import Callable, Iterable, Mapping, Sequence

from cyborg_ext_drivers import catalog as catalogs
from cyborg_ext_drivers import checks as checks_room
from cyborg_ext_drivers import families as families_room
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.catalog import Catalog
from cyborg_ext_drivers.checks.base import Check, Finding, Passed, Surroundings
from cyborg_ext_drivers.checks.identity import NEVER_ACCELERATORS, bystander
from cyborg_ext_drivers.checks.reading import HELD, UNREADABLE, unreadable
from cyborg_ext_drivers.checks.sriov import VFS_ENABLED
from cyborg_ext_drivers.errors import ConfigurationError, ReadError
from cyborg_ext_drivers.families.base import Accelerator, Deployable, Family
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.bus import PciFunctions
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.host.sysfs import Trace
from cyborg_ext_drivers.options import Options


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

    @property
    def reported(self) -> tuple[Assessment, ...]:
        """The accelerators that can be attached."""
        return tuple(a for a in self.assessments if a.reason is None)

    @property
    def skipped(self) -> tuple[Assessment, ...]:
        """The others, each with at least one finding that says why."""
        return tuple(a for a in self.assessments if a.reason is not None)


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
                _family(self.families, identity) in chosen
                or (only is None and self._is_candidate(identity))
            ),
        )
        assessed = memory.recall(
            host, names, lambda function: self._assess(function, chosen, surroundings)
        )
        named = _virtual_functions_of(assessed)
        return Survey(tuple(each for each in assessed if each.address not in named))

    def _is_candidate(self, identity: Identity) -> bool:
        return identity.pci_class.is_accelerator or self.catalog.is_candidate(identity)

    def _with_extra_traits(
        self, accelerator: Accelerator, deployables: tuple[Deployable, ...]
    ) -> tuple[Deployable, ...]:
        extra = [
            trait
            for selector, traits in self.options.extra_traits
            if selector.matches(accelerator.address, accelerator.identity)
            for trait in traits
        ]
        if not extra:
            return deployables
        return tuple(
            each._replace(traits=tuple(dict.fromkeys((*each.traits, *extra))))
            for each in deployables
        )

    def _judged(self, finding: Finding) -> Finding:
        is_ignored = finding.code.name in self.options.ignore_findings
        return finding._replace(is_ignored=is_ignored)

    def _assess(
        self, function: PciFunction, chosen: tuple[Family, ...], surroundings: Surroundings
    ) -> Assessment | None:
        if function.identity is None:
            assert function.failure is not None
            return Assessment(function, None, (unreadable(function, function.failure),))
        family = _family(self.families, function.identity)
        if family not in chosen:
            family = None
        try:
            function.fetch()
            if function.is_virtual:
                return None
            if family is None:
                return Assessment(function, None, (bystander(function, surroundings),))
            accelerator = self._accelerator(function, family, surroundings)
            deployables = self._with_extra_traits(accelerator, family.deployables(accelerator))
        except ReadError as error:
            return Assessment(function, None, (unreadable(function, error),))
        findings, passed = self._examine(accelerator, surroundings)
        return Assessment(function, accelerator, findings, passed, deployables)

    def _accelerator(
        self, function: PciFunction, family: Family, surroundings: Surroundings
    ) -> Accelerator:
        identity = function.identity
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
        )

    def _examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> tuple[tuple[Finding, ...], tuple[Passed, ...]]:
        findings: list[Finding] = []
        passed: list[Passed] = []
        for check in self.checks:
            try:
                for outcome in check.examine(accelerator, surroundings):
                    (passed if isinstance(outcome, Passed) else findings).append(outcome)
            except ReadError as error:
                findings.append(unreadable(accelerator.function, error))
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
        self._conclusions: dict[str, tuple[Trace, Assessment]] = {}

    def candidates(self, functions: PciFunctions, wanted: Callable[[Identity], bool]) -> list[str]:
        """Return the names of the functions to look at, by address."""
        if functions.uevents != self._uevents:
            self._candidates = [function.name for function in functions.select(wanted)]
            self._uevents = functions.uevents
        return self._candidates

    def recall(
        self, host: Host, names: list[str], assess: Callable[[PciFunction], Assessment | None]
    ) -> list[Assessment]:
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
                if _is_certain(assessment) and trace.is_lasting:
                    self._conclusions[name] = trace, assessment
        return assessed


def survey(host: Host, options: Options | None = None) -> Survey:
    """Return what is to be said of a host, with everything that is installed.

    :raises EnumerationError: when the host's PCI functions cannot be listed.
    """
    return Surveyor(options).survey(host)


def _is_certain(assessment: Assessment) -> bool:
    """Return whether nothing is against it; what could not be read is asked for again."""
    is_read = all(finding.code is not UNREADABLE for finding in assessment.findings)
    return is_read and assessment.reason is None


def _virtual_functions_of(assessed: list[Assessment]) -> set[PciAddress]:
    """Return the functions that a physical one names as its own, whatever they say."""
    divided = (each for each in assessed if any(f.code is VFS_ENABLED for f in each.findings))
    return {address for each in divided for address in each.function.virtual_functions}


def _by_right(families: Iterable[Family], options: Options) -> tuple[Family, ...]:
    """Return families in the order in which they may claim a card: enabled ones first.

    Every driver comes to the same order, so no card is reported by two of them.
    """
    enabled = options.enabled_drivers
    return tuple(sorted(families, key=lambda each: bool(enabled) and each.driver not in enabled))


def _family(families: tuple[Family, ...], identity: Identity) -> Family | None:
    return next((family for family in families if family.recognises(identity)), None)
