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

"""The command reads what the agent has reported, and says where it cannot."""

import json

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.report.state import StateFile
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost

DRIVER = "ext_nvidia_gpu_driver"
FIRST, SECOND = "0000:3b:00.0", "0000:d8:00.0"


@pytest.fixture
def fake():
    with FakeHost.named("two-t4") as fake:
        yield fake


@pytest.fixture
def verdicts(diagnose, fake):
    """Return a function that runs ``host``: verdicts by address, and the error output."""

    def run(*more):
        _, out, err = diagnose("host", "--host-root", fake.root, "-f", "json", *more)
        return {row["address"]: row["verdict"] for row in json.loads(out)}, err

    return run


def configure(fake, *lines, drivers=DRIVER):
    text = [f"[agent]\nenabled_drivers = {drivers}", "[DEFAULT]\nhost = compute-1", *lines]
    fake.write_file("/etc/cyborg/cyborg.conf", "\n".join(text) + "\n")


def report(fake, hostname="compute-1", state_dir="/var/lib/cyborg/ext_drivers"):
    """Let an agent report the host once; its first card fails afterwards."""
    host = Host(fake.root)
    ledger = Ledger(hostname, Options())
    ledger.settle(Surveyor().survey(host), host)
    StateFile(str(fake.path(state_dir)), DRIVER, hostname).save(ledger.entries)
    fake.bind(FIRST, "pci-stub")


def test_a_card_that_the_agent_holds_is_held(fake, verdicts):
    configure(fake)
    report(fake)
    assert verdicts() == ({FIRST: "held", SECOND: "reported"}, "")


def test_nothing_is_held_by_a_driver_that_the_agent_does_not_load(fake, verdicts):
    configure(fake, drivers="nvidia_gpu_driver")
    report(fake)
    assert verdicts()[0][FIRST] == "skipped"


def test_a_state_dir_of_a_copy_is_looked_for_in_the_copy(fake, verdicts):
    configure(fake, "[ext_drivers]\nstate_dir = /srv/state")
    report(fake, state_dir="/srv/state")
    assert verdicts()[0][FIRST] == "held"


def test_the_state_of_an_agent_with_another_name_is_pointed_out(fake, verdicts):
    configure(fake)
    report(fake, hostname="compute-7")
    found, err = verdicts()
    assert found[FIRST] == "skipped"
    (line,) = err.splitlines()
    assert "compute-7.json" in line and "--config-file" in line


def test_a_damaged_state_is_said_once_however_often_it_looks(fake, diagnose):
    configure(fake)
    report(fake)
    state = fake.path(f"/var/lib/cyborg/ext_drivers/{DRIVER}.compute-1.json")
    state.write_text("{")
    _, _, err = diagnose("watch", "--host-root", fake.root, "--for", "2.5")
    (line,) = [line for line in err.splitlines() if "held" in line]
    assert str(state) in line and "damaged" in line


def test_all_says_what_it_can_of_functions_that_cannot_be_read(fake, diagnose):
    for function in fake.description.functions:
        for name in ("config", "physfn"):
            fake.make_unreadable(function.address, name)
    code, out, _ = diagnose("host", "--all", "--host-root", fake.root, "-f", "json")
    rows = {row["address"]: row for row in json.loads(out)}
    assert code == 1
    assert set(rows) == {str(each.address) for each in fake.description.functions}
    assert rows[FIRST]["reason"] == "unreadable"
