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

"""What a card's own driver says of it, as ``device ADDRESS`` shows it."""

from typing import Any

from cyborg_ext_drivers.cli.looking import View
from cyborg_ext_drivers.host.nvml import DRIVER, VENDOR, Gpu, NvmlAnswer, State
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.options import Options

_OF_ONE_CARD = ("uuid", "serial")
_MOST_TYPES = 8


def told_by_driver(function: PciFunction, view: View) -> dict[str, Any] | str | None:
    """Return what NVML says of a function, in a sentence why it says nothing.

    ``None`` for a function that is not bound to NVIDIA's driver, and where NVML is not asked.

    :raises ReadError: when it cannot be read which driver the function is bound to.
    """
    identity = function.identity
    if identity is None or identity.id.vendor != VENDOR or function.driver != DRIVER:
        return None
    host, options = view.host, view.surveyor.options
    answer = host.nvml.ask(host.functions, options.nvml_library, options.nvml_timeout)
    if answer.state is State.NOT_ASKED:
        return None
    gpu = answer.gpu(function.address)
    if answer.state is not State.ANSWERED or gpu is None:
        return f"{answer.state}: {answer.detail or 'it does not list this function'}"
    return _of_gpu(gpu, answer, options)


def _of_gpu(gpu: Gpu, answer: NvmlAnswer, options: Options) -> dict[str, Any]:
    told: dict[str, Any] = {
        "driver_version": answer.driver_version,
        "nvml_version": answer.nvml_version,
        "errors": list(gpu.errors),
        "product": gpu.name,
        "architecture": gpu.architecture,
        "compute_capability": gpu.compute_capability,
        "memory_mib": _mebibytes(gpu.memory),
        "vbios": gpu.vbios,
        "board_part": gpu.board_part,
        "uuid": gpu.uuid,
        "serial": gpu.serial,
        "virtualization_mode": gpu.virtualization_mode,
        "host_vgpu_mode": gpu.host_vgpu_mode,
        "mig": _mig(gpu),
        "supported_vgpu_types": _types(gpu.supported_vgpus),
        "creatable_vgpu_types": _types(gpu.creatable_vgpus),
        "processes": [
            {"pid": each.pid, "command": each.command, "memory_mib": _mebibytes(each.memory)}
            for each in gpu.processes
        ]
        if gpu.processes is not None
        else None,
        "ecc": gpu.ecc and gpu.ecc._asdict(),
        "remapped_rows": gpu.rows and gpu.rows._asdict(),
        "retired_pages_pending": gpu.retired_pages_pending,
    }
    if not options.report_serials:
        for key in _OF_ONE_CARD:
            del told[key]
    return told


def _mig(gpu: Gpu) -> dict[str, Any] | None:
    if gpu.mig is None:
        return None
    is_on, is_pending_on = gpu.mig
    instances = [
        {"name": each.name, "memory_mib": _mebibytes(each.memory)} for each in gpu.instances
    ]
    return {"is_on": is_on, "is_pending_on": is_pending_on, "instances": instances}


def _types(types) -> list[dict[str, Any]] | None:
    return None if types is None else [{"id": each.id, "name": each.name} for each in types]


def _mebibytes(number: int | None) -> int | None:
    return None if number is None else number >> 20


def as_text(told: dict[str, Any] | None) -> list[str] | None:
    """Return lines for people; what is not told of this card is left out."""
    if told is None:
        return None
    return [f"{key}: {_shown(value)}" for key, value in told.items() if value not in (None, [])]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(
            f"{key} {_shown(each)}" for key, each in value.items() if each not in (None, [])
        )
    if isinstance(value, list):
        more = [f"and {len(value) - _MOST_TYPES} more"] if len(value) > _MOST_TYPES else []
        shown = [_shown(each) for each in value[:_MOST_TYPES]]
        return "; ".join([*shown, *more])
    return str(value)
