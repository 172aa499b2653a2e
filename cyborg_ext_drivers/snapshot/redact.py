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


"""Takes out of a captured host what names it, its owner or its people, and what opens doors.

The same value becomes the same other value wherever it stands, so what belonged together still
does; UUIDs keep their order, so lists of them do.  PCI addresses, ids and numbers stay.  What names
a design and no card (``afu_id``, ``interface_uuids``) stays as well: traits are made of it.

Next stop: :mod:`cyborg_ext_drivers.snapshot.archive`.
"""

import collections
import dataclasses
import hashlib
import hmac
import ipaddress
import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cyborg_ext_drivers.host.kernel import COMMAND_LINE
from cyborg_ext_drivers.host.nvml import NvmlAnswer
from cyborg_ext_drivers.snapshot import _operators_words
from cyborg_ext_drivers.snapshot.archive import Snapshot
from cyborg_ext_drivers.snapshot.captured import Captured, File, Link

#: What stands for the name of the host.
HOST = "redacted-host"
_REDACTED = "redacted"
#: What drivers say for none, so it names nothing.
_NIL = str(uuid.UUID(int=0))
_UUID = re.compile(
    r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
)
_MAC = re.compile(
    r"(?<![0-9A-Za-z:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![0-9A-Za-z:-])"
)
# As switches print it.
_DOTTED_MAC = re.compile(r"(?<![0-9A-Za-z.])(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}(?![0-9A-Za-z.])")
_IPV4 = re.compile(r"(?<![0-9A-Za-z.])(?:\d{1,3}\.){3}\d{1,3}(?![0-9A-Za-z]|\.\d)")
_IPV6 = re.compile(r"(?<![0-9A-Za-z:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![0-9A-Za-z:])")
_SECRET = re.compile(
    r"((?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|credential|private[_-]?key)"
    r"[\w.-]{0,200}[\"'\\]{0,2}\s*[:=]\s*[\"'\\]{0,2})"
    # A comma within it is part of it, one after it is not.
    r"((?<=[\"'])[^\"'\\\n]+|[^\s\"'\\,;}]+(?:,+[^\s\"'\\,;}]+)*)",
    re.IGNORECASE,
)
# Schemes of HTTP's Authorization, and what follows them (RFC 9110).
_AUTHORIZATION = re.compile(
    r"((?:proxy-)?authorization[\"'\\]{0,2}\s*[:=]\s*[\"'\\]{0,2})[^\n\"'\\]+"
    r"|(\b(?:bearer|basic)\s+)(?=[a-z+/=._~-]*[0-9+/=._~])[\w+/=.~-]{8,}",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://)[^/\s@\"']+(?=@)")
_HOME = re.compile(r"(/home/)([^/\s\"':]+)")
_SERIAL_IN_TEXT = re.compile(
    r"((?:serial(?:[_ -]?(?:number|num|no|nr))?"
    r"|(?<![a-z0-9])(?:s/n|sn|asset[_ -]?tag|service[_ -]?tag))"
    r"\.?[\"'\\]{0,2}\s*[:=#]+\s*[\"'\\]{0,2})([^\s\"'\\,;}]+)",
    re.IGNORECASE,
)
# What these say is the same on every card with the same design.
_OF_DESIGNS = re.compile(
    r".*/(?:afu_id|compat_id|region_id|interface_id|bitstream_id|xclbinuuid|\w+_uuids)"
)
_VERSIONS = re.compile(r".*/(?:\w*version|vbios\w*|fw_ver|firmware\w*|osrelease)")
_SERIAL_FILES = re.compile(
    r".*/(?:serial|serial_?num(?:ber)?|board_serial|unique_id|product_serial)"
)
# As oslo.config quotes it: "at PATH:LINE, REASON: 'the line'".
_REFUSED_LINE = re.compile(r"(at .*:\d+, .+?: )(?:'(?!\[\w*'$).+'|\".+\")$", re.DOTALL)
_LONGEST_REFUSAL = 4000
_FABRIC = "fabricmanager.cfg"
_WORD = re.compile(r'(?:"[^"]*(?:"|$)|[^\s"])+')
#: Words without a value, of the kernel, systemd and dracut; others may be anybody's.
_FLAGS = frozenset(
    (
        *("ro", "rw", "quiet", "splash", "nomodeset", "nointremap", "nosmt", "noapic", "nolapic"),
        *("nopti", "nokaslr", "kaslr", "nopat", "nosmep", "nosmap", "novmcoredd", "noresume"),
        *("rhgb", "debug", "verbose", "single", "emergency", "rescue", "nox2apic", "nox2apic_phys"),
        *(
            "nowatchdog",
            "nmi_watchdog",
            "nosoftlockup",
            "notsc",
            "skew_tick",
            "rd.shell",
            "rd.break",
        ),
        *("ignore_loglevel", "no_console_suspend", "threadirqs", "rootwait", "textonly", "nospec"),
        *("noefi", "noibrs", "noibpb", "nospectre_v1", "nospectre_v2", "nofb", "vga", "showopts"),
        *("no_timer_check", "earlyprintk", "earlycon", "norandmaps", "nohpet", "noirqbalance"),
    )
)
#: Words whose values go and whose names tell nothing of anybody.
_OF_OTHERS = re.compile(
    r"(?:rd|systemd|ip|ds|cloud-init|net|luks|ima|audit|selinux|apparmor|security|fips)"
    r"(?:[._-]\w+){0,4}"
    r"|root\w*|BOOT_IMAGE|BOOTIF|initrd|init|resume\w*|hostname|host|ifname|vlan|bond|team|bridge"
    r"|nameserver|nfs\w*|netroot|iscsi\w*|cryptdevice|crypto|keymap|lang|locale\w*|LANG|inst\.\w+"
    r"|ks|kickstart|url|autoinstall|loglevel|panic|maxcpus|tsc|clocksource|biosdevname|vga|fsck\.\w+"
    r"|net\.ifnames|api_token|password|ostree|zfs|boot|rootfstype|rootflags|cgroup\w*|printk\.\w+"
)
#: What a driver's folder below a card holds; names in it are its maker's and the operator's.
_OF_VENDORS = re.compile(
    r"(?<=\d)/(?:nvidia|vfio-dev|tsm|fpga_region|fpga|fpga_manager|rom\.[^/]+)/.*", re.DOTALL
)
_LINE_OF_UEVENT = re.compile(r"^([A-Za-z_]\w*)=([^\n]*)$", re.MULTILINE)
_KEYS_OF_UEVENT = re.compile(
    r"DRIVER|PCI_\w+|MODALIAS|OF_\w+|MAJOR|MINOR|DEVNAME|DEVTYPE|SUBSYSTEM|MDEV_TYPE\w*|IOMMU\w*"
)
# What nobody asks for; NVIDIA's own names of types are in the others.
_OTHERS_OF_NVIDIA = re.compile(r"\d/nvidia/(?!(?:current|creatable)_vgpu_types?$)")
_PARAMETERS = re.compile(r"/sys/module/[^/]+/parameters/")
# Numbers, switches, ids, addresses, one of several words; no names and no texts.
_PLAIN_VALUE = re.compile(
    r"[YN]|\(null\)|none|null|[-+0-9a-fA-FxX:.,;*/ \n]+"
    r"|\[?[a-z_]{1,16}\]?(?:\s+\[?[a-z_]{1,16}\]?){0,5}\s*"
)
#: Words of the kernel's command line that say something about attaching devices.
_OF_DEVICES = re.compile(
    r"\w*iommu\w*(?:\.\w+)?|vfio\w*(?:[.-]\w+){0,2}|pcie?\w*(?:\.\w+)?|nvidia\w*\.\w+|nouveau\.\w+"
    r"|amdgpu\.\w+|i915\.\w+|xe\.\w+|radeon\.\w+|kvm\w*(?:\.\w+)?|hugepages\w*|default_hugepagesz"
    r"|(?:module|modprobe\.|rd\.driver\.)_?(?:blacklist|pre|post)|video|efifb|simplefb|console"
    r"|initcall_blacklist|intremap|mem_encrypt|mitigations|numa\w*|isolcpus|nohz\w*"
    r"|rcu_nocbs|acpi\w*|efi|lockdown|crashkernel|memmap|mem|nosmt|noapic|x2apic\w*|swiotlb|cma"
    r"|systemd\.unified_cgroup_hierarchy|arm-smmu\w*\.\w+|irqaffinity|preempt|transparent_hugepage"
)
#: Words of which only such values stay: others name servers, volumes and who may read them.
_HARMLESS = {
    "root": re.compile(r"(?:PART)?UUID=[0-9A-Fa-f-]+|/dev/(?:[shv]d|xvd|nvme|mmcblk|md)\w{1,20}"),
    "BOOT_IMAGE": re.compile(r"(?:\([\w,]+\))?/[^:@]*"),
}
# The name of a deployable begins with the host's.
_OF_A_DEPLOYABLE = re.compile(r"_[0-9a-f]{4,}:")
# Extended capability of a device's serial number (PCI Express Base Specification).
_SERIAL_CAPABILITY = 0x0003
_FIRST_EXTENDED = 0x100


class Redactor:
    """Replaces what is secret, the same by the same.

    :param hostname: ``[DEFAULT] host`` of the snapshot, which becomes :data:`HOST`.
    :param names: other names of the machine.
    :param salt: what makes UUIDs others, and is kept nowhere.
    """

    def __init__(self, hostname: str, names: Iterable[str], salt: bytes):
        self._salt = salt
        self._names = {hostname.lower(): HOST}
        for name in names:
            if len(name) > 2 and name.lower() != "localhost":
                self._names.setdefault(name.lower(), f"{HOST}-{len(self._names) + 1}")
        for name in [hostname, *names]:
            domain = name.lower().partition(".")[2]
            if "." in domain and not domain.replace(".", "").isdecimal():
                self._names.setdefault(domain, f"{HOST}-domain")
        for name, other in list(self._names.items()):
            # As device mapper writes a hyphen within the name of a volume group.
            self._names.setdefault(name.replace("-", "--"), other)
            # As people spell it in a trait.
            in_trait = re.sub("[-.]+", "_", name)
            self._names.setdefault(in_trait, re.sub("[-.]+", "_", other).upper())
        self._uuids: dict[str, str] = {}
        self._serials: dict[str, str] = {}
        self._others: dict[str, dict[str, str]] = collections.defaultdict(dict)
        self._found: dict[str, dict[str, int]] = collections.defaultdict(dict)
        self._place = ""
        self._name = re.compile(
            r"(?<![A-Za-z0-9])(?:"
            + "|".join(sorted(map(re.escape, self._names), key=len, reverse=True))
            + r")(?![A-Za-z0-9])",
            re.IGNORECASE,
        )
        self._words: set[str] = set()
        self._vocabulary: frozenset[str] = frozenset()
        self._name_in_path: re.Pattern | None = None

    def learn_words(self, words: Iterable[str]) -> None:
        """Learn what options and state files say; a host may be called as one of these words.

        Such a name is replaced only where a name must stand: ``gpu`` stays in
        ``ext_amd_gpu_driver``, where all who read the file know it from.
        """
        self._words = {match[0].lower() for word in words for match in self._name.finditer(word)}

    def host(self, text: str) -> str:
        """Return what is nothing but the name of a host without it."""
        return self._sub(self._name, "host name", text, lambda m: self._names[m[0].lower()])

    def _name_in_text(self, match: re.Match) -> str:
        name = match[0].lower()
        is_named = not match.start() and _OF_A_DEPLOYABLE.match(match.string, match.end())
        return self._names[name] if is_named or name not in self._words else match[0]

    def learn_uuids(self, texts: Iterable[str]) -> None:
        """Learn which UUIDs there are; each becomes another one, and their order stays."""
        found = sorted({match.lower() for text in texts for match in _UUID.findall(text)})
        found = [each for each in found if each != _NIL]
        made = sorted(
            uuid.UUID(bytes=hmac.digest(self._salt, each.encode(), "sha256")[:16], version=4)
            for each in found
        )
        self._uuids = {each: str(other) for each, other in zip(found, made)}

    def learn_serial(self, serial: str) -> None:
        """Learn a serial number, to find it elsewhere."""
        plain = serial.strip()
        # What is as short as a number would be found everywhere.
        if len(plain) >= 5 and not re.fullmatch(r"[0x.\-]*", plain):
            self._serials.setdefault(plain, f"redacted-serial-{len(self._serials) + 1}")

    def word(self, text: str) -> str:
        """Return what stands for a text of the operator's that nothing depends on."""
        if re.fullmatch(r"redacted(?:-\w+)*", text):
            return text
        self.count("text of the operator's")
        return self._other("text", text)

    def at(self, place: str) -> None:
        """Note where the next texts stand."""
        self._place = place

    @property
    def listing(self) -> list[dict[str, Any]]:
        """What was redacted: kinds, how often, and where; never what."""
        found, self._found = self._found, collections.defaultdict(dict)
        listing = [
            {
                "kind": kind,
                "count": sum(places.values()),
                "places": sorted({self.path(place) for place in places}),
            }
            for kind, places in sorted(found.items())
        ]
        self._found = found
        return listing

    def count(self, kind: str) -> None:
        """Note that something was redacted at this place."""
        places = self._found[kind]
        places[self._place] = places.get(self._place, 0) + 1

    def learn_paths(self, paths: Iterable[str]) -> None:
        """Learn which paths there are: a host may be called as the kernel calls something."""
        self._vocabulary = frozenset(
            part.lower() for path in paths for part in _OF_VENDORS.sub("", path).split("/")
        )
        named = [
            name
            for name in self._names
            # A word alone is a kernel's or a driver's as well.
            if re.search(r"[0-9.-]", name) and len(name) > 4 and name not in self._vocabulary
        ]
        self._name_in_path = re.compile(
            r"(?<![A-Za-z0-9])(?:"
            + "|".join(sorted(map(re.escape, named), key=len, reverse=True) or ["(?!)"])
            + r")(?![A-Za-z0-9])",
            re.IGNORECASE,
        )

    def path(self, path: str) -> str:
        """Return a path, or what a link says, without UUIDs, serial numbers and host names."""
        path = self._literal_serials(self._uuid(path))
        if self._name_in_path is None:
            return path
        return self._sub(self._name_in_path, "host name", path, lambda m: self._names[m[0].lower()])

    def text(
        self, text: str, with_names: bool = True, with_uuids: bool = True, with_ips: bool = True
    ) -> str:
        """Return a text without what is secret."""
        text = self._sub(_SECRET, "secret", text, lambda m: m[1] + _REDACTED)
        text = self._sub(_AUTHORIZATION, "secret", text, lambda m: (m[1] or m[2]) + _REDACTED)
        text = self._sub(_IN_URL, "secret", text, lambda m: f"{m[1]}{_REDACTED}:{_REDACTED}")
        text = self._sub(_HOME, "user name", text, lambda m: m[1] + self._other("user", m[2]))
        text = self._sub(
            _SERIAL_IN_TEXT, "serial number", text, lambda m: m[1] + self._serial(m[2])
        )
        if with_uuids:
            text = self._uuid(text)
        text = self._literal_serials(text)
        if ":" in text or "-" in text:
            text = self._sub(_MAC, "MAC address", text, self._mac)
        if with_ips and text.count(".") > 1:
            text = self._sub(_DOTTED_MAC, "MAC address", text, self._dotted_mac)
            text = self._sub(_IPV4, "IP address", text, self._ip)
        if text.count(":") > 1:
            text = self._sub(_IPV6, "IP address", text, self._ip)
        if with_names:
            text = self._sub(self._name, "host name", text, self._name_in_text)
        return text

    def content(self, path: str, data: bytes) -> bytes:
        """Return what a file of the host holds without what is secret."""
        self.at(path)
        name = path.rpartition("/")[2]
        if name == "config":
            return self._without_serial(data)
        text = data.decode("utf-8", "surrogateescape")
        odd = b"" if text.isascii() else _no_text(data)
        if _SERIAL_FILES.fullmatch(path):
            plain = text.strip()
            text = text.replace(plain, self._serial(plain)) if plain else text
        elif path == COMMAND_LINE:
            text = self.command_line(text)
        elif name == _FABRIC:
            text = self._only_modes(text)
        elif name == "uevent":
            text = _LINE_OF_UEVENT.sub(self._line_of_uevent, text)
        elif name == "label" or _PARAMETERS.match(path) or _OTHERS_OF_NVIDIA.search(path):
            plain = text.strip()
            if plain and not _PLAIN_VALUE.fullmatch(plain):
                text = text.replace(plain, self.word(plain))
        elif name in _PLAIN_ATTRIBUTES:
            return data
        redacted = self.text(
            text,
            # A host whose name is a word of the kernel's is not found by it here.
            with_names=path.startswith("/proc/cmdline")
            or not self._names.keys() & self._vocabulary,
            with_uuids=not _OF_DESIGNS.fullmatch(path),
            with_ips=not _VERSIONS.fullmatch(path),
        )
        made = redacted.encode("utf-8", "surrogateescape")
        # What was no text is none afterwards either.
        return made if not odd or _no_text(made) else odd + made

    def _line_of_uevent(self, match: re.Match) -> str:
        is_known = _KEYS_OF_UEVENT.fullmatch(match[1]) or not match[2]
        return match[0] if is_known else f"{match[1]}={self.word(match[2])}"

    def command_line(self, text: str) -> str:
        """Return a command line with the values of those words only that concern devices."""

        def word(match: re.Match) -> str:
            name, equals, _value = match[0].strip('"').partition("=")
            harmless = _HARMLESS.get(name)
            if harmless and harmless.fullmatch(_value):
                return match[0]
            if _OF_DEVICES.fullmatch(name) or (not equals and name in _FLAGS):
                return match[0]
            self.count("word of the kernel's command line")
            known = name if _OF_OTHERS.fullmatch(name) else _REDACTED
            return f"{known}={_REDACTED}" if equals else known

        before, dashes, _after = text.partition(" -- ")
        kept = _WORD.sub(word, before)
        return kept if not dashes else f"{kept}\n"

    def json(self, value: Any) -> Any:
        """Return a document with each of its texts redacted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.json(each) for each in value]
        if isinstance(value, dict):
            return {self.text(key): self.json(each) for key, each in value.items()}
        return value

    def _sub(self, pattern: re.Pattern, kind: str, text: str, other: Callable) -> str:
        def replace(match: re.Match) -> str:
            made = other(match)
            if made != match[0]:
                self.count(kind)
            return made

        return pattern.sub(replace, text)

    def _uuid(self, text: str) -> str:
        if text.count("-") < 4:
            return text
        return self._sub(_UUID, "UUID", text, lambda m: self._uuids.get(m[0].lower(), _NIL))

    def _serial(self, text: str) -> str:
        if text.lower() in ("", "none", "null", "n/a", "(null)") or text.startswith("redacted"):
            return text
        made = self._serials.setdefault(text, f"redacted-serial-{len(self._serials) + 1}")
        self.count("serial number")
        return made

    def _literal_serials(self, text: str) -> str:
        for serial, other in self._serials.items():
            if serial in text:
                text = re.sub(
                    rf"(?<![0-9A-Za-z]){re.escape(serial)}(?![0-9A-Za-z])",
                    lambda match, other=other: self.count("serial number") or other,
                    text,
                )
        return text

    def _other(self, kind: str, text: str) -> str:
        known = self._others[kind]
        return known.setdefault(text, f"{_REDACTED}-{kind}-{len(known) + 1}")

    def _mac(self, match: re.Match) -> str:
        known = self._others["mac"]
        plain = match[0].lower().replace("-", ":")
        number = known.setdefault(plain, f"{len(known) + 1:04x}")
        return match[1].join(("02", "00", "00", "00", number[:2], number[2:]))

    def _dotted_mac(self, match: re.Match) -> str:
        digits = match[0].lower().replace(".", "")
        plain = ":".join(digits[at : at + 2] for at in range(0, 12, 2))
        known = self._others["mac"]
        return f"0200.0000.{known.setdefault(plain, f'{len(known) + 1:04x}')}"

    def _ip(self, match: re.Match) -> str:
        try:
            address = ipaddress.ip_address(match[0])
        except ValueError:
            return match[0]
        if address.is_loopback or address.is_unspecified:
            return match[0]
        known = self._others[f"v{address.version}"]
        number = int(known.setdefault(str(address), str(len(known) + 1)))
        # The ranges for documentation: RFC 5737, RFC 3849.
        if address.version == 6:
            return str(ipaddress.IPv6Address("2001:db8::") + number)
        return str(ipaddress.IPv4Address("192.0.2.0") + number)

    def _without_serial(self, data: bytes) -> bytes:
        """Return a configuration space with its extended capability of a serial number emptied."""
        at, seen = _FIRST_EXTENDED, set()
        while _FIRST_EXTENDED <= at <= len(data) - 12 and at not in seen:
            seen.add(at)
            header = int.from_bytes(data[at : at + 4], "little")
            if header & 0xFFFF == _SERIAL_CAPABILITY and header != 0xFFFFFFFF:
                data = data[: at + 4] + bytes(8) + data[at + 12 :]
                self.count("serial number")
            at = header >> 20
        return data

    def _only_modes(self, text: str) -> str:
        """Return the lines of the Fabric Manager's configuration that are read."""
        lines = text.splitlines(keepends=True)
        kept = [line for line in lines if re.match(r"\s*FABRIC_MODE\s*=", line)]
        if len(kept) < len(lines):
            self.count("options that are not read")
        return "".join(kept)


_PLAIN_ATTRIBUTES = frozenset(
    (
        *("vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device"),
        *("resource", "irq", "enable", "numa_node", "power_state", "boot_vga", "modalias"),
    )
)


def redacted(snapshot: Snapshot, hostname: str, names: Iterable[str], salt: bytes) -> Snapshot:
    """Return a snapshot without what is secret, and with a listing of what that was."""
    state = {name: _loaded(data) for name, data in snapshot.state.items()}
    others = [each["host"] for each in state.values() if isinstance(each.get("host"), str)]
    redactor = Redactor(hostname, [*names, *others], salt)
    captured = snapshot.captured
    redactor.learn_paths(path for path, _ in captured.walk())
    redactor.learn_uuids(_texts(snapshot))
    for serial in _serials(snapshot):
        redactor.learn_serial(serial)
    made = _redacted_captured(captured, redactor)
    redactor.at("nvml.json")
    made.nvml_answer = _redacted_nvml(captured.nvml_answer, redactor)
    redactor.at("udev.json")
    made.udev_names = {
        address: tuple(name and redactor.text(name, with_ips=False) for name in each)
        for address, each in captured.udev_names.items()
    }
    catalog, kept = {}, {}
    redactor.learn_words((*_words(_of_options(snapshot.options)), *_words(state)))
    redactor.at("options.json")
    options = redactor.json(_without_tags(snapshot.options, redactor))
    for number, (_, data) in enumerate(sorted(snapshot.catalog.items())):
        redactor.at(f"catalog/{number + 1:03d}.yaml")
        made_of_it = _operators_words.catalogue(data, redactor.word, redactor.text)
        if made_of_it != data:
            redactor.count("comment")
        catalog[f"{number + 1:03d}.yaml"] = made_of_it
    for name, document in state.items():
        redactor.at("state")
        driver, dot, host = name.removesuffix(".json").partition(".")
        name = f"{redactor.text(driver)}{dot}{redactor.host(redactor.text(host))}.json"
        kept[name] = _dumped(_redacted_state(document, redactor))
    redactor.at("manifest.json")
    said = {
        "made_by": {
            name: version and redactor.text(version, with_ips=False)
            for name, version in snapshot.manifest["made_by"].items()
        },
        "notes": [redactor.text(note) for note in snapshot.manifest.get("notes", ())],
    }
    if "refused" in snapshot.manifest:
        if snapshot.manifest["refused"].endswith(f"{_REDACTED!r}"):
            redactor.count("line of a refused file")
        said["refused"] = redactor.text(snapshot.manifest["refused"])
    manifest = {**snapshot.manifest, **said, "redactions": redactor.listing, "is_raw": False}
    return dataclasses.replace(
        snapshot, captured=made, manifest=manifest, options=options, catalog=catalog, state=kept
    )


def _of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options whose values are words that mean something."""
    said = options["cyborg"] or {}
    drivers = options["enabled_drivers"] or ()
    values = [*itertools.chain.from_iterable(said.values()), *drivers]
    values += [name for _, name in options["vgpu_types"]]
    return dict.fromkeys([*said, *values])


def _words(value: Any) -> Iterable[str]:
    """Yield the keys of documents, drivers, traits and resource classes."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            # The name of a state file ends in the host's.
            yield key.partition(".")[0]
            if key != "host":
                yield from _words(each)
            if key == "driver" and isinstance(each, str):
                yield each
    elif isinstance(value, list):
        for each in value:
            yield from _words(each)
    elif isinstance(value, str) and re.fullmatch(r"(?:CUSTOM|OWNER|HW)_[A-Z0-9_]+", value):
        yield value


def _no_text(data: bytes) -> bytes:
    """Return the first bytes for which data is no text, nothing where it is text."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data[error.start : error.start + 1]
    return b""


def _texts(snapshot: Snapshot) -> Iterable[str]:
    for path, node in snapshot.captured.walk():
        yield path
        if isinstance(node, Link):
            yield node.target
        elif isinstance(node, File) and node.data.count(b"-") > 3:
            yield node.data.decode("utf-8", "replace")
    yield repr(snapshot.captured.nvml_answer)
    yield json.dumps(dict(snapshot.options))
    for data in (*snapshot.catalog.values(), *snapshot.state.values()):
        yield data.decode("utf-8", "replace")


def _serials(snapshot: Snapshot) -> Iterable[str]:
    answer = snapshot.captured.nvml_answer
    for gpu in answer.gpus if answer else ():
        if gpu.serial:
            yield gpu.serial
    for path, node in snapshot.captured.walk():
        if isinstance(node, File) and _SERIAL_FILES.fullmatch(path):
            yield node.data.decode("utf-8", "replace")


def _redacted_captured(captured: Captured, redactor: Redactor) -> Captured:
    made = Captured(captured.is_live)
    for path, node in captured.walk():
        redactor.at(path if redactor.path(path) == path else path.rpartition("/")[0])
        if isinstance(node, File):
            node = File(redactor.content(path, node.data))
        elif isinstance(node, Link):
            node = Link(redactor.path(node.target))
        if path == "/":
            made.replace("/", node)
        else:
            made.add(redactor.path(path), node)
    return made


def _redacted_nvml(answer: NvmlAnswer | None, redactor: Redactor) -> NvmlAnswer | None:
    if answer is None:
        return None
    gpus = []
    for gpu in answer.gpus:
        texts = {
            key: redactor.text(value)
            for key, value in gpu._asdict().items()
            if isinstance(value, str) and key not in ("vbios", "serial", "name", "board_part")
        }
        if gpu.serial:
            texts["serial"] = redactor._serial(gpu.serial)
        instances = tuple(
            each._replace(uuid=each.uuid and redactor.text(each.uuid)) for each in gpu.instances
        )
        processes = gpu.processes and tuple(
            each._replace(command=each.command and redactor.text(each.command))
            for each in gpu.processes
        )
        errors = tuple(redactor.text(each, with_ips=False) for each in gpu.errors)
        made = {"instances": instances, "processes": processes, "errors": errors}
        gpus.append(gpu._replace(**texts, **made))
    library = answer.library and redactor.text(answer.library)
    return answer._replace(
        detail=redactor.text(answer.detail, with_ips=False), library=library, gpus=tuple(gpus)
    )


def _without_tags(options: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    made = dict(options)
    for name in ("cyborg_device_specs", "nova_device_specs"):
        made[name] = [_operators_words.spec(each, redactor.word) for each in options[name]]
    return made


def _redacted_state(value: Any, redactor: Redactor) -> Any:
    """Return what a driver remembers, board information within it included."""
    if isinstance(value, dict):
        made = {}
        for key, each in value.items():
            if isinstance(each, str) and key.startswith("serial"):
                made[key] = redactor._serial(each)
            elif isinstance(each, str) and key == "host":
                made[key] = redactor.host(redactor.text(each))
            else:
                made[redactor.text(key)] = _redacted_state(each, redactor)
        return made
    if isinstance(value, list):
        return [_redacted_state(each, redactor) for each in value]
    if isinstance(value, str) and value.startswith("{"):
        try:
            inner = json.loads(value)
        except ValueError:
            return redactor.text(value)
        other = _redacted_state(inner, redactor)
        return value if other == inner else json.dumps(other, sort_keys=True)
    return redactor.text(value) if isinstance(value, str) else value


def _loaded(data: bytes) -> dict[str, Any]:
    """Return a state file's document; of one that is damaged nothing is kept."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _dumped(document: Any) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode()


def refusal(error: Exception) -> str:
    """Return why a configuration is refused, without the line of the file if it stands there.

    Such a line may be of any section, with the password of another service.
    """
    return _REFUSED_LINE.sub(rf"\1{_REDACTED!r}", str(error))[:_LONGEST_REFUSAL]


def digest_of(hostname: str, salt: bytes) -> str:
    """Return what tells a machine that a snapshot is its own; slow, so that nobody tries names."""
    return hashlib.scrypt(hostname.lower().encode(), salt=salt, n=1 << 14, r=8, p=1, dklen=32).hex()
