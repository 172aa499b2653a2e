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

"""Libraries that stand for NVML elsewhere: whatever their habits, each healthy GPU is told of."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.nvml import NvmlAnswer, State
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost

SOURCE = Path(__file__).with_name("another_nvml.c")
OF_NVML = {
    "nvml-missing",
    "nvml-failed",
    "gpu-lost",
    "gpu-reset-required",
    "mig-enabled",
    "in-use-by-host",
    "ecc-errors",
    "row-remapping",
}
LONG, SHORT = "00000000:%02X:00.0", "0000:%02X:00.0"


class Profile(NamedTuple):
    """Eight cards of one kind, much as NVIDIA/k8s-test-infra describes them for its stand-in."""

    name: str
    device: str
    gib: int
    architecture: str
    number: int
    capability: str
    buses: str
    driver: str = "550.163.01"
    bus_id: str = LONG
    uuid: str = "GPU-12345678-1234-1234-1234-12345678%04d"


_BLACKWELL = "0a 0b 4a 4b 8a 8b ca cb"
_HGX = "1a 1b 4a 4b 8a 8b ca cb"
T4 = Profile("NVIDIA T4", "1eb8", 16, "Turing", 6, "7.5", "3b 3c 5e 86 87 af b0 d8", bus_id=SHORT)
L40S = Profile("NVIDIA L40S", "26b9", 48, "Ada", 8, "8.9", "17 31 b1 ca 18 32 b2 cb")
B200 = Profile("NVIDIA B200", "2901", 180, "Blackwell", 10, "10.0", _HGX, "560.35.03")
PROFILES = {
    "t4": T4._replace(uuid="GPU-T4-0000-0000-0000-%012d"),
    "a100": Profile(
        "NVIDIA A100-SXM4-40GB", "20b0", 40, "Ampere", 7, "8.0", "07 0f 47 4e 87 90 b7 bd"
    ),
    "l40s": L40S,
    "h100": Profile("NVIDIA H100 80GB HBM3", "2330", 80, "Hopper", 9, "9.0", _HGX),
    "b200": B200,
    "gb200": B200._replace(name="NVIDIA GB200", device="2941", gib=192, buses=_BLACKWELL),
    "gb300": B200._replace(name="NVIDIA GB300 NVL", device="31c2", gib=288, buses=_BLACKWELL),
}


@pytest.fixture
def build(tmp_path):
    """Return a function that makes the library of a profile, with habits."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is neither cc nor gcc")

    def build(profile: Profile, *habits: str, named: str = "libnvidia-ml.so.1") -> Path:
        library = tmp_path / named
        major, minor = profile.capability.split(".")
        macros = {
            "NAME": json.dumps(profile.name),
            "DRIVER": json.dumps(profile.driver),
            "UUID": json.dumps(profile.uuid),
            "BUS_ID": json.dumps(profile.bus_id),
            "BUSES": ",".join(f"0x{bus}" for bus in profile.buses.split()),
            "MEMORY": f"{profile.gib << 30}ull",
            "ARCHITECTURE": profile.number,
            "MAJOR": major,
            "MINOR": minor,
        }
        definitions = [f"-DPROFILE_{key}={value}" for key, value in macros.items()]
        # No soname: the Go linker gives none.
        command = [compiler, "-shared", "-fPIC", *definitions, *(f"-D{each}" for each in habits)]
        subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True)
        return library

    return build


def host_of(profile: Profile) -> FakeHost:
    functions = [
        {
            "address": f"0000:{bus}:00.0",
            "vendor": "10de",
            "device": profile.device,
            "class": "030200",
            "driver": "nvidia",
            "iommu_group": group,
        }
        for group, bus in enumerate(profile.buses.split(), 20)
    ]
    host = {"nvidia_driver": profile.driver, "functions": functions}
    return FakeHost.from_mapping({"name": "eight", "title": "Eight cards of a kind.", "host": host})


def look(profile: Profile, library: Path) -> tuple[NvmlAnswer, list[set[str]]]:
    """Return what NVML says, and the codes of NVML's findings on each card."""
    with host_of(profile) as fake:
        options = Options(host_root=str(fake.root), nvml_library=str(library))
        host = Host(fake.root)
        survey = Surveyor(options).survey(host)
        answer = host.nvml.ask(host.functions, options.nvml_library, options.nvml_timeout)
    assert len(survey.assessments) == 8
    codes = [{each.code.name for each in card.findings} & OF_NVML for card in survey.assessments]
    return answer, codes


def assert_all_are_told_of(profile: Profile, answer: NvmlAnswer) -> None:
    assert answer.state is State.ANSWERED, answer.detail
    assert answer.driver_version == profile.driver
    assert {str(gpu.address) for gpu in answer.gpus} == {
        f"0000:{bus}:00.0" for bus in profile.buses.split()
    }
    for gpu in answer.gpus:
        assert gpu.is_listed and gpu.errors == ()
        assert (gpu.name, gpu.memory) == (profile.name, profile.gib << 30)
        assert (gpu.architecture, gpu.compute_capability) == (
            profile.architecture,
            profile.capability,
        )
    assert len({gpu.uuid for gpu in answer.gpus}) == 8


@pytest.mark.parametrize("name", PROFILES)
def test_eight_healthy_cards_are_told_of_and_nothing_is_found(name, build):
    profile = PROFILES[name]
    library = build(profile)
    answer, codes = look(profile, library)
    assert_all_are_told_of(profile, answer)
    assert answer.library == str(library) and not answer.detail
    assert codes == [set()] * 8


def test_an_architecture_of_tomorrow_is_not_told(build):
    answer, codes = look(B200, build(B200._replace(number=0xFFFFFFFF)))
    assert {gpu.architecture for gpu in answer.gpus} == {None} and codes == [set()] * 8


def test_functions_without_a_version_are_those_of_the_first(build):
    answer, codes = look(L40S, build(L40S, "UNVERSIONED"))
    assert_all_are_told_of(L40S, answer)
    assert codes == [set()] * 8


def test_a_library_that_does_not_tell_where_a_gpu_is_finds_it_by_its_address(build):
    answer, codes = look(L40S, build(L40S, "NO_PCI"))
    assert_all_are_told_of(L40S, answer)
    assert codes == [set()] * 8


def test_a_library_of_any_name_is_asked_and_named(build):
    library = build(T4, named="my-nvml.so")
    answer, _codes = look(T4, library)
    assert_all_are_told_of(T4, answer)
    assert answer.library == str(library)


def test_processes_are_seen_where_asking_for_their_number_succeeds(build):
    answer, codes = look(T4, build(T4, "PROCESS=4242"))
    assert {(each.pid, each.memory) for gpu in answer.gpus for each in gpu.processes} == {
        (4242, 1 << 20)
    }
    assert codes == [{"in-use-by-host"}] * 8


def test_a_strange_value_costs_no_other(build):
    answer, codes = look(T4, build(T4, "STRANGE"))
    assert_all_are_told_of(T4, answer)
    assert {gpu.mig for gpu in answer.gpus} == {None}
    assert "0000:3b:00.0" in answer.detail and "mig" in answer.detail
    assert codes == [set()] * 8


def test_a_library_that_prints_much_is_read_all_the_same(build):
    answer, codes = look(T4, build(T4, "VERBOSE=1000000"))
    assert_all_are_told_of(T4, answer)
    assert codes == [set()] * 8
