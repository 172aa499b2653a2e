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

"""What the drivers of an Intel FPGA show below a function, in either of two layouts.

Source: drivers/fpga/dfl.c, dfl-fme-main.c, dfl-fme-pr.c and dfl-afu-main.c;
Documentation/ABI/testing/sysfs-platform-dfl-fme, sysfs-platform-dfl-port and
sysfs-class-fpga-region; the mock trees of OFS/opae-sdk for the older driver.  Left out: FPGA
managers and bridges, the bus dfl, errors and power.
"""

from cyborg_ext_drivers.testing._description import Fpga, FpgaPort, FunctionDescription
from cyborg_ext_drivers.testing._files import Entry, Link, Special
from cyborg_ext_drivers.testing._machine import Machine, shown_ports

_NAMES = {
    "dfl": {"fme": "dfl-fme", "port": "dfl-port", "fme-region": "dfl-fme-region"},
    "intel-fpga": {"fme": "intel-fpga-fme", "port": "intel-fpga-port"},
}


def entries(machine: Machine, function: FunctionDescription, here: str) -> dict[str, Entry]:
    """Return the engine and the ports of a function; nothing while no driver shows them."""
    fpga = function.fpga
    if fpga is None or not function.shows_fpga:
        return {}
    tree = _class_device(_device(machine, function, here), here)
    if fpga.engine is not None:
        tree |= _engine(machine, function, here)
    for port in shown_ports(function):
        at = port_directory(machine, function, port, here)
        files = {"id": _line(port.number)}
        if port.afu_id is not None:
            files["afu_id"] = _line(port.afu_id)
        tree |= _platform_device(at) | {f"{at}/{name}": entry for name, entry in files.items()}
    return tree


def port_directory(
    machine: Machine, function: FunctionDescription, port: FpgaPort, here: str
) -> str:
    """Return the directory of a port that is shown."""
    number = machine.fpga_number(function.address, "port", port.number)
    return f"{_device(machine, function, here)}/{_layout(function)['port']}.{number}"


def _device(machine: Machine, function: FunctionDescription, here: str) -> str:
    """Return the directory that stands for the FPGA as one."""
    if _fpga(function).layout == "dfl":
        number = machine.fpga_number(function.address, "region", -1)
        return f"{here}/fpga_region/region{number}"
    return f"{here}/fpga/intel-fpga-dev.{machine.fpga_number(function.address, 'device', 0)}"


def _engine(machine: Machine, function: FunctionDescription, here: str) -> dict[str, Entry]:
    fpga, engine = _fpga(function), _fpga(function).engine
    assert engine is not None
    number = machine.fpga_number(function.address, "fme", 0)
    at = f"{_device(machine, function, here)}/{_layout(function)['fme']}.{number}"
    tree = _platform_device(at) | {f"{at}/ports_num": _line(engine.ports)}
    if engine.bitstream_id is not None:
        tree[f"{at}/bitstream_id"] = _line(engine.bitstream_id)
    if engine.interface_id is None:
        return tree
    if fpga.layout != "dfl":
        return tree | {f"{at}/pr/interface_id": _line(engine.interface_id)}
    for place in range(engine.ports):
        number = machine.fpga_number(function.address, "fme-region", place)
        parent = f"{at}/{_layout(function)['fme-region']}.{number}"
        number = machine.fpga_number(function.address, "region", place)
        region = f"{parent}/fpga_region/region{number}"
        tree |= _platform_device(parent) | _class_device(region, parent)
        tree[f"{region}/compat_id"] = _line(engine.interface_id)
    return tree


def _class_device(at: str, parent: str) -> dict[str, Entry]:
    """Return a device of the class that the directory above it is named after."""
    above, _, name = at.rpartition("/")
    kind = f"/sys/class/{above.rpartition('/')[2]}"
    return {
        at: Special.DIRECTORY,
        f"{at}/uevent": b"",
        f"{at}/device": Link(parent),
        f"{at}/subsystem": Link(kind),
        f"{kind}/{name}": Link(at),
    }


def _platform_device(at: str) -> dict[str, Entry]:
    name = at.rpartition("/")[2]
    driver = name.rpartition(".")[0]
    return {
        at: Special.DIRECTORY,
        f"{at}/uevent": f"DRIVER={driver}\nMODALIAS=platform:{driver}\n".encode(),
        f"{at}/subsystem": Link("/sys/bus/platform"),
        f"{at}/driver": Link(f"/sys/bus/platform/drivers/{driver}"),
        f"/sys/bus/platform/devices/{name}": Link(at),
        f"/sys/bus/platform/drivers/{driver}/{name}": Link(at),
    }


def _fpga(function: FunctionDescription) -> Fpga:
    assert function.fpga is not None
    return function.fpga


def _layout(function: FunctionDescription) -> dict[str, str]:
    return _NAMES[_fpga(function).layout]


def _line(value: object) -> bytes:
    return f"{value}\n".encode()
