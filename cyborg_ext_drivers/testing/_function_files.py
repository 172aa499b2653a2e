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

"""What the files of one PCI function say, spelt as the kernel spells it.

Source: drivers/pci/pci-sysfs.c and pci-driver.c; Documentation/ABI/testing/sysfs-bus-pci.
"""

from cyborg_ext_drivers.testing import _config_space
from cyborg_ext_drivers.testing._description import Bar, FunctionDescription
from cyborg_ext_drivers.testing._files import Entry, Special

CPUS_PER_NODE = 16

_MEMORY_32 = 0x40200
_MEMORY_64_PREFETCHABLE = 0x14220C
_ROM = 0x46200
_UNASSIGNED = 0x20000000
_USUAL_BARS = (Bar(0, 16 << 20), Bar(1, 256 << 20), Bar(3, 32 << 20))


def identity(function: FunctionDescription) -> dict[str, Entry]:
    """Return the files that say what a function is, and its uevent."""
    subsystem_vendor, subsystem_device = function.subsystem.split(":")
    return {
        "uevent": uevent(function).encode(),
        "vendor": _hexadecimal(function.vendor),
        "device": _hexadecimal(function.device),
        "class": _hexadecimal(function.class_),
        "revision": _hexadecimal(function.revision),
        "subsystem_vendor": _hexadecimal(subsystem_vendor),
        "subsystem_device": _hexadecimal(subsystem_device),
        "numa_node": _line(function.numa_node),
        **({"boot_vga": _line(function.boot_vga)} if function.class_.startswith("0300") else {}),
    }


def uevent(function: FunctionDescription) -> str:
    """Return the text of ``uevent``; ``DRIVER`` is there only while bound."""
    vendor, device = function.vendor.upper(), function.device.upper()
    driver = f"DRIVER={function.driver}\n" if function.driver else ""
    return (
        f"{driver}PCI_CLASS={int(function.class_, 16):04X}\nPCI_ID={vendor}:{device}\n"
        f"PCI_SUBSYS_ID={function.subsystem.upper()}\nPCI_SLOT_NAME={function.address}\n"
        f"MODALIAS={_modalias(function)}\n"
    )


def _modalias(function: FunctionDescription) -> str:
    subsystem_vendor, subsystem_device = function.subsystem.upper().split(":")
    code = function.class_.upper()
    return (
        f"pci:v0000{function.vendor.upper()}d0000{function.device.upper()}"
        f"sv0000{subsystem_vendor}sd0000{subsystem_device}"
        f"bc{code[:2]}sc{code[2:4]}i{code[4:]}"
    )


def sriov(function: FunctionDescription, enabled: int) -> dict[str, Entry]:
    """Return the files of the SR-IOV capability (drivers/pci/iov.c); none without it."""
    if function.sriov_totalvfs is None:
        return {}
    number = enabled if function.sriov_numvfs is None else function.sriov_numvfs
    return {
        "sriov_totalvfs": _line(function.sriov_totalvfs),
        "sriov_numvfs": _line(number),
        "sriov_offset": _line(function.sriov_offset),
        "sriov_stride": _line(function.sriov_stride),
        "sriov_vf_device": _line(function.sriov_vf_device or function.device),
        "sriov_drivers_autoprobe": _line(1),
        "sriov_vf_total_msix": _line(0),
    }


def details(
    function: FunctionDescription, nodes: int, buses_below: tuple[int, int]
) -> dict[str, Entry]:
    """Return the remaining files: placement, power, link, reset, resources, configuration."""
    bars = usual_bars(function) if function.bars is None else function.bars
    return {
        "modalias": _line(_modalias(function)),
        "irq": _line(0 if function.physfn else 16),
        "resource": _resource(function, bars),
        "config": _config_space.image(function, bar_registers(function, bars), buses_below),
        "ari_enabled": _line(int(function.physfn is not None)),
        "broken_parity_status": _line(0),
        "consistent_dma_mask_bits": _line(64),
        "dma_mask_bits": _line(64),
        "driver_override": _line("(null)"),
        "msi_bus": _line(1),
        **_placement(function, nodes),
        **_power(function),
        **_link(function),
        **_reset(function),
    }


def _placement(function: FunctionDescription, nodes: int) -> dict[str, Entry]:
    """Return the CPUs near the function: all that there are where the node is not known."""
    first = max(function.numa_node, 0) * CPUS_PER_NODE
    count = CPUS_PER_NODE if function.numa_node >= 0 else CPUS_PER_NODE * nodes
    return {
        "local_cpulist": _line(f"{first}-{first + count - 1}"),
        "local_cpus": _line(_mask(first, count, nodes)),
    }


