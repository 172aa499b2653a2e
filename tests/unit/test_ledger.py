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

"""A card that has a bad moment keeps its report; one that is really gone loses it."""

import dataclasses
import functools

import pytest

from cyborg_ext_drivers.families.nvidia import NvidiaFamily
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.survey import Surveyor, Verdict
from cyborg_ext_drivers.testing import FakeHost

FIRST, SECOND = "0000:3b:00.0", "0000:d8:00.0"
MI300X = {"vendor": "1002", "device": "74a1", "class_": "120000"}
ALL_FF = b"\xff" * 256


class Agent:
    """What an agent with one driver does, without Cyborg."""

    def __init__(self, fake, family="nvidia_gpu", **options):
        self.fake = fake
        self.family = family
        self.options = Options(host_root=str(fake.root), **options)
        self.surveyor = Surveyor(self.options)
        self.ledger = Ledger("compute-1", self.options)

    def look(self, act):
        host = Host(self.fake.root)
        survey = self.surveyor.survey(host, only=(self.family,))
        decisions = self.decisions = act(survey, host)
        self.verdicts = {
            each.assessment.function.name: (
                each.assessment.verdict,
                each.assessment.reason and str(each.assessment.reason.code),
            )
            for each in decisions
        }
        self.said = {
            each.assessment.function.name: each.assessment.findings[-1].message
            for each in decisions
            if each.assessment.findings
        }
        return {d.assessment.function.name: d.report for d in decisions if d.report}

    def discover(self):
        return self.look(self.ledger.settle)

    def preview(self):
        return self.look(self.ledger.preview)

    def restart(self):
        self.ledger = Ledger("compute-1", self.options, self.ledger.entries)


@pytest.fixture
def fake():
    with FakeHost.named("two-t4") as fake:
        yield fake


@pytest.fixture
def agent(fake):
    return Agent(fake)


FAILURES = {
    "gone": (lambda fake: fake.remove_function(FIRST), "held"),
    "dead": (lambda fake: fake.set_attribute(FIRST, "config", ALL_FF), "config-space-dead"),
    "no group": (lambda fake: fake.move_to_group(FIRST, None), "no-iommu-group"),
    "set aside": (lambda fake: fake.bind(FIRST, "pci-stub"), "set-aside"),
    "another class": (lambda fake: fake.set_attribute(FIRST, "uevent", NO_GPU), "held"),
}
NO_GPU = "PCI_CLASS=C0330\nPCI_ID=10DE:1AD6\nPCI_SUBSYS_ID=10DE:12A2\nPCI_SLOT_NAME=0000:3b:00.0\n"


@pytest.mark.parametrize("failure", FAILURES)
def test_a_card_that_fails_is_held_and_withdrawn_at_the_third_discovery(agent, fake, failure):
    fail, reason = FAILURES[failure]
    before = agent.discover()
    fail(fake)
    for _ in range(2):
        assert agent.discover() == before
        assert agent.verdicts[FIRST] == (Verdict.HELD, reason)
        assert agent.verdicts[SECOND] == (Verdict.REPORTED, None)
    assert agent.discover() == {SECOND: before[SECOND]}
    assert agent.verdicts.get(FIRST, (Verdict.SKIPPED,))[0] is Verdict.SKIPPED


@pytest.mark.parametrize("withdraw_after", [1, 2, 5])
def test_the_operator_says_after_how_many_discoveries(fake, withdraw_after):
    agent = Agent(fake, withdraw_after=withdraw_after)
    agent.discover()
    fake.bind(FIRST, "pci-stub")
    held = [FIRST in agent.discover() for _ in range(withdraw_after + 1)]
    assert held == [True] * (withdraw_after - 1) + [False, False]


def test_a_card_that_comes_back_in_time_starts_anew(agent, fake):
    before = agent.discover()
    for _ in range(4):
        fake.bind(FIRST, "pci-stub")
        assert agent.discover() == agent.discover() == before
        fake.unbind(FIRST)
        assert agent.discover() == before
        assert agent.verdicts[FIRST] == (Verdict.REPORTED, None)


def test_what_cannot_be_read_does_not_count_however_long_it_lasts(agent, fake):
    before = agent.discover()
    fake.make_unreadable(FIRST, "config")
    for _ in range(10):
        assert agent.discover() == before
        assert agent.verdicts[FIRST] == (Verdict.HELD, "unreadable")


