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


"""Every finding: seen on a described host, and gone once its remedy is applied."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from cyborg_ext_drivers import checks, conf, families
from cyborg_ext_drivers.checks.base import Finding, Severity
from cyborg_ext_drivers.errors import ConfigurationError
from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.survey import Assessment, Survey, Surveyor
from cyborg_ext_drivers.testing import FakeHost

CODES = [code for check in checks.load() for code in check.codes]
CYBORG, NOVA = "/etc/cyborg/cyborg.conf", "/etc/nova/nova.conf"
CATALOG = "/etc/cyborg/ext_catalog.d/mine.yaml"
BOOT = "root=/dev/sda2 ro"


class Site:
    """A fake host with what is installed and configured on it."""

    def __init__(self, fake: FakeHost):
        self.fake = fake
        self.families: list[Family] = list(families.load())

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

    def assessment(self, address: str) -> Assessment | None:
        found = (a for a in self.survey().assessments if str(a.address) == address)
        return next(found, None)

    def findings(self, address: str, code: str) -> list[Finding]:
        assessment = self.assessment(address)
        return [f for f in assessment.findings if f.code.name == code] if assessment else []

    def reported(self) -> list[str]:
        return [str(assessment.address) for assessment in self.survey().reported]

    def configure(self, *lines: str) -> None:
        """Let cyborg.conf say something else."""
        self.fake.write_file(CYBORG, "\n".join(lines))

    def boot(self, command_line: str, iommu: str) -> None:
        """Boot again, with another command line or another firmware setting."""
        self.fake.set_command_line(command_line)
        self.fake.set_iommu(iommu)

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

    def recognises(self, identity):
        return str(identity.id) == "8086:ad1d"


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


SITUATIONS = [
    # IOMMU
    Situation(
        code="iommu-disabled",
        host="iommu-off",
        address="0000:3b:00.0",
        says="VT-d (Intel) or AMD-Vi, often called IOMMU, in the firmware",
        remedy=lambda site: site.fake.set_iommu("intel"),
    ),
    Situation(
        code="iommu-disabled",
        host="iommu-off-on-command-line",
        address="0000:17:00.0",
        says="Take intel_iommu=off off the kernel command line",
        remedy=lambda site: site.boot(f"{BOOT} intel_iommu=on", "intel"),
    ),
    Situation(
        code="iommu-disabled",
        host="iommu-off-on-command-line",
        address="0000:17:00.0",
        prepare=lambda site: site.fake.set_command_line(f"{BOOT} iommu=off amd_iommu=on"),
        says="Take iommu=off off the kernel command line",
        remedy=lambda site: site.boot(BOOT, "amd"),
    ),
    Situation(
        code="iommu-disabled",
        host="iommu-off-on-command-line",
        address="0000:17:00.0",
        prepare=lambda site: site.fake.set_command_line(f"{BOOT} amd_iommu=off"),
        says="Take amd_iommu=off off the kernel command line",
        remedy=lambda site: site.boot(BOOT, "amd"),
    ),
    Situation(
        code="iommu-disabled",
        host="iommu-off-on-command-line",
        address="0000:17:00.0",
        # The kernel was built with the IOMMU off by default.
        prepare=lambda site: site.fake.set_command_line(BOOT),
        says="Add intel_iommu=on",
        remedy=lambda site: site.boot(f"{BOOT} intel_iommu=on", "intel"),
    ),
    Situation(
        code="iommu-disabled",
        host="gh200-without-smmu",
        address="0009:01:00.0",
        says="Enable the SMMU in the firmware",
        remedy=lambda site: site.fake.set_iommu("smmu"),
    ),
    Situation(
        code="no-iommu-group",
        host="function-without-group",
        address="0000:06:00.0",
        says="put the card into a slot that the IOMMU serves",
        remedy=lambda site: site.fake.move_to_group("0000:06:00.0", 6),
    ),
    Situation(
        code="vfio-noiommu",
        host="vfio-without-iommu",
        address="0000:3b:00.0",
        says="Enable the IOMMU and switch enable_unsafe_noiommu_mode",
        remedy=lambda site: (site.fake.set_modules({}), site.fake.set_iommu("intel")),
    ),
    Situation(
        code="xen-host",
        host="xen-host",
        address="0000:3b:00.0",
        says="without Xen",
        remedy=lambda site: site.fake.set_iommu("intel"),
    ),
    Situation(
        code="iommu-group-shared",
        host="gpu-shares-group-with-nic",
        address="0000:1b:00.0",
        says="move one of the cards to another slot",
        remedy=lambda site: site.fake.move_to_group("0000:1b:00.0", 41),
    ),
    Situation(
        code="iommu-group-shared",
        host="v100-pairs-in-groups",
        address="0000:27:00.0",
        prepare=lambda site: site.fake.bind("0000:28:00.0", "nvidia"),
        says="Bind 0000:28:00.0 to vfio-pci",
        remedy=lambda site: site.fake.bind("0000:28:00.0", "vfio-pci"),
    ),
    Situation(
        code="iommu-group-shared-accelerators",
        host="v100-pairs-in-groups",
        address="0000:28:00.0",
        says="move one of the cards to another slot",
        remedy=lambda site: site.fake.move_to_group("0000:28:00.0", 33),
    ),
    Situation(
        code="companion-bound",
        host="gpu-with-bound-audio",
        address="0000:17:00.0",
        says="driverctl set-override 0000:17:00.1 vfio-pci",
        remedy=lambda site: site.fake.bind("0000:17:00.1", "vfio-pci"),
    ),
    Situation(
        code="iommu-reserved-region",
        host="firmware-keeps-a-region",
        address="0000:3b:00.0",
        says="switch it off for this slot",
        remedy=lambda site: site.fake.write_file(
            "/sys/kernel/iommu_groups/31/reserved_regions",
            "0x00000000fee00000 0x00000000feefffff msi",
        ),
    ),
    Situation(
        code="interrupt-remapping-missing",
        host="interrupts-not-remapped",
        address="0000:3b:00.0",
        says="Take intremap=off and nointremap off the kernel command line",
        remedy=lambda site: site.fake.set_command_line(f"{BOOT} intel_iommu=on"),
    ),
    Situation(
        code="interrupt-remapping-missing",
        host="interrupts-not-remapped",
        address="0000:3b:00.0",
        prepare=lambda site: site.fake.set_command_line(f"{BOOT} nointremap"),
        says="Take intremap=off and nointremap off the kernel command line",
        remedy=lambda site: site.fake.set_command_line(BOOT),
    ),
    # Identity
    Situation(
        code="unknown-device",
        host="mixed-models",
        address="0000:98:00.0",
        says='Add an entry for id "10de:ffe0" (kind GPU, model, name) to a file in '
        "/etc/cyborg/ext_catalog.d",
        remedy=lambda site: site.fake.write_file(
            CATALOG, 'devices: [{id: "10de:ffe0", kind: GPU, model: MY-CARD, name: My card}]'
        ),
    ),
    Situation(
        code="unknown-device",
        host="two-t4",
        address="0000:5e:00.0",
        # An A16 and an A2 share the id, and this subsystem belongs to neither.
        prepare=lambda site: site.fake.add_function(
            "0000:5e:00.0", vendor="10de", device="25b6", class_="030200", subsystem="10de:0001"
        ),
        says='Add an entry for id "10de:25b6"',
        remedy=lambda site: site.fake.write_file(
            CATALOG, 'devices: [{id: "10de:25b6", kind: GPU, model: MY-CARD, name: My card}]'
        ),
    ),
    Situation(
        code="integrated-gpu",
        host="graphics-and-npu-of-the-processor",
        address="0000:00:02.0",
        says="if the firmware can switch it off, it is not listed any more",
        remedy=lambda site: site.fake.remove_function("0000:00:02.0"),
        offered=False,
    ),
    Situation(
        code="console-device",
        host="console-gpu",
        address="0000:01:00.0",
        says="Make another display controller the primary one",
        remedy=lambda site: site.fake.set_attribute("0000:01:00.0", "boot_vga", "0"),
    ),
    Situation(
        code="console-device",
        host="boot-display-without-boot-vga",
        address="0000:17:00.0",
        says="Make another display controller the primary one",
        remedy=lambda site: site.fake.remove_attribute("0000:17:00.0", "drm/card0/boot_display"),
    ),
    Situation(
        code="management-display",
        host="bmc-display-only",
        address="0000:03:00.0",
        says="if the firmware can switch it off, it is not listed any more",
        remedy=lambda site: site.fake.remove_function("0000:03:00.0"),
        offered=False,
    ),
    Situation(
        code="not-an-accelerator",
        host="graphics-and-npu-of-the-processor",
        address="0000:00:0b.0",
        says="no installed driver supports it",
        remedy=lambda site: (
            site.families.append(NpuFamily()),
            site.fake.write_file(
                CATALOG, 'devices: [{id: "8086:ad1d", kind: AICHIP, model: NPU-3, name: NPU}]'
            ),
        ),
    ),
    # SR-IOV
    Situation(
        code="vfs-enabled",
        host="a2-with-virtual-functions",
        address="0000:08:00.0",
        says="echo 0 > /sys/bus/pci/devices/0000:08:00.0/sriov_numvfs",
        remedy=lambda site: site.fake.disable_virtual_functions("0000:08:00.0"),
    ),
    *(
        Situation(
            code="set-aside",
            host="set-aside",
            address="0000:3b:00.0",
            prepare=lambda site, driver=driver: site.fake.bind("0000:3b:00.0", driver),
            says="Unbind it",
            remedy=lambda site: site.fake.unbind("0000:3b:00.0"),
        )
        for driver in ("pci-stub", "pci-pf-stub", "pciback")
    ),
    # Hardware
    Situation(
        code="config-space-dead",
        host="fallen-off-the-bus",
        address="0000:3b:00.0",
        says="Reset the card or power the host off and on",
        remedy=lambda site: site.copy_attribute("config", "0000:af:00.0", "0000:3b:00.0"),
    ),
    Situation(
        code="bar-unassigned",
        host="no-room-above-4g",
        address="0000:17:00.0",
        says="Above 4G Decoding",
        remedy=lambda site: site.copy_attribute("resource", "0000:3b:00.0", "0000:17:00.0"),
    ),
    Situation(
        code="no-reset-method",
        host="gpu-without-reset",
        address="0000:01:00.0",
        says="a newer firmware of the card",
        remedy=lambda site: site.fake.set_attribute("0000:01:00.0", "reset", ""),
    ),
    Situation(
        code="powered-off",
        host="power-gone-or-asleep",
        address="0000:3b:00.0",
        says="Power the slot or the host off and on",
        remedy=lambda site: site.fake.set_attribute("0000:3b:00.0", "power_state", "D0"),
    ),
    Situation(
        code="vfio-denylisted",
        host="qat-old-and-new",
        address="0000:b1:00.0",
        says="disable_denylist of the module vfio_pci",
        remedy=lambda site: site.fake.set_modules({"vfio_pci": {"disable_denylist": True}}),
        # It may be attached now, but is no accelerator of ours.
        offered=False,
    ),
    Situation(
        code="domain-too-wide",
        host="domain-0001",
        address="10000:01:00.0",
        says="Switch VMD off",
        remedy=lambda site: site.move("10000:01:00.0", "0000:5e:00.0"),
        then_at="0000:5e:00.0",
    ),
    # Ownership
    Situation(
        code="claimed-by-nova",
        host="in-tree-driver-and-nova",
        address="0000:3b:00.0",
        says="Take the card out of [pci] device_spec in nova.conf",
        remedy=lambda site: site.fake.write_file(NOVA, "[pci]"),
    ),
    Situation(
        code="claimed-by-nova",
        host="in-tree-driver-and-nova",
        address="0000:3b:00.0",
        says="or exclude it in cyborg.conf ([ext_drivers] exclude)",
        remedy=lambda site: site.configure("[ext_drivers]", "exclude = 3b:00.0"),
        offered=False,
    ),
    Situation(
        code="in-tree-driver-enabled",
        host="in-tree-driver-and-nova",
        address="0000:d8:00.0",
        says="Take nvidia_gpu_driver out of [agent] enabled_drivers",
        remedy=lambda site: site.configure("[agent]", "enabled_drivers = ext_nvidia_gpu_driver"),
    ),
    Situation(
        code="in-tree-driver-enabled",
        host="in-tree-driver-and-nova",
        address="0000:d8:00.0",
        prepare=lambda site: site.configure(
            "[agent]",
            "enabled_drivers = ext_nvidia_gpu_driver, pci_driver",
            "[pci]",
            'passthrough_whitelist = {"vendor_id": "10de", "product_id": "*"}',
        ),
        says="Take pci_driver out of [agent] enabled_drivers",
        remedy=lambda site: site.configure("[agent]", "enabled_drivers = ext_nvidia_gpu_driver"),
    ),
    Situation(
        code="driver-not-enabled",
        host="in-tree-driver-and-nova",
        address="0000:d8:00.0",
        says="Add ext_nvidia_gpu_driver to [agent] enabled_drivers",
        remedy=lambda site: site.configure("[agent]", "enabled_drivers = ext_nvidia_gpu_driver"),
    ),
    Situation(
        code="excluded-by-config",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.configure("[ext_drivers]", "exclude = 10de:1eb8"),
        says="Change [ext_drivers] exclude",
        remedy=lambda site: site.configure("[ext_drivers]", "exclude = d8:00.0"),
    ),
    Situation(
        code="excluded-by-config",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.configure("[ext_drivers]", "include = 10de:2235, d8:00.0"),
        says="Change [ext_drivers] include",
        remedy=lambda site: site.configure("[ext_drivers]", "include = 3b:00.0, d8:00.0"),
    ),
    Situation(
        code="excluded-by-config",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.configure("[ext_drivers]", "vfio_only = yes"),
        says="driverctl set-override 0000:3b:00.0 vfio-pci",
        remedy=lambda site: site.fake.bind("0000:3b:00.0", "vfio-pci"),
    ),
    # Reading
    Situation(
        code="unreadable",
        host="copy-padded-by-tar",
        address="0000:3b:00.0",
        says="Compare the value with lspci's",
        remedy=lambda site: site.fake.set_attribute("0000:3b:00.0", "revision", "0xa1"),
    ),
    Situation(
        code="unreadable",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: site.fake.make_unreadable("0000:3b:00.0", "numa_node"),
        says="Look at the path as the user of cyborg-agent",
        remedy=lambda site: site.fake.make_readable("0000:3b:00.0", "numa_node"),
    ),
]


def site_of(name, *lines):
    """Return a fixture of a described host; *lines* become its cyborg.conf."""
    site = Site(FakeHost.named(name))
    if lines:
        site.configure(*lines)
    return site


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_the_remedy_of_a_finding_makes_it_go_away(situation):
    address, code = situation.address, situation.code
    site = site_of(situation.host)
    with site.fake:
        situation.prepare(site)
        (finding,) = site.findings(address, code)
        assert str(finding.address) == address
        assert finding.message
        assert finding.evidence and all(each.path and each.value for each in finding.evidence)
        assert situation.says in finding.remedy
        assert (address in site.reported()) is not finding.is_blocker
        situation.remedy(site)
        address = situation.then_at or address
        assert not site.findings(situation.address, code) and not site.findings(address, code)
        assert (address in site.reported()) is situation.offered


def test_every_code_is_produced_by_a_described_host():
    assert {situation.code for situation in SITUATIONS} == {code.name for code in CODES}


def test_codes_are_in_kebab_case_and_each_stands_once():
    names = [code.name for code in CODES]
    assert len(names) == len(set(names))
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


@pytest.mark.parametrize("code", CODES, ids=str)
def test_a_code_is_explained_and_has_a_remedy(code):
    assert code.title[0].isupper() and not code.title.endswith(".")
    assert code.explanation.endswith(".") and len(code.explanation.split()) > 5
    # More may follow it in the same sentence.
    assert not code.remedy.endswith(".") and len(code.remedy.split()) > 3


def test_the_second_address_of_a_pair_alone_is_held_back():
    site = site_of("v100-pairs-in-groups")
    with site.fake:
        assert not site.findings("0000:27:00.0", "iommu-group-shared-accelerators")
        (finding,) = site.findings("0000:28:00.0", "iommu-group-shared-accelerators")
    assert "0000:27:00.0" in finding.message


def test_every_member_of_the_group_that_the_host_holds_is_named_with_its_driver():
    site = site_of("gpu-shares-group-with-nic")
    with site.fake:
        site.fake.add_function(
            "0000:1c:00.0", vendor="144d", device="a824", class_="010802", driver="nvme"
        )
        site.fake.move_to_group("0000:1c:00.0", 40)
        findings = site.findings("0000:1b:00.0", "iommu-group-shared")
    messages = " / ".join(finding.message for finding in findings)
    assert len(findings) == 2
    assert all(word in messages for word in ("0000:18:00.0", "mlx5_core", "0000:1c:00.0", "nvme"))
    # Root ports and switches stay with pcieport, which manages no DMA.
    assert "0000:17:00.0" not in messages
    assert not any("vfio-pci" in finding.remedy for finding in findings)


def test_the_operator_may_live_with_unsafe_interrupts():
    site = site_of("interrupts-not-remapped")
    with site.fake:
        site.fake.set_modules({"vfio_iommu_type1": {"allow_unsafe_interrupts": True}})
        assert site.reported() == ["0000:3b:00.0"]


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("gb10", "000f:01:00.0"),
        ("graphics-and-npu-of-the-processor", "0000:00:02.0"),
        ("graphics-and-npu-of-the-processor", "0000:00:0b.0"),
        ("bmc-display-only", "0000:03:00.0"),
        ("qat-old-and-new", "0000:70:00.0"),
    ],
)
def test_what_is_never_an_accelerator_does_not_count_as_one(name, address):
    site = site_of(name)
    with site.fake:
        assert site.assessment(address).is_accelerator is False


# [ext_drivers] ignore_findings


def test_an_ignored_finding_stays_visible_and_skips_no_longer():
    site = site_of("gpu-with-bound-audio", "[ext_drivers]", "ignore_findings = companion-bound")
    with site.fake:
        assessment = site.assessment("0000:17:00.0")
        assert site.reported() == ["0000:17:00.0"]
    assert assessment.reason is None
    (finding,) = (f for f in assessment.findings if f.code.name == "companion-bound")
    assert finding.is_ignored and not finding.is_blocker
    assert finding.severity is Severity.BLOCKER
    assert not any(f.is_ignored for f in assessment.findings if f is not finding)


def test_the_next_blocker_is_the_reason_when_the_first_is_ignored():
    site = site_of("console-gpu", "[ext_drivers]", "ignore_findings = console-device")
    with site.fake:
        site.fake.bind("0000:01:00.1", "snd_hda_intel")
        assert site.assessment("0000:01:00.0").reason.code.name == "companion-bound"


def test_several_findings_may_be_ignored():
    site = site_of(
        "console-gpu", "[ext_drivers]", "ignore_findings = console-device, companion-bound"
    )
    with site.fake:
        site.fake.bind("0000:01:00.1", "snd_hda_intel")
        assert site.reported() == ["0000:01:00.0", "0000:3b:00.0"]


@pytest.mark.parametrize("given", ["companion_bound", "companion-bound, no-such-code", "*"])
def test_a_code_that_does_not_exist_is_refused_by_name(given):
    site = site_of("two-t4", "[ext_drivers]", f"ignore_findings = {given}")
    with site.fake, pytest.raises(ConfigurationError) as caught:
        site.survey()
    assert caught.value.option == "ignore_findings"
    assert caught.value.value == given.split(", ")[-1]
    assert "companion-bound" in caught.value.reason


# [ext_drivers] include, exclude, vfio_only

A40, L40S, T4, UNKNOWN, A6000 = (f"0000:{bus}:00.0" for bus in ("17", "31", "4b", "98", "b1"))


@pytest.mark.parametrize(
    ("lines", "offered"),
    [
        (["include = 0000:4b:00.0"], [T4]),
        (["include = 4b:00.0, B1:00.0"], [T4, A6000]),
        (["include = 10de:1eb8"], [T4]),
        (["include = 10DE:22*"], [A40, A6000]),
        (["include = 0000:[34]?:*"], [L40S, T4]),
        (["include = *:*:00.0"], [A40, L40S, T4, UNKNOWN, A6000]),
        (["include = 4b:*.*"], [T4]),
        (["include = 1002:*"], []),
        (["include = b1:00.1"], []),
        (["exclude = 10de:ffe0"], [A40, L40S, T4, A6000]),
        (["exclude = 10de:*"], []),
        (["exclude = 17:00.0, 0000:31:*"], [T4, UNKNOWN, A6000]),
        (["include = 10de:2???", "exclude = 17:00.0"], [L40S, A6000]),
        (["include = 4b:00.0", "exclude = 10de:1eb8"], []),
        (["vfio_only = true"], [A40, A6000]),
        (["vfio_only = true", "exclude = 10de:2230"], [A40]),
    ],
)
def test_what_the_options_choose_is_offered(lines, offered):
    site = site_of("mixed-models", "[ext_drivers]", *lines)
    with site.fake:
        survey = site.survey()
    assert [str(each.address) for each in survey.reported] == offered
    assert {each.reason.code.name for each in survey.skipped} <= {"excluded-by-config"}
    assert len(survey.assessments) == 5


def test_the_selector_that_leaves_a_card_out_is_the_evidence():
    site = site_of("mixed-models", "[ext_drivers]", "exclude = 1002:*, 10de:1eb*, 4b:00.0")
    with site.fake:
        (finding,) = site.findings(T4, "excluded-by-config")
    assert str(finding.evidence[0]) == "[ext_drivers] exclude = 10de:1eb*"


def test_a_variant_driver_of_vfio_is_a_vfio_driver():
    site = site_of("two-t4", "[ext_drivers]", "vfio_only = yes")
    with site.fake:
        site.fake.bind("0000:3b:00.0", "nvgrace_gpu_vfio_pci")
        assert site.reported() == ["0000:3b:00.0", "0000:d8:00.0"]
        site.fake.unbind("0000:d8:00.0")
        assert site.reported() == ["0000:3b:00.0"]
        (finding,) = site.findings("0000:d8:00.0", "excluded-by-config")
    assert "no driver" in finding.message


# [ext_drivers] extra_traits


def test_extra_traits_follow_the_cards_own_in_the_order_of_the_options():
    site = site_of(
        "two-t4",
        "[ext_drivers]",
        "extra_traits = 10de:1eb8=CUSTOM_ZONE_B,CUSTOM_NVIDIA_T4",
        "extra_traits = d8:00.0=CUSTOM_RACK_7, CUSTOM_ZONE_B",
        "extra_traits = 10de:*=CUSTOM_ALL",
        "extra_traits = 0000:3c:*=CUSTOM_OTHER",
    )
    with site.fake:
        plain = Surveyor().survey(Host(site.fake.root)).reported
        extended = site.survey().reported
    own = [assessment.deployables[0].traits for assessment in plain]
    found = [assessment.deployables[0].traits for assessment in extended]
    assert found == [
        (*own[0], "CUSTOM_ZONE_B", "CUSTOM_ALL"),
        (*own[1], "CUSTOM_ZONE_B", "CUSTOM_RACK_7", "CUSTOM_ALL"),
    ]
