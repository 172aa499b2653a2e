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
"""Any host, and any change of one: what hypothesis draws from.

Everything drawn prints as it was written, so an example that failed can be played again by
pasting it into a test.  Next stop: :mod:`tests.properties.running`.
"""

import dataclasses
from typing import Any

from hypothesis import strategies as st

from cyborg_ext_drivers.testing._oddities import KINDS

DRIVERS = (
    None,
    "nvidia",
    "vfio-pci",
    "nouveau",
    "nvgrace_gpu_vfio_pci",
    "pci-stub",
    "snd_hda_intel",
    "mlx5_core",
    "pcieport",
    "amdgpu",
)
#: Group 0 is a group; the kernel counts up to what an int holds.
GROUPS = (None, 0, 1, 1, 1, 27, 64, 2**31 - 1)
IOMMUS = ("intel", "amd", "smmu", "off-in-firmware", "off-on-command-line", "none", "vfio-noiommu")
#: vendor, device and class of what hosts with accelerators have.
MODELS = (
    ("10de", "1eb8", "030200"),
    ("10de", "2235", "030200"),
    ("10de", "25b6", "030200"),
    ("10de", "ffe0", "038000"),
    ("10de", "2230", "030000"),
    ("10de", "1aef", "040300"),
    ("10de", "1ad8", "0c8000"),
    ("10de", "22a3", "068000"),
    ("15b3", "1021", "020000"),
    ("1a03", "2000", "030000"),
    ("1002", "74a1", "120000"),
    ("8086", "4680", "030000"),
    ("8086", "2030", "060400"),
)
ATTRIBUTES = (
    "uevent",
    "vendor",
    "device",
    "class",
    "subsystem_vendor",
    "subsystem_device",
    "revision",
    "numa_node",
    "boot_vga",
    "power_state",
    "power/runtime_status",
    "config",
    "resource",
    "reset",
    "sriov_totalvfs",
    "sriov_numvfs",
    "driver",
    "iommu_group",
    "iommu",
    "physfn",
    "virtfn0",
    "virtfn1",
    "drm",
    "drm/card0",
    "power",
    "modalias",
)
HOST_PATHS = (
    "/proc/cmdline",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/arch",
    "/proc",
    "/sys/bus/pci/devices",
    "/sys/bus/pci",
    "/sys/bus/pci/drivers",
    "/sys/class/iommu",
    "/sys/devices",
    "/sys/firmware/acpi/tables",
    "/sys/hypervisor/type",
    "/sys/kernel",
    "/sys/kernel/iommu_groups",
    "/sys/module",
    "/sys/module/vfio/parameters",
    "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
)
GROUP_ENTRIES = ("", "/devices", "/devices", "/name", "/reserved_regions", "/type")
#: What files may hold instead, legal or not; where links may lead; which lines are missing.
VALUES = (
    "0x10de",
    "0x10DE",
    "0x1002",
    "0x030000",
    "0xffff",
    "-1",
    "0",
    "1",
    "D3cold",
    "D3hot",
    "suspended",
    "error",
    "9" * 4000,
    "f" * 4000,
    "\x00" * 64,
    b"\xff" * 64,
    b"\xff\xff\xff\xff\x00\x00",
    "0x0 0xffffff 0x20000200",
    "0x0000000000000000 0x0000000000000fff direct",
    "iommu=off intremap=off",
    "PCI_CLASS=30200\nPCI_ID=10DE:1EB8\nPCI_SUBSYS_ID=10DE:12A2",
    "DRIVER=nvidia\nPCI_CLASS=30000\nPCI_ID=10DE:2230\nPCI_SUBSYS_ID=10DE:1459",
    "DRIVER=\xe9\nPCI_SLOT_NAME=",
    "PCI_CLASS=",
    "\u0663",
)
LINKS = (
    "../../../../kernel/iommu_groups/1",
    "../../../kernel/iommu_groups/0",
    "../../../../bus/pci/drivers/nvidia",
    "../drivers/vfio-pci",
    "../0000:3b:00.0",
    "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0",
    "/sys/devices",
    "/",
    ".",
    "..",
)
LINES = ("DRIVER", "PCI_CLASS", "PCI_ID", "PCI_SUBSYS_ID", "PCI", "0x")
COMMAND_LINES = (
    "quiet",
    "intel_iommu=on",
    "intremap=off",
    "iommu=off",
    'a="b c',
    "nointremap " * 99,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One thing that happens to a host: ``Change('bind', 3, 'nvidia')``.

    :param which: which function, counted over and over through those that there are.
    :param is_late: it happens after the bus was listed and before anything else is read.
    """

    what: str
    which: int = 0
    detail: Any = None
    is_late: bool = False


_nothing = st.none()


def _changes(what: str, detail: st.SearchStrategy = _nothing) -> st.SearchStrategy[Change]:
    which, late = st.integers(0, 11), st.sampled_from((False, False, False, True))
    return st.builds(Change, st.just(what), which, detail, late)


_values = {"holds": VALUES, "link": LINKS, "without": LINES}
_odd = st.sampled_from(
    [(kind, "") for kind in KINDS if kind not in _values]
    + [(kind, value) for kind, values in _values.items() for value in values]
)
_oddities = {
    name: st.tuples(st.sampled_from(paths), _odd)
    for name, paths in (
        ("attribute", ATTRIBUTES),
        ("group", GROUP_ENTRIES),
        ("host", HOST_PATHS),
        ("bus", ("entry", "directory")),
    )
}
_attribute = _changes("attribute", _oddities["attribute"])
#: The first of them is what a failing example is reduced to.
changes = st.one_of(
    st.just(Change("nothing")),
    *[_attribute] * 6,
    _changes("bus", _oddities["bus"]),
    _changes("group", _oddities["group"]),
    _changes("host", _oddities["host"]),
    *[_changes("mend")] * 4,
    _changes("bind", st.sampled_from(DRIVERS)),
    _changes("bind", st.sampled_from(DRIVERS)),
    _changes("move", st.sampled_from(GROUPS)),
    _changes("move", st.sampled_from(GROUPS)),
    _changes("iommu", st.sampled_from(IOMMUS)),
    _changes("boot", st.sampled_from(COMMAND_LINES)),
    _changes("plug", st.sampled_from(MODELS)),
    _changes("remove"),
    _changes("put back"),
    _changes("put back"),
    _changes("divide", st.integers(1, 3)),
    _changes("unite"),
)


def series(length: int) -> st.SearchStrategy[list[Change]]:
    """Return as many changes, one after the other; some of a reduced one are nothing."""
    return st.lists(changes, min_size=length, max_size=length)


@st.composite
def _functions(draw, address: str) -> dict[str, Any]:
    vendor, device, class_ = draw(st.sampled_from(MODELS))
    function = {
        "address": address,
        "vendor": vendor,
        "device": device,
        "class": class_,
        "driver": draw(st.sampled_from(DRIVERS)),
        "iommu_group": draw(st.sampled_from(GROUPS)),
        "numa_node": draw(st.integers(-1, 2)),
    }
    rare = {
        "subsystem": st.sampled_from(("10de:12a2", "ffff:ffff", "0000:0000")),
        "revision": st.sampled_from(("a1", "ff", "00")),
        "boot_vga": st.sampled_from((0, 1)),
        "sriov_totalvfs": st.sampled_from((0, 1, 8)),
        "power_state": st.sampled_from(("D3cold", "D3hot", "unknown", "error")),
        "runtime_status": st.sampled_from(("suspended", "error")),
        "reset_method": st.sampled_from((None, "flr")),
        "config": st.sampled_from(("dead", "de10b81e")),
        "bars": st.sampled_from(([], [{"index": 1, "size": "64G", "unassigned": True}])),
        "drm": st.sampled_from((["card0", "renderD128"], ["card17"])),
        "attributes": st.sampled_from(
            ({"revision": None}, {"numa_node": None, "power_state": None}, {"reset": None})
        ),
    }
    if not class_.startswith("0300"):
        del rare["boot_vga"]
    for key in sorted(draw(st.sets(st.sampled_from(sorted(rare)), max_size=3))):
        function[key] = draw(rare[key])
    return function


@st.composite
def hosts(draw) -> dict[str, Any]:
    """Return the description of any host, as YAML would give it."""
    slots = st.tuples(
        st.sampled_from(("0000", "0000", "0001", "ffff", "10000")),
        st.sampled_from(("00", "3b", "d8", "ff")),
        st.sampled_from(("00", "02", "1f")),
        st.integers(0, 2),
    )
    drawn = draw(st.lists(slots, min_size=1, max_size=7, unique=True))
    addresses = [f"{domain}:{bus}:{device}.{number}" for domain, bus, device, number in drawn]
    host: dict[str, Any] = {"functions": [draw(_functions(each)) for each in addresses]}
    host["iommu"] = draw(st.sampled_from(("intel", "intel", *IOMMUS)))
    if draw(st.booleans()):
        host["architecture"] = draw(st.sampled_from(("x86_64", "aarch64")))
        host["kernel"] = draw(st.sampled_from(("4.9.0", "5.15.0-91-generic", "6.18.0")))
    return {"host": host}
