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

"""Drivers of FPGAs that Cyborg can program.

The conductor asks the agent, the agent downloads the image, looks for the direct subclass of
Cyborg's ``FPGADriver`` whose ``VENDOR`` is the ``driver_name`` of the deployable, makes one and
calls ``program`` (cyborg.agent.manager, cyborg.objects.extarq.fpga_ext_arq).  The conductor takes
whatever is returned for success, ``False`` too, so a failure is an exception.

Next stop: :mod:`cyborg_ext_drivers.drivers`.
"""

import abc
import json
import os
from collections.abc import Mapping

from cyborg.accelerator.drivers.fpga.base import FPGADriver
from cyborg.common import exception
from oslo_log import log

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.report import images, privileged
from cyborg_ext_drivers.report.driver import ExtDriver

__all__ = ["FPGADriver", "IntelProgramming", "ProgrammingDriver", "XilinxProgramming"]

LOG = log.getLogger(__name__)
# One line of a log; the middle of a longer one is left out.
_MOST_MESSAGE = 1500


class ProgrammingError(ExtDriversError, exception.CyborgException):
    """An image was not written to a card."""

    def __init__(self, message: str):
        #: One sentence; the conductor logs it.
        self.message = _shortened(message)
        super().__init__(self.message)


class ProgrammingDriver(ExtDriver):
    """A driver that writes images to the cards of its family.

    The final class derives from ``FPGADriver`` as well, and names its ``VENDOR``::

        class IntelFpgaDriver(IntelProgramming, FPGADriver):
            family = IntelFpgaFamily
            VENDOR = IntelFpgaFamily.programmed_by
    """

    @staticmethod
    @abc.abstractmethod
    def write(address: str, image: str, seconds: int) -> None:
        """Write an image to the card at an address: an entry point of a privsep context.

        :raises Exception: when it was not written.
        """

    def program(self, controlpath_id, image) -> bool:
        """Write the image at a path to a card, and return True.

        :param controlpath_id: something with the items ``cpid_type``, PCI, and ``cpid_info``, a
            mapping with domain, bus, device and function in hexadecimal digits, or its JSON text.
        :raises InvalidType: when its type is another one.
        :raises ProgrammingError: when the image was not written; says why.
        """
        try:
            address = _address(controlpath_id)
            path = images.read(os.path.abspath(image) if isinstance(image, str) else image).path
        except ExtDriversError as error:
            raise ProgrammingError(str(error)) from error
        LOG.info("Writing the image %s to the card at %s", path, address)
        try:
            self.write(str(address), path, self._surveyor.options.program_timeout)
        except ExtDriversError as error:
            raise ProgrammingError(f"The card at {address} was not programmed: {error}") from error
        except Exception as error:
            # What privsep raises when its daemon does not start or ends has no common base.
            reason = f"the privileged helper failed: {error or type(error).__name__}"
            raise ProgrammingError(f"The card at {address} was not programmed: {reason}") from error
        LOG.info("The image %s was written to the card at %s", path, address)
        return True


class IntelProgramming(ProgrammingDriver):
    """Intel's and Altera's cards, through OPAE's tools."""

    write = staticmethod(privileged.program_intel)


class XilinxProgramming(ProgrammingDriver):
    """AMD's Xilinx cards, through XRT's ``xbmgmt``."""

    write = staticmethod(privileged.program_xilinx)


def _shortened(message: str) -> str:
    if len(message) <= _MOST_MESSAGE:
        return message
    half = (_MOST_MESSAGE - len(" ... ")) // 2
    return f"{message[:half]} ... {message[-half:]}"


def _address(controlpath_id: object) -> PciAddress:
    try:
        # Over a message bus it is a dictionary; it begins as an object of Cyborg's database.
        kind, info = controlpath_id["cpid_type"], controlpath_id["cpid_info"]
    except (TypeError, LookupError, AttributeError):
        raise InvalidAddress(controlpath_id, "it is no control path") from None
    if kind != "PCI":
        raise exception.InvalidType(obj="controlpath_id", type=kind, expected="PCI")
    if isinstance(info, Mapping):
        try:
            info = json.dumps(dict(info))
        except (TypeError, ValueError, RecursionError):
            raise InvalidAddress(info, "it is more than text") from None
    return PciAddress.from_json(info)
