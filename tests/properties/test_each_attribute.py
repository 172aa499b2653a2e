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
what the kernel never says in turn: all of them in every run.  The survey must skip no card but
that one, and the drivers, which have reported the host when it was well, must tell Cyborg of
every card what they told it before, for as long as it lasts.
"""

import os
from collections.abc import Iterable

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.contract import DeviceReport
from cyborg_ext_drivers.report.ledger import Decision, Ledger
from cyborg_ext_drivers.survey import Assessment, Surveyor, Verdict
from cyborg_ext_drivers.testing import FakeHost, Oddity, described_hosts
from tests.properties.running import BUS, CATALOG, Effect, State, check_untouched, touched_by

#: By what a card may be skipped of which something cannot be read.
HONEST = {"unreadable"}
OPTIONS = Options()


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


def each_oddity(fake: FakeHost, kind: str):
    """Yield an address and what is odd of it at the moment, one after the other."""
    for address in [each.address for each in fake.description.functions]:
        for entry in entries_of(fake, address):
            oddity = Oddity.of(address, entry, kind)
            fake.inject(oddity)
            yield address, oddity
            fake.mend(oddity)


def offered(assessment: Assessment, unknown: Iterable[str]) -> tuple:
    """Return what Cyborg would be told, without the traits that begin so.

    What is programmed into a card is told as before while it cannot be told: by the drivers.
    """
    deployables = [
        each._replace(
            traits=tuple(t for t in each.traits if not t.startswith(tuple(unknown))), unknown=()
        )
        for each in assessment.deployables
    ]
    return assessment.accelerator.identity, assessment.accelerator.name, deployables


def unknown_of(assessment: Assessment) -> list[str]:
    """Return how those of its traits begin that cannot be told now."""
    return [start for each in assessment.deployables for start in each.unknown]


@pytest.mark.parametrize("kind", ["unreadable", "nonsense"])
@pytest.mark.parametrize("name", described_hosts())
def test_each_attribute_in_turn_costs_its_own_card_at_most(name, kind, record_property):
    surveyor = Surveyor(catalog=CATALOG)
    count = 0
    with FakeHost.named(name) as fake:
        state = State.of(fake, ())
        first = {str(a.address): a for a in surveyor.survey(Host(fake.root)).assessments}
        for address, oddity in each_oddity(fake, kind):
            touched = touched_by(Effect(frozenset((address,))), state, state)
            survey = surveyor.survey(Host(fake.root))
            count += 1
            found = {str(each.address): each for each in survey.assessments}
            check_untouched(first, found, touched, state, state)
            for was in (each for each in first.values() if each.reason is None):
                now = found[str(was.address)]
                if now.reason is not None:
                    assert now.reason.code.name in HONEST, f"{oddity}: {now.reason}"
                else:
                    unknown = unknown_of(now)
                    assert offered(now, unknown) == offered(was, unknown), oddity
    record_property("hosts", count)


class Agent:
    """What the drivers of all families do, but for handing it to Cyborg."""

    def __init__(self, fake: FakeHost):
        self._root = fake.root
        self._surveyor = Surveyor(OPTIONS, catalog=CATALOG)
        self._families = [family.name for family in self._surveyor.families]
        self.ledger = Ledger("host", OPTIONS)

    def discover(self) -> list[Decision]:
        """Return what becomes of each card in one more discovery."""
        host = Host(self._root)
        return self.ledger.settle(self._surveyor.survey(host, only=self._families), host)


def reports_of(decisions: list[Decision]) -> dict[str, DeviceReport]:
    """Return what Cyborg is told, by address."""
    return {each.assessment.function.name: each.report for each in decisions if each.report}


def held_among(decisions: list[Decision]) -> set[str]:
    """Return the addresses of the cards that are held, with a reason that may be."""
    held = [each.assessment for each in decisions if each.assessment.verdict is Verdict.HELD]
    assert all(HONEST & {finding.code.name for finding in a.findings} for a in held)
    assert {a.reason.code.name for a in held} <= HONEST | {"held"}
    return {each.function.name for each in held}


@pytest.mark.parametrize("kind", ["unreadable", "nonsense"])
@pytest.mark.parametrize("name", described_hosts())
def test_each_attribute_in_turn_changes_nothing_of_what_cyborg_is_told(name, kind, record_property):
    count = 0
    with FakeHost.named(name) as fake:
        agent = Agent(fake)
        before = reports_of(agent.discover())
        healthy = agent.ledger.entries
        for _, oddity in each_oddity(fake, kind):
            decisions = agent.discover()
            assert reports_of(decisions) == before, oddity
            held = held_among(decisions)
            # Those alone are looked at again that would be withdrawn if they counted.
            for _ in range(OPTIONS.withdraw_after + 2 if held else 0):
                decisions = agent.discover()
                assert reports_of(decisions) == before and held_among(decisions) == held, oddity
            count += 1
            agent.ledger.entries = dict(healthy)
    record_property("hosts", count)
