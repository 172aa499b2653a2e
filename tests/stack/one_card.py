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

"""A driver of Cyborg whose host has one card."""

from cyborg.conf import CONF
from cyborg.objects.driver_objects import (
    driver_attach_handle,
    driver_attribute,
    driver_controlpath_id,
    driver_deployable,
    driver_device,
)

ADDRESS = '{"bus": "3b", "device": "00", "domain": "0000", "function": "0"}'
VIRTUAL = '{"bus": "3b", "device": "00", "domain": "0000", "function": "1"}'


class OneCard:
    """A driver whose host has one card; without handles the card is gone."""

    def __init__(
        self,
        handles=(ADDRESS,),
        accelerators=None,
        traits=("CUSTOM_GPU_ACME",),
        kind="GPU",
        resource_class="PGPU",
        driver_name="ACME",
    ):
        self.handles = handles
        self.accelerators = accelerators
        self.traits = traits
        self.kind = kind
        self.resource_class = resource_class
        self.driver_name = driver_name

    def discover(self):
        if not self.handles:
            return []
        return [
            driver_device.DriverDevice(
                vendor="acme",
                model="Fast",
                type=self.kind,
                std_board_info="{}",
                vendor_board_info="{}",
                stub=False,
                controlpath_id=driver_controlpath_id.DriverControlPathID(
                    cpid_type="PCI", cpid_info=ADDRESS
                ),
                deployable_list=[self._deployable()],
            )
        ]

    def _deployable(self):
        attributes = [("rc", self.resource_class)]
        attributes += [(f"trait_{trait}", trait) for trait in self.traits]
        return driver_deployable.DriverDeployable(
            name=f"{CONF.host}_0000:3b:00.0",
            driver_name=self.driver_name,
            num_accelerators=self.accelerators or len(self.handles),
            attribute_list=[
                driver_attribute.DriverAttribute(key=key, value=value) for key, value in attributes
            ],
            attach_handle_list=[
                driver_attach_handle.DriverAttachHandle(
                    attach_type="PCI", attach_info=info, in_use=False
                )
                for info in self.handles
            ],
        )
