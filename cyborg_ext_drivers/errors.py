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

"""The errors that this package raises on purpose.

::

    ExtDriversError
    ├── address.InvalidAddress        a text that names no PCI function
    ├── text.UnusableFile             a file that an operator wrote cannot be used
    ├── options.InvalidSelector       a text that selects no PCI functions
    ├── device_spec.InvalidDeviceSpec a value that Nova would refuse
    ├── traits.InvalidTrait           a text that Placement would refuse as a trait
    ├── ReadError                     the host answered, but not with a usable value
    │   ├── Unreadable                the kernel refused (EACCES, EIO, ENODEV ...)
    │   └── Malformed                 the value is not what the kernel documents
    ├── EnumerationError              the list of PCI functions itself cannot be read
    ├── ConfigurationError            an option has a value that cannot be used
    ├── ConfigurationFileError        a configuration file cannot be read
    ├── asking.CloudUnusable          no cloud can be asked, or not enough of it answers
    ├── asking.NotAnswered            a service of the cloud did not answer a request
    ├── archive.SnapshotError         a file is no snapshot that can be opened
    ├── CatalogError                  a catalogue file breaks the schema
    ├── images.UnusableImage          a path that names no image for an FPGA
    ├── tools.ToolMissing             a maker's tool is not installed
    ├── tools.ToolFailed              a maker's tool did not write an image
    └── programming.ProgrammingError  an FPGA was not programmed; one of Cyborg's errors as well

The rooms that face people, ``cli`` and ``testing``, hang their own below the same base, each
beside what raises it.  A file that is absent is an answer (``None``), not an error; a device
that does not qualify is a finding, not an error.
"""


class ExtDriversError(Exception):
    """Base of all errors that the package raises on purpose."""


class ReadError(ExtDriversError):
    """Something of the host is there but gives no usable value."""

    #: The host's path, below the root that is looked at.
    path: str
    #: What was found instead of a usable value.
    value: str


class Unreadable(ReadError):
    """The kernel refused to give the value."""

    def __init__(self, path: str, reason: str, errno: int | None = None):
        self.path = path
        self.value = self.reason = reason
        #: What the kernel said when a file was read, ``None`` when it was not the kernel.
        self.errno = errno
        super().__init__(path, reason, errno)

    def __str__(self) -> str:
        return f"{self.path} cannot be read: {self.reason}"


class Malformed(ReadError):
    """The value is not of the form that the kernel documents."""

    def __init__(self, path: str, value: str, expected: str):
        self.path = path
        self.value = value
        self.expected = expected
        super().__init__(path, value, expected)

    def __str__(self) -> str:
        return f"{self.path} holds {self.value!r}, which is not {self.expected}"


class EnumerationError(ExtDriversError):
    """The list of PCI functions cannot be read, so nothing can be said of the host."""

    def __init__(self, path: str, reason: str):
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return (
            f"{self.path} cannot be listed: {self.reason}; no PCI function of this host is "
            "known. Mount sysfs there, or point [ext_drivers] host_root at the host's root"
        )


class ConfigurationError(ExtDriversError):
    """An option has a value that cannot be used."""

    def __init__(self, option: str, value: object, reason: str, group: str = "ext_drivers"):
        self.group = group
        self.option = option
        self.value = value
        self.reason = reason
        super().__init__(option, value, reason, group)

    def __str__(self) -> str:
        if self.value is None:
            return f"[{self.group}] {self.option}: {self.reason}"
        return f"[{self.group}] {self.option} = {self.value}: {self.reason}"


class ConfigurationFileError(ExtDriversError):
    """A configuration file cannot be read, or is no configuration file."""

    def __init__(self, path: str, reason: str, is_denied: bool = False):
        self.path = path
        self.reason = reason
        #: Whether it is there and merely not for this user to read.
        self.is_denied = is_denied
        super().__init__(path, reason, is_denied)

    def __str__(self) -> str:
        return f"The configuration file {self.path} cannot be used: {self.reason}"


class CatalogError(ExtDriversError):
    """A catalogue file breaks the schema; lists every fault with line and key."""

    def __init__(self, path: str, faults: list[str]):
        self.path = path
        self.faults = faults
        super().__init__(path, faults)

    def __str__(self) -> str:
        return f"{self.path}: " + "; ".join(self.faults)
