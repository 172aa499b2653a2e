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

"""Two of our drivers enabled on one host: never two devices with one control path or group."""

import dataclasses

import pytest

from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.families.nvidia import NvidiaFamily
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.report.neighbours import EnabledNeighbours
from cyborg_ext_drivers.report.state import StateFile
from cyborg_ext_drivers.survey import Surveyor, Verdict
from cyborg_ext_drivers.testing import FakeHost

FIRST, SECOND = "0000:3b:00.0", "0000:d8:00.0"
NPU = {"vendor": "8086", "device": "ad1d", "class_": "120000"}


class NpuFamily(Family):
    """What a third party would install to offer an NPU."""

    name, driver, kind, resource_class = "npu", "npu_driver", "AICHIP", "CUSTOM_AICHIP"

    def recognises(self, identity, kind):
        return str(identity.id) == "8086:ad1d"


class Agent:
    """An agent with two drivers that takes their discoveries in some order."""

    def __init__(self, fake, *order, **options):
        self.fake = fake
        families = (NvidiaFamily(), NpuFamily())
        drivers = tuple(family.driver for family in families)
        self.options = Options(
            host_root=str(fake.root),
            state_dir=str(fake.path("/var/lib/cyborg/ext_drivers")),
            enabled_drivers=drivers,
            **options,
        )
        self.surveyor = Surveyor(self.options, families=families)
        self.drivers = {
            family.driver: (
                family,
                Ledger("compute-1", self.options),
                StateFile(self.options.state_dir, family.driver, "compute-1"),
            )
            for family in (families if order == ("nvidia", "npu") else families[::-1])
        }

    def discover(self):
        """Return which driver has which cards of all that Cyborg is told of."""
        reported = []
        self.reasons = {}
        for driver, (family, ledger, state) in self.drivers.items():
            host = Host(self.fake.root)
            survey = self.surveyor.survey(host, only=(family.name,))
            neighbours = EnabledNeighbours(self.surveyor, type(family), "compute-1", host)
            decisions = ledger.settle(survey, host, neighbours)
            state.save(ledger.entries)
            for assessment, report in decisions:
                if report:
                    reported.append((assessment.function.name, driver))
                if assessment.reason:
                    self.reasons[assessment.function.name] = assessment.reason
        return sorted(reported)

    def command(self):
        """Return what the command says, which reads the state of both."""
        host = Host(self.fake.root)
        entries = {}
        for _, _, state in self.drivers.values():
            entries |= state.read()
        decisions = Ledger("compute-1", self.options, entries).preview(
            self.surveyor.survey(host), host
        )
        return {
            each.assessment.function.name: each.assessment.verdict
            for each in decisions
            if each.assessment.verdict is not Verdict.SKIPPED
        }


@pytest.fixture(params=[("nvidia", "npu"), ("npu", "nvidia")], ids="-first-then-".join)
def agent(request):
    with FakeHost.named("two-t4") as fake:
        yield Agent(fake, *request.param)


T4S = [(FIRST, "ext_nvidia_gpu_driver"), (SECOND, "ext_nvidia_gpu_driver")]


def test_a_card_that_takes_the_place_of_another_is_reported_once_and_at_once(agent):
    assert agent.discover() == T4S
    agent.fake.remove_function(FIRST)
    agent.fake.add_function(FIRST, **NPU, iommu_group=31)
    assert agent.discover() == [(FIRST, "npu_driver"), T4S[1]]
    assert set(agent.command()) == {FIRST, SECOND}


def test_a_card_that_takes_the_place_and_cannot_be_given_away_withdraws_nothing_early(agent):
    agent.discover()
    agent.fake.remove_function(FIRST)
    agent.fake.add_function(FIRST, **NPU, driver="pci-stub")
    assert agent.discover() == agent.discover() == T4S
    assert agent.discover() == T4S[1:]


def test_a_card_in_the_group_of_one_that_is_held_waits_whoever_is_its_driver(agent):
    newcomer = "0000:5e:00.0"
    agent.discover()
    group = agent.fake.group_of(FIRST)
    agent.fake.remove_function(FIRST)
    agent.fake.add_function(newcomer, **NPU, iommu_group=group)
    for _ in range(2):
        assert agent.discover() == T4S
        assert str(agent.reasons[newcomer].code) == "iommu-group-shared-accelerators"
        assert agent.command() == {FIRST: Verdict.HELD, SECOND: Verdict.REPORTED}
    agent.discover()
    assert agent.discover() == [(newcomer, "npu_driver"), T4S[1]]


def test_a_driver_that_is_not_enabled_is_in_nobodys_way(agent):
    agent.discover()
    host = Host(agent.fake.root)
    for enabled, known in (
        (agent.options.enabled_drivers, {FIRST, SECOND}),
        (("npu_driver",), set()),
    ):
        options = dataclasses.replace(agent.options, enabled_drivers=enabled)
        surveyor = Surveyor(options, families=agent.surveyor.families)
        neighbours = EnabledNeighbours(surveyor, NpuFamily, "compute-1", host)
        assert set(neighbours.entries()) == known


def test_a_state_that_cannot_be_read_is_its_own_drivers_to_complain_of(agent):
    agent.discover()
    _, _, state = agent.drivers["ext_nvidia_gpu_driver"]
    with open(state.path, "w") as file:
        file.write("{")
    agent.fake.add_function("0000:5e:00.0", **NPU, iommu_group=77)
    assert ("0000:5e:00.0", "npu_driver") in agent.discover()
