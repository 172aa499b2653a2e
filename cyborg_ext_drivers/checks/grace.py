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

"""GPUs of NVIDIA Grace, whose memory the processor shares coherently.

The memory is no PCI region of the card; only the variant driver nvgrace_gpu_vfio_pci, which
knows it from ACPI, gives it to an instance (drivers/vfio/pci/nvgrace-gpu/main.c).  While the
driver ``nvidia`` holds the card, the memory may be a NUMA node of the host.

Next stop: :mod:`cyborg_ext_drivers.checks.confidential`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.kernel import INSTALLED, PCI_DRIVERS, Kernel
from cyborg_ext_drivers.host.numa import HAS_CPU, GpuMemory, status_path

VARIANT_DRIVER_MISSING = Code(
    "variant-driver-missing",
    Severity.WARNING,
    "Plain vfio-pci would not give the card's coherent memory to an instance",
    "The memory of a GPU of Grace Hopper or Grace Blackwell is no PCI region. vfio-pci binds the "
    "card and leaves the memory out, so the driver in the instance finds none; "
    "nvgrace_gpu_vfio_pci, in Linux since 6.9, adds it. libvirt chooses it by itself since 10.0.0.",
    "Bind the card to nvgrace_gpu_vfio_pci",
)
GPU_MEMORY_NODE = Code(
    "gpu-memory-node",
    Severity.INFO,
    "A NUMA node without processors is the card's memory",
    "While the driver nvidia holds the card, the kernel has the card's memory as a NUMA node and "
    "may use it for anything. The card can be given away only when all of it has been freed.",
    "Bind the card to nvgrace_gpu_vfio_pci at boot, or load nvidia with "
    "NVreg_CoherentGPUMemoryMode=driver; place no instance's memory on the node",
)

#: The ids that the variant driver knows (ibid., nvgrace_gpu_vfio_pci_table).
IDS = frozenset(("10de:2342", "10de:2345", "10de:2348", "10de:2941", "10de:31c2"))
DRIVER = "nvgrace_gpu_vfio_pci"
_PLACE = "drivers/vfio/pci/nvgrace-gpu"


class GraceCheck(Check):
    """The instance gets the coherent memory, and the host has nothing in it."""

    codes = (VARIANT_DRIVER_MISSING, GPU_MEMORY_NODE)
    precedence = 71

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what is to be said of a GPU of Grace that is given away whole."""
        is_grace = str(accelerator.identity.id) in IDS
        if is_grace and not accelerator.manager:
            yield _driver(accelerator, surroundings.host.kernel)
            yield _node(accelerator, surroundings.host.gpu_memory)


def _driver(accelerator: Accelerator, kernel: Kernel) -> Finding | Passed:
    function = accelerator.function
    bound = (function.path_of("driver"), function.driver or "absent")
    if function.driver == "vfio-pci":
        return VARIANT_DRIVER_MISSING.finding(
            function.address,
            "It is bound to vfio-pci, which leaves its coherent memory out",
            bound,
            remedy=f"Bind it to the variant driver: driverctl set-override {function} {DRIVER}",
        )
    loaded = (f"{PCI_DRIVERS}/{DRIVER}", "present")
    if function.is_on_vfio or kernel.has_driver(DRIVER):
        return Passed(VARIANT_DRIVER_MISSING, (bound if function.is_on_vfio else loaded,))
    path = f"{INSTALLED}/{kernel.release}/kernel/{_PLACE}"
    is_offered = kernel.offers_module(_PLACE, DRIVER)
    if is_offered is not False:
        return Passed(VARIANT_DRIVER_MISSING, ((path, "present" if is_offered else "not seen"),))
    return VARIANT_DRIVER_MISSING.finding(
        function.address,
        f"The kernel {kernel.release} has no driver {DRIVER}, so it would be given away on plain "
        "vfio-pci, without its coherent memory",
        (path, "absent"),
        remedy=f"Boot a kernel that has {DRIVER} (Linux 6.9 and later, CONFIG_NVGRACE_GPU_VFIO_PCI)"
        ", or install the package with its further modules",
    )


def _node(accelerator: Accelerator, memory: GpuMemory) -> Finding | Passed:
    path = status_path(accelerator.function)
    node = memory.node_of(accelerator.function)
    if node is None:
        return Passed(GPU_MEMORY_NODE, ((path, "no node that is online"),))
    evidence: list[tuple[str, object]] = [(path, f"Node {node}, online")]
    has_cpus = memory.has_cpus(node)
    if has_cpus is not None:
        evidence.append((HAS_CPU, memory.with_cpus or "none"))
    return GPU_MEMORY_NODE.finding(
        accelerator.address,
        f"Its memory is NUMA node {node} of the host"
        f"{'' if has_cpus else ', which has no processors'}",
        *evidence,
    )
