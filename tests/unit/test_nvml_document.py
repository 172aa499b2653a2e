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

"""What the process that asks NVML prints, whole, cut off and foreign; how it may end."""

import json
import pathlib
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.host import _nvml_child, nvml
from cyborg_ext_drivers.host._nvml_document import InvalidDocument, read_document
from cyborg_ext_drivers.host.nvml import Finished, State, answer_of

MOST = 1 << 20
GPU = {
    "bus_id": "00000000:3B:00.0",
    "is_listed": True,
    "errors": [],
    "name": "NVIDIA T4",
    "memory": 16 << 30,
    "uuid": "GPU-1",
    "serial": None,
    "vbios": "90.04",
    "board_part": None,
    "compute_capability": [7, 5],
    "architecture": 6,
    "mig": [1, 0],
    "instances": [{"uuid": "MIG-1", "name": "1g.5gb", "gpu_instance": 7, "memory": 5}],
    "virtualization_mode": 3,
    "host_vgpu_mode": 1,
    "supported_vgpus": [[230, "GRID T4-16Q"]],
    "creatable_vgpus": [],
    "processes": [[4242, None]],
    "ecc": [1, 1, 0, None, 3],
    "rows": [0, 0, 0, 0],
    "retired_pages_pending": 0,
}
DOCUMENT = {
    "version": 1,
    "driver_version": "550.144.03",
    "nvml_version": "12.550.144.03",
    "library": "/usr/lib/libnvidia-ml.so.1",
    "gpus": [GPU],
}
WHOLE = json.dumps(DOCUMENT).encode()


def read(document):
    return read_document(json.dumps(document).encode(), MOST)


def test_a_whole_document_is_read():
    document = read_document(WHOLE, MOST)
    (gpu,) = document.gpus
    assert document.driver_version == "550.144.03" and not document.faults
    assert str(gpu.address) == "0000:3b:00.0"
    assert (gpu.compute_capability, gpu.architecture) == ("7.5", "Turing")
    assert gpu.mig == (True, False)
    assert (gpu.virtualization_mode, gpu.host_vgpu_mode) == ("host-vgpu", "sriov")
    assert gpu.instances[0].gpu_instance == 7
    assert gpu.creatable_vgpus == () and gpu.supported_vgpus[0].name == "GRID T4-16Q"


@given(st.integers(0, len(WHOLE) - 1))
def test_a_document_that_is_cut_off_anywhere_is_malformed(length):
    answer = answer_of(Finished(WHOLE[:length], b"", 0, 5))
    assert answer.state is State.MALFORMED
    assert "cut off" in answer.detail or "empty" in answer.detail
    assert not answer.gpus


@given(st.binary(max_size=300))
def test_any_bytes_are_malformed_and_nothing_else(data):
    answer = answer_of(Finished(data, b"", 0, 5))
    assert answer.state is State.MALFORMED
    assert answer.detail.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(sorted(GPU)), JSON)
def test_any_value_in_any_place_is_read_or_refused_in_one_sentence(key, value):
    document = {**DOCUMENT, "gpus": [{**GPU, key: value}]}
    try:
        found = read(document)
    except InvalidDocument as error:
        assert key in str(error) and str(error).isprintable()
        assert len(str(error)) < 200
    else:
        assert len(found.faults) <= 1
        assert all(fault.isprintable() and len(fault) < 200 for fault in found.faults)
        assert found.gpus or (key == "bus_id" and found.faults)


@given(st.sampled_from(sorted(set(GPU) - {"bus_id", "is_listed", "errors"})), JSON)
def test_a_value_that_nvml_does_not_have_costs_itself_only(key, value):
    whole = read(DOCUMENT).gpus[0]
    document = read({**DOCUMENT, "gpus": [{**GPU, key: value}, {**GPU, "bus_id": "3c:00.0"}]})
    first, second = document.gpus
    assert second == whole._replace(address=second.address)
    assert first._replace(**{key: None}) == whole._replace(**{key: None})
    if document.faults:
        assert key in document.faults[0] and "0000:3b:00.0" in document.faults[0]
        assert getattr(first, key) in (None, ())


@given(st.sampled_from(["error", "driver_version", "nvml_version", "library", "gpus"]), JSON)
def test_any_value_of_the_whole_is_read_or_refused_in_one_sentence(key, value):
    try:
        read({**DOCUMENT, key: value})
    except InvalidDocument as error:
        assert str(error).isprintable() and len(str(error)) < 200


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"Segmentation fault", "no JSON"),
        (b"[]", "another program"),
        (b'{"gpus": []}', "another program"),
        (b'{"version": 2}', "version 2"),
        (b'{"version": true}', "version True"),
        (b'{"version": "1"}', "version '1'"),
        (b"[" * 100_000, "no JSON"),
        (b" " * (MOST + 1), "longer than 1 MiB"),
    ],
)
def test_what_is_foreign_is_named(data, words):
    with pytest.raises(InvalidDocument, match=words):
        read_document(data, MOST)


