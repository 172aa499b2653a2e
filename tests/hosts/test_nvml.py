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

"""NVML in each of its states: what is said, that the report stays, that nothing is left behind."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.nvml import Nvml, State
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost, described_hosts
from cyborg_ext_drivers.testing.nvml_stub import NoCompiler

#: Every state of the stand-in, and the finding by which the first card tells of it.
STATES = {
    "present": None,
    "slow": None,
    "missing": "nvml-missing",
    "corrupt": "nvml-missing",
    "driver-not-loaded": "nvml-driver-not-loaded",
    "mismatch": "nvml-version-mismatch",
    "no-permission": "nvml-no-permission",
    "hanging": "nvml-timeout",
    "crashing": "nvml-failed",
    "blocked": "nvml-no-permission",
    "unknown-error": "nvml-failed",
    "lost": "gpu-lost",
}
ABOUT_NVML = {code for code in STATES.values() if code}


@pytest.fixture(autouse=True)
def _compiler():
    try:
        with FakeHost() as fake:
            _ = fake.nvml_library
    except NoCompiler as error:
        pytest.skip(str(error))


def options_of(fake, seconds=5.0):
    return Options(
        host_root=str(fake.root), nvml_library=str(fake.nvml_library), nvml_timeout=seconds
    )


def answer_of(fake, seconds=5.0):
    host = Host(fake.root)
    return host.nvml.ask(host.functions, str(fake.nvml_library), seconds)


def codes_of(assessment):
    return {finding.code.name for finding in assessment.findings}


def report_of(survey, host, options):
    """Return what Cyborg would be told, to the byte, by an agent that has told it nothing yet."""
    ledger = Ledger("compute-1", options, {})
    reports = [decision.report for decision in ledger.preview(survey, host)]
    return json.dumps([dataclasses.asdict(report) for report in reports if report])


def children():
    """Return the processes that this one has started and not buried yet."""
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return [pid for task in tasks for pid in (task / "children").read_text().split()]


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


class TestEachState:
    @pytest.mark.parametrize(("state", "code"), STATES.items(), ids=str)
    def test_the_finding_comes_within_the_deadline_and_a_second(self, state, code):
        seconds = 0.5 if state == "hanging" else 2.0
        with FakeHost.named("hgx-h200") as fake:
            options = options_of(fake, seconds)
            fake.set_nvml(state)
            started = time.monotonic()
            survey = Surveyor(options).survey(Host(fake.root))
            took = time.monotonic() - started
        assert took < seconds + 1
        assert len(survey.reported) == 8
        for assessment in survey.reported:
            assert codes_of(assessment) & ABOUT_NVML == ({code} if code else set())

    @pytest.mark.parametrize(
        "name", ["hgx-h200", "two-t4", "a100-in-mig-mode", "gpus-that-their-driver-lost"]
    )
    def test_the_report_is_the_same_to_the_byte_in_all_of_them(self, name):
        with FakeHost.named(name) as fake:
            not_asked = Options(host_root=str(fake.root))
            surveyor, host = Surveyor(not_asked), Host(fake.root)
            reports = {report_of(surveyor.survey(host), host, not_asked)}
            options = options_of(fake, 1.0)
            surveyor = Surveyor(options)
            for state in STATES:
                fake.set_nvml(state)
                host = Host(fake.root)
                reports.add(report_of(surveyor.survey(host), host, options))
        assert len(reports) == 1 and json.loads(reports.pop())

    def test_a_finding_goes_when_nvml_answers_again(self):
        with FakeHost.named("two-t4") as fake:
            surveyor, host = Surveyor(options_of(fake)), Host(fake.root)
            said = []
            for state in ("mismatch", "present", "driver-not-loaded", "present"):
                fake.set_nvml(state)
                host = host.again()
                said.append(codes_of(surveyor.survey(host).reported[0]) & ABOUT_NVML)
        assert said == [{"nvml-version-mismatch"}, set(), {"nvml-driver-not-loaded"}, set()]

    def test_a_mismatch_names_both_versions(self):
        with FakeHost.named("library-newer-than-module") as fake:
            survey = Surveyor(options_of(fake)).survey(Host(fake.root))
        (finding,) = survey.reported[0].findings
        assert "570.195" in finding.message and "550.144.03" in finding.message
        assert ("/sys/module/nvidia/version", "550.144.03") in finding.evidence

    def test_who_uses_the_card_is_named_with_its_process_id(self):
        with FakeHost.named("a100-in-mig-mode") as fake:
            surveyor = Surveyor(options_of(fake))
            (use,) = _findings(surveyor.survey(Host(fake.root)).reported[0], "in-use-by-host")
            fake.write_file("/proc/31337/comm", None)
            (hidden,) = _findings(surveyor.survey(Host(fake.root)).reported[0], "in-use-by-host")
        assert "python3 (pid 31337)" in use.message
        assert "a process (pid 31337)" in hidden.message

    def test_what_the_vgpu_manager_has_open_is_no_warning(self):
        with FakeHost.named("a100-in-mig-mode") as fake:
            fake.set_nvml_of("0000:17:00.0", virtualization_mode="host-vgpu")
            survey = Surveyor(options_of(fake)).survey(Host(fake.root))
        (use,) = _findings(survey.reported[0], "in-use-by-host")
        assert str(use.severity) == "info"

    def test_a_card_of_which_parts_are_given_away_is_no_warning_in_mig_mode(self):
        with FakeHost.named("a100-in-mig-mode") as fake:
            fake.enable_virtual_functions("0000:17:00.0", 4)
            survey = Surveyor(options_of(fake)).survey(Host(fake.root))
        (card,) = (each for each in survey.assessments if each.address.bus == 0x17)
        (mig,) = _findings(card, "mig-enabled")
        assert "3 MIG instances: MIG 2g.10gb, MIG 3g.20gb" in mig.message
        assert str(mig.severity) == "info"
        # The driver's own processes serve the parts.
        assert not _findings(card, "in-use-by-host")

    @pytest.mark.parametrize(("is_on", "told"), [(True, set()), (False, {"vgpu-mig-mode"})])
    def test_a_type_that_nvml_can_name_is_told_from_one_that_no_mig_instance_backs(
        self, is_on, told
    ):
        types = [{"id": 1237, "name": "NVIDIA H200X-1-18C"}, {"id": 9, "name": "NVIDIA H200X-18C"}]
        with FakeHost.named("h200-with-vgpu-of-the-driver") as fake:
            fake.set_nvml_of("0000:18:00.0", mig={"enabled": is_on}, vgpu_types=types)
            fake.set_attribute("0000:18:00.2", "nvidia/current_vgpu_type", "1237")
            options = dataclasses.replace(options_of(fake), report_vendor_vfio=True)
            (card,) = Surveyor(options).survey(Host(fake.root)).reported
        assert codes_of(card) & {"vgpu-mig-mode"} == told
        assert [str(each.severity) for each in _findings(card, "mig-enabled")] == ["info"] * is_on


def _findings(assessment, code):
    return [finding for finding in assessment.findings if finding.code.name == code]


class TestWhatIsCollected:
    def test_each_gpu_by_its_address(self):
        with FakeHost.named("hgx-h200") as fake:
            answer = answer_of(fake)
            bound = [f.address for f in fake.description.functions if f.driver == "nvidia"]
        assert answer.state is State.ANSWERED
        assert answer.driver_version == "570.148.08"
        assert answer.nvml_version == "12.570.148.08"
        assert [gpu.address for gpu in answer.gpus] == bound and len(bound) == 8
        assert {gpu.name for gpu in answer.gpus} == {"NVIDIA H200 SXM 141GB"}

    def test_all_that_is_known_of_one(self):
        with FakeHost.named("a100-in-mig-mode") as fake:
            types = [
                {"id": 468, "name": "GRID A100-4C"},
                {"id": 474, "name": "GRID A100-40C", "creatable": False},
            ]
            fake.set_nvml_of(
                "0000:17:00.0",
                vgpu_types=types,
                virtualization_mode="host-vgpu",
                host_vgpu_mode="sriov",
            )
            gpu = answer_of(fake).gpus[0]
        assert gpu.memory == 40 << 30
        assert gpu.uuid == "GPU-0f3c1a52-9a4e-4d1f-8a6b-0c6f0b1d2e01"
        assert (gpu.serial, gpu.vbios) == ("1320120000001", "92.00.25.00.08")
        assert gpu.board_part == "900-21001-0000-000"
        assert (gpu.compute_capability, gpu.architecture) == ("8.0", "Ampere")
        assert gpu.mig == (True, True)
        assert [each.name for each in gpu.instances] == ["MIG 3g.20gb"] + ["MIG 2g.10gb"] * 2
        assert [each.gpu_instance for each in gpu.instances] == [1, 2, 3]
        assert (gpu.virtualization_mode, gpu.host_vgpu_mode) == ("host-vgpu", "sriov")
        assert [tuple(each) for each in gpu.supported_vgpus] == [
            (468, "GRID A100-4C"),
            (474, "GRID A100-40C"),
        ]
        assert [each.id for each in gpu.creatable_vgpus] == [468]
        assert [tuple(each) for each in gpu.processes] == [(31337, 8 << 30, "python3")]
        assert (gpu.ecc.is_on, gpu.ecc.volatile, gpu.rows.correctable) == (True, 0, 1)
        assert gpu.errors == ()

    def test_what_a_card_does_not_have_is_no_error(self):
        with FakeHost.named("two-t4") as fake:
            (gpu,) = answer_of(fake).gpus
        assert gpu.mig is gpu.ecc is gpu.rows is gpu.supported_vgpus is gpu.serial is None
        assert gpu.errors == () and gpu.is_listed

    def test_an_error_of_one_gpu_costs_no_other(self):
        with FakeHost.named("gpus-that-their-driver-lost") as fake:
            answer = answer_of(fake)
        assert {str(gpu.address): gpu.errors for gpu in answer.gpus} == {
            "0000:17:00.0": (),
            "0000:31:00.0": ("GPU_IS_LOST",),
            "0000:ca:00.0": ("NOT_FOUND",),
            "0000:e1:00.0": ("RESET_REQUIRED",),
        }

    @pytest.mark.parametrize(
        "spelling", ["0000:3b:00.0", "00000000:3B:00.0", "3B:00.0", "0x0:0x3b:0x0.0"]
    )
    def test_a_bus_id_of_any_spelling_is_the_same_card(self, spelling):
        with FakeHost.named("two-t4") as fake:
            fake.set_nvml_of("0000:3b:00.0", bus_id=spelling)
            (gpu,) = answer_of(fake).gpus
        assert str(gpu.address) == "0000:3b:00.0" and gpu.name == "NVIDIA Tesla T4"

    def test_a_card_that_nvml_spells_wrongly_is_asked_for_by_its_address(self):
        with FakeHost.named("hgx-h200") as fake:
            fake.set_nvml_of("0000:18:00.0", bus_id="no bus id")
            answer = answer_of(fake)
        assert len(answer.gpus) == 8
        assert "'no bus id'" in answer.detail


class TestWhenItIsAsked:
    @pytest.mark.parametrize("name", described_hosts())
    def test_no_process_while_nothing_is_bound_to_nvidia(self, name, monkeypatch):
        monkeypatch.setattr(subprocess, "Popen", _no_process)
        with FakeHost.named(name) as fake:
            for function in fake.description.functions:
                if function.driver == "nvidia":
                    fake.bind(function.address, "vfio-pci")
            options = options_of(fake)
            Surveyor(options).survey(Host(fake.root))
            assert answer_of(fake).state is State.NOT_ASKED

    def test_a_copy_of_a_host_is_not_confused_with_this_machine(self, monkeypatch):
        monkeypatch.setattr(subprocess, "Popen", _no_process)
        with FakeHost.named("two-t4") as fake:
            survey = Surveyor(Options(host_root=str(fake.root))).survey(Host(fake.root))
        first = survey.reported[0]
        assert not codes_of(first)
        (passed,) = (each for each in first.passed if each.code.name == "nvml-missing")
        assert "not asked" in passed.evidence[0][1]

    def test_a_root_with_the_boot_id_of_this_machine_is_this_machine(self, monkeypatch):
        boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes()
        with FakeHost.named("two-t4") as fake:
            fake.write_file("/proc/sys/kernel/random/boot_id", boot_id)
            monkeypatch.setenv("LD_LIBRARY_PATH", str(fake.nvml_library.parent))
            host = Host(fake.root)
            answer = host.nvml.ask(host.functions)
            assert answer.library == str(fake.nvml_library)
        assert answer.state is State.ANSWERED
        assert [str(gpu.address) for gpu in answer.gpus] == ["0000:3b:00.0"]

    def test_one_look_asks_once(self, monkeypatch):
        asked = []
        real = subprocess.Popen
        with FakeHost.named("hgx-h200") as fake:
            options = options_of(fake)
            monkeypatch.setattr(
                subprocess, "Popen", lambda *a, **k: asked.append(a) or real(*a, **k)
            )
            surveyor, host = Surveyor(options), Host(fake.root)
            surveyor.survey(host)
            surveyor.survey(host, only=("nvidia_gpu",))
            assert len(asked) == 1
            surveyor.survey(host.again())
        assert len(asked) == 2

    def test_without_the_binding_the_remedy_is_to_install_it(self, tmp_path, monkeypatch):
        (tmp_path / "pynvml.py").write_text("raise ImportError('No module named pynvml')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        with FakeHost.named("two-t4") as fake:
            survey = Surveyor(options_of(fake)).survey(Host(fake.root))
        (finding,) = _findings(survey.reported[0], "nvml-missing")
        assert "nvidia-ml-py" in finding.remedy

    def test_a_python_that_cannot_be_started_is_a_finding(self, monkeypatch):
        with FakeHost.named("two-t4") as fake:
            options = options_of(fake)
            monkeypatch.setattr(sys, "executable", "/no/such/python")
            survey = Surveyor(options).survey(Host(fake.root))
        (finding,) = _findings(survey.reported[0], "nvml-failed")
        assert "cannot be started" in finding.message


def _no_process(*_arguments, **_options):
    raise AssertionError("a process is started")


class TestNothingIsLeftBehind:
    def test_two_hundred_discoveries_with_an_nvml_that_hangs(self):
        with FakeHost.named("two-t4") as fake:
            options = options_of(fake, 0.1)
            fake.set_nvml("hanging")
            surveyor, host = Surveyor(options), Host(fake.root)
            surveyor.survey(host)
            before = descriptors()
            for _ in range(200):
                host = host.again()
                assert len(surveyor.survey(host).reported) == 2
            assert host.nvml.ask(host.functions).state is State.TIMEOUT
            assert descriptors() == before
        assert children() == []

    @pytest.mark.parametrize("state", STATES)
    def test_a_process_of_any_end_is_buried(self, state):
        with FakeHost.named("two-t4") as fake:
            fake.set_nvml(state)
            before = descriptors()
            answer_of(fake, 1.0)
            assert descriptors() == before
        assert children() == []

    def test_while_one_waits_in_the_kernel_no_second_one_is_started(self, monkeypatch):
        with FakeHost.named("two-t4") as fake:
            library = str(fake.nvml_library)
            fake.set_nvml("hanging")
            host = Host(fake.root)
            # Nothing that a test can do waits in the kernel against SIGKILL.
            with monkeypatch.context() as patched:
                patched.setattr(os, "killpg", lambda pid, signal: None)
                assert host.nvml.ask(host.functions, library, 0.2).state is State.TIMEOUT
            (stuck,) = children()
            started = time.monotonic()
            host = host.again()
            answer = host.nvml.ask(host.functions, library, 5)
            assert answer.state is State.TIMEOUT and "still waits" in answer.detail
            assert time.monotonic() - started < 2
            assert children() == [stuck]
            os.kill(int(stuck), 9)
            fake.set_nvml("present")
            deadline = time.monotonic() + 5
            while answer.state is not State.ANSWERED and time.monotonic() < deadline:
                host = host.again()
                answer = host.nvml.ask(host.functions, library, 5)
        assert answer.state is State.ANSWERED
        assert children() == []

    def test_it_ends_with_the_process_that_asked(self, tmp_path):
        with FakeHost.named("two-t4") as fake:
            library = str(fake.nvml_library)
            fake.set_nvml("hanging")
            code = (
                "import sys; from cyborg_ext_drivers.host import Host; h = Host(sys.argv[1]);"
                "h.nvml.ask(h.functions, sys.argv[2], 60)"
            )
            asking = subprocess.Popen([sys.executable, "-c", code, str(fake.root), library])
            try:
                child = _wait_for(lambda: _children_of(asking.pid))[0]
                # It is in NVML once the library is mapped.
                maps = pathlib.Path(f"/proc/{child}/maps")
                _wait_for(lambda: library in maps.read_text())
            finally:
                asking.kill()
                asking.wait()
            _wait_for(lambda: _is_gone(child))


def _children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _is_gone(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def _wait_for(found):
    deadline = time.monotonic() + 20
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


def test_the_same_look_gives_the_same_answer():
    with FakeHost.named("two-t4") as fake:
        host = Host(fake.root)
        library = str(fake.nvml_library)
        first = host.nvml.ask(host.functions, library)
        fake.set_nvml("mismatch")
        assert host.nvml.ask(host.functions, library) is first
        assert isinstance(host.again().nvml, Nvml)
        assert host.again().nvml.ask(host.functions, library).state is State.VERSION_MISMATCH
