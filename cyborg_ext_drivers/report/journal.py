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

"""What the agent's log says of the cards: a summary at first, then each change once."""

import collections
from collections.abc import Collection, Iterable
from typing import NamedTuple

from oslo_log import log

from cyborg_ext_drivers.checks.base import Finding, Severity
from cyborg_ext_drivers.report.ledger import Decision, is_faulty
from cyborg_ext_drivers.survey import Assessment, Verdict

LOG = log.getLogger(__name__)


class _Known(NamedTuple):
    """What was last said of an accelerator."""

    verdict: Verdict
    codes: tuple[str, ...] = ()
    is_faulty: bool = False


class Journal:
    """The log of one driver.

    A change is one of verdict, of what the findings are, or that Cyborg is told of a fault; that
    a message has another number in it is none, or a card that fails would be in the log once a
    minute.

    :param reported: the cards that Cyborg was told of by the process before this one.
    """

    def __init__(self, driver: str, reported: Iterable[str] = ()):
        self._driver = driver
        self._known = dict.fromkeys(reported, _Known(Verdict.HELD))
        self._unmet: set[str] = set()
        self._is_new = True

    def write(self, decisions: Collection[Decision], unmet: Collection[str] = ()) -> None:
        """Log what has changed since the last time, a line for each card.

        :param unmet: what the options ask of cards that the host does not have.
        """
        for sentence in unmet:
            if sentence not in self._unmet:
                LOG.warning("%s", sentence)
        self._unmet = set(unmet)
        assessments = {each.assessment.function.name: each.assessment for each in decisions}
        now = {each.assessment.function.name: _known(each) for each in decisions}
        if self._is_new:
            self._write_summary(assessments.values())
        for name, known in now.items():
            is_new_and_fine = self._is_new and known == _Known(Verdict.REPORTED)
            if known != self._known.get(name) and not is_new_and_fine:
                _write_change(name, assessments[name])
        for name in self._known.keys() - now.keys():
            if self._known[name].verdict is not Verdict.SKIPPED:
                LOG.warning(
                    "%s has gone and is withdrawn. If it was not taken out, look at the kernel "
                    "log for what took it off the bus",
                    name,
                )
        self._known, self._is_new = now, False

    def _write_summary(self, assessments: Iterable[Assessment]) -> None:
        counts = collections.Counter(each.verdict for each in assessments)
        LOG.info(
            "%s: of the accelerators of this host %s",
            self._driver,
            ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict),
        )


def _write_change(name: str, assessment: Assessment) -> None:
    said = " ".join(f"{finding}." for finding in _worth_saying(assessment))
    if assessment.verdict is Verdict.REPORTED and not said:
        LOG.info("%s is reported", name)
    else:
        LOG.warning("%s is %s. %s", name, assessment.verdict, said)


def _known(decision: Decision) -> _Known:
    assessment, report = decision
    codes = tuple(each.code.name for each in _worth_saying(assessment))
    return _Known(assessment.verdict, codes, report is not None and is_faulty(report))


def _worth_saying(assessment: Assessment) -> list[Finding]:
    return [f for f in assessment.findings if f.severity is not Severity.INFO]
