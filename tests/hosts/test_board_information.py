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

"""What the driver of a card says of its board reaches Cyborg, and stays while it is silent."""

import json

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.nvml_stub import NoCompiler

NEW = "0000:17:00.0"
UUID = "GPU-5f0c1a3e-1111-4222-8333-444455556666"


@pytest.fixture
def fake():
    with FakeHost() as host:
        try:
            _ = host.nvml_library
        except NoCompiler as error:
            pytest.skip(str(error))
        host.add_function(
            NEW,
            vendor="10de",
            device="fff0",
            class_="030200",
            driver="nvidia",
            nvml={"name": "NVIDIA X1", "memory_mib": 80 << 10, "uuid": UUID},
        )
        yield host


class Agent:
    """What an agent tells Cyborg of the one card."""

    def __init__(self, fake, **options):
        self.options = Options(
            host_root=str(fake.root), nvml_library=str(fake.nvml_library), **options
        )
        self.fake = fake
        self.surveyor = Surveyor(self.options)
        self.ledger = Ledger("compute-1", self.options)

    def discover(self):
        host = Host(self.fake.root)
        decisions = self.ledger.settle(self.surveyor.survey(host, only=("nvidia_gpu",)), host)
        (decision,) = decisions
        return decision.report


def board_of(report):
    return json.loads(report.vendor_board_info)


def test_a_card_newer_than_the_catalogue_is_described_by_its_driver(fake):
    told = board_of(Agent(fake).discover())
    assert (told["product"], told["memory_mib"]) == ("NVIDIA X1", 80 << 10)
    assert "uuid" not in told


@pytest.mark.parametrize("silence", ["missing", "crashing", "mismatch", "bound to vfio-pci"])
def test_it_stays_so_while_the_driver_is_silent(fake, silence):
    agent = Agent(fake, report_serials=True)
    before = agent.discover()
    assert board_of(before)["uuid"] == UUID
    if silence == "bound to vfio-pci":
        fake.bind(NEW, "vfio-pci")
    else:
        fake.set_nvml(silence)
    assert agent.discover() == before


def test_no_trait_and_no_name_comes_from_the_driver(fake):
    report = Agent(fake).discover()
    assert report.model == "NVIDIA fff0"
    assert "X1" not in str(report.deployables)
