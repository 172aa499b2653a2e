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

"""What the operator decided, as one value; :mod:`cyborg_ext_drivers.conf` reads it."""

import dataclasses
import fnmatch
import os
import re
from typing import NamedTuple

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.host.identity import Identity

_GLOB = r"[0-9a-f*?\[\]!-]+"
_WILD = r"[0-9a-f]*[*?\[][0-9a-f*?\[\]!-]*"
_ID = re.compile(f"(?:[0-9a-f]{{4}}|{_WILD}):(?:[0-9a-f]{{4}}|{_WILD})")
_ADDRESS = re.compile(
    rf"0000:\*|(?:(?:{_GLOB}:)?{_GLOB}:)?{_GLOB}\.{_GLOB}|{_GLOB}:{_GLOB}:{_GLOB}"
)


class InvalidSelector(ExtDriversError, ValueError):
    """A text that selects no PCI functions."""


class Selector(NamedTuple):
    """Some PCI functions: an address (``0000:3b:*``) or ids (``10de:1eb8``), with globs."""

    text: str
    is_id: bool = False

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """Read a selector; an address without a domain is in domain 0.

        :raises InvalidSelector: when it is neither an address nor vendor:device.
        """
        plain = text.strip().lower()
        if _ID.fullmatch(plain) and not plain.startswith("0000:"):
            # No vendor is 0000; who writes that means a domain.
            return cls(plain, is_id=True)
        if not _ADDRESS.fullmatch(plain):
            raise InvalidSelector(
                f"{text!r} is neither a PCI address (0000:3b:00.0, 0000:3b:*) nor vendor:device "
                "(10de:1eb8, 10de:*)"
            )
        if not set(plain) & set("*?["):
            try:
                return cls(str(PciAddress.parse(plain)))
            except ValueError as error:
                raise InvalidSelector(str(error)) from None
        is_whole = plain.count(":") == 2 or plain.startswith(("*", "0000:"))
        return cls(plain if is_whole else f"0000:{plain}")

    def matches(self, address: PciAddress, identity: Identity) -> bool:
        """Return whether a function is one of these."""
        subject = str(identity.id) if self.is_id else str(address)
        return fnmatch.fnmatchcase(subject, self.text)

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that the pipeline asks for, with the defaults of an empty cyborg.conf."""

    #: The directory below which sys/, proc/, etc/ and dev/ of the host are found.
    host_root: str = "/"
    #: The operator's catalogue files, a path of the host.
    catalog_dir: str = "/etc/cyborg/ext_catalog.d"
    #: Only these accelerators are offered; empty offers all.
    include: tuple[Selector, ...] = ()
    #: These accelerators are not offered.
    exclude: tuple[Selector, ...] = ()
    #: Offer only what is bound to a vfio driver already.
    vfio_only: bool = False
    #: Offer virtual functions that NVIDIA's driver serves itself and that have a type of vGPU.
    report_vendor_vfio: bool = False
    #: These cards are not offered whole: virtual functions are to be enabled on them.
    vfs_expected: tuple[Selector, ...] = ()
    #: The resource class of some accelerators, in the place of the usual one.
    resource_classes: tuple[tuple[Selector, str], ...] = ()
    #: Codes of findings that the operator takes upon himself.
    ignore_findings: frozenset[str] = frozenset()
    #: Traits that the operator adds to some accelerators.
    extra_traits: tuple[tuple[Selector, tuple[str, ...]], ...] = ()
    #: For so many discoveries in a row a card must fail before it is withdrawn.
    withdraw_after: int = 3
    #: What becomes then of a card whose hardware is dead: ``withdraw`` or ``keep``.
    on_fault: str = "withdraw"
    #: Whether Cyborg is told serial numbers and UUIDs.
    report_serials: bool = False
    #: Where the drivers keep what they reported, as the agent sees it.
    state_dir: str = "/var/lib/cyborg/ext_drivers"
    #: NVIDIA's management library, as this machine sees it; empty for what the loader finds.
    nvml_library: str = ""
    #: For so many seconds its answer is waited for.
    nvml_timeout: float = 5.0
    #: For so many seconds a maker's tool may write an image to an FPGA.
    program_timeout: int = 1800
    #: ``[agent] enabled_drivers``; ``None`` where no cyborg.conf was read.
    enabled_drivers: tuple[str, ...] | None = None
    #: The types of vGPU that cards, or virtual functions of cards, are to have, by address.
    vgpu_types: tuple[tuple[PciAddress, str], ...] = ()
    #: The values of ``[pci] passthrough_whitelist`` in cyborg.conf, as they stand there.
    cyborg_device_specs: tuple[str, ...] = ()
    #: The values of ``[pci] device_spec`` in nova.conf, as they stand there.
    nova_device_specs: tuple[str, ...] = ()

    def below_root(self, option: str) -> str:
        """Return the path that an option names, as this machine sees it."""
        return os.path.join(self.host_root, getattr(self, option).lstrip("/"))
