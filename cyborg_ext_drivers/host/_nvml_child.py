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

"""A program of its own: it asks NVML once and prints one JSON document, then it is gone.

NVML can hang and crash, and while a process has a card open its driver cannot be unbound from it
(``nv-pci.c`` of NVIDIA/open-gpu-kernel-modules).  So no other process of ours ever loads it.
:mod:`cyborg_ext_drivers.host.nvml` starts this file by its path and reads the document::

    _nvml_child.py LIBRARY BUS-ID...

LIBRARY is a path, or empty for what the loader finds as ``libnvidia-ml.so.1``.  The bus ids are
of cards that NVML should know: what it says of one that it does not list is asked for by name.
Nothing of this package is imported.
"""

import sys

# Beside this file lie modules with the names of others' (``text``, ``kernel``).
sys.path[:] = [path for path in sys.path if path != __file__.rpartition("/")[0]]

import ctypes  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402

VERSION = 1
_SONAME = "libnvidia-ml.so.1"
# Not told of this card, or not by this release: no error (nvml.h, nvmlReturn_t).
_NOT_TOLD = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_DATA", "NOT_FOUND")
_NO_FUNCTION = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND")
_PR_SET_PDEATHSIG = 1
_INSUFFICIENT_SIZE = 7
# What takes the same arguments and was there before; the binding asks for the newest only.
_OLDER = {
    "nvmlInitWithFlags": ("nvmlInit_v2", "nvmlInit"),
    "nvmlDeviceGetCount_v2": ("nvmlDeviceGetCount",),
    "nvmlDeviceGetHandleByIndex_v2": ("nvmlDeviceGetHandleByIndex",),
    "nvmlDeviceGetHandleByPciBusId_v2": ("nvmlDeviceGetHandleByPciBusId",),
    "nvmlDeviceGetPciInfo_v3": ("nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"),
    "nvmlDeviceGetComputeRunningProcesses_v3": ("nvmlDeviceGetComputeRunningProcesses_v2",),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": ("nvmlDeviceGetGraphicsRunningProcesses_v2",),
}
# Asked first for how many there are, and then for all of them.
_LISTS = ("RunningProcesses", "SupportedVgpus", "CreatableVgpus")


def main(library, bus_ids):
    """Print what NVML says, or why it says nothing."""
    document = {"version": VERSION}
    # Whatever a library prints goes elsewhere.
    out = os.dup(1)
    os.dup2(2, 1)
    _end_with_parent()
    try:
        document.update(_answer(library, bus_ids))
    except Exception as error:
        document["error"] = {"name": type(error).__name__, "text": str(error)}
    with open(out, "w", encoding="utf-8") as stream:
        json.dump(document, stream)
    # A library that crashes or hangs when it is unloaded is not unloaded.
    sys.stdout.flush()
    os._exit(0)


