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

"""The other enabled drivers of the package on the same host, as one of them sees them.

Each driver has a ledger of its own, and knows the cards of its family alone.  So that two never
report one card, or two of one IOMMU group, a driver asks here before it reports a new one, and
before it holds what another may have in its place.

Next stop: :mod:`cyborg_ext_drivers.report.driver`.
"""

import contextlib
import functools
from collections.abc import Collection, Mapping

from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.report.ledger import Entry
from cyborg_ext_drivers.report.state import StateError, StateFile
from cyborg_ext_drivers.survey import Surveyor


class EnabledNeighbours:
    """What the drivers beside one's own have reported, and would report, at one moment."""

    def __init__(self, surveyor: Surveyor, mine: type[Family], hostname: str, host: Host):
        enabled = surveyor.options.enabled_drivers or ()
        self._families = [
            family
            for family in surveyor.families
            if family.name != mine.name and family.driver in enabled
        ]
        self._surveyor = surveyor
        self._hostname = hostname
        self._host = host

    def reported(self, names: Collection[str]) -> set[str]:
        """Return which of these functions another driver reports, as they are now."""
        concerned = {
            family.name
            for name in names
            if (function := self._host.functions.get(name)) and function.identity
            if (family := self._surveyor.family_of(function.identity)) in self._families
        }
        if not concerned:
            return set()
        survey = self._surveyor.survey(self._host, only=sorted(concerned))
        return {each.function.name for each in survey.reported}.intersection(names)

    def entries(self) -> Mapping[str, Entry]:
        """Return what the ledgers of the others hold, by address."""
        return self._entries

    @functools.cached_property
    def _entries(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for family in self._families:
            # Its own driver says what is wrong with the file.
            with contextlib.suppress(StateError):
                directory = self._surveyor.options.state_dir
                found |= StateFile(directory, family.driver, self._hostname).read()
        return found
