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

"""A fake host with what is installed and configured on it, and what may be wrong there."""

import dataclasses
from collections.abc import Callable
from typing import Any

from cyborg_ext_drivers import conf, families
from cyborg_ext_drivers.checks.base import Finding
from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.families.nvidia import NvidiaFamily
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Decision, Entry, Ledger
from cyborg_ext_drivers.survey import Assessment, Survey, Surveyor
from cyborg_ext_drivers.testing import FakeHost

CYBORG, NOVA = "/etc/cyborg/cyborg.conf", "/etc/nova/nova.conf"
CATALOG = "/etc/cyborg/ext_catalog.d/mine.yaml"
BOOT = "root=/dev/sda2 ro"


class Site:
    """A fake host with what is installed and configured on it."""

    def __init__(self, fake: FakeHost):
        self.fake = fake
        self.families: list[Family] = list(families.load())
        self.entries: dict[str, Entry] = {}

    @property
    def options(self) -> Options:
        """What the host's own cyborg.conf and nova.conf say."""
        root = str(self.fake.root)
        return dataclasses.replace(
            conf.load(conf.read(root=root)),
            host_root=root,
            nova_device_specs=conf.nova_device_specs(root),
        )

    def survey(self) -> Survey:
        return Surveyor(self.options, families=self.families).survey(Host(self.fake.root))

    def discover(self) -> None:
        """Let the agent report what there is."""
        ledger = Ledger("compute-1", self.options, self.entries)
        ledger.settle(self.survey(), Host(self.fake.root))
        self.entries = ledger.entries

    def decisions(self) -> list[Decision]:
        """Return what the command says, given what the agent reported before."""
        ledger = Ledger("compute-1", self.options, self.entries)
        return ledger.preview(self.survey(), Host(self.fake.root))

    def assessment(self, address: str) -> Assessment | None:
        """Return what the command says to somebody who asks about one card."""
        found = (each.assessment for each in self.decisions())
        found = next((each for each in found if str(each.address) == address), None)
        surveyor = Surveyor(self.options, families=self.families)
        return found and surveyor.look_closer(found, Host(self.fake.root))

    def findings(self, address: str, code: str) -> list[Finding]:
        assessment = self.assessment(address)
        return [f for f in assessment.findings if f.code.name == code] if assessment else []

    def reported(self) -> list[str]:
        return [str(each.assessment.address) for each in self.decisions() if each.report]

    def configure(self, *lines: str) -> None:
        """Let cyborg.conf say something else."""
        self.fake.write_file(CYBORG, "\n".join(lines))

    def boot(self, command_line: str, iommu: str) -> None:
        """Boot again, with another command line or another firmware setting."""
        self.fake.set_command_line(command_line)
        self.fake.set_iommu(iommu)

    def enable_again(self, address: str, count: int, device: str) -> None:
        """Disable a card's virtual functions and enable them again; it says what is so then."""
        card = next(f for f in self.fake.description.functions if str(f.address) == address)
        self.fake.remove_function(address)
        self.fake.add_function(
            address,
            vendor=card.vendor,
            device=card.device,
            class_=card.class_,
            subsystem=card.subsystem,
            driver=card.driver,
            iommu_group=card.iommu_group,
            parent=str(card.parent),
            sriov_totalvfs=card.sriov_totalvfs,
        )
        self.fake.enable_virtual_functions(address, count, device=device)

    def disconnect(self, address: str) -> None:
        """Let the platform's security manager close its secure stream to a card."""
        card = next(f for f in self.fake.description.functions if str(f.address) == address)
        self.fake.remove_function(address)
        self.fake.add_function(
            address,
            vendor=card.vendor,
            device=card.device,
            class_=card.class_,
            subsystem=card.subsystem,
            driver=card.driver,
            iommu_group=card.iommu_group,
        )

    def move(self, address: str, to: str) -> None:
        """Take a function out and put it in somewhere else."""
        function = next(f for f in self.fake.description.functions if str(f.address) == address)
        self.fake.remove_function(address)
        self.fake.add_function(
            to,
            vendor=function.vendor,
            device=function.device,
            class_=function.class_,
            subsystem=function.subsystem,
            driver=function.driver,
            iommu_group=function.iommu_group,
        )

    def copy_attribute(self, name: str, source: str, target: str) -> None:
        """Let a function say what a healthy one says."""
        path = self.fake.path(f"/sys/bus/pci/devices/{source}/{name}")
        self.fake.set_attribute(target, name, path.read_bytes())


class NpuFamily(Family):
    """What a third party would install to offer an NPU."""

    name, driver, kind, resource_class = "npu", "npu_driver", "AICHIP", "CUSTOM_AICHIP"

    def recognises(self, identity, kind):
        return str(identity.id) == "8086:ad1d"


class OtherFamily(NvidiaFamily):
    """What a third party would install to report NVIDIA's cards in its own way."""

    name, driver = "other", "other_driver"


class ToasterFamily(NvidiaFamily):
    """A family whose author did not know Cyborg's types of devices."""

    name, driver, kind = "toaster", "toaster_driver", "TOASTER"


def nothing(site: Site) -> None:
    """The host is as it is described."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """A finding on a described host, and how to get rid of it."""

    code: str
    host: str
    address: str
    #: Words of the remedy that tell to do what ``remedy`` does.
    says: str
    remedy: Callable[[Site], Any]
    #: What is done to the described host first.
    prepare: Callable[[Site], Any] = nothing
    #: Where the card is afterwards.
    then_at: str | None = None
    #: Whether the card is reported afterwards.
    offered: bool = True

    def __str__(self) -> str:
        return f"{self.code}-{self.host}"
