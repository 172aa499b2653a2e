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

"""The same hardware gives the same report, through the real conductor and Placement."""

import json
import os
import shutil

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

from cyborg_ext_drivers.testing import FakeHost, described_hosts, load
from cyborg_ext_drivers.testing.demo import find_drivers
from cyborg_ext_drivers.testing.stack import NoValidHost, Stack

DRIVER = "ext_nvidia_gpu_driver"
T4 = [{"resources:PGPU": "1", "trait:CUSTOM_NVIDIA_T4": "required"}]
FIRST, SECOND = "0000:3b:00.0", "0000:d8:00.0"
WITHDRAW_AFTER = 3
FUZZ = "CYBORG_EXT_FUZZ_SEED" in os.environ


def stack_on(fake, *drivers, **more):
    options = {"ext_drivers": {"host_root": str(fake.root), **more}}
    return Stack(drivers=drivers or [DRIVER], options=options)


def text_of(device):
    """Return all of a Cyborg object as text, to be compared to the byte."""
    return json.dumps(device.as_dict(), sort_keys=True, default=repr)


def unprogrammed(device):
    """Return the same text without what is programmed into the device."""
    board = json.loads(device.vendor_board_info)
    kept = {key: value for key, value in board.items() if key not in ("bitstream_id", "shell")}
    device.vendor_board_info = json.dumps(kept, sort_keys=True)
    for part in device.deployable_list:
        part.attribute_list = [
            each
            for each in part.attribute_list
            if not each.value.startswith(("CUSTOM_FPGA_FUNCTION_ID", "CUSTOM_FPGA_REGION"))
        ]
    return text_of(device)


def discovered(stack, text_of=text_of):
    drivers = stack.new_tracker().acc_drivers
    return [text_of(device) for driver in drivers for device in driver.discover()]


