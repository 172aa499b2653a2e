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
"""Texts of lspci, and of find below /sys/kernel/iommu_groups, as people paste them.

Read are the tagged records of ``lspci -nnmmk -D -vvv``, the lines of ``lspci -nnmm``, and what
``lspci -n``, ``-nn`` and ``-nnk`` print, verbose or not, in one text and any order; names are not
believed, ids are (lspci(8), "Machine readable output").  Other lines say nothing.

Next stop: :mod:`cyborg_ext_drivers.snapshot.captured`.
"""

import dataclasses
import re
from collections.abc import Iterator

from cyborg_ext_drivers.address import InvalidAddress, PciAddress, is_sysfs_name
from cyborg_ext_drivers.snapshot.captured import Captured

_MOST_FUNCTIONS = 65536
_LONGEST_LINE = 4096
_SLOT = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]"
# What a mail or a ticket puts before a line.
_QUOTED = re.compile(r"^(?:[>|]\s?)+")
_TAGGED = re.compile(r"([A-Za-z]+):\s+(.*)")
_QUOTED_LINE = re.compile(rf'({_SLOT})((?:\s+(?:"[^"]*"|-[a-z]\S*))+)\s*')
_FIELD = re.compile(r'"([^"]*)"|-([rp])([0-9a-fA-F]{2})\b|(-\S+)')
_PLAIN_LINE = re.compile(rf"({_SLOT})\s+(.*)")
_ID = r"[0-9a-fA-F]{4}"
_IDS = re.compile(rf"\[({_ID}):({_ID})\](?!.*\[{_ID}:{_ID}\])")
_CLASS = re.compile(rf"\[({_ID})\]:")
_NUMERIC = re.compile(rf"(?:Class )?({_ID}): ({_ID}):({_ID})")
_REVISION = re.compile(r"\(rev ([0-9a-fA-F]{2})\)")
_INTERFACE = re.compile(r"\(prog-if ([0-9a-fA-F]{2})\b")
_IN_BRACKETS = re.compile(rf"(?:.*\[)?({_ID})\]?")
_DETAIL = re.compile(r"(Subsystem|Kernel driver in use|Kernel modules|NUMA node|IOMMU group): (.*)")
_SRIOV = re.compile(r"Initial VFs: \d+, Total VFs: (\d+), Number of VFs: (\d+)")
_VF_PLACES = re.compile(r"VF offset: (\d+), stride: (\d+), Device ID: [0-9a-fA-F]{4}")
_GROUP_LINK = re.compile(rf"/sys/kernel/iommu_groups/(\d+)/devices/({_SLOT})\b")
# Of the scripts that people use; lspci writes a small g.
_GROUP_HEAD = re.compile(r"IOMMU Group:?\s+(\d+):?\s*(.*)")
_COMMAND_LINE = re.compile(r"BOOT_IMAGE=\S+.*")
_UNAME = re.compile(r"Linux \S+ (\d+\.\d+[0-9A-Za-z._+~-]*) #")
_DRIVER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DEAD = "!!! Unknown header type 7f"
# In a tagged record, who says which.
_TAGS = {
    "Class": "class_",
    "Vendor": "vendor",
    "Device": "device",
    "SVendor": "subsystem_vendor",
    "SDevice": "subsystem_device",
    "Rev": "revision",
    "ProgIf": "interface",
    "Driver": "driver",
    "NUMANode": "numa_node",
    "IOMMUGroup": "group",
}


class NoListing(Exception):
    """A text lists no PCI functions."""


@dataclasses.dataclass
class _Told:
    """What a text tells of one function; all are digits as they stand there."""

    address: PciAddress
    class_: str | None = None
    vendor: str | None = None
    device: str | None = None
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    revision: str | None = None
    interface: str | None = None
    driver: str | None = None
    numa_node: str | None = None
    group: str | None = None
    total_vfs: str | None = None
    vfs: int = 0
    vf_offset: int = 0
    vf_stride: int = 0
    is_dead: bool = False


def read(text: str) -> tuple[Captured, list[str]]:
    """Return the host that a text tells of, and notes.

    :raises NoListing: when it lists no function.
    """
    listing = _Listing()
    for line in text.splitlines():
        listing.take(_QUOTED.sub("", line[:_LONGEST_LINE].rstrip()))
    if not listing.functions:
        raise NoListing(
            "it lists no PCI functions; paste what lspci -nnmmk -D -vvv prints"
            + (" as well" if listing.groups else "")
        )
    whole = [each for each in listing.functions.values() if each.vendor and each.device]
    if not whole:
        raise NoListing("it names PCI functions without their ids; run lspci with -nn or -n")
    return _laid(whole, listing), listing.notes(len(listing.functions) - len(whole))


