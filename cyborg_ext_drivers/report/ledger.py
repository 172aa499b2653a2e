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
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cyborg_ext_drivers.checks.base import Finding
from cyborg_ext_drivers.checks.identity import NOT_AN_ACCELERATOR
from cyborg_ext_drivers.checks.iommu import IOMMU_GROUP_SHARED_ACCELERATORS
from cyborg_ext_drivers.checks.reading import HELD, REPORT_REFUSED, UNREADABLE
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.pci import DEVICES, PciFunction
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report import contract
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
    #: The IOMMU group that it was in when it last qualified.
    iommu_group: int | None = None


class Decision(NamedTuple):
    """What becomes of an accelerator or candidate, and what Cyborg is told of it."""

    assessment: Assessment
    #: ``None`` when Cyborg is told nothing of it.
    report: DeviceReport | None


class Ledger:
    """What one driver has reported, by address."""

    def __init__(self, hostname: str, options: Options, entries: Mapping[str, Entry] | None = None):
        self.hostname = hostname
        self.entries = dict(entries or {})
        self._options = options
        self._made: dict[str, tuple[Assessment, Decision]] = {}

    def settle(self, survey: Survey, host: Host) -> list[Decision]:
        """Return what Cyborg is told after one more discovery, by address, and remember it."""
        decisions, self.entries = self._decide(survey, host, lambda entry: entry.missed + 1)
        return decisions

    def preview(self, survey: Survey, host: Host) -> list[Decision]:
        """Return what Cyborg is told now; as it is no discovery, nothing is counted."""
        return self._decide(survey, host, lambda entry: max(entry.missed, 1))[0]

    def _decide(
        self, survey: Survey, host: Host, count: Callable[[Entry], int]
    ) -> tuple[list[Decision], dict[str, Entry]]:
        told = {each.function.name: self._told(each) for each in survey.assessments}
        for name in self.entries.keys() - told.keys():
            told[name] = Decision(_gone(name, host), None)
        held = self._still_held(told, count)
        decisions, entries = [], {}
        for decision in sorted(told.values(), key=lambda each: each.assessment.address):
            name = decision.assessment.function.name
            if name in held:
                decision = self._as_held(decision.assessment, held[name])
                entries[name] = held[name]
            elif decision.report:
                if name not in self.entries:
                    decision = _unless_in_the_way(decision, held)
                if decision.report:
                    group = _group_of(decision.assessment)
                    entries[name] = Entry(decision.report, iommu_group=group)
            if decision.assessment.findings or decision.report:
                # Of a card that has gone, and is withdrawn, nothing more is to be said.
                decisions.append(decision)
        return decisions, entries

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

    def _still_held(
        self, told: Mapping[str, Decision], count: Callable[[Entry], int]
    ) -> dict[str, Entry]:
        """Return those that do not qualify and are told as before, none of them given twice."""
        given = {
            handle
            for name in self.entries
            if (report := told[name].report)
            for handle in _handles(report)
        }
        held = {}
        for name, entry in self.entries.items():
            if told[name].report is None and not given & _handles(entry.report):
                kept = self._kept(entry, told[name].assessment, count(entry))
                if kept is not None:
                    held[name] = kept
        return held

    def _kept(self, entry: Entry, assessment: Assessment, missed: int) -> Entry | None:
        """Return the entry of a card that does not qualify, ``None`` when it is withdrawn."""
        blockers = [finding.code for finding in assessment.findings if finding.is_blocker]
        reason = blockers[0].name if blockers else HELD.name
        if blockers and all(code is UNREADABLE for code in blockers):
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

    def _as_held(self, assessment: Assessment, entry: Entry) -> Decision:
        most = self._options.withdraw_after
        if entry.missed >= most:
            message = "Its hardware is dead, and on_fault is keep: Cyborg is told so by a trait"
            evidence = ("[ext_drivers] on_fault", self._options.on_fault)
        elif entry.missed:
            message = f"It has failed in {entry.missed} of {most} discoveries, and is held"
            evidence = ("[ext_drivers] withdraw_after", most)
        else:
            message = "What cannot be read does not count against it, and it is held"
            evidence = ("[ext_drivers] withdraw_after", most)
        if not assessment.findings:
            message = f"{message}; it is not among the host's accelerators any more"
        there = "present" if assessment.function.identity else "absent"
        finding = HELD.finding(
            assessment.address, message, evidence, (assessment.function.path, there)
        )
        return Decision(_also(assessment, finding), entry.report)


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


def _group_of(assessment: Assessment) -> int | None:
    try:
        return assessment.function.iommu_group
    except ReadError:
        return None


def _unless_in_the_way(decision: Decision, held: Mapping[str, Entry]) -> Decision:
    """Return what is told of a new card: nothing while it takes the place of one that is held.

    When that one is back, the new one would have to go again.
    """
    assessment, report = decision
    handles, group = _handles(report), _group_of(assessment)
    for name, entry in held.items():
        if handles & _handles(entry.report):
            finding = NOT_AN_ACCELERATOR.finding(
                assessment.address,
                f"It is an attach handle of {name}, which is held",
                (f"{DEVICES}/{name}", f"{entry.reason}"),
            )
        elif group is not None and group == entry.iommu_group:
            finding = IOMMU_GROUP_SHARED_ACCELERATORS.finding(
                assessment.address,
                f"It shares IOMMU group {group} with the accelerator {name}, which is held",
                (f"{DEVICES}/{name}", f"{entry.reason}"),
            )
        else:
            continue
        return Decision(_also(assessment, finding), None)
    return decision
