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

"""What NVIDIA's management library says of a card that is bound to NVIDIA's driver.

It decides nothing: libvirt unbinds the card from that driver anyway.  But a card that is in use on
the host cannot be unbound, one that needs a reset does not work in an instance either, and where
the library does not answer the operator wants to know why.
"""

from collections.abc import Iterator
from typing import NamedTuple

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.nvml import (
    DRIVER,
    MODULE_VERSION,
    VENDOR,
    Gpu,
    NvmlAnswer,
    State,
    state_of,
)

_NO_MATTER = "Cards are reported all the same; what is missing is health and use in the findings."

NVML_MISSING = Code(
    "nvml-missing",
    Severity.INFO,
    "NVIDIA's management library is not there",
    "libnvidia-ml.so.1, or the Python package nvidia-ml-py that calls it, is not where the agent "
    f"looks. {_NO_MATTER}",
    "Install the package that brings libnvidia-ml.so.1 in the version of the driver, or set "
    "nvml_library in [ext_drivers] of cyborg.conf to its path",
)
NVML_DRIVER_NOT_LOADED = Code(
    "nvml-driver-not-loaded",
    Severity.WARNING,
    "NVIDIA's library does not find the driver to which the card is bound",
    "NVML answers that no driver is loaded while sysfs shows a card bound to it: the device nodes "
    f"/dev/nvidia* are missing, or the driver failed while it started. {_NO_MATTER}",
    "Run nvidia-modprobe -u -c=0 to make the device nodes, and look at the kernel log for NVRM; in "
    "a container, pass /dev/nvidiactl and /dev/nvidia0 and so on in",
)
NVML_VERSION_MISMATCH = Code(
    "nvml-version-mismatch",
    Severity.WARNING,
    "NVIDIA's library and the loaded driver are of different versions",
    "The library was upgraded and the module that is loaded is still the old one, or the agent's "
    f"container brings a library of its own. {_NO_MATTER}",
    "Reboot the host, or unload the modules nvidia_uvm, nvidia_drm, nvidia_modeset and nvidia and "
    "load them again while nothing uses a card",
)
NVML_NO_PERMISSION = Code(
    "nvml-no-permission",
    Severity.WARNING,
    "The agent's user may not ask NVIDIA's driver",
    "The user of cyborg-agent cannot open /dev/nvidiactl or the card's own /dev/nvidiaN, or "
    f"a cgroup keeps it away. {_NO_MATTER}",
    "Give the user of cyborg-agent read and write permission for /dev/nvidiactl and /dev/nvidia*",
)
NVML_TIMEOUT = Code(
    "nvml-timeout",
    Severity.WARNING,
    "NVIDIA's library does not answer in time",
    "The driver hangs, or a card takes long to start because nothing keeps it awake. The process "
    f"that asked was killed. {_NO_MATTER}",
    "See whether nvidia-smi answers. If it does, but late, enable persistence mode or raise "
    "nvml_timeout in [ext_drivers] of cyborg.conf; if it hangs, the host needs a reboot",
)
NVML_FAILED = Code(
    "nvml-failed",
    Severity.WARNING,
    "NVIDIA's library failed",
    "It crashed, answered with an error that has no finding of its own, or what came back is not "
    f"an answer. {_NO_MATTER}",
    "See whether nvidia-smi works, and look at the kernel log for NVRM and Xid",
)
GPU_LOST = Code(
    "gpu-lost",
    Severity.WARNING,
    "NVIDIA's driver has lost the card",
    "The card is bound to nvidia and NVML does not list it or says that it is lost: it has fallen "
    "off the bus, its power failed, or the driver could not start it. An instance would not get a "
    "working card.",
    "Look at the kernel log for Xid 79 and NVRM of this address; reset the card or power-cycle the "
    "host, and have the card, its power and its riser checked if it happens again",
)
GPU_RESET_REQUIRED = Code(
    "gpu-reset-required",
    Severity.WARNING,
    "The card needs a reset before it works again",
    "NVML says of the card that nothing but a reset brings it back.",
    "Reset the card while nothing uses it: nvidia-smi --gpu-reset -i ADDRESS, or a reboot of the "
    "host",
)
IN_USE_BY_HOST = Code(
    "in-use-by-host",
    Severity.WARNING,
    "Processes of the host use the card",
    "While a process has the card open, the write that unbinds it from nvidia does not return "
    "(nv-pci.c of NVIDIA's driver), and with it libvirt and Nova wait.",
    "Stop the processes before an instance gets the card, or take the card out of what is offered "
    "(exclude in [ext_drivers] of cyborg.conf)",
)
ECC_ERRORS = Code(
    "ecc-errors",
    Severity.WARNING,
    "The card's memory has had errors that could not be corrected",
    "They were counted since the driver was loaded. What an instance computes may be wrong, or end "
    "with an Xid.",
    "Look at the kernel log for Xid 48, 63, 64, 94 and 95, reset the card, and have it replaced if "
    "the errors come back",
)
ROW_REMAPPING = Code(
    "row-remapping",
    Severity.WARNING,
    "Memory of the card is worn",
    "Rows or pages of its memory are to be replaced at the next reset, or there were no spare rows "
    "left to replace one.",
    "Reset the card while nothing uses it; where a remapping failed, have the card replaced",
)


