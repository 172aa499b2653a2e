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

"""AI accelerators of any maker: what the catalogue calls one, and nothing else.

Their classes say little (0b40, 1200, 0880 and others), so a new chip is an entry in a
catalogue file.

Next stop: :mod:`cyborg_ext_drivers.survey`.
"""

from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host.identity import Identity


class AiAcceleratorFamily(Family):
    """AI accelerators."""

    name = "ai_accelerator"
    driver = "ext_ai_accelerator_driver"
    kind = "AICHIP"
    resource_class = "CUSTOM_AICHIP"

    def recognises(self, identity: Identity, kind: str | None) -> bool:
        """Return whether the catalogue calls it an AI chip."""
        return kind == "AICHIP"
