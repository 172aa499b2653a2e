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


"""Situations that operators had, as case files tell them, give the answer that they should.

The variable CYBORG_EXT_CASES names the folder with the files; without it there is nothing to
test here.  A case is a described host whose ``expected`` says more than ours: reasons in
words, and a ``policy`` for the addresses where either answer is right.
"""

import json
import os
import pathlib
import uuid
from typing import Any

import pytest
import yaml

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.survey import Survey, Surveyor
from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.nvml_stub import NoCompiler

#: Cases that need what is not there yet.
NOT_YET: dict[str, str] = {}
#: Cases whose report is tested, though the host gives no such finding yet.
WITHOUT_FINDING = {
    "cubecos-1262-vfs-and-carved-pfs-sold-as-pgpu": "the types of vGPU on virtual functions",
}
FOLDER = os.environ.get("CYBORG_EXT_CASES")
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for path in sorted(pathlib.Path(FOLDER or os.devnull).glob("*.yaml"))
    for case in [yaml.safe_load(path.read_text())]
}
SUPPORTED = [name for name in CASES if name not in NOT_YET]


def fake_host(case: dict[str, Any]) -> FakeHost:
    """Return the host of a case, with what stands in ``extra`` laid out as well."""
    fake = FakeHost.from_mapping({"host": with_types(case["host"])})
    for function in case["host"]["functions"]:
        address, extra = function["address"], function.get("extra", {})
        for _ in range(extra.get("mdevs_active", 0)):
            kind = extra["mdev_supported_types"].split()[0]
            fake.create_mediated_device(address, kind, str(uuid.uuid4()))
        if extra.get("config_bytes") == "all ff":
            fake.set_attribute(address, "config", b"\xff" * 256)
        if "revision" in extra:
            fake.set_attribute(address, "revision", f"0x{extra['revision']}")
        if "nvidia_current_vgpu_type" in extra:
            kind = str(extra["nvidia_current_vgpu_type"])
            fake.set_attribute(address, "nvidia/current_vgpu_type", kind)
    return fake


def with_types(host: dict[str, Any]) -> dict[str, Any]:
    """Return a host with the types of mediated devices that stand in ``extra`` in words."""
    functions = []
    for function in host["functions"]:
        words = function.get("extra", {}).get("mdev_supported_types")
        if words:
            kind = {"name": "a type", "available_instances": 8}
            function = {**function, "mdev_types": {words.split()[0]: kind}}
        functions.append(function)
    return {**host, "functions": functions}


def cut_short(case: dict[str, Any], fake: FakeHost) -> None:
    """Give as much of the configuration space as the case says that the agent may read."""
    for function in case["host"]["functions"]:
        if function.get("extra", {}).get("config_bytes") == "64 readable":
            path = fake.path(f"/sys/bus/pci/devices/{function['address']}/config")
            fake.set_attribute(function["address"], "config", path.read_bytes()[:64])


def survey_of(case: dict[str, Any], fake: FakeHost, **more: Any) -> Survey:
    owned = [json.dumps({"address": a}) for a in case["host"].get("nova_pci_device_spec", ())]
    options = Options(host_root=str(fake.root), nova_device_specs=tuple(owned), **more)
    return Surveyor(options).survey(Host(fake.root))


