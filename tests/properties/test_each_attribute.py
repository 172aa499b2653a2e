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
"""One attribute after the other fails on every described host, and costs its own card at most.

Every entry of every function's directory, read by the survey or not, is made unreadable and
what the kernel never says in turn: all of them in every run.
"""

import os

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.survey import Assessment, Surveyor
from cyborg_ext_drivers.testing import FakeHost, Oddity, described_hosts
from tests.properties.running import BUS, CATALOG, Effect, State, check_untouched, touched_by

#: By what a card may be skipped of which something cannot be read.
HONEST = {"unreadable"}


def entries_of(fake: FakeHost, address: object) -> list[str]:
    """Return the names of all that lies in a function's directory, also in folders of it."""
    top = str(fake.path(f"{BUS}/{address}"))
    bus = set(os.listdir(fake.path(BUS)))
    found = []
    for here, folders, files in os.walk(top):
        folders[:] = sorted(set(folders) - bus)
        found.extend(os.path.relpath(f"{here}/{name}", top) for name in (*folders, *files))
        folders[:] = [name for name in folders if not os.path.islink(f"{here}/{name}")]
    return sorted(found)


def offered(assessment: Assessment) -> tuple:
    """Return what Cyborg would be told."""
    return assessment.accelerator.identity, assessment.accelerator.name, assessment.deployables


@pytest.mark.parametrize("kind", ["unreadable", "nonsense"])
@pytest.mark.parametrize("name", described_hosts())
def test_each_attribute_in_turn_costs_its_own_card_at_most(name, kind, record_property):
    surveyor = Surveyor(catalog=CATALOG)
    count = 0
    with FakeHost.named(name) as fake:
        state = State.of(fake, ())
        first = {str(a.address): a for a in surveyor.survey(Host(fake.root)).assessments}
        for address in [each.address for each in fake.description.functions]:
            touched = touched_by(Effect(frozenset((address,))), state, state)
            for entry in entries_of(fake, address):
                oddity = Oddity.of(address, entry, kind)
                fake.inject(oddity)
                survey = surveyor.survey(Host(fake.root))
                count += 1
                found = {str(each.address): each for each in survey.assessments}
                check_untouched(first, found, touched, state, state)
                for was in (each for each in first.values() if each.reason is None):
                    now = found[str(was.address)]
                    if now.reason is not None:
                        assert now.reason.code.name in HONEST, f"{oddity}: {now.reason}"
                    else:
                        assert offered(now) == offered(was), oddity
                fake.mend(oddity)
    record_property("hosts", count)