class _Listing:
    """Reads a text line by line."""

    def __init__(self) -> None:
        self.functions: dict[str, _Told] = {}
        #: The group of each address that find or a script names.
        self.groups: dict[str, str] = {}
        self.command_line: str | None = None
        self.release: str | None = None
        self._contradicting: set[str] = set()
        self._now: _Told | None = None
        self._is_tagged = False
        self._group: str | None = None

    def notes(self, without_ids: int) -> list[str]:
        """Return what is to be said of how it was read, a sentence each."""
        found = []
        if without_ids:
            found.append(f"{without_ids} functions are left out, as the text has no ids of them")
        if self._contradicting:
            names = ", ".join(sorted(self._contradicting)[:8])
            found.append(f"Of {names} the text says two things; the first counts")
        unlisted = self.groups.keys() - self.functions.keys()
        if unlisted:
            found.append(f"{len(unlisted)} members of IOMMU groups are not among the functions")
        return found

    def take(self, line: str) -> None:
        """Take one line."""
        plain = line.strip()
        if not plain or plain.startswith("```"):
            self._now = None
            return
        if link := _GROUP_LINK.search(plain):
            self._grouped(link[2], link[1])
            return
        if head := _GROUP_HEAD.fullmatch(plain):
            self._group, plain = head[1][:9], head[2]
            if not plain:
                self._now = None
                return
        if self._line_of_function(plain) or self._line_of_record(plain):
            return
        if self._now is not None:
            self._detail(plain)
        elif _COMMAND_LINE.fullmatch(plain):
            self.command_line = self.command_line or plain
        elif match := _UNAME.match(plain):
            self.release = self.release or match[1]

    def _line_of_record(self, line: str) -> bool:
        """Take a tag and its value, if it is one."""
        match = _TAGGED.fullmatch(line)
        if not match:
            return False
        tag, value = match[1], match[2].strip()
        if tag == "Slot" or (tag == "Device" and re.fullmatch(_SLOT, value)):
            self._begin(value)
            self._is_tagged = True
            return True
        if self._now is None or not self._is_tagged or tag not in _TAGS:
            return False
        name = _TAGS[tag]
        if name in ("class_", "vendor", "device", "subsystem_vendor", "subsystem_device"):
            digits = _IN_BRACKETS.fullmatch(value)
            value = digits[1].lower() if digits else ""
        self._say(name, value)
        return True

    def _line_of_function(self, line: str) -> bool:
        """Take a line that begins with an address, if it is one."""
        if match := _QUOTED_LINE.fullmatch(line):
            self._begin(match[1])
            self._quoted(match[2])
            return True
        match = _PLAIN_LINE.fullmatch(line)
        if not match:
            return False
        rest = match[2]
        numeric, ids, code = _NUMERIC.search(rest), _IDS.search(rest), _CLASS.search(rest)
        if not numeric and not ids and ": " not in rest:
            return False
        self._begin(match[1])
        if numeric:
            self._say("class_", numeric[1])
        elif code:
            self._say("class_", code[1])
        if numeric or ids:
            self._say("vendor", numeric[2] if numeric else ids[1])  # type: ignore[index]
            self._say("device", numeric[3] if numeric else ids[2])  # type: ignore[index]
        for pattern, name in ((_REVISION, "revision"), (_INTERFACE, "interface")):
            if found := pattern.search(rest):
                self._say(name, found[1])
        return True

    def _quoted(self, fields: str) -> None:
        texts = []
        for match in _FIELD.finditer(fields):
            if match[1] is not None:
                texts.append(match[1])
            elif match[2]:
                self._say({"r": "revision", "p": "interface"}[match[2]], match[3])
        names = ("class_", "vendor", "device", "subsystem_vendor", "subsystem_device")
        for name, value in zip(names, texts):
            if digits := _IN_BRACKETS.fullmatch(value):
                self._say(name, digits[1])

    def _detail(self, line: str) -> None:
        """Take an indented line below a function."""
        assert self._now is not None
        if line.startswith(_DEAD):
            self._now.is_dead = True
        elif match := _DETAIL.match(line):
            what, value = match[1], match[2].strip()
            if what == "Subsystem":
                ids = _IDS.search(value) or re.match(rf"({_ID}):({_ID})", value)
                if ids:
                    self._say("subsystem_vendor", ids[1])
                    self._say("subsystem_device", ids[2])
            elif what == "Kernel driver in use":
                self._say("driver", value)
            elif what == "NUMA node":
                self._say("numa_node", value)
            elif what == "IOMMU group":
                self._say("group", value)
        elif match := _SRIOV.search(line):
            self._now.total_vfs = match[1]
            self._now.vfs = min(int(match[2]), 65536) if len(match[2]) < 7 else 0
        elif match := _VF_PLACES.search(line):
            self._now.vf_offset, self._now.vf_stride = (
                int(each[:6]) for each in match.groups()[:2]
            )

    def _begin(self, slot: str) -> None:
        self._is_tagged = False
        try:
            address = PciAddress.parse(slot)
        except InvalidAddress:
            self._now = None
            return
        name = str(address)
        if not is_sysfs_name(name):
            self._now = None
            return
        if name not in self.functions and len(self.functions) >= _MOST_FUNCTIONS:
            raise NoListing(f"it lists more than {_MOST_FUNCTIONS} functions")
        self._now = self.functions.setdefault(name, _Told(address))
        if self._group is not None:
            self.groups.setdefault(name, self._group)

    def _grouped(self, slot: str, group: str) -> None:
        try:
            name = str(PciAddress.parse(slot))
        except InvalidAddress:
            return
        if is_sysfs_name(name) and len(group) < 10 and len(self.groups) < _MOST_FUNCTIONS:
            self.groups.setdefault(name, str(int(group)))

    def _say(self, name: str, value: str) -> None:
        """Note a value; what was said first stays."""
        now = self._now
        if now is None or not _is_sound(name, value):
            return
        value = value if name == "driver" else value.lower()
        known = getattr(now, name)
        if known is None:
            setattr(now, name, value)
        elif known != value:
            self._contradicting.add(str(now.address))