class _Silence(NamedTuple):
    """What is said of a card when NVML says nothing."""

    code: Code
    message: str
    remedy: str | None = None


_SILENCES = {
    State.NO_BINDING: _Silence(
        NVML_MISSING,
        "The Python package nvidia-ml-py is not installed",
        "Install the Python package nvidia-ml-py where cyborg-agent runs",
    ),
    State.NO_LIBRARY: _Silence(NVML_MISSING, "libnvidia-ml.so.1 cannot be loaded"),
    State.DRIVER_NOT_LOADED: _Silence(
        NVML_DRIVER_NOT_LOADED, "The card is bound to nvidia, and NVML finds no driver"
    ),
    State.VERSION_MISMATCH: _Silence(
        NVML_VERSION_MISMATCH, "NVML and the loaded driver are of different versions"
    ),
    State.NO_PERMISSION: _Silence(NVML_NO_PERMISSION, "NVML may not open the driver"),
    State.TIMEOUT: _Silence(NVML_TIMEOUT, "NVML does not answer"),
    State.CRASHED: _Silence(NVML_FAILED, "NVML crashed"),
    State.MALFORMED: _Silence(NVML_FAILED, "What NVML's process printed is no answer"),
    State.FAILED: _Silence(NVML_FAILED, "NVML failed"),
}
_LIBRARY = "libnvidia-ml.so.1"
_MOST_NAMED = 5


class NvmlCheck(Check):
    """What NVML says of a card is told; none of it skips the card."""

    codes = (
        NVML_MISSING,
        NVML_DRIVER_NOT_LOADED,
        NVML_VERSION_MISMATCH,
        NVML_NO_PERMISSION,
        NVML_TIMEOUT,
        NVML_FAILED,
        GPU_LOST,
        GPU_RESET_REQUIRED,
        IN_USE_BY_HOST,
        ECC_ERRORS,
        ROW_REMAPPING,
    )
    precedence = 90

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what NVML says of a card that is given away whole.

        :raises ReadError: when it cannot be told whether it has virtual functions.
        """
        if accelerator.manager is None:
            is_divided = bool(accelerator.function.virtual_functions)
            yield from _examined(accelerator, surroundings, is_divided)

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what NVML says of a card that stays with the host, which serves its parts."""
        yield from _examined(accelerator, surroundings, is_divided=True)


def _examined(
    accelerator: Accelerator, surroundings: Surroundings, is_divided: bool
) -> Iterator[Finding | Passed]:
    function, host = accelerator.function, surroundings.host
    if accelerator.inferred or not _is_nvidias(accelerator):
        return
    answer = _answer(surroundings)
    if answer.state is State.NOT_ASKED:
        yield Passed(NVML_MISSING, ((function.path_of("driver"), f"not asked: {answer.detail}"),))
    elif answer.state is State.ANSWERED:
        yield from _of_gpu(accelerator, answer, is_divided)
    else:
        yield _silence(accelerator, answer, host)


