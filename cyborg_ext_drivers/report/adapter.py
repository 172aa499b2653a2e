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

"""Reports as the objects that Cyborg's agent sends to its conductor (Cyborg 14 to 17)."""

from cyborg.common import constants
from cyborg.objects.driver_objects import (
    driver_attach_handle,
    driver_attribute,
    driver_controlpath_id,
    driver_deployable,
    driver_device,
)

from cyborg_ext_drivers.report.contract import DeployableReport, DeviceReport


def to_driver_device(report: DeviceReport) -> driver_device.DriverDevice:
    """Return a report as Cyborg's object, every field of it set."""
    fields = {
        "type": report.type,
        "vendor": report.vendor,
        "model": report.model,
        "std_board_info": report.std_board_info,
        "vendor_board_info": report.vendor_board_info,
        "stub": False,
        "controlpath_id": _new(
            driver_controlpath_id.DriverControlPathID,
            cpid_type="PCI",
            cpid_info=report.cpid_info,
        ),
        "deployable_list": [_to_driver_deployable(part) for part in report.deployables],
    }
    if "device_state" in driver_device.DriverDevice.fields:
        # Since Cyborg 17; the state that it gives a device which it sees for the first time.
        fields["device_state"] = constants.DEVICE_STATE_AVAILABLE
    return _new(driver_device.DriverDevice, **fields)


def _new(kind: type, **fields):
    """Return one of Cyborg's objects; the timestamps, which its database sets, are ``None``."""
    return kind(created_at=None, updated_at=None, **fields)


def _to_driver_deployable(report: DeployableReport) -> driver_deployable.DriverDeployable:
    return _new(
        driver_deployable.DriverDeployable,
        name=report.name,
        num_accelerators=report.num_accelerators,
        driver_name=report.driver_name,
        attribute_list=[
            _new(driver_attribute.DriverAttribute, key=key, value=value)
            for key, value in report.attributes
        ],
        attach_handle_list=[
            _new(
                driver_attach_handle.DriverAttachHandle,
                attach_type=attach_type,
                attach_info=info,
                in_use=False,
            )
            for attach_type, info in report.handles
        ],
    )
