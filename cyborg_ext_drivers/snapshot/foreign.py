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
"""What other tools captured of a host: directories, archives and pasted texts, in memory.

Archives of ghw (``sys/...`` in a tar.gz), of hwloc-gather-topology (``NAME/sys/...`` in a tar.bz2)
and of plain tar are all trees of files somewhere below a ``sys`` or ``proc``; what a tree is not
asked for is left out.  Texts are read by :mod:`._lspci`.  Nothing is unpacked on a disk.  What such
a capture cannot tell, :mod:`.untold` lists.

Next stop: :mod:`cyborg_ext_drivers.snapshot._lspci`.
"""

import bz2
import errno
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import zlib
from typing import IO, Any, NamedTuple

from cyborg_ext_drivers.address import is_sysfs_name
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host._reading import PAGE
from cyborg_ext_drivers.host.iommu import GROUPS
from cyborg_ext_drivers.host.kernel import RELEASE
from cyborg_ext_drivers.host.text import UnusableFile, read_bytes
from cyborg_ext_drivers.snapshot import _lspci, archive, untold
from cyborg_ext_drivers.snapshot.captured import Captured, CapturedTree, File, Folder

#: So much may be in a file, and come out of it.
MOST_COMPRESSED = 256 << 20
MOST_BYTES = 1 << 30
MOST_MEMBERS = 1_000_000
#: So much is kept of it, less than what a snapshot may hold.
MOST_KEPT = 150_000
MOST_KEPT_BYTES = 48 << 20
MOST_TEXT = 16 << 20
_LONGEST_PATH = 2048
# What stands before a member's content: long names, PAX records, maps of sparse files.
_MOST_OF_A_HEADER = 1 << 20
_DEEPEST = 48
_MEMORY_OF_XZ = 192 << 20
# How far below the top of an archive or a directory a host may begin.
_DEEPEST_TOP = 4
_SYS = frozenset(("bus", "class", "devices", "firmware", "hypervisor", "kernel", "module"))
_PROC = frozenset(("cmdline", "driver", "sys", "version", "cpuinfo", "self", "modules"))
_MAGIC = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"))
_FAULTS = (
    tarfile.TarError,
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    ValueError,
    OverflowError,
    RecursionError,
)
# Below /sys, what anybody asks for; the rest of a whole /sys is of no use and large.
_KEPT = re.compile(
    r"/sys/bus/(?:pci|mdev)(?:/(?:devices|drivers|slots)(?:/[^/]+){0,2})?"
    r"|/sys/kernel(?:/iommu_groups(?:/.*)?)?"
    r"|/sys/class(?:/(?:iommu|tsm|mdev_bus|drm|vfio)(?:/[^/]+){0,2})?"
    r"|/sys/module(?:/\w+(?:/(?:parameters(?:/\w+)?|version|initstate))?)?"
    r"|/sys/firmware(?:/acpi(?:/tables(?:/[A-Z0-9]+)?)?)?"
    r"|/sys/hypervisor(?:/type)?"
    r"|/sys/devices(?:/system(?:/node(?:/[^/]+){0,2})?)?"
    r"|/proc(?:/cmdline|/version|/sys(?:/kernel(?:/(?:osrelease|ostype|arch))?)?)?"
    r"|/proc/driver(?:/nvidia(?:/.*)?)?"
    r"|/(?:sys|sys/bus)?"
)
# Of a PCI function, its own entries and those of the folders that anybody asks for.
_OF_FUNCTION = re.compile(
    r"[^/]*|(?:power|drm|accel|nvidia|mdev_supported_types|vfio-dev|tsm|fpga_region|fpga|rom\.[^/]+"
    r"|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27})(?:/.*)?"
)
# Host bridges, IOMMUs, and the managers of secure streams.
_ABOVE_FUNCTIONS = re.compile(
    r"/sys/devices/(?:pci[^/]*|virtual(?:/iommu(?:/.*)?)?|faux(?:/.*)?|platform)"
)
# Large, or not for reading.
_NEVER = re.compile(r"resource\d+(?:_wc)?|rom|vpd|remove|rescan")
_NAMES_OF_A_WHOLE_KERNEL = frozenset(("uevent_seqnum", "notes", "kexec_loaded"))
_RELEASE = re.compile(rb"Linux version (\d+\.\d+[0-9A-Za-z._+~-]*)")


class ForeignError(ExtDriversError):
    """A file or directory is no capture of a host that can be used."""

    def __init__(self, path: str, reason: str):
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path} is no capture of a host that can be read: {self.reason}"


