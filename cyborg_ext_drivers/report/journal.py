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
from collections.abc import Iterable

from oslo_log import log

from cyborg_ext_drivers.checks.base import Finding, Severity
from cyborg_ext_drivers.report.ledger import Decision
from cyborg_ext_drivers.survey import Assessment, Verdict

LOG = log.getLogger(__name__)


class Journal:
    """The log of one driver.

    A change is one of verdict or of what the findings are; that a message has another number
    in it is none, or a card that fails would be in the log once a minute.
    """

    def __init__(self, driver: str):
        self._driver = driver
        #: Verdict and codes of each accelerator; ``None`` before the first discovery.
        self._known: dict[str, tuple[Verdict, tuple[str, ...]]] | None = None

    def write(self, decisions: Iterable[Decision]) -> None:
        """Log what has changed since the last time, a line for each card."""
        assessments = {each.assessment.function.name: each.assessment for each in decisions}
        now = {name: _state_of(assessment) for name, assessment in assessments.items()}
        before = self._known or {}
        if self._known is None:
            self._write_summary(assessments.values())
        for name, state in now.items():
            is_new_and_fine = self._known is None and state == (Verdict.REPORTED, ())
            if state != before.get(name) and not is_new_and_fine:
                _write_change(name, assessments[name])
        for name in before.keys() - now.keys():
            if before[name][0] is not Verdict.SKIPPED:
                LOG.warning(
                    "%s has gone and is withdrawn. If it was not taken out, look at the kernel "
                    "log for what took it off the bus",
                    name,
                )
        self._known = now

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


def _state_of(assessment: Assessment) -> tuple[Verdict, tuple[str, ...]]:
    return assessment.verdict, tuple(each.code.name for each in _worth_saying(assessment))


def _worth_saying(assessment: Assessment) -> list[Finding]:
    return [f for f in assessment.findings if f.severity is not Severity.INFO]
