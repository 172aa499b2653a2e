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

"""What XRT's driver says of an Alveo or Versal card.

Next stop: :mod:`cyborg_ext_drivers.checks.xrt`.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.checks.base import Finding, Passed
from cyborg_ext_drivers.checks.fpga_codes import FPGA_DRIVER_MISSING, FPGA_REGION_UNKNOWN
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.pci import PciFunction

_DRIVER = "xclmgmt"


def told_by_card(accelerator: Accelerator) -> Iterator[Finding | Passed]:
    """Yield whether the managing function is on its driver, and what that cannot tell.

    :raises ReadError: when it cannot be told what the driver shows.
    """
    yield _managed(accelerator.function)
    yield _told(accelerator.function)


def _managed(function: PciFunction) -> Finding | Passed:
    driver = function.driver
    if driver == _DRIVER or function.xrt.is_managed:
        return Passed(FPGA_DRIVER_MISSING, ((function.path_of("driver"), driver or "absent"),))
    return FPGA_DRIVER_MISSING.finding(
        function.address,
        f"The managing function is bound to {driver or 'no driver'}, not to {_DRIVER}",
        (function.path_of("driver"), driver or "absent"),
        remedy=f"Install XRT on the host and bind {function} to {_DRIVER}",
    )


def _told(function: PciFunction) -> Finding | Passed:
    xrt = function.xrt
    try:
        if xrt.is_ready is False:
            return FPGA_REGION_UNKNOWN.finding(
                function.address,
                "XRT's driver has not done with it, and tells nothing of the shell",
                (xrt.path_of("ready"), 0),
                remedy=f"Wait; if it stays so, look with xbmgmt examine --device {function}",
            )
        told = [
            (xrt.path_of(name), " ".join(ids))
            for name, ids in (
                ("interface_uuids", xrt.interface_uuids),
                ("logic_uuids", xrt.logic_uuids),
            )
            if ids
        ]
        shell = xrt.shell
    except ReadError as error:
        return FPGA_REGION_UNKNOWN.finding(function.address, str(error), (error.path, error.value))
    return Passed(FPGA_REGION_UNKNOWN, (*told, (xrt.path_of("rom.*/VBNV"), shell or "absent")))
