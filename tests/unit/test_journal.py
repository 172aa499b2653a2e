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

"""What stands in the agent's log when cards change, and that it stands there once."""

import pytest

from cyborg_ext_drivers.report.journal import Journal
from cyborg_ext_drivers.testing import FakeHost
from tests.unit.test_ledger import ALL_FF, FIRST, NO_GPU, Agent


class Logged:
    """An agent's discoveries, and the lines of the log that each adds."""

    def __init__(self, fake, caplog, **options):
        self.agent = Agent(fake, **options)
        self._caplog = caplog
        self._caplog.set_level("INFO")
        self.start()

    def start(self):
        """Start the agent, or start it again."""
        self.agent.restart()
        self._journal = Journal("ext_nvidia_gpu_driver", self.agent.ledger.entries)

    def lines(self):
        """Return what one more discovery says of the first card."""
        self._caplog.clear()
        self.agent.discover()
        self._journal.write(self.agent.decisions)
        lines = [record.getMessage() for record in self._caplog.records]
        return [line for line in lines if line.startswith(FIRST)]


@pytest.fixture
def fake():
    with FakeHost.named("two-t4") as fake:
        yield fake


def test_each_change_is_one_line(fake, caplog):
    logged = Logged(fake, caplog)
    assert logged.lines() == []
    fake.remove_function(FIRST)
    (held,) = logged.lines()
    assert "is held" in held
    assert logged.lines() == []
    (gone,) = logged.lines()
    assert "has gone and is withdrawn" in gone
    assert logged.lines() == []


@pytest.mark.parametrize("discoveries", [1, 2])
def test_what_is_withdrawn_after_a_restart_is_in_the_log(fake, caplog, discoveries):
    logged = Logged(fake, caplog)
    logged.lines()
    fake.remove_function(FIRST)
    for _ in range(discoveries):
        logged.lines()
    logged.start()
    said = [line for _ in range(3) for line in logged.lines()]
    assert [line for line in said if "has gone and is withdrawn" in line]
    assert len(said) == 3 - discoveries


def test_what_is_in_the_place_of_a_card_is_named_when_it_is_withdrawn(fake, caplog):
    logged = Logged(fake, caplog)
    logged.lines()
    fake.set_attribute(FIRST, "uevent", NO_GPU)
    (held,) = logged.lines()
    assert "is held" in held
    assert logged.lines() == []
    (withdrawn,) = logged.lines()
    assert "is skipped" in withdrawn and "10de:1ad6" in withdrawn and "bus" not in withdrawn
    assert logged.lines() == []


def test_that_cyborg_is_told_of_a_fault_is_a_line_of_its_own(fake, caplog):
    logged = Logged(fake, caplog, on_fault="keep")
    logged.lines()
    fake.set_attribute(FIRST, "config", ALL_FF)
    (held,) = logged.lines()
    assert logged.lines() == []
    (faulty,) = logged.lines()
    assert "on_fault is keep" not in held and "on_fault is keep" in faulty
    assert logged.lines() == []
