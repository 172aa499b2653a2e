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
import functools

from cyborg.accelerator.drivers.driver import GenericDriver
from cyborg.conf import CONF
from oslo_log import log

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.errors import ConfigurationFileError
from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.report import adapter, look
from cyborg_ext_drivers.report.contract import DeviceReport
from cyborg_ext_drivers.report.journal import Journal
from cyborg_ext_drivers.report.ledger import Decision, Ledger
from cyborg_ext_drivers.report.neighbours import EnabledNeighbours
from cyborg_ext_drivers.report.state import StateFile
from cyborg_ext_drivers.survey import Surveyor

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
        conf.hostname(CONF)
        try:
            options = conf.with_nova(options)
        except ConfigurationFileError as error:
            # Its owner is Nova; who runs the agent may often not read it.
            LOG.info("Not checked whether Nova claims a card: %s", error)
        # Whatever the options say: who runs this has loaded it.
        enabled = (*(options.enabled_drivers or ()), self.family.driver)
        self._surveyor = Surveyor(dataclasses.replace(options, enabled_drivers=enabled))
        self._look = look.at(self._surveyor.options.host_root)
        self._devices: dict[str, tuple[DeviceReport, object]] = {}
        for fault in self._surveyor.catalog.faults:
            LOG.error("A catalogue file is left out: %s", fault)

    def discover(self) -> list:
        """Return a DriverDevice for each card that Cyborg is told of, in order of address.

        Cards that can be attached, and those that could lately: :mod:`.ledger`.  The objects
        of a card that has not changed are the same ones as before.

        :raises EnumerationError: when the host's PCI functions cannot be listed; an empty
            list would make the conductor delete every device of the host.
        :raises StateError: when what was reported before cannot be read at the moment.
        """
        with self._look.host(self) as host:
            survey = self._surveyor.survey(host, only=(self.family.name,))
            hostname = self._ledger.hostname
            neighbours = EnabledNeighbours(self._surveyor, self.family, hostname, host)
            decisions = self._ledger.settle(survey, host, neighbours)
        self._state.save(self._ledger.entries)
        self._journal.write(decisions, survey.unmet)
        self._devices = {
            each.assessment.function.name: (each.report, self._device_of(each))
            for each in decisions
            if each.report
        }
        return [device for _, device in self._devices.values()]

    def update(self, control_path, image_path) -> bool:
        """Return False: the cards of this family have no image that Cyborg could update."""
        return False

    def get_stats(self) -> dict:
        """Return nothing: Cyborg does not ask for statistics."""
        return {}

    @functools.cached_property
    def _state(self) -> StateFile:
        options = self._surveyor.options
        return StateFile(options.state_dir, self.family.driver, conf.hostname(CONF))

    @functools.cached_property
    def _ledger(self) -> Ledger:
        """What was reported before, by this process or the one before it."""
        entries = self._state.load()
        for path, addresses in self._state.others().items():
            LOG.warning(
                "%s says that an agent with another [DEFAULT] host reported %s of this machine. "
                "If that agent still runs, two instances may get one card: stop it. Then remove "
                "the file",
                path,
                ", ".join(sorted(addresses)) or "nothing",
            )
        return Ledger(conf.hostname(CONF), self._surveyor.options, entries)

    @functools.cached_property
    def _journal(self) -> Journal:
        return Journal(self.family.driver, self._ledger.entries)

    def _device_of(self, decision: Decision) -> object:
        report, device = self._devices.get(decision.assessment.function.name, (None, None))
        return device if report == decision.report else adapter.to_driver_device(decision.report)
