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


"""What was reported of each card, so that one bad moment withdraws nothing.

Cyborg deletes the provider of a card that one report leaves out, and if an instance holds
the card that fails, and with it every later report of the host (cyborg.conductor.manager,
drv_device_make_diff).  So a card that stops qualifying is *held*: Cyborg is told what it was
told before, until the card has failed in ``withdraw_after`` discoveries in a row.  A card of
which something cannot be read has not failed; it is held for as long as that lasts.

Next stop: :mod:`cyborg_ext_drivers.report.state`.
"""

import dataclasses
import functools
import json
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.checks.base import Finding, Severity
from cyborg_ext_drivers.checks.identity import NOT_AN_ACCELERATOR
from cyborg_ext_drivers.checks.iommu import IOMMU_GROUP_SHARED_ACCELERATORS
from cyborg_ext_drivers.checks.reading import HELD, REPORT_REFUSED, UNREADABLE, is_doubt
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.nvml import VENDOR
from cyborg_ext_drivers.host.pci import DEVICES, PciFunction
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report import board, contract, programmed
from cyborg_ext_drivers.report.contract import DeviceReport
from cyborg_ext_drivers.survey import Assessment, Survey
from cyborg_ext_drivers.traits import FAULTY


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """What Cyborg was last told of one card, and how the card has done since."""

    report: DeviceReport
    #: In how many discoveries in a row it has failed to qualify.
    missed: int = 0
    #: The code of the finding that it fails by.
    reason: str | None = None
    #: The IOMMU groups that what is given away was in when the card last qualified.
    iommu_groups: tuple[int, ...] = ()
    #: The boot that gave the groups their numbers; the next one may number them otherwise.
    boot_id: str | None = None


class Decision(NamedTuple):
    """What becomes of an accelerator or candidate, and what Cyborg is told of it."""

    assessment: Assessment
    #: ``None`` when Cyborg is told nothing of it.
    report: DeviceReport | None


class Neighbours(Protocol):
    """The other enabled drivers of the package, whose cards no ledger but their own has."""

    def reported(self, names: Collection[str]) -> Collection[str]:
        """Return which of these functions another driver reports, as they are now."""

    def entries(self) -> Mapping[str, Entry]:
        """Return what the others have told Cyborg."""


