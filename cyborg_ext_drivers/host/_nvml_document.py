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

"""The document that the child which asks NVML prints, and what it says of each GPU.

It comes out of a process that may have crashed, so every value is looked at.  Next stop:
:mod:`cyborg_ext_drivers.host.nvml`.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import ExtDriversError

VERSION = 1
_LONGEST = 512
# A GPU has at most 7 MIG instances, a host some hundred types of vGPU.
_MOST = 4096
# nvmlDeviceArchitecture_t in nvml.h.
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
# nvmlGpuVirtualizationMode_t.
_VIRTUALIZATION_MODES = ("none", "passthrough", "vgpu-guest", "host-vgpu", "host-vsga")
# nvmlHostVgpuMode_t.
_HOST_VGPU_MODES = ("non-sriov", "sriov")

T = TypeVar("T")


class InvalidDocument(ExtDriversError, ValueError):
    """What was read is not the document that the child prints."""


class VgpuType(NamedTuple):
    """A type of vGPU: ``GRID T4-16Q``."""

    id: int
    name: str | None


class Process(NamedTuple):
    """A process that has the GPU open."""

    pid: int
    #: Bytes; ``None`` where the driver does not say.
    memory: int | None
    #: ``None`` where it is gone, or not to be seen by this user.
    command: str | None = None

    def __str__(self) -> str:
        return f"{self.command or 'a process'} (pid {self.pid})"


class MigInstance(NamedTuple):
    """A part of a GPU in MIG mode."""

    uuid: str | None
    name: str | None
    gpu_instance: int | None
    memory: int | None


class Ecc(NamedTuple):
    """Error correction of a GPU, and how many errors it had."""

    is_on: bool
    #: What it will be after the next reset.
    is_pending_on: bool
    #: Uncorrected errors since the driver was loaded, and in the card's life.
    volatile: int | None
    aggregate: int | None
    #: Corrected ones since the driver was loaded.
    corrected: int | None


class RemappedRows(NamedTuple):
    """Rows of memory that spare ones have replaced (since Ampere)."""

    correctable: int
    uncorrectable: int
    #: Some are replaced at the next reset only.
    is_pending: bool
    #: There was no spare row left.
    has_failed: bool


class Gpu(NamedTuple):
    """One GPU as NVML sees it; what is ``None`` is not told of this card."""

    address: PciAddress
    #: Whether NVML gives a handle for it.
    is_listed: bool = True
    #: Names of what went wrong with it, as in nvml.h: ``GPU_IS_LOST``.
    errors: tuple[str, ...] = ()
    name: str | None = None
    #: Bytes.
    memory: int | None = None
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    board_part: str | None = None
    compute_capability: str | None = None
    architecture: str | None = None
    #: MIG mode now, and after the next reset.
    mig: tuple[bool, bool] | None = None
    instances: tuple[MigInstance, ...] = ()
    virtualization_mode: str | None = None
    host_vgpu_mode: str | None = None
    supported_vgpus: tuple[VgpuType, ...] | None = None
    creatable_vgpus: tuple[VgpuType, ...] | None = None
    #: ``None`` where it is not told who uses it, which is not the same as nobody.
    processes: tuple[Process, ...] | None = None
    ecc: Ecc | None = None
    rows: RemappedRows | None = None
    retired_pages_pending: bool | None = None


class Document(NamedTuple):
    """All that the child said."""

    #: Name and text of what kept NVML from answering.
    error: tuple[str, str] | None
    driver_version: str | None
    nvml_version: str | None
    library: str | None
    gpus: tuple[Gpu, ...]
    #: A sentence for each GPU, and each value of one, that could not be understood.
    faults: tuple[str, ...]


def read_document(data: bytes, most_bytes: int) -> Document:
    """Return what the child printed.

    A GPU whose bus id is none is left out and told of, as is a value that NVML does not have.

    :raises InvalidDocument: when it is anything else; says in one sentence what.
    """
    raw = _loaded(data, most_bytes)
    gpus: dict[PciAddress, Gpu] = {}
    faults: list[str] = []
    for each in _list(raw.get("gpus", []), "gpus"):
        _expect(isinstance(each, dict), "gpus", each)
        try:
            gpu = _gpu(each, faults)
        except InvalidAddress as error:
            faults.append(f"a GPU is left out, as its bus id {error.text!r} is none")
        else:
            if gpus.setdefault(gpu.address, gpu) is not gpu:
                faults.append(f"a GPU is left out, as another one has the bus id {gpu.address}")
    return Document(
        _error(raw.get("error")),
        _text(raw, "driver_version"),
        _text(raw, "nvml_version"),
        _text(raw, "library"),
        tuple(gpus.values()),
        tuple(faults),
    )


def _loaded(data: bytes, most_bytes: int) -> dict[str, Any]:
    if len(data) > most_bytes:
        raise InvalidDocument(f"the answer is longer than {most_bytes >> 20} MiB")
    if not data:
        raise InvalidDocument("the answer is empty")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidDocument(f"the answer is cut off, or no JSON: {_shown(data)}") from None
    if not isinstance(raw, dict) or "version" not in raw:
        raise InvalidDocument(f"the answer is of another program: {_shown(data)}")
    if type(raw["version"]) is not int or raw["version"] != VERSION:
        raise InvalidDocument(f"the answer has version {raw['version']!r}, not {VERSION}"[:200])
    return raw


def _gpu(raw: dict[str, Any], faults: list[str]) -> Gpu:
    """Return what is said of one GPU; a value that NVML does not have is left out and told of."""
    address = _address(_text(raw, "bus_id"))
    is_listed = _flag(raw.get("is_listed"), "is_listed")
    errors = _tuple(_word)(raw.get("errors") or [], "errors")
    said = {}
    for key, read in _READERS.items():
        if raw.get(key) is not None:
            try:
                said[key] = read(raw[key], key)
            except InvalidDocument as error:
                faults.append(f"of {address}, {error}")
    return Gpu(address, is_listed, errors, **said)


def _address(text: str | None) -> PciAddress:
    """Return the address of a GPU; NVML's own spelling has eight digits for the domain.

    :raises InvalidAddress: when it is none.
    """
    if text is None:
        raise InvalidAddress(text, "it is no text")
    # Some write each number as C does.
    parts = text.strip().split(":")
    plain = ":".join(part.removeprefix("0x").removeprefix("0X") for part in parts)
    return PciAddress.parse(plain)


def _instance(raw: Any, key: str) -> MigInstance:
    _expect(isinstance(raw, dict), key, raw)
    return MigInstance(
        _text(raw, "uuid"),
        _text(raw, "name"),
        _maybe(raw, "gpu_instance", _count),
        _maybe(raw, "memory", _count),
    )


def _vgpu_type(raw: Any, key: str) -> VgpuType:
    number, name = _row(raw, key, 2)
    _expect(name is None or _is_text(name), key, raw)
    return VgpuType(_count(number, key), name)


def _process(raw: Any, key: str) -> Process:
    pid, memory = _row(raw, key, 2)
    return Process(_count(pid, key), None if memory is None else _count(memory, key))


def _ecc(raw: Any, key: str) -> Ecc:
    now, later, *numbers = _row(raw, key, 5)
    counts = (None if each is None else _count(each, key) for each in numbers)
    return Ecc(_flag(now, key), _flag(later, key), *counts)


def _rows(raw: Any, key: str) -> RemappedRows:
    correctable, uncorrectable, pending, failure = _row(raw, key, 4)
    return RemappedRows(
        _count(correctable, key),
        _count(uncorrectable, key),
        _flag(pending, key),
        _flag(failure, key),
    )


def _error(raw: Any) -> tuple[str, str] | None:
    if raw is None:
        return None
    _expect(isinstance(raw, dict), "error", raw)
    name, text = _text(raw, "name"), _text(raw, "text")
    _expect(name is not None and text is not None, "error", raw)
    return name, text


def _text(raw: dict[str, Any], key: str) -> str | None:
    return _maybe(raw, key, _line)


def _line(text: Any, key: str) -> str | None:
    """Return a text on one line, shortened where it is long."""
    _expect(isinstance(text, str), key, text)
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST]).strip() or None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def _word(raw: Any, key: str) -> str:
    _expect(_is_text(raw) and raw, key, raw)
    return raw


def _count(raw: Any, key: str) -> int:
    _expect(type(raw) is int and 0 <= raw < 1 << 64, key, raw)
    return raw


def _flag(raw: Any, key: str) -> bool:
    _expect(type(raw) in (bool, int) and raw in (0, 1), key, raw)
    return bool(raw)


def _maybe(raw: dict[str, Any], key: str, read: Callable[[Any, str], T]) -> T | None:
    value = raw.get(key)
    return None if value is None else read(value, key)


def _one_of(words: tuple[str, ...]) -> Callable[[Any, str], str | None]:
    """Return what reads a number as a word; a number of a newer release is not told."""
    return lambda raw, key: dict(enumerate(words)).get(_count(raw, key))


def _list(raw: Any, key: str) -> list:
    _expect(isinstance(raw, list) and len(raw) <= _MOST, key, raw)
    return raw


def _row(raw: Any, key: str, length: int) -> list:
    _expect(isinstance(raw, list) and len(raw) == length, key, raw)
    return raw


def _pair(read: Callable[[Any, str], T]) -> Callable[[Any, str], tuple[T, T]]:
    def pair(raw: Any, key: str) -> tuple[T, T]:
        first, second = _row(raw, key, 2)
        return read(first, key), read(second, key)

    return pair


def _tuple(read: Callable[[Any, str], T]) -> Callable[[Any, str], tuple[T, ...]]:
    return lambda raw, key: tuple(read(each, key) for each in _list(raw, key))


def _capability(raw: Any, key: str) -> str:
    return ".".join(map(str, _pair(_count)(raw, key)))


def _architecture(raw: Any, key: str) -> str | None:
    return _ARCHITECTURES.get(_count(raw, key))


def _expect(is_right: Any, key: str, value: Any) -> None:
    if not is_right:
        raise InvalidDocument(f"the answer has no usable {key}: {_shown(value)}")


def _shown(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)
    text = "".join(c if c.isprintable() else " " for c in text[:80])
    return text + ("..." if len(text) == 80 else "")


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "name": _line,
    "memory": _count,
    "uuid": _line,
    "serial": _line,
    "vbios": _line,
    "board_part": _line,
    "compute_capability": _capability,
    "architecture": _architecture,
    "mig": _pair(_flag),
    "instances": _tuple(_instance),
    "virtualization_mode": _one_of(_VIRTUALIZATION_MODES),
    "host_vgpu_mode": _one_of(_HOST_VGPU_MODES),
    "supported_vgpus": _tuple(_vgpu_type),
    "creatable_vgpus": _tuple(_vgpu_type),
    "processes": _tuple(_process),
    "ecc": _ecc,
    "rows": _rows,
    "retired_pages_pending": _flag,
}