def test_what_cannot_be_read_keeps_the_count_as_it_was(agent, fake):
    agent.discover()
    fake.bind(FIRST, "pci-stub")
    agent.discover(), agent.discover()
    fake.make_unreadable(FIRST, "driver")
    assert FIRST in agent.discover()
    fake.make_readable(FIRST, "driver")
    assert FIRST not in agent.discover()


def test_a_failure_that_is_certain_counts_whatever_else_cannot_be_read(agent, fake):
    agent.discover()
    fake.bind(FIRST, "pci-stub")
    fake.make_unreadable(FIRST, "numa_node")
    assert [FIRST in agent.discover() for _ in range(3)] == [True, True, False]


def test_a_card_that_was_never_reported_is_not_held(agent, fake):
    fake.bind(FIRST, "pci-stub")
    assert set(agent.discover()) == {SECOND}
    assert agent.verdicts[FIRST] == (Verdict.SKIPPED, "set-aside")
    fake.make_unreadable(FIRST, "config")
    assert set(agent.discover()) == {SECOND}


def test_a_card_in_a_new_shape_is_reported_in_it_at_once(agent, fake):
    before = agent.discover()
    fake.set_attribute(FIRST, "subsystem_device", "0x0001")
    fake.set_attribute(FIRST, "revision", "0xa2")
    text = fake.path(f"/sys/bus/pci/devices/{FIRST}/uevent").read_text()
    fake.set_attribute(FIRST, "uevent", text.replace("12A2", "0001"))
    after = agent.discover()
    assert after[FIRST] != before[FIRST]
    assert agent.verdicts[FIRST] == (Verdict.REPORTED, None)


def test_a_bus_that_cannot_be_listed_leaves_the_ledger_as_it_was(agent, fake):
    agent.discover()
    fake.bind(FIRST, "pci-stub")
    agent.discover()
    entries = agent.ledger.entries
    fake.make_directory_unlistable()
    for _ in range(5):
        with pytest.raises(Exception, match="cannot be listed"):
            agent.discover()
    assert agent.ledger.entries == entries
    fake.make_directory_listable()
    assert FIRST in agent.discover()


def test_a_restart_forgets_neither_the_report_nor_the_count(agent, fake):
    before = agent.discover()
    fake.remove_function(FIRST)
    assert agent.discover() == before
    agent.restart()
    assert agent.discover() == before
    agent.restart()
    assert set(agent.discover()) == {SECOND}


def test_looking_counts_nothing_and_says_what_the_agent_says(agent, fake):
    before = agent.discover()
    fake.bind(FIRST, "pci-stub")
    for _ in range(5):
        assert agent.preview() == before
        assert agent.verdicts[FIRST] == (Verdict.HELD, "set-aside")
    for _ in range(3):
        reported, verdicts = agent.discover(), agent.verdicts
        assert agent.preview() == reported
        assert agent.verdicts == verdicts


def test_looking_says_what_will_be_where_nothing_is_held(fake):
    agent = Agent(fake, withdraw_after=1)
    agent.discover()
    fake.bind(FIRST, "pci-stub")
    assert set(agent.preview()) == {SECOND}
    assert agent.verdicts[FIRST] == (Verdict.SKIPPED, "set-aside")


# [ext_drivers] on_fault


def traits_of(report):
    return [value for key, value in report.deployables[0].attributes if key != "rc"]


def test_a_dead_card_that_is_to_be_kept_says_so_by_a_trait(fake):
    agent = Agent(fake, on_fault="keep")
    before = agent.discover()
    fake.set_attribute(FIRST, "config", ALL_FF)
    assert agent.discover() == agent.discover() == before
    for _ in range(5):
        after = agent.discover()
        assert traits_of(after[FIRST]) == [*traits_of(before[FIRST]), "CUSTOM_ACCEL_FAULTY"]
        assert after[FIRST].deployables[0].handles == before[FIRST].deployables[0].handles
        assert agent.verdicts[FIRST] == (Verdict.HELD, "config-space-dead")
        assert agent.preview() == after
    entries = agent.ledger.entries
    agent.discover()
    assert agent.ledger.entries == entries
    fake.remove_attribute(FIRST, "config")
    assert agent.discover() == before


