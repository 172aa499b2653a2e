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

"""The drivers that Cyborg's agent loads by the names in ``[agent] enabled_drivers``."""

from cyborg_ext_drivers.families.ai import AiAcceleratorFamily
from cyborg_ext_drivers.families.amd import AmdFamily
from cyborg_ext_drivers.families.intel import IntelGpuFamily
from cyborg_ext_drivers.families.intel_fpga import IntelFpgaFamily
from cyborg_ext_drivers.families.nvidia import NvidiaFamily
from cyborg_ext_drivers.families.xilinx_fpga import XilinxFpgaFamily
from cyborg_ext_drivers.report.driver import ExtDriver
from cyborg_ext_drivers.report.programming import (
    FPGADriver,
    IntelProgramming,
    XilinxProgramming,
)


class AmdGpuDriver(ExtDriver):
    """AMD GPUs: ``ext_amd_gpu_driver``."""

    family = AmdFamily


class IntelGpuDriver(ExtDriver):
    """Intel GPUs: ``ext_intel_gpu_driver``."""

    family = IntelGpuFamily


class AiAcceleratorDriver(ExtDriver):
    """AI accelerators of any maker: ``ext_ai_accelerator_driver``."""

    family = AiAcceleratorFamily


class IntelFpgaDriver(IntelProgramming, FPGADriver):
    """FPGA cards with Intel's and Altera's FPGAs: ``ext_intel_fpga_driver``."""

    family = IntelFpgaFamily
    VENDOR = IntelFpgaFamily.programmed_by


class XilinxFpgaDriver(XilinxProgramming, FPGADriver):
    """Alveo and Versal cards: ``ext_xilinx_fpga_driver``."""

    family = XilinxFpgaFamily
    VENDOR = XilinxFpgaFamily.programmed_by


class NvidiaGpuDriver(ExtDriver):
    """NVIDIA GPUs: ``ext_nvidia_gpu_driver``."""

    family = NvidiaFamily