FAILURES = {
    "gone": lambda fake: fake.remove_function(FIRST),
    "unreadable": lambda fake: fake.make_unreadable(FIRST, "numa_node"),
    "dead": lambda fake: fake.set_attribute(FIRST, "config", b"\xff" * 256),
    "without group": lambda fake: fake.move_to_group(FIRST, None),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_card_that_fails_for_two_discoveries_causes_no_write(failure):
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        before = stack.providers()
        stack.clear_writes()
        FAILURES[failure](fake)
        stack.report()
        stack.report()
        assert stack.writes() == [] and stack.providers() == before


def test_a_card_that_an_instance_holds_flaps_and_the_host_goes_on_reporting():
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        bound = stack.bind(T4 + T4)
        allocated = [provider.allocations for provider in stack.providers()]
        for _ in range(5):
            fake.move_to_group(FIRST, None)
            stack.report()
            stack.report()
            fake.move_to_group(FIRST, 31)
            stack.report()
        assert [provider.allocations for provider in stack.providers()] == allocated
        assert not [line for line in stack.logs if line.startswith("ERROR")]
        stack.unbind(bound)


def test_a_restart_of_the_agent_while_a_card_is_away_forgets_nothing():
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        before = stack.providers()
        stack.clear_writes()
        fake.remove_function(FIRST)
        stack.report()
        stack.new_tracker()
        stack.report()
        assert stack.writes() == [] and stack.providers() == before
        stack.new_tracker()
        stack.report()
        assert [p.name for p in stack.providers()] == [f"compute-1_{SECOND}"]


def test_the_state_lies_below_the_hosts_root_unless_it_is_put_elsewhere(tmp_path):
    with FakeHost.named("two-t4") as fake:
        with stack_on(fake) as stack:
            stack.report()
        name = f"{DRIVER}.compute-1.json"
        state = fake.path(f"/var/lib/cyborg/ext_drivers/{name}")
        assert set(json.loads(state.read_text())["cards"]) == {FIRST, SECOND}
        with stack_on(fake, state_dir=str(tmp_path / "mine")) as stack:
            stack.report()
        assert (tmp_path / "mine" / name).read_text() == state.read_text()


def test_an_agent_that_ran_under_another_name_is_pointed_out():
    with FakeHost.named("two-t4") as fake:
        with stack_on(fake) as stack:
            stack.report()
        options = {"ext_drivers": {"host_root": str(fake.root)}}
        with Stack(drivers=[DRIVER], options=options, host="renamed") as stack:
            stack.report()
            (warning,) = [line for line in stack.logs if "another [DEFAULT] host" in line]
            assert "compute-1.json" in warning and FIRST in warning


def test_the_log_has_one_line_for_each_change_and_none_for_what_stays():
    with FakeHost.named("two-t4") as fake, stack_on(fake) as stack:
        stack.report()
        assert not [line for line in stack.logs if "cyborg_ext_drivers" in line]
        fake.bind(FIRST, "pci-stub")
        for _ in range(6):
            stack.report()
        held, skipped = [line for line in stack.logs if FIRST in line]
        assert "is held" in held and "set-aside" in held and "Unbind it" in held
        assert "is skipped" in skipped and "set-aside" in skipped


# What a driver, a suspend or a rescan changes, and what it does not


def bound_to(driver):
    return lambda fake, address: fake.bind(address, driver) if driver else fake.unbind(address)


def suspended(fake, address):
    if fake.path(f"/sys/bus/pci/devices/{address}/power_state").read_text() == "D3cold\n":
        return  # Asleep already, and deeper.
    fake.set_attribute(address, "power_state", "D3hot")
    fake.set_attribute(address, "power/runtime_status", "suspended")


def rescanned(fake, address):
    """It goes, with all that hangs below it, and comes back."""
    with fake.undone():
        fake.remove_function(address)


def read_by_an_ordinary_user(fake, address):
    config = fake.path(f"/sys/bus/pci/devices/{address}/config")
    if config.exists():
        fake.set_attribute(address, "config", config.read_bytes()[:64])


STATES = {
    "nvidia": bound_to("nvidia"),
    "nouveau": bound_to("nouveau"),
    "vfio-pci": bound_to("vfio-pci"),
    "a variant driver": bound_to("nvgrace_gpu_vfio_pci"),
    "no driver": bound_to(None),
    "suspended": suspended,
    "ordinary user": read_by_an_ordinary_user,
    "rescanned": rescanned,
}


@pytest.mark.parametrize("name", [n for n in described_hosts() if load(n).expected.reported])
def test_what_is_reported_does_not_depend_on_the_moment(name):
    with FakeHost.named(name) as fake, stack_on(fake, *find_drivers([])) as stack:
        before, unseen = discovered(stack), discovered(stack, unprogrammed)
        assert before
        for state, bring in STATES.items():
            with fake.undone():
                for row in load(name).expected.reported:
                    bring(fake, str(row.address))
                assert discovered(stack) == before, state
        for state, bring in STATES.items():
            for row in load(name).expected.reported:
                bring(fake, str(row.address))
            # Nothing that is remembered may help, but for what only a driver of the host sees.
            shutil.rmtree(fake.path("/var/lib/cyborg/ext_drivers"))
            assert discovered(stack, unprogrammed) == unseen, state


# Whatever happens, in whatever order


class CardsThatComeAndGo(RuleBasedStateMachine):
    """Cards fail and recover, instances come and go, agents restart: nothing is lost.

    A card fails for fewer than ``withdraw_after`` discoveries in a row.
    """

    def __init__(self):
        super().__init__()
        self.fake = FakeHost.named("two-t4")
        self.fake.setUp()
        self.stack = stack_on(self.fake)
        self.stack.setUp()
        self.stack.report()
        self.names = {provider.name for provider in self.stack.providers()}
        self.bound = []
        self.failing = set()
        #: In how many discoveries in a row each card has failed.
        self.missed = {FIRST: 0, SECOND: 0}

    def teardown(self):
        self.stack.cleanUp()
        self.fake.cleanUp()

    @rule(address=st.sampled_from([FIRST, SECOND]), how=st.sampled_from(["driver", "config"]))
    def fail(self, address, how):
        if address not in self.failing and self.missed[address] < WITHDRAW_AFTER - 1:
            self.failing.add(address)
            if how == "driver":
                self.fake.bind(address, "pci-stub")
            else:
                self.fake.set_attribute(address, "config", b"\xff" * 256)

    @rule(address=st.sampled_from([FIRST, SECOND]))
    def recover(self, address):
        if address in self.failing:
            self.failing.remove(address)
            self.fake.unbind(address)
            self.fake.remove_attribute(address, "config")

    @rule()
    def report(self):
        self.stack.report()
        for address, missed in self.missed.items():
            self.missed[address] = missed + 1 if address in self.failing else 0
            if self.missed[address] == WITHDRAW_AFTER - 1:
                self.recover(address)

    @rule()
    def restart(self):
        self.stack.new_tracker()

    @rule()
    def bind(self):
        try:
            self.bound.extend(self.stack.bind(T4))
        except NoValidHost:
            assert len(self.bound) == 2

    @precondition(lambda self: self.bound)
    @rule()
    def unbind(self):
        self.stack.unbind([self.bound.pop()])

    @invariant()
    def nothing_is_lost(self):
        providers = self.stack.providers()
        assert {provider.name for provider in providers} == self.names
        assert sum(bool(each.allocations) for each in providers) == len(self.bound)
        assert not [line for line in self.stack.logs if line.startswith("ERROR")]


TestCardsThatComeAndGo = CardsThatComeAndGo.TestCase
TestCardsThatComeAndGo.settings = settings(
    max_examples=50 if FUZZ else 5,
    stateful_step_count=50 if FUZZ else 15,
    deadline=None,
    # A test that fails by chance tells nothing, and a shorter story takes minutes to find.
    derandomize=not FUZZ,
    phases=settings().phases if FUZZ else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
