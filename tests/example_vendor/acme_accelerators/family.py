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

"""Acme's NPUs: processing accelerators (class 1200) of vendor acce."""

from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host.identity import Identity


class AcmeNpuFamily(Family):
    """Acme NPUs, whole cards."""

    name = "acme_npu"
    driver = "acme_npu_driver"
    kind = "AICHIP"
    resource_class = "CUSTOM_ACME_NPU"

    def recognises(self, identity: Identity, kind: str | None) -> bool:
        """Return whether it is an NPU, one that the catalogue does not know yet included."""
        is_npu = identity.pci_class.base_and_sub == "1200"
        return identity.id.vendor == "acce" and (kind == "AICHIP" or (kind is None and is_npu))