def _is_sound(name: str, value: str) -> bool:
    if name == "driver":
        return bool(_DRIVER.fullmatch(value))
    if name in ("numa_node", "group"):
        return bool(re.fullmatch(r"-?[0-9]{1,9}", value))
    digits = 2 if name in ("revision", "interface") else 4
    return bool(re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", value))


def _laid(functions: list[_Told], listing: _Listing) -> Captured:
    """Return the files that a kernel would show of what is told."""
    captured = Captured()
    groups = dict(listing.groups)
    for each in functions:
        name = str(each.address)
        if each.group is not None and not each.group.startswith("-"):
            groups.setdefault(name, str(int(each.group)))
        _lay(captured, each, groups.get(name))
    for name, group in groups.items():
        captured.add_link(
            f"/sys/kernel/iommu_groups/{group}/devices/{name}",
            f"../../../../bus/pci/devices/{name}",
        )
    known = {str(each.address) for each in functions}
    for each in functions:
        for number, virtual in enumerate(_virtual_functions(each)):
            if virtual in known:
                there, here = _directory(virtual), _directory(str(each.address))
                captured.add_link(f"{here}/virtfn{number}", _relative(there))
                captured.add_link(f"{there}/physfn", _relative(here))
    if listing.command_line is not None:
        captured.add_file("/proc/cmdline", f"{listing.command_line}\n".encode())
    if listing.release is not None:
        captured.add_file("/proc/sys/kernel/osrelease", f"{listing.release}\n".encode())
    return captured


def _lay(captured: Captured, each: _Told, group: str | None) -> None:
    name = str(each.address)
    here = _directory(name)
    captured.add_link(f"/sys/bus/pci/devices/{name}", _relative(here))
    for file, value in _files(each):
        captured.add_file(f"{here}/{file}", f"{value}\n".encode())
    if each.is_dead:
        captured.add_file(f"{here}/config", b"\xff" * 64)
    if each.driver is not None:
        captured.add_directory(f"/sys/bus/pci/drivers/{each.driver}")
        captured.add_link(f"{here}/driver", f"../../../bus/pci/drivers/{each.driver}")
    if group is not None:
        captured.add_link(f"{here}/iommu_group", f"../../../kernel/iommu_groups/{group}")


def _files(each: _Told) -> Iterator[tuple[str, str]]:
    yield "vendor", f"0x{each.vendor}"
    yield "device", f"0x{each.device}"
    if each.class_ is not None:
        yield "class", f"0x{each.class_}{each.interface or '00'}"
    if each.subsystem_vendor is not None and each.subsystem_device is not None:
        yield "subsystem_vendor", f"0x{each.subsystem_vendor}"
        yield "subsystem_device", f"0x{each.subsystem_device}"
    if each.revision is not None:
        yield "revision", f"0x{each.revision}"
    if each.numa_node is not None:
        yield "numa_node", each.numa_node
    if each.total_vfs is not None:
        yield "sriov_totalvfs", each.total_vfs


def _virtual_functions(each: _Told) -> Iterator[str]:
    """Yield where the virtual functions of one are (PCI Express, SR-IOV: VF offset, stride)."""
    address = each.address
    routing = address.bus << 8 | address.device << 3 | address.function
    for number in range(each.vfs if each.vf_offset else 0):
        at = routing + each.vf_offset + number * each.vf_stride
        if at > 0xFFFF:
            return
        yield str(PciAddress(address.domain, at >> 8, at >> 3 & 0x1F, at & 7))


def _directory(name: str) -> str:
    # What it hangs below, lspci does not say here.
    return f"/sys/devices/pci{name[:-5]}/{name}"


def _relative(path: str) -> str:
    """Return a link as there are from three directories below /sys."""
    return f"../../../{path.removeprefix('/sys/')}"
