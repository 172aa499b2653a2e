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

"""The described host as it is now: its functions and how they hang together.

Nothing here touches a file; :mod:`._layout` makes the tree from it, anew after each
change, and writes what differs.
"""

import copy
import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cyborg_ext_drivers import errors
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.testing import _description
from cyborg_ext_drivers.testing._description import (
    OWN_GROUP,
    Fpga,
    FpgaPort,
    FunctionDescription,
    HostDescription,
    MediatedType,
)
from cyborg_ext_drivers.testing._files import Entry
from cyborg_ext_drivers.testing._oddities import Oddity
from cyborg_ext_drivers.testing._validation import DescriptionError, Fault

_BUS = "/sys/bus/pci/devices"
_FRAMEBUFFER = re.compile(r"framebuffer=(\w+)")
_MOST_INSTANCES = re.compile(r"max_instance=(\d+)")


class UnknownFunction(errors.ExtDriversError, LookupError):
    """An address that no function of the fake host has."""

    def __init__(self, address: PciAddress):
        self.address = address
        super().__init__(address)

    def __str__(self) -> str:
        return f"this host has no function {self.address}"


@dataclasses.dataclass(frozen=True, slots=True)
class MediatedDevice:
    """A mediated device on its parent: ``4b20d080-1b54-4048-85b3-a6a62d165c01``."""

    uuid: str
    parent: PciAddress
    type: str
    iommu_group: int