def _mask(first: int, count: int, nodes: int) -> str:
    digits = f"{((1 << count) - 1) << first:x}".zfill(
        max(CPUS_PER_NODE * nodes, first + count) // 4
    )
    head = len(digits) % 8
    groups = [digits[:head]] if head else []
    return ",".join(groups + [digits[n : n + 8] for n in range(head, len(digits), 8)])


def _power(function: FunctionDescription) -> dict[str, Entry]:
    """Return the power files; vfio lets an idle function sleep (vfio_pci_core.c)."""
    state, status, control = "D0", "active", "on"
    if function.driver is None:
        state = "unknown"
    elif function.is_on_vfio:
        state, status, control = "D3hot", "suspended", "auto"
    elif function.driver == "pcieport":
        control = "auto"
    return {
        "power_state": _line(function.power_state or state),
        "power/runtime_status": _line(function.runtime_status or status),
        "power/control": _line(control),
        "d3cold_allowed": _line(1),
        "enable": _line(int(state == "D0")),
    }


def _link(function: FunctionDescription) -> dict[str, Entry]:
    """Return the PCIe link; a virtual function has none, host bridges and the like neither."""
    if function.class_[:4] in ("0600", "0601", "0c05"):
        return {}
    speed, width = ("Unknown", 0) if function.physfn else ("16.0 GT/s PCIe", 16)
    return {
        "current_link_speed": _line(speed),
        "current_link_width": _line(width),
        "max_link_speed": _line("16.0 GT/s PCIe"),
        "max_link_width": _line(16),
    }


def _reset(function: FunctionDescription) -> dict[str, Entry]:
    files: dict[str, Entry] = {}
    if function.reset_method is not None:
        files |= {"reset": Special.WRITE_ONLY, "reset_method": _line(function.reset_method)}
    if function.physfn is None:
        files |= {"remove": Special.WRITE_ONLY, "rescan": Special.WRITE_ONLY}
    return files


def usual_bars(function: FunctionDescription) -> tuple[Bar, ...]:
    """Return the registers of a card whose description names none; other functions have none."""
    is_card = function.class_[:2] in ("03", "12") or function.class_[:4] == "0b40"
    return _USUAL_BARS if is_card else ()


def _placed(
    function: FunctionDescription, bars: tuple[Bar, ...]
) -> dict[int, tuple[int, int, int]]:
    """Return start, end and flags by register; those of one function do not overlap."""
    address = function.address
    number = address.bus << 8 | address.device << 3 | address.function
    low, high = 0x90000000 + (number % 64 << 24), 0x380000000000 + (number << 38)
    placed = {}
    for bar in bars:
        is_small = bar.index in (0, 6) and bar.size <= 32 << 20
        flags = _ROM if bar.index == 6 else _MEMORY_32 if is_small else _MEMORY_64_PREFETCHABLE
        if bar.unassigned:
            placed[bar.index] = (0, bar.size - 1, flags | _UNASSIGNED)
        elif is_small:
            placed[bar.index] = (low, low + bar.size - 1, flags)
        else:
            start = -(-high // bar.size) * bar.size
            high = start + bar.size
            placed[bar.index] = (start, high - 1, flags)
    return placed


def _resource(function: FunctionDescription, bars: tuple[Bar, ...]) -> bytes:
    """Return 13 lines, or 17 for a bridge: BARs, ROM, BARs of virtual functions, windows."""
    placed = _placed(function, bars)
    rows = [placed.get(index, (0, 0, 0)) for index in range(17 if function.is_bridge else 13)]
    return "".join(f"0x{a:016x} 0x{b:016x} 0x{c:016x}\n" for a, b, c in rows).encode()


def bar_registers(function: FunctionDescription, bars: tuple[Bar, ...]) -> list[int]:
    """Return the six registers; those of a virtual function read zero."""
    registers = [0] * 6
    if function.physfn is not None:
        return registers
    for index, (start, _end, flags) in _placed(function, bars).items():
        if index < 6:
            registers[index] = start & 0xFFFFFFF0 | flags & 0xF
            if flags & 0x100000 and index < 5:
                registers[index + 1] = start >> 32
    return registers


def _hexadecimal(digits: str) -> bytes:
    return f"0x{digits}\n".encode()


def _line(value: object) -> bytes:
    return f"{value}\n".encode()
