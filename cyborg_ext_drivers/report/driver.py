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

"""The driver that Cyborg's agent loads: one survey per discovery, one device per card."""

import dataclasses

from cyborg.accelerator.drivers.driver import GenericDriver
from cyborg.conf import CONF
from oslo_log import log

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.checks.base import Finding, Severity
from cyborg_ext_drivers.errors import ConfigurationFileError
from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.report import adapter, contract
from cyborg_ext_drivers.survey import Assessment, Survey, Surveyor

LOG = log.getLogger(__name__)


class ExtDriver(GenericDriver):
    """A Cyborg driver that reports the attachable cards of one family.

    A subclass names the family and nothing else.
    """

    family: type[Family]

    def __init__(self):
        """Read the options and the catalogue.

        :raises ConfigurationError: when an option has a value that cannot be used; the
            agent then does not start.
        """
        options = conf.load(CONF)
        try:
            options = conf.with_nova(options)
        except ConfigurationFileError as error:
            # Its owner is Nova; who runs the agent may often not read it.
            LOG.info("Not checked whether Nova claims a card: %s", error)
        # Whatever the options say: who runs this has loaded it.
        enabled = (*(options.enabled_drivers or ()), self.family.driver)
        self._surveyor = Surveyor(dataclasses.replace(options, enabled_drivers=enabled))
        self._host = Host(self._surveyor.options.host_root)
        self._made: dict[str, _Made] = {}
        self._said: dict[str, tuple[str, ...]] = {}
        for fault in self._surveyor.catalog.faults:
            LOG.error("A catalogue file is left out: %s", fault)

    def discover(self) -> list:
        """Return a DriverDevice for each card that can be attached, in order of address.

        The objects of a card that has not changed are the same ones as before.

        :raises EnumerationError: when the host's PCI functions cannot be listed; an empty
            list would make the conductor delete every device of the host.
        """
        survey = self._surveyor.survey(self._host.again(), only=(self.family.name,))
        hostname = CONF.host
        self._log_changes(survey)
        made = {}
        for assessment in survey.reported:
            before = self._made.get(assessment.function.name)
            if before and before.is_of(assessment, hostname):
                made[assessment.function.name] = before
            else:
                made[assessment.function.name] = self._make(assessment, hostname)
        self._made = made
        return [report.device for report in made.values() if report.device is not None]

    def update(self, control_path, image_path) -> bool:
        """Return False: the cards of this family have no image that Cyborg could update."""
        return False

    def get_stats(self) -> dict:
        """Return nothing: Cyborg does not ask for statistics."""
        return {}

    def _make(self, assessment: Assessment, hostname: str) -> "_Made":
        report = contract.to_report(assessment.accelerator, assessment.deployables, hostname)
        faults = contract.violations(report)
        if faults:
            LOG.error(
                "%s is not reported, as Cyborg would refuse it and with it this whole host: %s",
                assessment.accelerator,
                "; ".join(faults),
            )
            return _Made(assessment, hostname, None)
        return _Made(assessment, hostname, adapter.to_driver_device(report))

    def _log_changes(self, survey: Survey) -> None:
        """Log what is to be said of each card, once until it changes."""
        said = {}
        for assessment in survey.assessments:
            name = assessment.function.name
            sayings = tuple(map(str, _worth_saying(assessment)))
            if sayings:
                said[name] = sayings
            if sayings != self._said.get(name, ()):
                self._log(name, assessment)
        self._said = said

    @staticmethod
    def _log(name: str, assessment: Assessment) -> None:
        if assessment.reason:
            LOG.warning("%s is not reported. %s", name, assessment.reason)
            return
        for finding in _worth_saying(assessment):
            LOG.warning("%s is reported. %s", name, finding)
        if not _worth_saying(assessment):
            LOG.info("%s is reported again", name)


def _worth_saying(assessment: Assessment) -> list[Finding]:
    return [f for f in assessment.findings if f.severity is not Severity.INFO]


@dataclasses.dataclass(frozen=True, slots=True)
class _Made:
    """Cyborg's object of one card, kept while the card stays as it is."""

    assessment: Assessment
    hostname: str
    #: ``None`` for a report that Cyborg would refuse.
    device: object | None

    def is_of(self, assessment: Assessment, hostname: str) -> bool:
        """Return whether it is what would be made of the assessment."""
        if hostname != self.hostname:
            return False
        if assessment is self.assessment:
            return True
        mine, other = self.assessment.accelerator, assessment.accelerator
        return (mine.identity, mine.name, mine.function.revision, self.assessment.deployables) == (
            other.identity,
            other.name,
            other.function.revision,
            assessment.deployables,
        )
