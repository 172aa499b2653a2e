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

"""A host that is not there: sys/, proc/, etc/ and dev/ below a temporary root.

::

    with FakeHost.named("two-t4") as fake:
        Host(fake.root).functions ...
        fake.bind("0000:3b:00.0", "vfio-pci")

Layout, spelling and links are the kernel's, so that other people's programs see the same
host under umockdev's preload library.  Left out: ``resourceN``, ``rom``, ``vpd``, most of
``power/``, link attributes of bridges, and every effect of writing to a file; change the
host through the methods instead.

Next stop: :mod:`._schema` for the keys of a description.
"""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import fixtures

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.testing import (
    _description,
    _fpga,
    _loading,
    _nvml,
    _schema,
    _umockdev,
    nvml_stub,
)
from cyborg_ext_drivers.testing._description import FunctionDescription, HostDescription, Xrt
from cyborg_ext_drivers.testing._files import Entry, Files, LinkAsWritten, quick_place
from cyborg_ext_drivers.testing._layout import Attributes, Layout
from cyborg_ext_drivers.testing._machine import Machine, MediatedDevice, shown_ports
from cyborg_ext_drivers.testing._oddities import Oddity

_DEVICES = "/sys/bus/pci/devices"


class FakeHost(fixtures.Fixture):
    """A host laid out from a description, and changed while under test.

    All changes may be made before it is set up as well.  It lies in memory where it can,
    unless TMPDIR names another place.  Every method takes an address as
    text or as :class:`~cyborg_ext_drivers.address.PciAddress`.

    :param description: what is on the host; without one, a plain host with no function.
    :param attributes: ``"identity"`` leaves out of each function's directory what does not
        say what it is and where it belongs: for hosts of thousands of functions.  Files that
        hold the same are then one file, so change them through the methods only.
    """

    def __init__(
        self, description: HostDescription | None = None, *, attributes: Attributes = "all"
    ):
        self._machine = Machine(description or HostDescription())
        self._attributes = attributes
        self._layout: Layout | None = None
        self._root: pathlib.Path | None = None

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], **options: Any) -> "FakeHost":
        """Return a host from a description as YAML would give it.

        :raises DescriptionError: with every fault that the description has.
        """
        return cls(HostDescription.from_mapping(mapping), **options)

    @classmethod
    def from_file(cls, path: str | os.PathLike, **options: Any) -> "FakeHost":
        """Return a host from a YAML file.

        :raises DescriptionError: with every fault that the description has.
        """
        return cls(_loading.load(pathlib.Path(path)), **options)

    @classmethod
    def named(cls, name: str, **options: Any) -> "FakeHost":
        """Return one of the hosts that are described in this package, or one from a file.

        :param name: as in :func:`~cyborg_ext_drivers.testing.load`: a path when it has a slash
            or ends in ``.yaml``.
        :raises UnknownHost: when there is none of this name.
        """
        return cls(_loading.load(name), **options)

    def _setUp(self) -> None:
        temporary = self.useFixture(fixtures.TempDir(quick_place()))
        directory = os.path.realpath(temporary.path)
        self._root = pathlib.Path(directory, "host")
        files = Files(str(self._root), directory, shared=self._attributes == "identity")
        self.addCleanup(files.close)
        self._layout = Layout(files, self._machine, self._attributes)
        self.addCleanup(setattr, self, "_layout", None)
        self.addCleanup(setattr, self, "_root", None)
        self._layout.refresh()

    @property
    def root(self) -> pathlib.Path:
        """The directory that stands for ``/``.

        :raises RuntimeError: when the host is not set up.
        """
        if self._root is None:
            raise RuntimeError("the fake host is not set up; use it in a with statement")
        return self._root

    def path(self, path: str) -> pathlib.Path:
        """Return where a path of the host really is: ``path("/sys/class/iommu")``."""
        return self.root / path.lstrip("/")

    @property
    def description(self) -> HostDescription:
        """The host as it is now; ``description.expected`` is what was expected at first."""
        return self._machine.description

    def directory(self, address: str | PciAddress) -> str:
        """Return the host's path of a function's own directory, below /sys/devices."""
        return self._machine.directory(self._machine.get(_parsed(address)).address)

    def group_of(self, address: str | PciAddress) -> int | None:
        """Return the IOMMU group that a function has with the host's IOMMU as it is."""
        return self._machine.group_of(self._machine.get(_parsed(address)))

    def umockdev_environment(self) -> dict[str, str]:
        """Return the variables under which a new process sees this host as its own.

        :raises UmockdevMissing: when umockdev is not installed.
        """
        return _umockdev.environment(self.root)

    # Functions

    def add_function(
        self, address: str | PciAddress, *, vendor: str, device: str, class_: str, **more: Any
    ) -> FunctionDescription:
        """Plug in a function; *more* are the keys of a description.

        :raises DescriptionError: when a value is wrong or the address taken.
        :raises UnknownFunction: when its parent or physical function is not there.
        """
        given = {"address": address, "vendor": vendor, "device": device, "class": class_}
        function = self._machine.plug(given | more)
        self._refresh(function.address)
        return function

    def remove_function(self, address: str | PciAddress) -> None:
        """Take a function away, with its virtual functions and what lies below it."""
        function = self._machine.get(_parsed(address))
        near = [each for each in (function.physfn, function.parent) if each is not None]
        self._refresh(*self._machine.remove(function.address), *near)

    def put_back(self, address: str | PciAddress) -> None:
        """Put in again what :meth:`remove_function` took away, as it was.

        :raises UnknownFunction: when nothing was.
        """
        self._refresh(*self._machine.put_back(_parsed(address)))

    def bind(self, address: str | PciAddress, driver: str) -> None:
        """Bind a function to a driver, after unbinding it from the one that it has."""
        self._change(address, driver=driver)

    def unbind(self, address: str | PciAddress) -> None:
        """Take a function's driver away; its mediated devices go with it."""
        self._change(address, driver=None)

    def move_to_group(self, address: str | PciAddress, group: int | None) -> None:
        """Put a function into an IOMMU group, or into none."""
        self._change(address, iommu_group=group)

    # SR-IOV

    def enable_virtual_functions(
        self,
        address: str | PciAddress,
        count: int,
        *,
        device: str | None = None,
        driver: str | None = None,
        offset: int | None = None,
        stride: int | None = None,
    ) -> list[PciAddress]:
        """Enable virtual functions, each in a group of its own, and return their addresses.

        :raises ValueError: when the kernel would refuse: too many, or some are enabled.
        """
        changes = {"sriov_offset": offset, "sriov_stride": stride, "sriov_vf_device": device}
        given = {key: value for key, value in changes.items() if value is not None}
        virtual = self._machine.enable(_parsed(address), count, driver, given)
        self._refresh(_parsed(address), *virtual)
        return virtual

    def disable_virtual_functions(self, address: str | PciAddress) -> None:
        """Take all virtual functions of a function away."""
        gone = self._machine.disable(_parsed(address))
        self._refresh(_parsed(address), *gone)

    # FPGAs

    def release_port(self, address: str | PciAddress, port: int) -> None:
        """Let the physical function go of a port, as comes before virtual functions are enabled.

        :raises ValueError: when it has no such port.
        """
        self._change_port(address, port, released=True)

    def assign_port(self, address: str | PciAddress, port: int) -> None:
        """Undo :meth:`release_port`.

        :raises ValueError: when there is no such port.
        """
        self._change_port(address, port, released=False)

    def set_afu_id(self, address: str | PciAddress, port: int, afu_id: str | None) -> None:
        """Program another function behind a port, wherever on the card the port is now.

        :param afu_id: what the file says, be it nonsense; ``None`` for one that is absent.
        :raises ValueError: when the card has no such port.
        """
        self._change_port(address, port, afu_id=afu_id)

    def port_file(self, address: str | PciAddress, port: int, name: str = "afu_id") -> str:
        """Return how a function names a file of its port, for :meth:`make_unreadable` and others.

        :raises ValueError: when it does not show such a port now.
        """
        function, found = self._machine.port(_parsed(address), port)
        is_shown = function.shows_fpga and found in shown_ports(function)
        if function.address != _parsed(address) or not is_shown:
            raise ValueError(f"{address} does not show port {port}")
        return f"{_fpga.port_directory(self._machine, function, found, '')}/{name}".lstrip("/")

    def set_xrt(self, address: str | PciAddress, **said: Any) -> None:
        """Let XRT's drivers say something else of a function; *said* are keys of its ``xrt``."""
        known = self._machine.get(_parsed(address)).xrt or Xrt()
        self._change(address, xrt=_description.xrt(**{**dataclasses.asdict(known), **said}))

    def _change_port(self, address: str | PciAddress, port: int, **changes: Any) -> None:
        self._refresh(self._machine.change_port(_parsed(address), port, **changes))

    # Files

    def set_attribute(self, address: str | PciAddress, name: str, value: str | bytes) -> None:
        """Let one file of a function hold something else; bytes are taken as they are.

        A text gets a newline at its end.  Nothing else follows: other files that the
        kernel would change as well stay.
        """
        self._machine.oddities.pop(self._machine.place(f"{_DEVICES}/{address}/{name}"), None)
        self._set_attribute(address, name, value)

    def remove_attribute(self, address: str | PciAddress, name: str) -> None:
        """Take one file or link of a function away."""
        self._set_attribute(address, name, None)

    def _set_attribute(self, address, name: str, value: str | bytes | None) -> None:
        attributes = self._machine.get(_parsed(address)).attributes
        self._change(address, attributes={**attributes, name: value})

    def make_unreadable(self, address: str | PciAddress, name: str) -> None:
        """Let reading one file of a function fail, for root as well.

        Opening it gives ELOOP; reading a link, EINVAL.  :meth:`make_readable` undoes it.
        """
        self.inject(Oddity("unreadable", f"{_DEVICES}/{_parsed(address)}/{name}"))

    def make_readable(self, address: str | PciAddress, name: str) -> None:
        """Undo :meth:`make_unreadable`."""
        self.mend(Oddity("unreadable", f"{_DEVICES}/{_parsed(address)}/{name}"))

    def make_directory_unlistable(self, path: str = _DEVICES) -> None:
        """Let listing a directory fail with ELOOP, or reading a file of the host.

        :meth:`make_directory_listable` undoes it.
        """
        self.inject(Oddity("unreadable", path))

    def make_directory_listable(self, path: str = _DEVICES) -> None:
        """Undo :meth:`make_directory_unlistable`."""
        self.mend(Oddity("unreadable", path))

    def write_file(self, path: str, content: str | bytes | None) -> None:
        """Let a file of the host hold something; ``None`` takes it away.

        :param path: the host's absolute path, such as ``/etc/nova/nova.conf``.
        """
        self._change_host(files={**self._machine.host.files, path: content})

    # What is odd

    def inject(self, oddity: Oddity) -> None:
        """Let something be odd at a path, whatever else changes there.

        It goes with the function that it is below, and where something else becomes odd.

        :raises UnknownFunction: when it is below a function that is not there.
        """
        self._machine.oddities[self._machine.place(oddity.path)] = oddity
        self._refresh_around(oddity.path)

    def mend(self, oddity: Oddity) -> None:
        """Undo :meth:`inject`, unless something else is odd there by now.

        :raises UnknownFunction: when it was below a function that is not there.
        """
        place = self._machine.place(oddity.path)
        if self._machine.oddities.get(place) == oddity:
            del self._machine.oddities[place]
            self._refresh_around(oddity.path)

    @property
    def outside(self) -> pathlib.Path:
        """A directory beside the root, to which links may lead; nothing of it must ever show."""
        return self.root.parent / "outside"

    @contextlib.contextmanager
    def undone(self) -> Iterator["FakeHost"]:
        """Undo at the end all that is changed meanwhile."""
        before = self._machine.copy()
        try:
            yield self
        finally:
            vars(self._machine).update(vars(before))
            self._refresh()

    # The host

    def reboot(self, **changes: Any) -> None:
        """Boot again; what a boot leaves as it is, stays.

        :param changes: fields of :class:`HostDescription` that are other ones from now on.
        """
        self._change_host(boots=self._machine.host.boots + 1, **changes)

    def set_command_line(self, text: str) -> None:
        """Boot with another kernel command line."""
        self.reboot(cmdline=text)

    def set_modules(self, modules: Mapping[str, Mapping | None] | list[str]) -> None:
        """Load other modules; those of the drivers that were bound stay."""
        self._change_host(modules=_description.modules(modules))

    def set_iommu(self, kind: str | bool) -> None:
        """Boot with another IOMMU; functions without an active one have no groups.

        :raises ValueError: when there is no such kind.
        """
        architecture = self._machine.host.architecture
        self.reboot(iommu=_description.iommu_kind(kind, architecture))

    # NVML

    @property
    def nvml_library(self) -> pathlib.Path:
        """The library that stands for NVML on this host; where it is absent, its place.

        It is compiled at the first use, and says what the host is like at every moment.

        :raises NoCompiler: when it cannot be compiled on this machine.
        """
        if self._machine.nvml_library is None:
            self._machine.nvml_library = self._stand_in_for_nvml()
            self._refresh()
        return self.path(_nvml.LIBRARY)

    def _stand_in_for_nvml(self) -> Entry:
        """Return what is to lie in the library's place; nothing can be loaded from some places."""
        if not os.statvfs(self.root).f_flag & os.ST_NOEXEC:
            return _nvml.compiled()
        elsewhere = self.useFixture(fixtures.TempDir()).path
        return LinkAsWritten(str(nvml_stub.compile(elsewhere)))

    def set_nvml(self, state: str) -> None:
        """Let NVML be in another state: ``present``, ``missing``, ``hanging`` ...

        :raises ValueError: when there is no such state.
        """
        if state not in _schema.NVML_STATES:
            known = ", ".join(_schema.NVML_STATES)
            raise ValueError(f"{state!r} is no state of NVML; there is {known}")
        self._change_host(extra={**self._machine.host.extra, "nvml": state})

    def set_nvml_of(self, address: str | PciAddress, **said: Any) -> None:
        """Let NVML say something else of one GPU; *said* are keys of its ``nvml``.

        What is ``None`` is not told of any more.
        """
        known = {**self._machine.get(_parsed(address)).nvml, **said}
        kept = {key: value for key, value in known.items() if value is not None}
        self._machine.change(_parsed(address), nvml=kept)
        self._refresh()

    # Mediated devices

    def create_mediated_device(
        self, parent: str | PciAddress, type: str, uuid: str
    ) -> MediatedDevice:
        """Create a mediated device.

        :raises ValueError: when the parent does not offer the type, or no more of it.
        """
        device = self._machine.create_mediated(_parsed(parent), type, uuid)
        self._refresh(*self._machine.parents_beside(device.parent))
        return device

    def remove_mediated_device(self, uuid: str) -> None:
        """Remove a mediated device.

        :raises LookupError: when there is none of this UUID.
        """
        parent = self._machine.mediated.pop(uuid).parent
        self._refresh(*self._machine.parents_beside(parent))

    def obey(self) -> list[MediatedDevice]:
        """Do what was written to the ``create`` files of types of mediated devices.

        A file system takes what is written and does nothing; the kernel makes a device of it.
        Return those that were made.

        :raises ValueError: when the kernel would have refused to.
        """
        made = []
        for function in self.description.functions:
            for kind in function.mdev_types:
                place = f"{_DEVICES}/{function.address}/mdev_supported_types/{kind.id}/create"
                written = _taken(self.path(place))
                if written:
                    made.append(self.create_mediated_device(function.address, kind.id, written))
        return made

    def _change(self, address: str | PciAddress, **changes: Any) -> None:
        self._machine.change(_parsed(address), **changes)
        self._refresh(_parsed(address))

    def _change_host(self, **changes: Any) -> None:
        self._machine.host = dataclasses.replace(self._machine.host, **changes)
        self._refresh()

    def _refresh_around(self, path: str) -> None:
        """Bring the function up to date that has an entry, or all when it is no function's."""
        name, _, rest = path.removeprefix(f"{_DEVICES}/").partition("/")
        is_own = path.startswith(f"{_DEVICES}/") and rest and ":" not in rest
        self._refresh(*[_parsed(name)] if is_own else [])

    def _refresh(self, *addresses: PciAddress) -> None:
        """Bring the tree up to date: some functions, or all of it when none is named."""
        if self._layout is not None:
            self._layout.refresh(addresses or None)


def _parsed(address: str | PciAddress) -> PciAddress:
    return address if isinstance(address, PciAddress) else PciAddress.parse(address)


def _taken(path: pathlib.Path) -> str:
    """Return what was written to a file that only takes commands, and empty it."""
    if not path.exists() or not path.stat().st_size:
        return ""
    path.chmod(0o600)
    text = path.read_text()
    path.write_text("")
    path.chmod(0o200)
    return text.strip()
