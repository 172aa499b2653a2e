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

"""What of programming FPGAs needs root's rights: a privsep context of its own.

The daemon takes an address and the path of an image, checks both again, decides itself which
tool writes the image and calls it.  So whoever has the agent can have images written to
cards, and can have no other program run nor any option given to one.

Next stop: :mod:`cyborg_ext_drivers.report.programming`.
"""

from collections.abc import Callable

from oslo_privsep import capabilities, priv_context

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.conf import MOST_SECONDS_TO_PROGRAM
from cyborg_ext_drivers.report import images, tools

# A context registers the options of its section itself (user, group, capabilities,
# helper_command ...), in oslo.config's global object and when it is made; it has to be made when
# this module is imported, as the daemon finds it by its name.  All others are in conf.
context = priv_context.PrivContext(
    "cyborg_ext_drivers",
    cfg_section="cyborg_ext_drivers_program",
    pypath=f"{__name__}.context",
    capabilities=[
        # The image is a file of the agent's user that nobody else may read.
        capabilities.CAP_DAC_READ_SEARCH,
        # Both makers' tools read the configuration space of a card beyond its first 64 bytes
        # (pci_read_config in the kernel's drivers/pci/pci-sysfs.c).  Devices and sysfs files
        # of FPGAs belong to root, which needs no capability for them.  Where root may gain
        # what it lost by starting a program, as is usual, a tool has all that the daemon was
        # started with; under no_new_privs it has these two.
        capabilities.CAP_SYS_ADMIN,
    ],
)


@context.entrypoint
def program_intel(address: str, image: str, seconds: int) -> None:
    """Write an image to a card of Intel's.

    :raises ExtDriversError: when that is not possible, or the tool fails.
    """
    _program(tools.of_intel, address, image, seconds)


@context.entrypoint
def program_xilinx(address: str, image: str, seconds: int) -> None:
    """Write an image to a card of Xilinx's.

    :raises ExtDriversError: when that is not possible, or the tool fails.
    """
    _program(tools.of_xilinx, address, image, seconds)


def _program(
    call_for: Callable[[PciAddress, images.Image], tools.Call],
    address: str,
    image: str,
    seconds: int,
) -> None:
    checked = PciAddress.parse(address)
    if checked.is_wide:
        # XRT keeps 16 bits of it, and would find another card.
        raise InvalidAddress(address, "no tool knows domains beyond ffff")
    limit = min(max(int(seconds), 1), MOST_SECONDS_TO_PROGRAM)
    found = images.read(image)
    tools.run(call_for(checked, found), found, limit)