class Refused(Exception):
    """Something in a capture is not as it should be; says in a few words what."""


class Foreign(NamedTuple):
    """A host as another tool captured it."""

    captured: Captured
    #: What it was read from: ``a tar archive``, ``a directory``, ``the text of lspci``.
    kind: str
    #: What it cannot tell, and what was done to it, a sentence each.
    notes: tuple[str, ...]


def read(path: str) -> Foreign:
    """Return the host that a directory, an archive or a text shows.

    :raises ForeignError: when it is none that can be used; says in one sentence why.
    """
    try:
        if os.path.isdir(path):
            # What is one itself, such as a copy of /sys, begins with its name.
            return _finished(_Keeper().directory(path), "a directory")
        data = read_bytes(path, MOST_COMPRESSED)
    except UnusableFile as error:
        raise ForeignError(path, error.reason) from None
    except Refused as error:
        raise ForeignError(path, str(error)) from None
    except OSError as error:
        raise ForeignError(path, error.strerror or str(error)) from None
    return from_bytes(data, path)


def from_bytes(data: bytes, path: str = "it") -> Foreign:
    """Return the host that an archive or a text shows.

    :raises ForeignError: when it is none that can be used; says in one sentence why.
    """
    try:
        if archive.is_snapshot(data):
            raise Refused("it is a snapshot already; look at it with --snapshot")
        stream = _plain(data)
        if stream is None and not _is_tar(data):
            captured, notes = _lspci.read(_text(data))
            return _finished((captured, notes), "the text of lspci")
        return _finished(_Keeper().archive(stream or io.BytesIO(data)), "a tar archive")
    except (Refused, _lspci.NoListing) as error:
        raise ForeignError(path, str(error)) from None
    except MemoryError:
        raise ForeignError(path, "it needs more memory than there is") from None
    except _FAULTS as error:
        raise ForeignError(path, f"it is damaged ({error})"[:200]) from None


def _finished(read: tuple[Captured, list[str]], kind: str) -> Foreign:
    """Return what was read, with gaps closed so that nobody takes them for an answer."""
    captured, notes = read
    if not captured.names("/sys/bus/pci/devices"):
        raise Refused(
            "it has no PCI functions (sys/bus/pci/devices); hwloc-gather-topology needs --io"
        )
    _take_release(captured)
    if not any(each.identity for each in Host(tree=CapturedTree(captured)).functions):
        raise Refused(
            "no PCI function in it says its ids; tar --sparse takes files of sysfs for holes"
        )
    gaps = untold.of(CapturedTree(captured))
    if untold.NO_GROUPS in gaps and GROUPS not in captured.nodes:
        captured.add_failure(GROUPS, errno.ENODATA, is_directory=True)
    return Foreign(captured, kind, (*notes, *gaps))


def _take_release(captured: Captured) -> None:
    """Take the kernel's release from /proc/version where only that was captured."""
    version = captured.nodes.get("/proc/version")
    if RELEASE in captured.nodes or not isinstance(version, File):
        return
    match = _RELEASE.match(version.data)
    if match:
        captured.add_file(RELEASE, match[1] + b"\n")


# Compression


