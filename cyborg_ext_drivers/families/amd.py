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

"""AMD's GPUs: Instinct, Radeon and Radeon Pro, whole or divided by MxGPU.

Newer Instinct cards are processing accelerators (class 1200), others display controllers.
What else is on such a card (audio, USB, the switch to the slot) has other classes, and what
is part of a processor is told by the catalogue.

Next stop: :mod:`cyborg_ext_drivers.families.intel`.
"""

from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host.identity import Identity


class AmdFamily(Family):
    """AMD GPUs."""

    name = "amd_gpu"
    driver = "ext_amd_gpu_driver"
    kind = "GPU"
    resource_class = "PGPU"
    virtual_function_class = "VGPU"

    def recognises(self, identity: Identity, kind: str | None) -> bool:
        """Return whether it is a display controller or processing accelerator of AMD's."""
        is_gpu = identity.pci_class.is_display or identity.pci_class.base_and_sub == "1200"
        return identity.id.vendor == "1002" and (kind == "GPU" or (kind is None and is_gpu))