def test_a_card_that_is_kept_and_then_goes_is_withdrawn(fake):
    agent = Agent(fake, on_fault="keep", withdraw_after=1)
    agent.discover()
    fake.set_attribute(FIRST, "config", ALL_FF)
    assert "CUSTOM_ACCEL_FAULTY" in traits_of(agent.discover()[FIRST])
    fake.make_unreadable(FIRST, "numa_node")
    assert "CUSTOM_ACCEL_FAULTY" in traits_of(agent.discover()[FIRST])
    fake.remove_function(FIRST)
    assert set(agent.discover()) == {SECOND}


def test_only_dead_hardware_is_kept(fake):
    agent = Agent(fake, on_fault="keep", withdraw_after=1)
    agent.discover()
    fake.bind(FIRST, "pci-stub")
    assert set(agent.discover()) == {SECOND}


# Who takes the place of a card that is held


def test_the_other_accelerator_of_a_group_waits_while_the_first_is_held():
    with FakeHost.named("v100-pairs-in-groups") as fake:
        agent = Agent(fake)
        before = agent.discover()
        lower, higher = "0000:27:00.0", "0000:28:00.0"
        assert lower in before and higher not in before
        fake.remove_function(lower)
        for _ in range(2):
            assert agent.discover() == before
            assert agent.verdicts[higher] == (Verdict.SKIPPED, "iommu-group-shared-accelerators")
        after = agent.discover()
        assert higher in after and lower not in after


def test_a_held_card_keeps_the_group_free_in_which_it_is_now(fake, agent):
    """FIRST was in group 31, is in 64 now, and cannot be given away."""
    newcomer = "0000:5e:00.0"
    agent.discover()
    fake.move_to_group(FIRST, 64)
    fake.bind(FIRST, "pci-stub")
    fake.add_function(newcomer, vendor="10de", device="1eb8", class_="030200", iommu_group=31)
    assert set(agent.discover()) == {FIRST, SECOND, newcomer}


def test_another_boot_may_give_the_group_of_a_card_that_is_gone_to_others(fake, agent):
    newcomer = "0000:5e:00.0"
    agent.discover()
    group = fake.group_of(FIRST)
    fake.remove_function(FIRST)
    fake.add_function(newcomer, vendor="10de", device="1eb8", class_="030200", iommu_group=group)
    assert set(agent.discover()) == {FIRST, SECOND}
    assert agent.verdicts[newcomer] == (Verdict.SKIPPED, "iommu-group-shared-accelerators")
    fake.reboot()
    assert set(agent.discover()) == {FIRST, SECOND, newcomer}


def test_a_group_is_free_only_when_no_virtual_function_of_a_held_card_was_in_it(fake):
    """Each virtual function has a group of its own, and the card is in none of them."""
    card, newcomer = "0000:b1:00.0", "0000:5e:00.0"
    fake.add_function(card, **MI300X, sriov_totalvfs=2)
    fake.enable_virtual_functions(card, 2, device="74b5")
    agent = Agent(fake, family="amd_gpu")
    before = agent.discover()
    group = fake.group_of("0000:b1:00.5")
    assert len(before[card].deployables[0].handles) == 2 and group != fake.group_of(card)
    fake.remove_function(card)
    fake.add_function(newcomer, **MI300X, iommu_group=group)
    assert agent.discover() == before
    assert agent.verdicts[newcomer] == (Verdict.SKIPPED, "iommu-group-shared-accelerators")


def test_another_card_in_the_place_is_not_held_as_the_old_one_without_end(fake, agent):
    """Of the new card something cannot be read; that the old one is gone is certain."""
    before = agent.discover()
    fake.remove_function(FIRST)
    fake.add_function(FIRST, vendor="10de", device="2235", class_="030200", iommu_group=31)
    fake.make_unreadable(FIRST, "config")
    assert agent.discover() == agent.discover() == before
    assert set(agent.discover()) == {SECOND}


