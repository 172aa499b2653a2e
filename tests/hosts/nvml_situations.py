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

"""Every finding that rests on NVML, on a described host, with its remedy."""

import functools
from collections.abc import Sequence

import pytest

from cyborg_ext_drivers.testing.nvml_stub import NoCompiler
from tests.hosts.described_site import Site, Situation
from tests.hosts.vgpu_situations import vgpu

A10, A100, A100_PENDING = "0000:17:00.0", "0000:17:00.0", "0000:ca:00.0"
LOST, UNLISTED, TO_RESET = "0000:31:00.0", "0000:ca:00.0", "0000:e1:00.0"
DIVIDED = "0000:c1:00.0"
A10S, A100S, L40S = "library-newer-than-module", "a100-in-mig-mode", "gpus-that-their-driver-lost"


def with_nvml(
    site: Site, state: str | None = None, seconds: float = 5, lines: Sequence[str] = ()
) -> None:
    """Let NVML be asked of the fake host, whose cyborg.conf has further lines."""
    try:
        library = site.fake.nvml_library
    except NoCompiler as error:
        pytest.skip(str(error))
    if state is not None:
        site.fake.set_nvml(state)
    own = ("[ext_drivers]", f"nvml_library = {library}", f"nvml_timeout = {seconds}")
    site.configure(*own, *lines)


def in_state(state: str, seconds: float = 5):
    return functools.partial(with_nvml, state=state, seconds=seconds)


def mended(site: Site) -> None:
    site.fake.set_nvml("present")


def saying(address: str, **said):
    """Return a change of what NVML says of one card."""
    return lambda site: site.fake.set_nvml_of(address, **said)


def asked_of_mig(site: Site) -> None:
    """Ask a type that a MIG instance backs of a card that is not in MIG mode."""
    with_nvml(site, lines=vgpu("nvidia-474", DIVIDED))
    site.fake.set_nvml_of(DIVIDED, mig={"enabled": False})


def of_host(code: str, state: str, says: str, seconds: float = 5) -> Situation:
    return Situation(
        code=code,
        host=A10S,
        address=A10,
        prepare=in_state(state, seconds),
        says=says,
        remedy=mended,
    )


NVML_SITUATIONS = [
    of_host("nvml-missing", "missing", "the package that brings libnvidia-ml.so.1"),
    of_host("nvml-missing", "corrupt", "the package that brings libnvidia-ml.so.1"),
    of_host("nvml-driver-not-loaded", "driver-not-loaded", "nvidia-modprobe"),
    of_host("nvml-version-mismatch", "mismatch", "Reboot the host"),
    of_host("nvml-no-permission", "no-permission", "/dev/nvidiactl"),
    of_host("nvml-timeout", "hanging", "raise nvml_timeout", seconds=0.4),
    of_host("nvml-failed", "crashing", "nvidia-smi"),
    of_host("nvml-no-permission", "blocked", "/dev/nvidiactl"),
    of_host("nvml-failed", "unknown-error", "nvidia-smi"),
    of_host("gpu-lost", "lost", "Xid 79"),
    Situation(
        code="gpu-lost",
        host=L40S,
        address=LOST,
        prepare=with_nvml,
        says="power-cycle the host",
        remedy=saying(LOST, state="present"),
    ),
    Situation(
        code="gpu-lost",
        host=L40S,
        address=UNLISTED,
        prepare=with_nvml,
        says="power-cycle the host",
        remedy=saying(UNLISTED, state="present"),
    ),
    Situation(
        code="gpu-reset-required",
        host=L40S,
        address=TO_RESET,
        prepare=with_nvml,
        says="nvidia-smi --gpu-reset",
        remedy=saying(TO_RESET, state="present"),
    ),
    Situation(
        code="nvml-no-permission",
        host=L40S,
        address=LOST,
        prepare=lambda site: (with_nvml(site), saying(LOST, state="no-permission")(site)),
        says="/dev/nvidia*",
        remedy=saying(LOST, state="present"),
    ),
    Situation(
        code="mig-enabled",
        host=A100S,
        address=A100,
        prepare=with_nvml,
        says="nvidia-smi -mig 0",
        remedy=saying(A100, mig={"enabled": False}),
    ),
    Situation(
        code="mig-enabled",
        host=A100S,
        address=A100_PENDING,
        prepare=with_nvml,
        says="the pending mode takes effect",
        remedy=saying(A100_PENDING, mig={"enabled": False}),
    ),
    Situation(
        code="vgpu-mig-mode",
        host="a100-in-mig-mode-with-vgpu",
        address=DIVIDED,
        prepare=asked_of_mig,
        says="nvidia-smi -mig 1",
        remedy=saying(DIVIDED, mig={"enabled": True}),
    ),
    Situation(
        code="in-use-by-host",
        host=A100S,
        address=A100,
        prepare=with_nvml,
        says="Stop the processes",
        remedy=saying(A100, processes=None),
    ),
    Situation(
        code="ecc-errors",
        host=A100S,
        address=A100,
        prepare=lambda site: (with_nvml(site), saying(A100, ecc={"volatile": 2})(site)),
        says="reset the card",
        remedy=saying(A100, ecc={"aggregate": 2}),
    ),
    Situation(
        code="row-remapping",
        host=A100S,
        address=A100,
        prepare=lambda site: (with_nvml(site), saying(A100, rows={"pending": True})(site)),
        says="Reset the card",
        remedy=saying(A100, rows={"uncorrectable": 1}),
    ),
    Situation(
        code="row-remapping",
        host="two-t4",
        address="0000:3b:00.0",
        prepare=lambda site: (
            with_nvml(site),
            saying("0000:3b:00.0", retired_pages_pending=True)(site),
        ),
        says="Reset the card",
        remedy=saying("0000:3b:00.0", retired_pages_pending=False),
    ),
]
