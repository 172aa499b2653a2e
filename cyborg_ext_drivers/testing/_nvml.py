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

"""What NVML says on a described host: the text that the stub beside it reads.

A GPU that is bound to ``nvidia`` and no virtual function is listed, unless the host says otherwise.
"""

import functools
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from cyborg_ext_drivers.testing import nvml_stub
from cyborg_ext_drivers.testing._description import FunctionDescription
from cyborg_ext_drivers.testing._files import Entry
from cyborg_ext_drivers.testing._machine import Machine

DIRECTORY = "/usr/lib/x86_64-linux-gnu"
LIBRARY = f"{DIRECTORY}/{nvml_stub.SONAME}"
_DEFAULT_DRIVER = "550.144.03"
_NEWER_DRIVER = "610.43.02"
_HOST_LINES = {
    "present": (),
    # Every GPU of it is.
    "lost": (),
    "mismatch": ("init 18",),
    "no-permission": ("init 4",),
    "driver-not-loaded": ("init 9",),
    "blocked": ("init 17",),
    "unknown-error": ("init 999",),
    "slow": ("sleep_ms 700",),
    "hanging": ("hang",),
    "crashing": ("crash",),
}

_GPU_LINES = {
    "present": (),
    "lost": ("handle 15",),
    "reset-required": ("call 16",),
    "no-permission": ("handle 4",),
    "unlisted": ("unlisted",),
    "unknown-error": ("handle 999",),
    "hanging": ("hang",),
    "crashing": ("crash",),
}

# nvml.h: nvmlGpuVirtualizationMode_t, nvmlHostVgpuMode_t, nvmlDeviceArchitecture_t.
MODES = ("none", "passthrough", "vgpu-guest", "host-vgpu", "host-vsga")
HOST_MODES = ("non-sriov", "sriov")
ARCHITECTURES = {"Turing": 6, "Ampere": 7, "Ada": 8, "Hopper": 9, "Blackwell": 10}
_TEXTS = ("name", "uuid", "serial", "vbios", "board_part")
_MEBI = 1 << 20


def entries(machine: Machine) -> dict[str, Entry]:
    """Return the library with what it says, and what /proc shows of who uses a GPU."""
    tree: dict[str, Entry] = {}
    for function in machine.functions.values():
        for process in function.nvml.get("processes", ()):
            tree[f"/proc/{process['pid']}/comm"] = f"{process['command']}\n".encode()
    if machine.nvml_library is None:
        return tree
    state = _state(machine)
    if state == "corrupt":
        tree[LIBRARY] = b"no library\n"
    elif state not in ("absent", "missing"):
        tree[LIBRARY] = machine.nvml_library
        tree[f"{DIRECTORY}/{nvml_stub.DESCRIPTION}"] = description(machine).encode()
    return tree


@functools.cache
def compiled() -> bytes:
    """Return the stand-in for NVML.

    :raises NoCompiler: when it cannot be compiled on this machine.
    """
    with tempfile.TemporaryDirectory() as directory:
        return nvml_stub.compile(directory).read_bytes()


def _state(machine: Machine) -> str:
    return machine.host.extra.get("nvml", "present")


def description(machine: Machine) -> str:
    """Return what the stub says of a host."""
    host, state = machine.host, _state(machine)
    driver = host.nvidia_driver or _DEFAULT_DRIVER
    lines = [
        *_HOST_LINES[state],
        f"driver {driver}",
        f"nvml 12.{host.extra.get('nvml_library') or _library_version(state, driver)}",
    ]
    listed = host.extra.get("nvml_lists")
    for address in sorted(machine.functions):
        function = machine.functions[address]
        if function.vendor != "10de" or function.driver != "nvidia" or function.physfn:
            continue
        if not function.class_.startswith(("0300", "0302")):
            continue
        if listed is None or str(address) in listed:
            lines += _gpu(function, is_lost=state == "lost")
    return "".join(f"{line}\n" for line in lines)


def _library_version(state: str, driver: str) -> str:
    return _NEWER_DRIVER if state == "mismatch" else driver


def _gpu(function: FunctionDescription, is_lost: bool) -> Iterator[str]:
    said = function.nvml
    address = function.address
    usual = f"{address.domain:08X}:{address.bus:02X}:{address.device:02X}.0"
    yield "gpu"
    yield f"real_bus_id {usual}"
    yield f"bus_id {said.get('bus_id', usual)}"
    yield from _GPU_LINES["lost" if is_lost else said.get("state", "present")]
    known = {"name": _name(function), "uuid": f"GPU-{uuid.UUID(int=_number(function))}"}
    for key in _TEXTS:
        if text := said.get(key, known.get(key)):
            yield f"{key} {text}"
    yield f"memory {said.get('memory_mib', 16384) * _MEBI}"
    yield from _places(said)
    yield from _health(said)
    for process in said.get("processes", ()):
        memory = process.get("memory_mib", 512) * _MEBI
        yield f"process {process['pid']} {memory} {process.get('kind', 'compute')}"
    yield from _parts(function)


def _places(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the GPU is, as numbers of nvml.h."""
    if "compute_capability" in said:
        yield f"compute_capability {said['compute_capability'].replace('.', ' ')}"
    if "architecture" in said:
        yield f"architecture {ARCHITECTURES[said['architecture']]}"
    if "virtualization_mode" in said:
        yield f"virtualization_mode {MODES.index(said['virtualization_mode'])}"
    if "host_vgpu_mode" in said:
        yield f"host_vgpu_mode {HOST_MODES.index(said['host_vgpu_mode'])}"


def _health(said: Mapping[str, Any]) -> Iterator[str]:
    if (ecc := said.get("ecc")) is not None:
        is_on = ecc.get("enabled", True)
        yield f"ecc {int(is_on)} {int(ecc.get('pending', is_on))}"
        yield f"ecc_volatile {ecc.get('volatile', 0)}"
        yield f"ecc_aggregate {ecc.get('aggregate', 0)}"
    if (rows := said.get("rows")) is not None:
        numbers = (rows.get("correctable", 0), rows.get("uncorrectable", 0))
        flags = (int(rows.get("pending", False)), int(rows.get("failed", False)))
        yield "rows {} {} {} {}".format(*numbers, *flags)
    if "retired_pages_pending" in said:
        yield f"retired_pages_pending {int(said['retired_pages_pending'])}"


def _parts(function: FunctionDescription) -> Iterator[str]:
    said = function.nvml
    if (mig := said.get("mig")) is not None:
        is_on = mig.get("enabled", True)
        yield f"mig {int(is_on)} {int(mig.get('pending', is_on))}"
        for number, each in enumerate(mig.get("instances", ()), 1):
            own = uuid.UUID(int=_number(function) << 8 | number)
            memory = each.get("memory_mib", 4864) * _MEBI
            yield f"instance {number} {memory} MIG-{own} {each['name']}"
    for each in said.get("vgpu_types", ()):
        yield f"vgpu {each['id']} {int(each.get('creatable', True))} {each['name']}"


def _number(function: FunctionDescription) -> int:
    address = function.address
    return address.domain << 16 | address.bus << 8 | address.device << 3


def _name(function: FunctionDescription) -> str:
    """Return the name in brackets, as udev's database has it, in NVML's spelling."""
    match = re.search(r"\[(.+?)(?: / .*)?\]", function.name or "")
    return f"NVIDIA {match[1] if match else 'Graphics Device'}"
