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

"""Intel's GPUs: Flex, Max, Arc and Arc Pro, whole or divided by SR-IOV.

Virtual functions have the id of the physical one.  The graphics of a processor are told by the
catalogue; virtual functions of them can be given away, they themselves never.

Next stop: :mod:`cyborg_ext_drivers.families.ai`.
"""

from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host.identity import Identity


class IntelGpuFamily(Family):
    """Intel GPUs."""

    name = "intel_gpu"
    driver = "ext_intel_gpu_driver"
    kind = "GPU"
    resource_class = "PGPU"
    virtual_function_class = "VGPU"

    def recognises(self, identity: Identity, kind: str | None) -> bool:
        """Return whether it is a display controller of Intel's."""
        is_gpu = kind == "GPU" or (kind is None and identity.pci_class.is_display)
        return identity.id.vendor == "8086" and is_gpu
