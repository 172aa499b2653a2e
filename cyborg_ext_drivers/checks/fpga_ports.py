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

"""What the DFL driver, and the one of OPAE 1.x before it, say of an Intel FPGA.

Next stop: :mod:`cyborg_ext_drivers.checks.xrt`.
"""

from collections.abc import Iterator, Sequence

from cyborg_ext_drivers.checks.base import Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.checks.fpga_codes import (
    FPGA_DRIVER_MISSING,
    FPGA_FUNCTIONS_DIFFER,
    FPGA_NO_AFU,
    FPGA_REGION_UNKNOWN,
)
from cyborg_ext_drivers.errors import Malformed, ReadError
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.fpga import ManagementEngine, Port
from cyborg_ext_drivers.host.pci import PciFunction

_DRIVERS = ("dfl-pci", "intel-fpga-pci")
_READ_AGAIN = (
    "Wait while the port is being programmed or reset (EBUSY); otherwise look at the path as the "
    "user of cyborg-agent, and at the kernel log for the card"
)


def told_by_part(accelerator: Accelerator) -> Iterator[Finding | Passed]:
    """Yield what the ports of a function tell, and of a whole card what its engine does.

    :raises ReadError: when it cannot be told what the driver shows.
    """
    function = accelerator.function
    yield _shown(function)
    if function.fpga.is_shown:
        yield from _ports(function)
        yield from _differing(accelerator, function, (function,), "ports", "fpga_region")
    if accelerator.manager is None:
        yield from _engines(function)


def told_by_card(
    accelerator: Accelerator, surroundings: Surroundings
) -> Iterator[Finding | Passed]:
    """Yield what the engine of a card tells of which the parts are given away.

    :raises ReadError: when it cannot be told what the driver shows.
    """
    function = accelerator.function
    yield _shown(function)
    yield from _engines(function)
    yield from _alike(accelerator, surroundings)


def _shown(function: PciFunction) -> Finding | Passed:
    path, driver = function.path_of("fpga_region"), function.driver
    if function.fpga.is_shown:
        return Passed(FPGA_DRIVER_MISSING, ((function.path, f"shown by {driver or 'a driver'}"),))
    remedy = f"Bind {function} to dfl-pci, or to intel-fpga-pci of OPAE 1.x"
    if driver in _DRIVERS:
        remedy = f"Look in the kernel log for why {driver} shows nothing of {function}"
    finding = FPGA_DRIVER_MISSING.finding(
        function.address,
        f"It is bound to {driver}, which shows nothing of its ports"
        if driver
        else "It is bound to no driver",
        (path, "absent"),
        (function.path_of("driver"), driver or "absent"),
        remedy=remedy,
    )
    if not function.is_on_vfio:
        return finding
    # So it is while an instance has it.
    remedy = f"Nothing is to be done while an instance has it; {remedy[0].lower()}{remedy[1:]} then"
    return finding._replace(lowered=Severity.INFO, remedy=remedy)


def _ports(function: PciFunction) -> Iterator[Finding | Passed]:
    ports = function.fpga.ports
    if not ports:
        yield FPGA_NO_AFU.finding(
            function.address,
            "It has no port at the moment",
            (function.path, "no dfl-port or intel-fpga-port"),
            remedy="A port that was released is waiting for virtual functions: enable them, or "
            "assign the port again (fpgaport assign)",
        )
    for port in ports:
        yield _port(function, port)


def _port(function: PciFunction, port: Port) -> Finding | Passed:
    path = port.path_of("afu_id")
    try:
        id = port.afu_id
    except ReadError as error:
        remedy = None if isinstance(error, Malformed) else _READ_AGAIN
        evidence = (error.path, error.value)
        return FPGA_NO_AFU.finding(function.address, str(error), evidence, remedy=remedy)
    if id is None:
        return FPGA_NO_AFU.finding(function.address, "Its port gives no id", (path, "absent"))
    return Passed(FPGA_NO_AFU, ((path, id),))


def _engines(function: PciFunction) -> Iterator[Finding | Passed]:
    for engine in function.fpga.engines:
        yield _region(function, engine)


def _region(function: PciFunction, engine: ManagementEngine) -> Finding | Passed:
    try:
        ids = engine.interface_ids
    except ReadError as error:
        return FPGA_REGION_UNKNOWN.finding(function.address, str(error), (error.path, error.value))
    # A card whose image is fixed has none.
    shown = tuple((each.path, each.id) for each in ids) or ((engine.path, "no interface id"),)
    return Passed(FPGA_REGION_UNKNOWN, shown)


def _alike(accelerator: Accelerator, surroundings: Surroundings) -> Iterator[Finding | Passed]:
    """Yield whether the virtual functions of each physical function hold the same."""
    for physical in (accelerator.function, *accelerator.others):
        virtual = surroundings.host.functions.virtual_functions_of(physical)
        yield from _differing(accelerator, physical, virtual, "virtual functions", "virtfn*")


def _differing(
    accelerator: Accelerator,
    function: PciFunction,
    given: Sequence[PciFunction],
    what: str,
    attribute: str,
) -> Iterator[Finding]:
    ids = sorted(filter(None, accelerator.family.function_ids(accelerator, given)))
    if len(ids) > 1:
        yield FPGA_FUNCTIONS_DIFFER.finding(
            function.address,
            f"Its {what} hold {len(ids)} different functions",
            (function.path_of(attribute), ", ".join(ids)),
        )
