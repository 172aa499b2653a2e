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

import re

import pytest

from cyborg_ext_drivers import checks
from cyborg_ext_drivers.checks.base import Severity
from cyborg_ext_drivers.errors import ConfigurationError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost
from tests.hosts.card_situations import CARD_SITUATIONS
from tests.hosts.described_site import OtherFamily, Site
from tests.hosts.fpga_situations import FPGA_SITUATIONS
from tests.hosts.iommu_situations import IOMMU_SITUATIONS
from tests.hosts.nvidia_situations import NVIDIA_SITUATIONS
from tests.hosts.nvml_situations import NVML_SITUATIONS
from tests.hosts.vgpu_situations import VGPU_SITUATIONS

CODES = [code for check in checks.load() for code in check.codes]
SITUATIONS = [
    *IOMMU_SITUATIONS,
    *CARD_SITUATIONS,
    *NVIDIA_SITUATIONS,
    *NVML_SITUATIONS,
    *VGPU_SITUATIONS,
    *FPGA_SITUATIONS,
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


def test_of_two_drivers_for_a_card_the_enabled_one_reports_it_and_never_both():
    site = site_of("two-t4")
    with site.fake:
        site.families.append(OtherFamily())
        for enabled, winner in (
            ("ext_nvidia_gpu_driver, other_driver", "nvidia_gpu"),
            ("other_driver, ext_nvidia_gpu_driver", "nvidia_gpu"),
            ("other_driver", "other"),
            ("fake_driver", "nvidia_gpu"),
        ):
            site.configure("[agent]", f"enabled_drivers = {enabled}")
            surveyor = Surveyor(site.options, families=site.families)
            for name in ("nvidia_gpu", "other"):
                survey = surveyor.survey(Host(site.fake.root), only=(name,))
                assert len(survey.reported) == (2 if name == winner else 0), (enabled, name)