def _answer(surroundings: Surroundings) -> NvmlAnswer:
    host, options = surroundings.host, surroundings.options
    return host.nvml.ask(host.functions, options.nvml_library, options.nvml_timeout)


def told_of(accelerator: Accelerator, surroundings: Surroundings) -> tuple[NvmlAnswer, Gpu] | None:
    """Return what NVML says of a card that works, ``None`` where it says nothing of it."""
    if accelerator.inferred or accelerator.manager or not _is_nvidias(accelerator):
        return None
    answer = _answer(surroundings)
    gpu = answer.gpu(accelerator.function.address)
    return (answer, gpu) if gpu and not _is_lost(gpu) else None


def _is_lost(gpu: Gpu) -> bool:
    return not gpu.is_listed or "GPU_IS_LOST" in gpu.errors


def _is_nvidias(accelerator: Accelerator) -> bool:
    """Return whether NVIDIA's driver has the card; whether that can be read is others' business."""
    identity = accelerator.function.identity
    try:
        is_bound = accelerator.function.driver == DRIVER
    except ReadError:
        return False
    return is_bound and identity is not None and identity.id.vendor == VENDOR


def _silence(accelerator: Accelerator, answer: NvmlAnswer, host: Host) -> Finding:
    silence = _SILENCES[answer.state]
    evidence = [(answer.library or _LIBRARY, answer.detail or str(answer.state))]
    message = silence.message
    if answer.state is State.VERSION_MISMATCH:
        loaded = _module_version(host)
        if answer.nvml_version:
            # 12.570.195.03: the first number is the release of CUDA.
            message = f"NVML is {answer.nvml_version}, and the loaded driver {loaded or 'another'}"
        evidence.append((MODULE_VERSION, loaded or "not known"))
    elif answer.state in (State.TIMEOUT, State.CRASHED, State.MALFORMED, State.FAILED):
        message = f"{message}: {answer.detail}"
    return silence.code.finding(
        accelerator.function.address, message, *evidence, remedy=silence.remedy
    )


def _module_version(host: Host) -> str | None:
    try:
        return host.tree.text(MODULE_VERSION)
    except ReadError:
        return None


def _of_gpu(
    accelerator: Accelerator, answer: NvmlAnswer, is_divided: bool
) -> Iterator[Finding | Passed]:
    """Yield what an NVML that works says of one card."""
    function = accelerator.function
    gpu = answer.gpu(function.address)
    if gpu is None or _is_lost(gpu):
        yield from _unlisted(accelerator, answer, gpu)
        return
    yield Passed(GPU_LOST, (said(answer, f"lists {gpu.name or 'it'}"),))
    if "RESET_REQUIRED" in gpu.errors:
        yield _needs_reset(accelerator, answer)
    else:
        yield Passed(GPU_RESET_REQUIRED, (said(answer, "nothing of the kind"),))
    yield from _unanswered(accelerator, answer, gpu)
    yield from _health(accelerator, answer, gpu)
    if not is_divided and gpu.processes is not None:
        yield _use(accelerator, answer, gpu)


def _unanswered(
    accelerator: Accelerator, answer: NvmlAnswer, gpu: Gpu
) -> Iterator[Finding | Passed]:
    """Yield which questions a card that works gave no answer to."""
    for error in gpu.errors:
        if error != "RESET_REQUIRED":
            finding = _SILENCES[state_of(error)].code.finding(
                accelerator.function.address,
                f"NVML answers some questions about this card with {error}",
                said(answer, error),
            )
            yield finding._replace(lowered=Severity.INFO)