def test_a_lower_withdraw_after_makes_no_card_dead(fake, agent):
    agent.discover()
    fake.bind(FIRST, "pci-stub")
    agent.discover(), agent.discover()
    agent.ledger = Ledger(
        "compute-1", dataclasses.replace(agent.options, withdraw_after=1), agent.ledger.entries
    )
    fake.make_unreadable(FIRST, "driver")
    agent.discover()
    assert agent.verdicts[FIRST] == (Verdict.HELD, "unreadable")
    assert "cannot be read" in agent.said[FIRST] and "dead" not in agent.said[FIRST]


def test_a_part_of_a_card_that_is_held_is_no_card_of_its_own(fake, agent, monkeypatch):
    agent.discover()
    entry = agent.ledger.entries[FIRST]
    (deployable,) = entry.report.deployables
    handle = ("PCI", '{"bus": "5e", "device": "00", "domain": "0000", "function": "0"}')
    divided = dataclasses.replace(deployable, handles=(handle,))
    report = dataclasses.replace(entry.report, deployables=(divided,))
    agent.ledger.entries[FIRST] = dataclasses.replace(entry, report=report)
    fake.make_unreadable(FIRST, "driver")
    fake.add_function("0000:5e:00.0", vendor="10de", device="1eb8", class_="030200")
    assert set(agent.discover()) == {FIRST, SECOND}
    assert agent.verdicts["0000:5e:00.0"] == (Verdict.SKIPPED, "not-an-accelerator")
    fake.make_readable(FIRST, "driver")
    assert set(agent.discover()) == {FIRST, "0000:5e:00.0", SECOND}


def test_a_report_that_cyborg_would_refuse_skips_its_card_alone(fake, monkeypatch):
    monkeypatch.setattr(NvidiaFamily, "resource_class", "RUBBISH")
    agent = Agent(fake)
    assert agent.discover() == {}
    assert set(agent.verdicts.values()) == {(Verdict.SKIPPED, "report-refused")}
    assert "RUBBISH" in repr(agent.surveyor.survey(Host(fake.root)).assessments[0].deployables)


# Cards of which virtual functions are given away


@pytest.fixture
def divided():
    with FakeHost() as fake:
        fake.add_function(
            FIRST,
            vendor="1002",
            device="75a3",
            class_="120000",
            driver="gim",
            iommu_group=31,
            sriov_totalvfs=8,
        )
        virtual = fake.enable_virtual_functions(FIRST, 3, device="75b3")
        agent = Agent(fake)
        agent.look = functools.partial(look_at_amd, agent)
        yield agent, [str(each) for each in virtual]


def look_at_amd(agent, act):
    host = Host(agent.fake.root)
    decisions = agent.decisions = act(agent.surveyor.survey(host, only=("amd_gpu",)), host)
    return {d.assessment.function.name: d.report for d in decisions if d.report}


def count_of(reports):
    return reports[FIRST].deployables[0].num_accelerators


def test_a_virtual_function_that_fails_is_held_as_a_card_would_be(divided):
    agent, virtual = divided
    before = agent.discover()
    agent.fake.bind(virtual[1], "pci-stub")
    assert agent.discover() == agent.discover() == before
    assert count_of(agent.discover()) == 2
    agent.fake.unbind(virtual[1])
    assert agent.discover() == before


def test_virtual_functions_that_are_no_more_are_so_at_once(divided):
    agent, _ = divided
    agent.discover()
    agent.fake.disable_virtual_functions(FIRST)
    agent.fake.enable_virtual_functions(FIRST, 2, device="75b3")
    assert count_of(agent.discover()) == 2


@pytest.mark.parametrize("names", [["iommu_group"], ["uevent", "vendor", "device", "class"]])
@pytest.mark.parametrize("number", [1, 3])
def test_what_cannot_be_read_of_virtual_functions_withdraws_nothing(divided, names, number):
    agent, virtual = divided
    before = agent.discover()
    for address in virtual[:number]:
        for name in names:
            agent.fake.make_unreadable(address, name)
    agent.fake.bind(virtual[2], "pci-stub")
    assert all(agent.discover() == before for _ in range(5))


def test_a_card_that_cannot_be_told_any_more_is_told_as_before(divided):
    agent, _ = divided
    before = agent.discover()
    for name in ("uevent", "vendor", "device", "class"):
        agent.fake.make_unreadable(FIRST, name)
    assert all(agent.discover() == before for _ in range(5))