class Machine:
    """One host that changes: functions come and go, drivers bind, groups move."""

    def __init__(self, host: HostDescription):
        self.host = host
        self.functions: dict[PciAddress, FunctionDescription] = {}
        self.mediated: dict[str, MediatedDevice] = {}
        #: Every driver that was ever bound; it stays registered.
        self.drivers: set[str] = set()
        #: What is odd about the tree, by real path.
        self.oddities: dict[str, Oddity] = {}
        #: The stand-in for NVML; it lies on the host once somebody asks for it.
        self.nvml_library: Entry | None = None
        self._removed: dict[PciAddress, list[FunctionDescription]] = {}
        self._vfio: dict[PciAddress, int] = {}
        self._fpga: dict[tuple[PciAddress, str, int], int] = {}
        self._vfio_numbers = itertools.count()
        groups = (function.iommu_group for function in host.functions)
        self._next_group = max((g for g in groups if g is not None), default=-1) + 1
        for function in sorted(host.functions, key=lambda function: function.address):
            self.add(function)

    @property
    def description(self) -> HostDescription:
        """The host as it is now, as a description."""
        functions = tuple(self.functions[address] for address in sorted(self.functions))
        return dataclasses.replace(self.host, functions=functions)

    def get(self, address: PciAddress) -> FunctionDescription:
        """Return a function.

        :raises UnknownFunction: when there is none at this address.
        """
        try:
            return self.functions[address]
        except KeyError:
            raise UnknownFunction(address) from None

    def add(self, function: FunctionDescription) -> FunctionDescription:
        """Add a function and give it its group.

        :raises DescriptionError: when the address is taken.
        """
        if function.address in self.functions:
            fault = Fault(("address",), f"{function.address} is described twice")
            raise DescriptionError(str(function.address), [fault])
        if function.iommu_group == OWN_GROUP:
            function = dataclasses.replace(function, iommu_group=self.new_group())
        self._set(function)
        return function

    def plug(self, mapping: Mapping[str, Any]) -> FunctionDescription:
        """Add a function from the keys of a description; addresses may be values or texts.

        :raises DescriptionError: when a value is wrong or the address taken.
        :raises UnknownFunction: when its parent or physical function is not there.
        """
        texts = {k: str(v) if isinstance(v, PciAddress) else v for k, v in mapping.items()}
        function = _description.function(texts)
        for near in (function.parent, function.physfn):
            if near is not None:
                self.get(near)
        return self.add(function)

    def change(self, address: PciAddress, **changes) -> FunctionDescription:
        """Change what is true of a function, and what follows from it."""
        function = dataclasses.replace(self.get(address), **changes)
        self._set(function)
        if "driver" in changes:
            # Unbinding the parent's driver destroys its mediated devices.
            self._forget_mediated({address})
        return function

    def remove(self, address: PciAddress) -> list[PciAddress]:
        """Remove a function with its virtual functions and what lies below it."""
        self.get(address)
        gone = [address]
        for above in gone:
            gone.extend(
                function.address
                for function in self.functions.values()
                if above in (function.physfn, function.parent) and function.address not in gone
            )
        above = tuple(f"{self.directory(each)}/" for each in gone)
        self.oddities = {
            path: each for path, each in self.oddities.items() if not path.startswith(above)
        }
        self._removed[address] = [self.functions[each] for each in gone]
        for each in gone:
            del self.functions[each]
            self._vfio.pop(each, None)
            self._number_fpga(each, [])
        self._forget_mediated(set(gone))
        return gone

    def put_back(self, address: PciAddress) -> list[PciAddress]:
        """Add again what was removed with a function and return the addresses.

        :raises UnknownFunction: when nothing was removed there.
        """
        if address not in self._removed:
            raise UnknownFunction(address)
        return [self.add(function).address for function in self._removed.pop(address)]

    def place(self, path: str) -> str:
        """Return where a path really lies: a function's directory is not on the bus.

        :raises UnknownFunction: when it is below a function that is not there.
        """
        name, _, rest = path.removeprefix(f"{_BUS}/").partition("/")
        if not path.startswith(f"{_BUS}/") or not rest:
            return path
        address = PciAddress.parse(name)
        self.get(address)
        return f"{self.directory(address)}/{rest}"

    def copy(self) -> "Machine":
        """Return the same machine, to go back to."""
        same = Machine.__new__(Machine)
        for name, value in vars(self).items():
            setattr(same, name, copy.copy(value))
        return same

    def enable(
        self, address: PciAddress, count: int, driver: str | None, changes: dict[str, Any]
    ) -> list[PciAddress]:
        """Enable virtual functions and return their addresses (drivers/pci/iov.c).

        :raises ValueError: when the kernel would refuse.
        """
        physical = dataclasses.replace(self.get(address), sriov_numvfs=None, **changes)
        if not 0 < count <= (physical.sriov_totalvfs or 0):
            raise ValueError(f"{address} can have {physical.sriov_totalvfs or 0} virtual functions")
        if self.virtual_functions(address):
            raise ValueError(f"{address} has virtual functions already; disable them first")
        make = _description.virtual_function
        virtual = [make(physical, number, driver) for number in range(count)]
        physical, virtual = _fpga_divided(physical, virtual)
        self._set(physical)
        return [self.add(function).address for function in virtual]

    def disable(self, address: PciAddress) -> list[PciAddress]:
        """Take a function's virtual functions away and return their addresses."""
        virtual = self.virtual_functions(address)
        gone = [function.address for function in virtual]
        fpga = self.get(address).fpga
        if fpga is not None:
            for port in [port for each in virtual if each.fpga for port in each.fpga.ports]:
                fpga = fpga.with_port(port)
        for each in gone:
            self.remove(each)
        self.change(address, sriov_numvfs=None, fpga=fpga)
        return gone

    def change_port(self, address: PciAddress, number: int, **changes: Any) -> PciAddress:
        """Change a port of an FPGA and return the address of the function that has it.

        :raises ValueError: when neither the function nor a virtual one of it has it.
        """
        holder, port = self.port(address, number)
        fpga = holder.fpga.with_port(dataclasses.replace(port, **changes))
        return self.change(holder.address, fpga=fpga).address

    def port(self, address: PciAddress, number: int) -> tuple[FunctionDescription, FpgaPort]:
        """Return a port of an FPGA, and the function that has it now.

        :raises ValueError: when neither the function nor a virtual one of it has it.
        """
        for holder in (self.get(address), *self.virtual_functions(address)):
            for port in holder.fpga.ports if holder.fpga else ():
                if port.number == number:
                    return holder, port
        raise ValueError(f"{address} has no port {number}")

    def fpga_number(self, address: PciAddress, kind: str, place: int) -> int:
        """Return the number that the kernel gave to a part of an FPGA that is shown."""
        return self._fpga[address, kind, place]

    def create_mediated(self, parent: PciAddress, kind: str, uuid: str) -> MediatedDevice:
        """Create a mediated device in a group of its own.

        :raises ValueError: when the parent does not offer the type, or no more of it.
        """
        function = self.get(parent)
        offered = function.mdev_types if self.offers_mediated_types(function) else ()
        wanted = next((each for each in offered if each.id == kind), None)
        if wanted is None:
            raise ValueError(f"{parent} offers no type {kind}")
        if not self.room_for(function, wanted):
            raise ValueError(f"{parent} has no room for another {kind}")
        if uuid in self.mediated:
            raise ValueError(f"{uuid} exists already")
        self.mediated[uuid] = MediatedDevice(uuid, parent, kind, self.new_group())
        return self.mediated[uuid]

    def room_for(self, function: FunctionDescription, kind: MediatedType) -> int:
        """Return how many more mediated devices of a type a parent can have.

        All on one card are of one size, as NVIDIA's in equal-size mode; a virtual function has
        one at most.
        """
        on_card = self.mediated_beside(function.address)
        own = [each for each in on_card if each.parent == function.address]
        if any(self._size_of(each) != _size(kind) for each in on_card):
            return 0
        if function.physfn is None:
            return max(kind.available_instances - len(own), 0)
        most = _MOST_INSTANCES.search(kind.description or "")
        is_full = bool(own) or (most is not None and len(on_card) >= int(most[1]))
        return 0 if is_full else kind.available_instances

    def mediated_beside(self, parent: PciAddress) -> list[MediatedDevice]:
        """Return the mediated devices on the whole card that a parent is, or is part of."""
        parts = set(self.parents_beside(parent))
        return [each for each in self.mediated.values() if each.parent in parts]

    def parents_beside(self, parent: PciAddress) -> list[PciAddress]:
        """Return the functions of the whole card that a parent is, or is part of."""
        card = self.get(parent).physfn or parent
        return [
            each.address for each in self.functions.values() if card in (each.address, each.physfn)
        ]

    def _size_of(self, device: MediatedDevice) -> str:
        kinds = self.functions[device.parent].mdev_types
        return next((_size(each) for each in kinds if each.id == device.type), device.type)

    def _set(self, function: FunctionDescription) -> None:
        self.functions[function.address] = function
        if function.iommu_group is not None:
            self._next_group = max(self._next_group, function.iommu_group + 1)
        if function.driver is not None:
            self.drivers.add(function.driver)
        self._number_fpga(function.address, _fpga_parts(function))
        if not function.is_on_vfio:
            self._vfio.pop(function.address, None)
        elif function.address not in self._vfio:
            self._vfio[function.address] = next(self._vfio_numbers)

    def _number_fpga(self, address: PciAddress, parts: list[tuple[str, int]]) -> None:
        """Give each part of an FPGA the lowest number of its kind that is free on the host."""
        wanted = {(address, *part) for part in parts}
        for key in [key for key in self._fpga if key[0] == address and key not in wanted]:
            del self._fpga[key]
        for part in parts:
            if (address, *part) not in self._fpga:
                taken = {number for key, number in self._fpga.items() if key[1] == part[0]}
                free = (number for number in itertools.count() if number not in taken)
                self._fpga[(address, *part)] = next(free)

    def _forget_mediated(self, parents: Iterable[PciAddress]) -> None:
        kept = {uuid: m for uuid, m in self.mediated.items() if m.parent not in parents}
        self.mediated = kept

    def new_group(self) -> int:
        """Return the number of a group that does not exist yet."""
        self._next_group += 1
        return self._next_group - 1

    def directory(self, address: PciAddress) -> str:
        """Return a function's real directory below /sys/devices.

        A virtual function lies beside its physical function, not below it (drivers/pci/iov.c).
        """
        function = self.functions[address]
        if function.physfn in self.functions:
            above = self.directory(function.physfn).rpartition("/")[0]
        elif function.parent in self.functions:
            above = self.directory(function.parent)
        else:
            above = f"/sys/devices/pci{address.domain:04x}:{address.bus:02x}"
        return f"{above}/{address}"

    def virtual_functions(self, address: PciAddress) -> list[FunctionDescription]:
        """Return the virtual functions of a physical function in the order of their numbers."""
        if self.functions[address].sriov_totalvfs is None:
            return []
        found = [each for each in self.functions.values() if each.physfn == address]
        return sorted(found, key=lambda function: function.address)

    def buses_below(self, address: PciAddress) -> tuple[int, int]:
        """Return the lowest and the highest bus below a bridge."""
        below = [f.address.bus for f in self.functions.values() if f.parent == address]
        nearest = min(address.bus + 1, 0xFF)
        return min(below, default=nearest), max(below, default=nearest)

    def vfio_number(self, address: PciAddress) -> int:
        """Return N of the ``vfioN`` that a vfio driver made of a function."""
        return self._vfio[address]

    @property
    def is_iommu_active(self) -> bool:
        """Whether an IOMMU serves the host's functions."""
        return self.host.iommu in ("intel", "amd", "smmu")

    def group_of(self, function: FunctionDescription) -> int | None:
        """Return the group that a function has with the host's IOMMU as it is."""
        if self.is_iommu_active:
            return function.iommu_group
        if self.host.iommu == "vfio-noiommu" and function.is_on_vfio:
            return function.iommu_group
        return None

    def offers_mediated_types(self, function: FunctionDescription) -> bool:
        """Whether a function lists its types of mediated device.

        Only with a host driver; a physical function stops to when it has virtual functions.
        """
        is_held = function.driver is not None and not function.is_on_vfio
        return (
            bool(function.mdev_types) and is_held and not self.virtual_functions(function.address)
        )