def _end_with_parent():
    """Let the kernel end this process with the one that started it (prctl(2))."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        return


def _answer(library, bus_ids):
    try:
        import pynvml
    except ImportError as error:
        return {"error": {"name": "NO_BINDING", "text": str(error)}}
    try:
        # The binding would look for it by its soname, which a library that is named need not have.
        pynvml.nvmlLib = _Library(library or _SONAME)
    except OSError as error:
        return {"error": {"name": "LIBRARY_NOT_FOUND", "text": str(error)}}
    found = _Asker(pynvml).everything(bus_ids)
    return {**found, "library": _loaded_library() or library or None}


class _Library(ctypes.CDLL):
    """The library as the binding expects it, also where it is older or only stands for NVML."""

    def __getattr__(self, name):
        """Return a function, or an older one in its place."""
        for each in (name, *_OLDER.get(name, ())):
            try:
                function = super().__getattr__(each)
            except AttributeError:
                continue
            return _list_of(function) if any(kind in name for kind in _LISTS) else function
        raise AttributeError(name)


def _list_of(function):
    """Return a function that fails when it has more to tell than there is room for.

    So nvml.h has it; some succeed when they are asked how many there are, which the binding takes
    for none.
    """

    def asked(handle, count, room):
        result = function(handle, count, room)
        return _INSUFFICIENT_SIZE if not result and room is None and count._obj.value else result

    return asked


class _Asker:
    """Asks through the binding; an error of one question costs that question."""

    def __init__(self, pynvml):
        self.nvml = pynvml
        self.names = {
            value: name[len("NVML_ERROR_") :]
            for name, value in vars(pynvml).items()
            if name.startswith("NVML_ERROR_") and isinstance(value, int)
        }

    def name_of(self, error):
        """Return how nvml.h names an error, without NVML_ERROR_."""
        return self.names.get(error.value, str(error.value))

    def everything(self, bus_ids):
        """Return what is known of NVML and of each of its GPUs."""
        nvml = self.nvml
        found = {}
        is_open = False
        try:
            nvml.nvmlInit()
            is_open = True
            found["driver_version"] = self.try_("nvmlSystemGetDriverVersion")
            found["gpus"] = self.gpus(bus_ids)
        except nvml.NVMLError as error:
            found["error"] = {"name": self.name_of(error), "text": str(error).rstrip(".")}
        finally:
            found["nvml_version"] = self.try_("nvmlSystemGetNVMLVersion")
            if is_open:
                self.try_("nvmlShutdown")
        return found

    def try_(self, function, *arguments, errors=None):
        """Return what a function answers, ``None`` when it does not; *errors* notes why."""
        try:
            value = getattr(self.nvml, function)(*arguments)
        except self.nvml.NVMLError as error:
            name = self.name_of(error)
            if errors is not None and name not in _NOT_TOLD:
                errors.append(name)
            return None
        except Exception:
            # The binding is older, does not understand the answer, or finds the library too old.
            return None
        return _text(value)

    def gpus(self, bus_ids):
        """Return each GPU that NVML counts, and what it says of the others."""
        found, known = [], []
        for index in range(self.nvml.nvmlDeviceGetCount()):
            try:
                handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
                gpu = self.gpu(handle)
            except self.nvml.NVMLError:
                # It is asked for by its bus id below.
                continue
            known.append(_numbers(gpu["bus_id"]))
            found.append(gpu)
        for bus_id in bus_ids:
            if _numbers(bus_id) not in known:
                found.append(self.missed(bus_id))
        return found

    def missed(self, bus_id):
        """Return what NVML says of a card that it gave no handle for."""
        try:
            handle = self.nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
            return {**self.gpu(handle, bus_id), "bus_id": bus_id}
        except self.nvml.NVMLError as error:
            return {"bus_id": bus_id, "is_listed": False, "errors": [self.name_of(error)]}

    def bus_id(self, handle, known):
        """Return where NVML says that a GPU is; where it never does, what is known."""
        try:
            pci = self.nvml.nvmlDeviceGetPciInfo(handle)
        except self.nvml.NVMLError as error:
            if known is None or self.name_of(error) not in _NO_FUNCTION:
                raise
            return known
        bus_id = _text(pci.busId) or _text(pci.busIdLegacy)
        return bus_id or f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0"

    def gpu(self, handle, known_bus_id=None):
        """Return what is known of one GPU."""
        errors = []
        bus_id = self.bus_id(handle, known_bus_id)

        def ask(function, *arguments):
            return self.try_("nvmlDeviceGet" + function, handle, *arguments, errors=errors)

        memory = ask("MemoryInfo")
        mig = ask("MigMode")
        capability = ask("CudaComputeCapability")
        gpu = {
            "bus_id": bus_id,
            "is_listed": True,
            "name": ask("Name"),
            "memory": None if memory is None else memory.total,
            "uuid": ask("UUID"),
            "serial": ask("Serial"),
            "vbios": ask("VbiosVersion"),
            "board_part": ask("BoardPartNumber"),
            "compute_capability": None if capability is None else list(capability),
            "architecture": ask("Architecture"),
            "mig": None if mig is None else list(mig),
            "virtualization_mode": ask("VirtualizationMode"),
            "host_vgpu_mode": ask("HostVgpuMode"),
            "supported_vgpus": self.vgpu_types(ask("SupportedVgpus")),
            "creatable_vgpus": self.vgpu_types(ask("CreatableVgpus")),
            "processes": self.processes(ask),
            "ecc": self.ecc(ask),
            "rows": ask("RemappedRows"),
            "retired_pages_pending": ask("RetiredPagesPendingStatus"),
        }
        if gpu["rows"] is not None:
            gpu["rows"] = list(gpu["rows"])
        gpu["instances"] = self.instances(handle, errors) if mig and mig[0] else []
        gpu["errors"] = sorted(set(errors))
        return gpu

    def vgpu_types(self, ids):
        """Return number and name of vGPU types."""
        if ids is None:
            return None
        return [[int(each), self.try_("nvmlVgpuTypeGetName", each)] for each in ids]

    def processes(self, ask):
        """Return process id and memory of all that run on the card, once each.

        ``None`` while it is not known who computes there.
        """
        found, is_known = {}, False
        for kind in ("Compute", "MPSCompute", "Graphics"):
            some = ask(f"{kind}RunningProcesses")
            is_known |= kind == "Compute" and some is not None
            for process in some or ():
                found.setdefault(process.pid, process.usedGpuMemory)
        return [list(pair) for pair in sorted(found.items())] if found or is_known else None

    def ecc(self, ask):
        """Return whether errors are corrected now and after a reboot, and how many there were."""
        mode = ask("EccMode")
        if mode is None:
            return None
        counts = [
            ask("TotalEccErrors", self.nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, counter)
            for counter in (self.nvml.NVML_VOLATILE_ECC, self.nvml.NVML_AGGREGATE_ECC)
        ]
        corrected = ask(
            "TotalEccErrors",
            self.nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
            self.nvml.NVML_VOLATILE_ECC,
        )
        return [*mode, *counts, corrected]

    def instances(self, handle, errors):
        """Return the MIG devices; the places between them are empty."""
        found = []
        for index in range(self.try_("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            mig = self.try_("nvmlDeviceGetMigDeviceHandleByIndex", handle, index, errors=errors)
            if mig is None:
                continue
            memory = self.try_("nvmlDeviceGetMemoryInfo", mig)
            found.append(
                {
                    "uuid": self.try_("nvmlDeviceGetUUID", mig),
                    "name": self.try_("nvmlDeviceGetName", mig),
                    "gpu_instance": self.try_("nvmlDeviceGetGpuInstanceId", mig),
                    "memory": None if memory is None else memory.total,
                }
            )
        return found


def _text(value):
    """Return what older bindings give as bytes as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _numbers(bus_id):
    """Return domain, bus and device as numbers: NVML and sysfs write them differently."""
    try:
        parts = [int(part, 16) for part in bus_id.rpartition(".")[0].split(":")]
    except ValueError:
        return None
    return [0] * (3 - len(parts)) + parts


def _loaded_library():
    """Return the file of NVML that is loaded; its name ends in its version."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = (line.split(maxsplit=5)[-1].strip() for line in maps)
            return next((path for path in paths if "/libnvidia-ml.so" in path), None)
    except OSError:
        return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