class Ledger:
    """What one driver has reported, by address."""

    def __init__(self, hostname: str, options: Options, entries: Mapping[str, Entry] | None = None):
        self.hostname = hostname
        self.entries = dict(entries or {})
        self._options = options
        self._made: dict[str, tuple[Assessment, Decision]] = {}

    def settle(
        self, survey: Survey, host: Host, neighbours: Neighbours | None = None
    ) -> list[Decision]:
        """Return what Cyborg is told after one more discovery, by address, and remember it."""
        turn = _Turn(host, neighbours, is_counted=True)
        decisions, self.entries = self._decide(survey, turn)
        return decisions

    def preview(self, survey: Survey, host: Host) -> list[Decision]:
        """Return what Cyborg is told now; as it is no discovery, nothing is counted."""
        return self._decide(survey, _Turn(host))[0]

    def _decide(self, survey: Survey, turn: "_Turn") -> tuple[list[Decision], dict[str, Entry]]:
        told = {each.function.name: self._told(each) for each in survey.assessments}
        for name in self.entries.keys() - told.keys():
            told[name] = Decision(_gone(name, turn.host), None)
        held = self._still_held(told, turn)
        decisions, entries = [], {}
        for decision in sorted(told.values(), key=lambda each: each.assessment.address):
            name = decision.assessment.function.name
            if name in held:
                decision = self._as_held(decision.assessment, held[name], turn)
                entries[name] = held[name]
            elif decision.report:
                if name not in self.entries:
                    decision = turn.unless_in_the_way(decision, held)
                if decision.report:
                    decision = self._completed(decision, turn)
                    groups = _groups_of(decision)
                    entries[name] = Entry(
                        decision.report, iommu_groups=groups, boot_id=turn.boot_id
                    )
            elif name in self.entries:
                decision = _withdrawn(decision)
            if decision.assessment.findings or decision.report:
                # Of a card that has gone, and is withdrawn, nothing more is to be said.
                decisions.append(decision)
        return decisions, entries

    def _completed(self, decision: Decision, turn: "_Turn") -> Decision:
        """Return a decision with all that is known of the board, now or from before."""
        assessment = decision.assessment
        entry = self.entries.get(assessment.function.name)
        before = entry and entry.report
        accelerator, options = assessment.accelerator, self._options
        seen = turn.board_of(accelerator.function, options)
        told = accelerator.family.told_of_board(accelerator)
        report = board.complete(decision.report, before, seen, options.report_serials, told)
        report = programmed.complete(report, before, assessment.deployables)
        return decision if report is decision.report else decision._replace(report=report)

    def _told(self, assessment: Assessment) -> Decision:
        """Return what is told of an assessment by itself, made once as long as it stays."""
        if assessment.reason or not assessment.accelerator:
            return Decision(assessment, None)
        name = assessment.function.name
        before = self._made.get(name)
        if before is None or before[0] is not assessment:
            before = self._made[name] = (assessment, self._tell(assessment))
        return before[1]

    def _tell(self, assessment: Assessment) -> Decision:
        report = contract.to_report(assessment.accelerator, assessment.deployables, self.hostname)
        faults = contract.violations(report)
        if not faults:
            return Decision(assessment, report)
        refusal = REPORT_REFUSED.finding(
            assessment.address,
            f"Cyborg would refuse it, and with it the whole host: {'; '.join(faults)}",
            (assessment.function.path, assessment.accelerator.name),
        )
        return Decision(_also(assessment, refusal), None)

    def _still_held(self, told: Mapping[str, Decision], turn: "_Turn") -> dict[str, Entry]:
        """Return those that do not qualify and are told as before, none of them given twice."""
        failing = [
            name
            for name, entry in self.entries.items()
            if _is_failing(entry, told[name], turn.host)
        ]
        given = {
            address
            for name in self.entries.keys() - failing
            for address in _addresses(told[name].report)
        }
        elsewhere = turn.reported_elsewhere(failing)
        held = {}
        for name in failing:
            entry = self.entries[name]
            if name not in elsewhere and not given & _addresses(entry.report):
                kept = self._kept(entry, told[name].assessment, turn)
                if kept is not None:
                    held[name] = kept
        return held

    def _kept(self, entry: Entry, assessment: Assessment, turn: "_Turn") -> Entry | None:
        """Return the entry of a card that does not qualify, ``None`` when it is withdrawn."""
        missed = turn.count(entry)
        blockers = [finding.code for finding in assessment.findings if finding.is_blocker]
        reason = next((code.name for code in blockers), HELD.name)
        is_doubtful = any(map(is_doubt, assessment.findings))
        is_uncertain = is_doubtful and all(code is UNREADABLE for code in blockers)
        is_uncertain = is_uncertain or turn.is_partly_there(entry, assessment.function)
        if is_uncertain and not _is_another(entry.report, assessment.function):
            return dataclasses.replace(entry, reason=reason)
        if missed < self._options.withdraw_after:
            return dataclasses.replace(entry, missed=missed, reason=reason)
        if self._options.on_fault == "keep" and any(code.is_fault for code in blockers):
            # Counting on would write the state at each discovery, for nothing.
            most = self._options.withdraw_after
            return dataclasses.replace(
                entry, report=_as_faulty(entry.report), missed=most, reason=reason
            )
        return None

    def _as_held(self, assessment: Assessment, entry: Entry, turn: "_Turn") -> Decision:
        most = self._options.withdraw_after
        message = f"It has failed in {entry.missed} of {most} discoveries, and is held"
        evidence = ("[ext_drivers] withdraw_after", most)
        if is_faulty(entry.report):
            message = "Its hardware is dead, and on_fault is keep: Cyborg is told so by a trait"
            evidence = ("[ext_drivers] on_fault", self._options.on_fault)
        elif entry.reason == UNREADABLE.name and not _is_another(entry.report, assessment.function):
            message = "What cannot be read does not count against it, and it is held"
        elif turn.is_partly_there(entry, assessment.function):
            message = "What is given away of it is there without what manages it, and it is held"
        if not assessment.findings:
            message = f"{message}; it is not among the host's accelerators any more"
        there = "present" if assessment.function.identity else "absent"
        finding = HELD.finding(
            assessment.address, message, evidence, (assessment.function.path, there)
        )
        return Decision(_also(assessment, finding), entry.report)