def _size(kind: MediatedType) -> str:
    """Return the size of a type, by which it excludes others: its framebuffer, or itself."""
    match = _FRAMEBUFFER.search(kind.description or "")
    return match[1] if match else kind.id


def shown_ports(function: FunctionDescription) -> tuple[FpgaPort, ...]:
    """Return the ports that a function shows: not those that it has let go of."""
    if function.fpga is None:
        return ()
    is_virtual = function.physfn is not None
    return tuple(port for port in function.fpga.ports if is_virtual or not port.released)


def _fpga_parts(function: FunctionDescription) -> list[tuple[str, int]]:
    """Return what is numbered over the whole host, by kind and place on the card."""
    fpga = function.fpga
    if fpga is None or not function.shows_fpga:
        return []
    is_dfl = fpga.layout == "dfl"
    parts = [("region", -1) if is_dfl else ("device", 0)]
    if fpga.engine is not None:
        parts.append(("fme", 0))
        if is_dfl and fpga.engine.interface_id is not None:
            places = range(fpga.engine.ports)
            parts += [(kind, place) for place in places for kind in ("fme-region", "region")]
    return parts + [("port", port.number) for port in shown_ports(function)]


def _fpga_divided(
    physical: FunctionDescription, virtual: list[FunctionDescription]
) -> tuple[FunctionDescription, list[FunctionDescription]]:
    """Give each virtual function of an FPGA one port of the physical function.

    The kernel does so with the ports that were released, and refuses any other number of
    virtual functions (drivers/fpga/dfl.c).  Where none was, the first ones are taken, as tools
    release them on the way.

    :raises ValueError: when the kernel would refuse.
    """
    fpga = physical.fpga
    if fpga is None or not fpga.ports:
        return physical, virtual
    released = [port for port in fpga.ports if port.released]
    if released and len(released) != len(virtual):
        raise ValueError(f"{physical.address} has let go of {len(released)} ports")
    given = released or fpga.ports[: len(virtual)]
    kept = tuple(port for port in fpga.ports if port not in given)
    divided = list(virtual)
    for place, port in enumerate(given):
        part = Fpga(layout=fpga.layout, ports=(port,))
        divided[place] = dataclasses.replace(virtual[place], fpga=part)
    return dataclasses.replace(physical, fpga=dataclasses.replace(fpga, ports=kept)), divided