def _unlisted(
    accelerator: Accelerator, answer: NvmlAnswer, gpu: Gpu | None
) -> Iterator[Finding | Passed]:
    """Yield why NVML gives no handle for a card that is bound to its driver."""
    address = accelerator.function.address
    errors = gpu.errors if gpu else ()
    shown = said(answer, ", ".join(errors) or answer.detail or "does not list it")
    if "RESET_REQUIRED" in errors:
        yield _needs_reset(accelerator, answer)
    elif State.NO_PERMISSION in map(state_of, errors):
        yield NVML_NO_PERMISSION.finding(address, "NVML may not open this card", shown)
    elif errors and not {"GPU_IS_LOST", "NOT_FOUND", "GPU_NOT_FOUND"} & set(errors):
        yield _SILENCES[state_of(errors[0])].code.finding(
            address, f"NVML says nothing of this card but {', '.join(errors)}", shown
        )
    elif "GPU_IS_LOST" in errors:
        yield GPU_LOST.finding(address, "NVML says that the card is lost", shown)
    else:
        yield GPU_LOST.finding(address, "It is bound to nvidia, and NVML does not list it", shown)


def _needs_reset(accelerator: Accelerator, answer: NvmlAnswer) -> Finding:
    return GPU_RESET_REQUIRED.finding(
        accelerator.function.address,
        "NVML says that the card needs a reset",
        said(answer, "RESET_REQUIRED"),
        remedy=f"Reset the card while nothing uses it: nvidia-smi --gpu-reset -i "
        f"{accelerator.function}, or a reboot of the host",
    )


def _health(accelerator: Accelerator, answer: NvmlAnswer, gpu: Gpu) -> Iterator[Finding | Passed]:
    address = accelerator.function.address
    if gpu.ecc is not None and gpu.ecc.volatile is not None:
        shown = said(
            answer,
            f"uncorrected ECC errors {gpu.ecc.volatile}, in its life {gpu.ecc.aggregate}, "
            f"corrected {'not told' if gpu.ecc.corrected is None else gpu.ecc.corrected}",
        )
        if gpu.ecc.volatile:
            yield ECC_ERRORS.finding(
                address, f"{gpu.ecc.volatile} errors of its memory could not be corrected", shown
            )
        else:
            yield Passed(ECC_ERRORS, (shown,))
    if gpu.rows is not None:
        yield _worn_rows(accelerator, answer, gpu)
    if gpu.retired_pages_pending:
        yield ROW_REMAPPING.finding(
            address,
            "Pages of its memory are retired at the next reset",
            said(answer, "retired pages pending"),
        )


def _worn_rows(accelerator: Accelerator, answer: NvmlAnswer, gpu: Gpu) -> Finding | Passed:
    rows = gpu.rows
    shown = said(
        answer,
        f"remapped rows {rows.correctable} correctable, {rows.uncorrectable} uncorrectable, "
        f"pending {'yes' if rows.is_pending else 'no'}, "
        f"failed {'yes' if rows.has_failed else 'no'}",
    )
    address = accelerator.function.address
    if rows.has_failed:
        return ROW_REMAPPING.finding(address, "A row of its memory could not be replaced", shown)
    if rows.is_pending:
        return ROW_REMAPPING.finding(
            address, "Rows of its memory are replaced at the next reset", shown
        )
    return Passed(ROW_REMAPPING, (shown,))


def _use(accelerator: Accelerator, answer: NvmlAnswer, gpu: Gpu) -> Finding | Passed:
    if not gpu.processes:
        return Passed(IN_USE_BY_HOST, (said(answer, "no process"),))
    named = [str(each) for each in gpu.processes[:_MOST_NAMED]]
    others = len(gpu.processes) - len(named)
    who = ", ".join(named) + (f" and {others} more" if others else "")
    finding = IN_USE_BY_HOST.finding(
        accelerator.function.address, f"It is in use on the host by {who}", said(answer, who)
    )
    # Those of the vGPU manager serve instances.
    serves = gpu.virtualization_mode == "host-vgpu"
    return finding._replace(lowered=Severity.INFO) if serves else finding


def said(answer: NvmlAnswer, what: str) -> tuple[str, str]:
    """Return a piece of evidence: the library, and what it said."""
    return answer.library or _LIBRARY, what