class _Turn:
    """One look at the host, with what is only looked up when a card comes or fails."""

    def __init__(self, host: Host, neighbours: Neighbours | None = None, is_counted: bool = False):
        self.host = host
        self._neighbours = neighbours
        self._is_counted = is_counted

    @functools.cached_property
    def boot_id(self) -> str | None:
        """The boot that gives the IOMMU groups their numbers, as far as it can be told."""
        try:
            return self.host.kernel.boot_id
        except ReadError:
            return None

    def count(self, entry: Entry) -> int:
        """Return in how many discoveries a card that fails now has failed."""
        return entry.missed + 1 if self._is_counted else max(entry.missed, 1)

    def is_partly_there(self, entry: Entry, manager: PciFunction) -> bool:
        """Return whether a card is on the bus but for the function that manages it.

        An instance may hold what is there; Cyborg could not delete it.
        """
        if manager.name in self.host.functions.uevents:
            return False
        given = (self.host.functions.get(each) for each in _addresses(entry.report, {"PCI"}))
        return any(
            each and each.identity and each.identity.id.vendor == entry.report.vendor
            for each in given
        )

    def board_of(self, function: PciFunction, options: Options) -> Mapping[str, str | int]:
        """Return what NVML says of a card's board, nothing while it says nothing."""
        if function.identity is None or function.identity.id.vendor != VENDOR:
            return {}
        answer = self.host.nvml.ask(self.host.functions, options.nvml_library, options.nvml_timeout)
        gpu = answer.gpu(function.address)
        return board.seen_by(gpu) if gpu else {}

    def reported_elsewhere(self, names: Collection[str]) -> Collection[str]:
        """Return which of these another driver reports; one's own word no longer counts."""
        return self._neighbours.reported(names) if names and self._neighbours else ()

    def unless_in_the_way(self, decision: Decision, held: Mapping[str, Entry]) -> Decision:
        """Return what is told of a new card: nothing while it takes the place of another.

        When that one is back, the new one would have to go again.
        """
        conflicts = dict(self._conflicts(decision, held))
        if not conflicts and self._neighbours:
            # A neighbour whose turn comes later has not counted yet what it is about to hold.
            conflicts = dict(self._conflicts(decision, self._neighbours.entries()))
            for name in self._neighbours.reported(conflicts) if conflicts else ():
                del conflicts[name]
        for finding in conflicts.values():
            return Decision(_also(decision.assessment, finding), None)
        return decision

    def _conflicts(
        self, decision: Decision, entries: Mapping[str, Entry]
    ) -> Iterator[tuple[str, Finding]]:
        assessment, report = decision
        addresses, groups = _addresses(report), set(_groups_of(decision))
        for name, entry in entries.items():
            if name == assessment.function.name:
                continue
            evidence = (f"{DEVICES}/{name}", f"{entry.reason or 'reported before'}")
            if addresses & _addresses(entry.report):
                yield (
                    name,
                    NOT_AN_ACCELERATOR.finding(
                        assessment.address,
                        f"It is an attach handle of {name}, which is held",
                        evidence,
                    ),
                )
            elif shared := groups & self._groups_of_entry(entry):
                yield (
                    name,
                    IOMMU_GROUP_SHARED_ACCELERATORS.finding(
                        assessment.address,
                        f"It shares IOMMU group {min(shared)} with the accelerator {name}, "
                        "which is held",
                        evidence,
                    ),
                )

    def _groups_of_entry(self, entry: Entry) -> set[int]:
        """Return the groups of what a card gives away, as they are or as they last were."""
        functions = [
            self.host.functions.get(address) for address in _addresses(entry.report, {"PCI"})
        ]
        found = [_group_of(each) if each else None for each in functions]
        groups = {group for group in found if group is not None}
        if None in found and entry.boot_id == self.boot_id:
            groups.update(entry.iommu_groups)
        return groups