@given(st.builds(PciAddress, *(st.integers(0, most) for most in (0xFFFFFFFF, 0xFF, 0x1F, 0))))
def test_each_spelling_of_a_bus_id_is_the_same_address(address):
    domain, bus, device = address.domain, address.bus, address.device
    spellings = [
        f"{domain:08X}:{bus:02X}:{device:02X}.0",
        f"{domain:04x}:{bus:02x}:{device:02x}.0",
        f"0x{domain:x}:0x{bus:x}:0x{device:x}.0",
        f" {domain:X}:{bus:X}:{device:X}.0 ",
        *([f"{bus:02X}:{device:02X}.0"] if not domain else []),
    ]
    for spelling in spellings:
        (gpu,) = read({**DOCUMENT, "gpus": [{**GPU, "bus_id": spelling}]}).gpus
        assert gpu.address == address
        assert _nvml_child._numbers(spelling) == [domain, bus, device]


@pytest.mark.parametrize("bus_id", ["", "GPU 0", "00000000:3B:00", "0000:zz:00.0", "\x00:3b:0.0"])
def test_a_broken_bus_id_costs_its_own_gpu_only(bus_id):
    document = read({**DOCUMENT, "gpus": [{**GPU, "bus_id": bus_id}, GPU]})
    assert [str(gpu.address) for gpu in document.gpus] == ["0000:3b:00.0"]
    (fault,) = document.faults
    assert "left out" in fault and fault.isprintable()


def test_of_two_gpus_at_one_address_the_first_counts():
    document = read({**DOCUMENT, "gpus": [GPU, {**GPU, "bus_id": "3b:00.0", "name": "other"}]})
    assert [gpu.name for gpu in document.gpus] == ["NVIDIA T4"]
    assert "another one" in document.faults[0]


@pytest.mark.parametrize(
    ("finished", "state", "words"),
    [
        (Finished(b"", b"", -signal.SIGSEGV, 5), State.CRASHED, "SIGSEGV"),
        (Finished(b"", b"", -63, 5), State.CRASHED, "63"),
        (Finished(b"", b"", None, 2.5), State.TIMEOUT, "2.5 seconds"),
        (Finished(WHOLE[:9], b"", None, 5), State.TIMEOUT, "5 seconds"),
        (Finished(b"", b"Traceback\nMemoryError\n", 1, 5), State.MALFORMED, "(MemoryError)"),
        (Finished(b"x" * (nvml._MOST_BYTES + 1), b"", None, 5), State.MALFORMED, "4 MiB"),
    ],
)
def test_how_the_process_ended_is_told(finished, state, words):
    answer = answer_of(finished)
    assert answer.state is state and words in answer.detail


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run another program in the child's place."""

    def run(code, seconds=10.0):
        program = tmp_path / "program.py"
        program.write_text(code)
        monkeypatch.setattr(nvml, "_CHILD", str(program))
        return nvml.Children().run([], seconds)

    return run


def test_a_program_that_prints_without_end_is_stopped(run):
    finished = run("while True: print('x' * 100_000)")
    assert answer_of(finished).state is State.MALFORMED
    assert "longer than 4 MiB" in answer_of(finished).detail


def test_a_program_that_complains_without_end_is_stopped(run):
    finished = run("import sys\nwhile True: sys.stderr.write('x' * 100_000)")
    assert answer_of(finished).state is not State.ANSWERED
    assert len(finished.complaint) <= 1 << 18


def test_a_program_that_says_much_besides_is_read_and_its_last_words_are_kept(run):
    finished = run(
        f"import sys\nfor _ in range(2000): sys.stderr.write('x' * 1000)\n"
        f"sys.stderr.write('at last')\nsys.stdout.write({WHOLE.decode()!r})"
    )
    assert answer_of(finished).state is State.ANSWERED
    assert len(finished.complaint) <= 1 << 16 and finished.complaint.endswith(b"at last")


def test_a_library_that_crashes_when_it_is_unloaded_costs_no_answer(tmp_path):
    (tmp_path / "pynvml.py").write_text(
        "import atexit, os\natexit.register(os.abort)\nraise ImportError('none')"
    )
    found = subprocess.run(
        [sys.executable, _nvml_child.__file__, ""],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert json.loads(found.stdout)["error"]["name"] == "NO_BINDING"


def test_a_program_that_closes_its_output_and_stays_is_late(run):
    finished = run("import os, time\nos.close(1); os.close(2); time.sleep(60)", 0.4)
    assert answer_of(finished).state is State.TIMEOUT


def test_what_a_library_prints_is_no_part_of_the_answer(tmp_path):
    (tmp_path / "pynvml.py").write_text("print('hello'); raise ImportError('none')")
    found = subprocess.run(
        [sys.executable, _nvml_child.__file__, ""],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert json.loads(found.stdout)["error"]["name"] == "NO_BINDING"
    assert found.stderr == b"hello\n"


def test_the_modules_beside_the_child_are_not_those_that_it_imports(tmp_path):
    (tmp_path / "pynvml.py").write_text(
        "import importlib.util as util\n"
        "names = [name for name in ('kernel', 'sysfs', 'pci') if util.find_spec(name)]\n"
        "raise ImportError(f'found {names}')"
    )
    found = subprocess.run(
        [sys.executable, _nvml_child.__file__, ""],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert pathlib.Path(_nvml_child.__file__).with_name("kernel.py").exists()
    assert json.loads(found.stdout)["error"]["text"] == "found []"