class _Limited(io.RawIOBase):
    """Gives what a stream gives, up to a number of bytes, of which few may be of one header."""

    def __init__(self, stream: IO[bytes]):
        self._stream = stream
        self._left = MOST_BYTES
        self._left_of_header: int | None = None

    def begin_header(self) -> None:
        """Note that what comes is kept in memory by tarfile, until :meth:`end_header`."""
        if self._left_of_header is None:
            self._left_of_header = _MOST_OF_A_HEADER

    def end_header(self) -> None:
        """Note that a member's content comes, which is skipped or asked for in small parts."""
        self._left_of_header = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to *size* bytes; tar asks for a few KiB at a time."""
        data = self._stream.read(size if 0 <= size <= 1 << 20 else 1 << 20)
        self._left -= len(data)
        if self._left < 0:
            raise Refused(f"it holds more than {MOST_BYTES >> 20} MiB")
        if self._left_of_header is not None:
            self._left_of_header -= len(data)
            if self._left_of_header < 0:
                raise Refused(f"a header in it is longer than {_MOST_OF_A_HEADER >> 20} MiB")
        return data


def _header_of(limited: _Limited) -> type[tarfile.TarInfo]:
    """Return what tarfile makes of a header, with a limit on what else it reads for it."""

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, *given: Any) -> tarfile.TarInfo:
            limited.begin_header()
            return super().frombuf(*given)

    return Header


class _Xz:
    """What is in an xz file, with a limit on the memory that this takes."""

    def __init__(self, data: bytes):
        self._rest = data
        self._decompressor = lzma.LZMADecompressor(memlimit=_MEMORY_OF_XZ)

    def read(self, size: int) -> bytes:
        if self._decompressor.eof:
            return b""
        rest, self._rest = self._rest, b""
        data = self._decompressor.decompress(rest, size)
        if not data and not self._decompressor.eof and self._decompressor.needs_input:
            raise EOFError("it ends too early")
        return data


def _plain(data: bytes) -> IO[bytes] | None:
    """Return the content of a compressed file, ``None`` for what is not compressed."""
    kind = next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)
    if kind == "gzip":
        return gzip.GzipFile(fileobj=io.BytesIO(data))  # type: ignore[return-value]
    if kind == "bzip2":
        return bz2.BZ2File(io.BytesIO(data))
    if kind == "xz":
        return _Xz(data)  # type: ignore[return-value]
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        raise Refused("it is compressed with zstd; run zstd -d on it first")
    if data.startswith(b"PK\x03\x04"):
        raise Refused("it is a zip file; make a tar archive of what is in it")
    return None


def _is_tar(data: bytes) -> bool:
    return data[257:262] == b"ustar"


def _text(data: bytes) -> str:
    if len(data) > MOST_TEXT:
        raise Refused(f"as a text it is longer than {MOST_TEXT >> 20} MiB")
    if b"\0" in data[:4096]:
        raise Refused("it is neither a tar archive, compressed or not, nor a text")
    return data.decode("utf-8", "replace")


# Trees of files


class _Keeper:
    """Takes the entries of a tree that anybody asks for, by the host's paths."""

    def __init__(self) -> None:
        self._captured = Captured()
        self._bytes = 0
        #: Where in the archive the host begins.
        self._top: str | None = None
        self._padded = self._odd = 0
        self._is_whole_kernel = False

    def archive(self, stream: IO[bytes]) -> tuple[Captured, list[str]]:
        """Return what is in a tar archive."""
        count = 0
        limited = _Limited(stream)
        with tarfile.open(  # type: ignore[call-overload]
            fileobj=limited, mode="r|", errorlevel=0, tarinfo=_header_of(limited)
        ) as tar:
            for member in tar:
                limited.end_header()
                # It would remember each.
                tar.members, tar.pax_headers = [], {}
                count += 1
                if count > MOST_MEMBERS:
                    raise Refused(f"it has more than {MOST_MEMBERS} members")
                self._member(tar, member)
        return self._captured, self._notes()

    def _member(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._host_path(member.name)
        if path is None:
            return
        if member.issym():
            self._link(path, member.linkname)
        elif member.isdir():
            self._add_directory(path)
        elif member.islnk():
            target = self._host_path(member.linkname)
            node = self._captured.nodes.get(target or "")
            if isinstance(node, File):
                self._file(path, node.data)
        elif member.isreg():
            file = tar.extractfile(member)
            self._file(path, file.read(PAGE + 1) if file is not None else b"")
        else:
            self._odd += 1

    def directory(self, top: str) -> tuple[Captured, list[str]]:
        """Return what is in a directory; links are taken as they are, never followed."""
        count = 0
        for here, folders, files in os.walk(top):
            folders.sort()
            if os.path.relpath(here, top).count("/") > _DEEPEST:
                folders.clear()
            kept = []
            for name in sorted((*folders, *files)):
                count += 1
                if count > MOST_MEMBERS:
                    raise Refused(f"it has more than {MOST_MEMBERS} entries")
                real = os.path.join(here, name)
                mode = os.lstat(real).st_mode
                path = self._host_path(os.path.relpath(real, top))
                if stat.S_ISDIR(mode):
                    kept.append(name)
                if path is not None:
                    self._entry(path, real, mode)
            folders[:] = [name for name in folders if name in kept]
        return self._captured, self._notes()

    def _entry(self, path: str, real: str, mode: int) -> None:
        if stat.S_ISLNK(mode):
            self._link(path, os.readlink(real))
        elif stat.S_ISDIR(mode):
            self._add_directory(path)
        elif not stat.S_ISREG(mode):
            self._odd += 1
        else:
            try:
                descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                self._room(0)
                self._captured.add_present(path)
                return
            with os.fdopen(descriptor, "rb") as file:
                self._file(path, file.read(PAGE + 1))

    def _notes(self) -> list[str]:
        if self._is_whole_kernel and GROUPS not in self._captured.nodes:
            # A whole /sys/kernel without groups is an answer.
            self._captured.add_directory("/sys/kernel/notes")
        notes = []
        if self._padded:
            notes.append(
                f"tar had padded {self._padded} files with zeros up to the size that sysfs claims; "
                "they were cut back"
            )
        if self._odd:
            notes.append(
                f"{self._odd} entries that are neither files, directories nor links were left out"
            )
        return notes

    def _host_path(self, name: str) -> str | None:
        """Return which path of the host an entry is, ``None`` for what nobody asks for."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in name:
            raise Refused(f"{_shown(name)} leads out of it")
        if len(name) > _LONGEST_PATH or len(parts) > _DEEPEST:
            return None
        at = _begin_of(parts)
        if at is None:
            return None
        top, path = "/".join(parts[:at]), "/" + "/".join(parts[at:])
        if parts[at] not in ("sys", "proc"):
            path = f"/sys{path}"
        if path.startswith("/sys/kernel/"):
            self._is_whole_kernel |= path.split("/")[3] in _NAMES_OF_A_WHOLE_KERNEL
        if not _is_kept(path):
            return None
        if self._top is None:
            self._top = top
        elif self._top != top:
            one, other = _shown(self._top or "."), _shown(top or ".")
            raise Refused(f"it has two hosts, below {one} and {other}; take one of them")
        return path

    def _room(self, size: int) -> None:
        self._bytes += size
        if len(self._captured.nodes) >= MOST_KEPT:
            raise Refused(f"it has more than {MOST_KEPT} entries that matter")
        if self._bytes > MOST_KEPT_BYTES:
            raise Refused(f"more than {MOST_KEPT_BYTES >> 20} MiB of it matter")

    def _is_below_a_directory(self, path: str) -> bool:
        above = path.rpartition("/")[0]
        while above:
            node = self._captured.nodes.get(above)
            if node is not None and not isinstance(node, Folder):
                return False
            above = above.rpartition("/")[0]
        return True

    def _add_directory(self, path: str) -> None:
        self._room(0)
        known = self._captured.nodes.get(path)
        if (known is None or isinstance(known, Folder)) and self._is_below_a_directory(path):
            self._captured.add_directory(path)

    def _link(self, path: str, target: str) -> None:
        self._room(len(target))
        if "\0" in target or not 0 < len(target) <= _LONGEST_PATH:
            raise Refused(f"{_shown(path)} is a link to nothing")
        # In tar -C /sys, and with -P, absolute links lead below the host's root as well.
        if path not in self._captured.nodes and self._is_below_a_directory(path):
            self._captured.add_link(path, target)

    def _file(self, path: str, data: bytes) -> None:
        self._room(len(data))
        if isinstance(self._captured.nodes.get(path), Folder) or not self._is_below_a_directory(
            path
        ):
            return
        name = path.rpartition("/")[2]
        if _NEVER.fullmatch(name) or path.startswith("/sys/firmware"):
            self._captured.add_present(path)
            return
        if data.endswith(b"\0") and name != "config" and not path.startswith("/proc"):
            data = data.rstrip(b"\0")
            self._padded += 1
            if not data:
                # It was there and could not be read, or only be written.
                self._captured.add_present(path)
                return
        self._captured.add_file(path, data)


def _begin_of(parts: list[str]) -> int | None:
    """Return where in a path the host's own begins."""
    for at, part in enumerate(parts[: _DEEPEST_TOP + 1]):
        below = parts[at + 1] if at + 1 < len(parts) else None
        if part == "sys" and (below is None or below in _SYS):
            return at
        if part == "proc" and (below is None or below in _PROC):
            return at
    # Of /sys itself, with tar -C /sys.
    for at, part in enumerate(parts[:_DEEPEST_TOP]):
        if part in _SYS and at + 1 < len(parts):
            return at
    return None


def _is_kept(path: str) -> bool:
    if _KEPT.fullmatch(path):
        return True
    if not path.startswith("/sys/devices/"):
        return False
    parts = path.split("/")
    last = max((n for n, part in enumerate(parts) if is_sysfs_name(part)), default=None)
    if last is None:
        return bool(_ABOVE_FUNCTIONS.fullmatch(path))
    return bool(_OF_FUNCTION.fullmatch("/".join(parts[last + 1 :])))


def _shown(text: str) -> str:
    text = "".join(c if c.isprintable() else "?" for c in text)
    return repr(text if len(text) <= 100 else f"{text[:100]}...")