def _also(assessment: Assessment, finding: Finding) -> Assessment:
    return dataclasses.replace(assessment, findings=(*assessment.findings, finding))


def _gone(name: str, host: Host) -> Assessment:
    """Return the assessment of a card that the survey did not come upon: nothing is said."""
    function = host.functions.get(name) or PciFunction(host.tree, name, None)
    return Assessment(function, None, ())


def _as_faulty(report: DeviceReport) -> DeviceReport:
    """Return a report with the trait by which the cards with dead hardware are known."""
    attribute = (f"trait_{FAULTY}", FAULTY)
    return dataclasses.replace(
        report,
        deployables=tuple(
            dataclasses.replace(
                each, attributes=tuple(dict.fromkeys((*each.attributes, attribute)))
            )
            for each in report.deployables
        ),
    )


def _handles(report: DeviceReport) -> set[tuple[str, str]]:
    return {handle for deployable in report.deployables for handle in deployable.handles}


def _addresses(report: DeviceReport, types: Collection[str] = ("PCI", "MDEV")) -> set[PciAddress]:
    """Return where instances get something; two cards never have one of them in common."""
    return {PciAddress.from_json(info) for kind, info in _handles(report) if kind in types}


def _is_failing(entry: Entry, decision: Decision, host: Host) -> bool:
    """Return whether a card, or a part of it that was reported, does not qualify any more.

    Virtual functions that are no more are none that fail: the card has another shape then.  A
    physical function that is gone fails, as a card of its own would.
    """
    assessment, report = decision
    if report is None:
        return True
    lost = _handles(entry.report) - _handles(report)
    at_fault = {each.address for each in assessment.findings if each.lowered is Severity.WARNING}
    is_doubtful = any(map(is_doubt, assessment.findings))
    if is_doubtful or any(PciAddress.from_json(info) in at_fault for _, info in lost):
        return True
    gone = {each.name for each in entry.report.deployables} - {
        each.name for each in report.deployables
    }
    return any(name.rpartition("_")[2] not in host.functions.uevents for name in gone)


def is_faulty(report: DeviceReport) -> bool:
    """Return whether Cyborg is told by a trait that the hardware is dead."""
    return any(value == FAULTY for each in report.deployables for _, value in each.attributes)


def _is_another(report: DeviceReport, function: PciFunction) -> bool:
    """Return whether another card than the one that was reported is certainly in the place."""
    if function.identity is None:
        return False
    told = (report.vendor, json.loads(report.std_board_info).get("product_id"))
    return told != (function.identity.id.vendor, function.identity.id.device)


def _withdrawn(decision: Decision) -> Decision:
    """Return what is said at last of a card that is withdrawn."""
    assessment = decision.assessment
    function = assessment.function
    if assessment.findings or function.identity is None:
        return decision
    finding = NOT_AN_ACCELERATOR.finding(
        assessment.address,
        f"{function.identity} is in its place, and none of this driver's accelerators",
        (function.path_of("device"), function.identity.id),
    )
    return Decision(_also(assessment, finding), None)


def _groups_of(decision: Decision) -> tuple[int, ...]:
    """Return the IOMMU groups of what is given away of a card that qualifies."""
    accelerator = decision.assessment.accelerator
    if accelerator.partition:
        # The host keeps the card, and each mediated device has a group of its own.
        return ()
    given = accelerator.given or (accelerator.function,)
    return tuple(sorted({group for each in given if (group := _group_of(each)) is not None}))


def _group_of(function: PciFunction) -> int | None:
    try:
        return function.iommu_group
    except ReadError:
        return None
