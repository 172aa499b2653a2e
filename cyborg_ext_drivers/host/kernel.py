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

"""What the kernel says of itself: release, command line, modules, architecture.

Read: ``/proc/sys/kernel/osrelease``, ``/proc/sys/kernel/arch`` (since Linux 6.1),
``/proc/sys/kernel/random/boot_id``, ``/proc/cmdline``, ``/sys/module``,
``/sys/hypervisor/type``, ``/sys/bus/pci/drivers``, ``/lib/modules``; anybody may.  Any of them
may be missing in a container or a copy of a host; then the answer is "not known".
"""

import os
import re

from cyborg_ext_drivers.host.sysfs import Tree

COMMAND_LINE = "/proc/cmdline"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
RELEASE = "/proc/sys/kernel/osrelease"
ARCHITECTURE = "/proc/sys/kernel/arch"
MODULES = "/sys/module"
HYPERVISOR = "/sys/hypervisor/type"
PCI_DRIVERS = "/sys/bus/pci/drivers"
INSTALLED = "/lib/modules"

# White space within double quotes belongs to the word (lib/cmdline.c next_arg).
# It becomes part of a path.
_IS_RELEASE = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+~-]*")
_WORD = re.compile(r'(?:"[^"]*(?:"|$)|[^\s"])+')


class Kernel:
    """The running kernel of one host."""

    def __init__(self, tree: Tree):
        self._tree = tree

    @property
    def release(self) -> str | None:
        """The kernel release, ``6.8.0-45-generic``; ``None`` when not known.

        :raises ReadError: when it cannot be read.
        """
        return self._tree.text(RELEASE)

    @property
    def architecture(self) -> str | None:
        """The machine as uname names it, ``x86_64``; ``None`` when not known.

        :raises ReadError: when it cannot be read.
        """
        named = self._tree.text(ARCHITECTURE)
        if named is None and self._tree.is_live:
            return os.uname().machine
        return named

    @property
    def boot_id(self) -> str | None:
        """The UUID that the kernel drew when it started (random(4)); ``None`` when not known.

        :raises ReadError: when it cannot be read.
        """
        return self._tree.text(BOOT_ID)

    @property
    def command_line(self) -> tuple[tuple[str, str | None], ...]:
        """The words of the command line as (name, value), in order; later words win.

        Dashes in names are underscores, as the kernel compares them (kernel/params.c).

        :raises ReadError: when it cannot be read.
        """
        return parse_command_line(self._tree.text(COMMAND_LINE) or "")

    def parameter(self, name: str) -> str | None:
        """Return the last value of a parameter, empty for a bare word, ``None`` if unset.

        :raises ReadError: when the command line cannot be read.
        """
        values = [value or "" for word, value in self.command_line if word == name]
        return values[-1] if values else None

    def has_module(self, name: str) -> bool:
        """Return whether a module is loaded, or built in with parameters.

        :raises ReadError: when it cannot be told.
        """
        return name.replace("-", "_") in self.modules

    @property
    def modules(self) -> frozenset[str]:
        """The loaded modules, and the built-in ones that have parameters.

        :raises ReadError: when they cannot be listed.
        """
        return frozenset(self._tree.names(MODULES) or ())

    def module_parameter(self, module: str, parameter: str) -> str | None:
        """Return a module's parameter, ``None`` when module or parameter is absent.

        :raises ReadError: when it cannot be read.
        """
        return self._tree.text(f"{MODULES}/{module}/parameters/{parameter}")

    def has_driver(self, name: str) -> bool:
        """Return whether a PCI driver is loaded or built in, by its own spelling.

        :raises ReadError: when it cannot be told.
        """
        return self._tree.directory(PCI_DRIVERS).has(name)

    def offers_module(self, directory: str, name: str) -> bool | None:
        """Return whether a module of the running kernel is installed and could be loaded.

        ``None`` where the kernel's modules are not to be seen, as in a container.

        :param directory: where the kernel's own build puts it: ``drivers/vfio/pci/qat``.
        :param name: the file without what compression adds: ``qat_vfio_pci``.
        :raises ReadError: when it cannot be told.
        """
        release = self.release
        if release is None or not _IS_RELEASE.fullmatch(release):
            return None
        if self._tree.names(f"{INSTALLED}/{release}") is None:
            return None
        files = self._tree.names(f"{INSTALLED}/{release}/kernel/{directory}") or ()
        wanted = name.replace("-", "_")
        return any(file.partition(".ko")[0].replace("-", "_") == wanted for file in files)

    @property
    def is_xen_host(self) -> bool:
        """Whether the kernel runs on Xen, where the hypervisor owns the IOMMU.

        Source: Documentation/ABI/stable/sysfs-hypervisor-xen.

        :raises ReadError: when it cannot be read.
        """
        return self._tree.text(HYPERVISOR) == "xen"


def parse_command_line(text: str) -> tuple[tuple[str, str | None], ...]:
    """Return the words of a kernel command line as (name, value); ``None`` for a bare word.

    Double quotes keep white space together and nothing else does (lib/cmdline.c next_arg);
    one that is never closed reaches to the end.
    """
    return tuple(_word(word) for word in _WORD.findall(text))


def _word(word: str) -> tuple[str, str | None]:
    if word.startswith('"'):
        word = word[1:].removesuffix('"')
    name, equals, value = word.partition("=")
    if value.startswith('"'):
        value = value[1:].removesuffix('"')
    return name.replace("-", "_"), value if equals else None