def reported(survey: Survey) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return resource class and handles of what is reported, by address."""
    return {
        str(deployable.address): (
            deployable.resource_class,
            tuple(str(handle.address) for handle in deployable.handles),
        )
        for assessment in survey.reported
        for deployable in assessment.deployables
    }


def of_a_card(case: dict[str, Any], address: str) -> str:
    """Return the function by which Cyborg knows the card that a function belongs to."""
    functions = {function["address"]: function for function in case["host"]["functions"]}
    first = f"{address[:-1]}0"
    if functions[address]["vendor"] == "10ee" and first in functions:
        # Of an Alveo card that is the one that manages it.
        return first
    return functions[address].get("physfn", address)


def reasons_beside_the_handles(survey: Survey, address: str) -> list[str]:
    """Return why a function is not given away, though others of its card are."""
    return [
        str(finding)
        for assessment in survey.reported
        for finding in assessment.findings
        if str(finding.address) == address and finding.lowered
    ]


def in_words_of_cyborg(case: dict[str, Any]) -> dict[str, tuple[set[str], tuple[str, ...]]]:
    """Return resource classes and handles that are to be reported, by address.

    A case has an entry for each virtual function; to Cyborg they are handles of one card.
    """
    wanted: dict[str, tuple[set[str], tuple[str, ...]]] = {}
    for row in case["expected"]["reported"]:
        card = of_a_card(case, row["address"])
        classes = set(row["resource_class"].split("|"))
        allowed, handles = wanted.get(card, (classes, ()))
        handles = tuple(sorted((*handles, *row["attach_handles"]), key=PciAddress.parse))
        wanted[card] = (allowed & classes, handles)
    return wanted


def is_gpu(case: dict[str, Any], address: str) -> bool:
    functions = {function["address"]: function for function in case["host"]["functions"]}
    return functions[address]["class"].startswith(("03", "0b40", "12"))


if FOLDER:

    def test_what_is_not_tested_yet_is_named_by_cases_that_exist():
        assert SUPPORTED
        assert NOT_YET.keys() | WITHOUT_FINDING.keys() <= CASES.keys()
        assert not NOT_YET.keys() & WITHOUT_FINDING.keys()

    @pytest.mark.parametrize("name", SUPPORTED)
    def test_a_case_gives_its_expected_answer(name):
        case = CASES[name]
        expected = case["expected"]
        with fake_host(case) as fake:
            cut_short(case, fake)
            survey = survey_of(case, fake)
        either = expected.get("policy", {}).keys()
        found = reported(survey)
        wanted = in_words_of_cyborg(case)
        for address, (classes, handles) in wanted.items():
            if address not in either:
                resource_class, given = found[address]
                assert given == handles
                assert resource_class in classes
                if len(classes) > 1:
                    # Where a case allows two, a part of a card and a whole one differ.
                    assert (resource_class == "VGPU") is (given != (address,))
        assert found.keys() - either == wanted.keys() - either
        given = {handle for _class, handles in found.values() for handle in handles}
        assert given - either <= {handle for _classes, row in wanted.values() for handle in row}
        skipped = {str(assessment.address): assessment for assessment in survey.skipped}
        for address in expected["skipped"]:
            assert address not in given
            card = of_a_card(case, address)
            if is_gpu(case, address) and address not in either:
                assert card in skipped or reasons_beside_the_handles(survey, address)
        # Either answer is right there, silence is not.
        for address in filter(lambda each: is_gpu(case, each), either):
            answered = {str(assessment.address) for assessment in survey.assessments}
            assert of_a_card(case, address) in answered
        for assessment in skipped.values():
            assert assessment.reason.message and assessment.reason.remedy

    @pytest.mark.parametrize(
        ("name", "address", "code", "words"),
        [
            ("cubecos-1262-vfs-and-carved-pfs-sold-as-pgpu", "0000:42:00.0", "vfs-enabled", ["48"]),
            ("kubevirt-17642-h200-vendor-vfio", "0000:18:00.0", "vfs-enabled", ["16"]),
            (
                "dra-1185-1191-t400-no-sriov-files",
                "0000:86:00.0",
                "companion-bound",
                ["0000:86:00.1", "snd_hda_intel", "vfio-pci"],
            ),
            ("ghw-383-a100-without-drm-next-to-bmc-vga", "0000:0b:00.0", "management-display", []),
            (
                "gpu-admin-tools-23-gpu-shares-group-with-connectx",
                "0000:1b:00.0",
                "iommu-group-shared",
                ["0000:18:00.0", "mlx5_core", "ACS"],
            ),
            ("harvester-9265-gh200-no-smmu", "0009:01:00.0", "iommu-disabled", ["SMMU"]),
            (
                "cloudstack-11701-mi325x-class-1200-no-iommu",
                "0000:05:00.0",
                "iommu-disabled",
                ["VT-d", "AMD-Vi", "firmware"],
            ),
            ("mxgpu-25-mi355x-config-reads-ff", "0000:0c:00.0", "config-space-dead", ["power"]),
            ("kdp-50-own-functions-on-host-drivers", "0000:00:02.0", "integrated-gpu", []),
            (
                "kdp-78-rtx6000-with-active-mdevs",
                "0000:05:00.0",
                "mdev-in-use",
                ["2 mediated devices", "nvidia-258", "remove"],
            ),
            (
                "quansight-7-two-v100-per-group",
                "0000:28:00.0",
                "iommu-group-shared-accelerators",
                ["32", "0000:27:00.0", "ACS"],
            ),
            (
                "xrt-9454-u200-not-programmed",
                "0000:b1:00.0",
                "not-an-accelerator",
                ["no shell", "Flash the deployment shell", "xbmgmt", "boot cold"],
            ),
        ],
    )
    def test_the_reason_is_the_one_that_the_case_tells(name, address, code, words):
        case = CASES[name]
        with fake_host(case) as fake:
            skipped = {str(each.address): each for each in survey_of(case, fake).skipped}
        reason = skipped[address].reason
        assert reason.code.name == code
        assert all(word in f"{reason.message} {reason.remedy}" for word in words)
        if code == "iommu-disabled":
            assert "intel_iommu" not in str(reason)
        if code == "iommu-group-shared":
            # The host needs its network card.
            assert "vfio-pci" not in reason.remedy

    def test_a_type_on_a_virtual_function_is_told_of_with_why_nova_cannot_attach_it():
        name = "kubevirt-17642-h200-vendor-vfio"
        with fake_host(CASES[name]) as fake:
            (card,) = survey_of(CASES[name], fake).skipped
            options = Options(host_root=str(fake.root), report_vendor_vfio=True)
            offered = reported(Surveyor(options).survey(Host(fake.root)))
        found = {finding.code.name: finding for finding in card.findings}
        assert "1 of 16 have a type (1237)" in found["vgpu-framework"].message
        finding = found["vendor-vfio-not-attachable"]
        assert "0000:18:00.2" in finding.message and "managed = no" in finding.remedy
        assert offered == {"0000:18:00.0": ("VGPU", ("0000:18:00.2",))}

    @pytest.mark.parametrize(
        ("name", "companions", "card"),
        [
            ("dra-1185-1191-t400-no-sriov-files", ["0000:86:00.1"], "0000:86:00.0"),
            (
                "kdp-50-own-functions-on-host-drivers",
                ["0000:01:00.1", "0000:01:00.2", "0000:01:00.3"],
                "0000:01:00.0",
            ),
        ],
    )
    def test_with_its_own_functions_on_vfio_the_card_is_reported(name, companions, card):
        case = CASES[name]
        with fake_host(case) as fake:
            for companion in companions:
                fake.bind(companion, "vfio-pci")
            assert reported(survey_of(case, fake)) == {card: ("PGPU", (card,))}

    @pytest.mark.parametrize(
        ("name", "address", "words"),
        [
            ("lxd-18291-igpu-with-two-vfs", "0000:00:02.0", ["2 virtual functions"]),
            ("rocm-dra-50-gim-vfs-mi355x", "0000:75:00.0", ["1 virtual function is"]),
        ],
    )
    def test_a_card_that_is_given_away_in_parts_says_why_not_whole(name, address, words):
        case = CASES[name]
        with fake_host(case) as fake:
            said = " ".join(reasons_beside_the_handles(survey_of(case, fake), address))
        assert said and all(word in said for word in words)

    def test_every_function_that_holds_a_card_back_is_named():
        case = CASES["kdp-50-own-functions-on-host-drivers"]
        with fake_host(case) as fake:
            (card,) = (a for a in survey_of(case, fake).skipped if a.address.bus == 1)
        said = " ".join(map(str, card.findings))
        for word in ("0000:01:00.1", "snd_hda_intel", "0000:01:00.2", "xhci_hcd"):
            assert word in said

    def test_a_card_that_goes_and_comes_back_leaves_the_other_as_it_was():
        case = CASES["kdp-105-gpu-removed-from-bus"]
        with fake_host(case) as fake:
            before = reported(survey_of(case, fake))
            (gone,) = (f for f in fake.description.functions if f.address.bus == 0xE3)
            fake.remove_function(gone.address)
            without = reported(survey_of(case, fake))
            fake.add_function(
                gone.address,
                vendor=gone.vendor,
                device=gone.device,
                class_=gone.class_,
                driver=gone.driver,
                iommu_group=gone.iommu_group,
                numa_node=gone.numa_node,
            )
            again = reported(survey_of(case, fake))
        assert before.keys() == {"0000:65:00.0", "0000:e3:00.0"}
        assert without == {"0000:65:00.0": before["0000:65:00.0"]}
        assert again == before

    def test_only_what_the_operator_set_aside_is_offered_when_he_wants_it_so():
        case = CASES["dra-1089-two-a40-one-kept-by-host"]
        with fake_host(case) as fake:
            survey = Surveyor(Options(vfio_only=True)).survey(Host(fake.root))
        assert reported(survey) == {"0000:61:00.0": ("PGPU", ("0000:61:00.0",))}
        (kept,) = survey.skipped
        assert "nvidia" in kept.reason.message

    def test_a_mismatch_of_nvml_is_named_and_takes_nothing_away():
        case = CASES["k8s-dp-1431-nvml-library-mismatch"]
        with fake_host(case) as fake:
            try:
                library = str(fake.nvml_library)
            except NoCompiler as error:
                pytest.skip(str(error))
            before = survey_of(case, fake, nvml_library=library)
            fake.set_nvml("present")
            after = survey_of(case, fake, nvml_library=library)
        assert reported(before) == reported(after) and len(before.reported) == 2
        for assessment in before.reported:
            (finding,) = (f for f in assessment.findings if f.code.name == "nvml-version-mismatch")
            assert case["host"]["nvml_library"] in f"{finding.message} {finding.evidence}"
        assert not any("nvml" in f.code.name for each in after.reported for f in each.findings)
