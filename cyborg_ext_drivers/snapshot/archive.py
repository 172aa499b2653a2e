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


"""The file of a snapshot: a ``.tar.gz`` that is read into memory and never unpacked.

``manifest.json`` comes first and tells the version; ``options.json``, ``nvml.json`` and
``udev.json`` are what files of the host do not say; ``root/`` is the host, ``catalog/`` and
``state/`` are the operator's catalogue files and what the drivers reported.  What could not be read
is an empty file or directory there, and the manifest tells why.

Whoever opens one may have it from a stranger, so nothing of it is believed: sizes, names, kinds of
members and all documents are looked at.

Next stop: :mod:`cyborg_ext_drivers.snapshot.opening`.
"""

import contextlib
import dataclasses
import errno
import gzip
import io
import json
import os
import re
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.host._nvml_document import (
    Ecc,
    Gpu,
    MigInstance,
    Process,
    RemappedRows,
    VgpuType,
)
from cyborg_ext_drivers.host.nvml import NvmlAnswer, State
from cyborg_ext_drivers.host.text import UnusableFile, read_bytes
from cyborg_ext_drivers.snapshot import schema
from cyborg_ext_drivers.snapshot.captured import Captured, Failure, File, Folder, Link, Present

# A host with 64 cards needs some hundred KiB.
MOST_COMPRESSED = 32 << 20
MOST_BYTES = 64 << 20
MOST_MEMBERS = 200_000
_MOST_OF_A_DOCUMENT = 8 << 20
_LONGEST_NAME = 4096
_DEEPEST = 64
_BLOCK = 512
_DOCUMENTS = ("manifest.json", "options.json", "nvml.json", "udev.json")
_FOLDERS = ("catalog", "state")
# A file name of one part, as it is laid out in a temporary directory.
PLAIN_NAME = re.compile(r"[A-Za-z0-9_%][A-Za-z0-9_.%@~+-]{0,240}")
# What GNU tar writes before a member whose name or target is long.
_LONG = {tarfile.GNUTYPE_LONGNAME: "name", tarfile.GNUTYPE_LONGLINK: "linkname"}
# A file system that knows one name of a file, such as FAT (link(2)).
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE)


class SnapshotError(ExtDriversError):
    """A file is no snapshot that can be used."""

    def __init__(self, path: str, reason: str):
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path} is no snapshot that can be opened: {self.reason}"


class _Refused(Exception):
    """Something in a file is not as it should be; says in a few words what."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A host and what its operator decided, as they are in a file."""

    captured: Captured
    #: The manifest without what the rest of the file tells: see :mod:`.schema`.
    manifest: Mapping[str, Any]
    #: ``options.json``.
    options: Mapping[str, Any]
    #: The operator's catalogue files, and the files of the ledger, by their names.
    catalog: Mapping[str, bytes]
    state: Mapping[str, bytes]


def to_bytes(snapshot: Snapshot) -> bytes:
    """Return the file of a snapshot; the same snapshot gives the same bytes."""
    captured = snapshot.captured
    manifest = dict(snapshot.manifest) | _what_is_missing(captured)
    documents = {
        "manifest.json": manifest,
        "options.json": snapshot.options,
        "nvml.json": nvml_to_json(captured.nvml_answer),
        "udev.json": {name: list(each) for name, each in captured.udev_names.items()},
    }
    stream = io.BytesIO()
    with tarfile.open(
        fileobj=stream,
        mode="w",
        format=tarfile.GNU_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
    ) as tar:
        for name, document in documents.items():
            _add(tar, name, json.dumps(document, indent=1, sort_keys=True).encode() + b"\n")
        for folder, files in (("catalog", snapshot.catalog), ("state", snapshot.state)):
            for name in sorted(files):
                _add(tar, f"{folder}/{name}", files[name])
        for path, node in captured.walk():
            name = f"root{path}".rstrip("/")
            if isinstance(node, Link):
                _add_kind(tar, name, tarfile.SYMTYPE, node.target)
            elif captured.is_directory(path):
                _add_kind(tar, name, tarfile.DIRTYPE)
            else:
                _add(tar, name, node.data if isinstance(node, File) else b"")
    return gzip.compress(stream.getvalue(), compresslevel=6, mtime=0)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = 0o644
    tar.addfile(member, io.BytesIO(data))


def _add_kind(tar: tarfile.TarFile, name: str, kind: bytes, target: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o777
    tar.addfile(member)


def _what_is_missing(captured: Captured) -> dict[str, Any]:
    failures, closed, unread = {}, [], []
    for path, node in captured.walk():
        if isinstance(node, Present):
            unread.append(path)
        elif isinstance(node, Failure | Folder) and node.errno:
            failures[path] = errno.errorcode.get(node.errno, "EIO")
            if isinstance(node, Failure) and node.is_directory:
                closed.append(path)
    return {"failures": failures, "closed": closed, "unread": unread}


def write(path: str, data: bytes, force: bool = False) -> None:
    """Write a file as a whole or not at all, for its owner alone.

    :raises FileExistsError: when it is there already, unless *force* says to replace it.
    :raises OSError: when it cannot be written.
    """
    directory = os.path.dirname(os.path.abspath(path))
    # Made by mkstemp with mode 0600.
    descriptor, new = tempfile.mkstemp(prefix=".snapshot-", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            _replace(new, path)
        else:
            _place(new, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)


def _replace(new: str, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EINVAL, "it is no file; only a file is replaced")
    os.replace(new, path)


def _place(new: str, path: str) -> None:
    try:
        # Unlike a rename, a link never replaces.
        os.link(new, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.replace(new, path)


def read(path: str) -> Snapshot:
    """Return the snapshot in a file.

    :raises SnapshotError: when it is none that can be used; says in one sentence why.
    """
    try:
        return _parsed(read_bytes(path, MOST_COMPRESSED))
    except UnusableFile as error:
        raise SnapshotError(path, error.reason) from None
    except OSError as error:
        raise SnapshotError(path, error.strerror or str(error)) from None
    except _Refused as error:
        raise SnapshotError(path, str(error)) from None


def is_snapshot(data: bytes) -> bool:
    """Return whether a file is a snapshot, whether it can be opened or not."""
    try:
        name, _member, _content = next(_members(_decompressed(data)), ("", None, b""))
    except _Refused:
        return False
    return name == _DOCUMENTS[0]


def _parsed(data: bytes) -> Snapshot:
    if not data:
        raise _Refused("it is empty")
    plain = _decompressed(data)
    documents: dict[str, Any] = {}
    folders: dict[str, dict[str, bytes]] = {folder: {} for folder in _FOLDERS}
    captured = Captured()
    seen: set[str] = set()
    for name, member, content in _members(plain):
        if name in seen:
            raise _Refused(f"{_shown(name)} is in it twice")
        seen.add(name)
        top, _, rest = name.partition("/")
        if top == "root":
            _take(captured, f"/{rest}", member, content)
            if len(captured.nodes) > MOST_MEMBERS:
                raise _Refused(f"it has more than {MOST_MEMBERS} files and directories")
        elif member.type == tarfile.DIRTYPE and name in _FOLDERS:
            continue
        elif member.type not in _REGULAR:
            raise _Refused(f"{_shown(name)} is no file")
        elif name in _DOCUMENTS:
            documents[name] = _loaded(name, content)
        elif top in _FOLDERS and PLAIN_NAME.fullmatch(rest):
            folders[top][rest] = content
        else:
            raise _Refused(f"{_shown(name)} does not belong into it")
    return _checked(captured, documents, folders)


def _checked(
    captured: Captured, documents: dict[str, Any], folders: dict[str, dict[str, bytes]]
) -> Snapshot:
    for name in _DOCUMENTS:
        if name not in documents:
            raise _Refused(f"{name} is missing")
    manifest = documents["manifest.json"]
    if not isinstance(manifest, dict) or manifest.get("format") != schema.FORMAT:
        raise _Refused("manifest.json is of another program")
    if manifest.get("version") != schema.VERSION:
        found = _shown(str(manifest.get("version")))
        raise _Refused(f"it has version {found}, and this release knows {schema.VERSION}")
    schemas = (schema.MANIFEST, schema.OPTIONS, schema.NVML, schema.UDEV)
    for name, each in zip(_DOCUMENTS, schemas):
        _validate(name, documents[name], each)
    captured.is_live = manifest["is_live"]
    _take_failures(captured, manifest)
    captured.nvml_answer = _nvml_of(documents["nvml.json"])
    captured.udev_names = {name: tuple(each) for name, each in documents["udev.json"].items()}
    return Snapshot(
        captured, manifest, documents["options.json"], folders["catalog"], folders["state"]
    )


def _take(captured: Captured, path: str, member: tarfile.TarInfo, content: bytes) -> None:
    above = path.rpartition("/")[0]
    if above and not captured.is_directory(above) and above in captured.nodes:
        raise _Refused(f"{_shown(path)} is below what is no directory")
    if member.type == tarfile.DIRTYPE:
        if not captured.is_directory(path.rstrip("/") or "/"):
            captured.add_directory(path)
    elif path in captured.nodes:
        raise _Refused(f"{_shown(path)} is two things")
    elif member.type == tarfile.SYMTYPE:
        if "\0" in member.linkname or not 0 < len(member.linkname) <= _LONGEST_NAME:
            raise _Refused(f"{_shown(path)} is a link to nothing")
        captured.add_link(path, member.linkname)
    elif member.type in _REGULAR:
        captured.add_file(path, content)
    else:
        raise _Refused(f"{_shown(path)} is neither a file, a directory nor a symbolic link")


def _take_failures(captured: Captured, manifest: Mapping[str, Any]) -> None:
    closed = set(manifest.get("closed", ()))
    for path in manifest.get("unread", ()):
        node = captured.nodes.get(path)
        if not isinstance(node, File):
            raise _Refused(f"manifest.json says of {_shown(path)} that it was not read")
        captured.replace(path, Present())
    for path, name in manifest["failures"].items():
        number = getattr(errno, name, None)
        if not isinstance(number, int):
            raise _Refused(f"manifest.json knows an error {_shown(name)} that there is not")
        node = captured.nodes.get(path)
        if isinstance(node, Folder) and path not in closed:
            captured.replace(path, Folder(number))
        elif isinstance(node, File | Folder):
            captured.replace(path, Failure(number, is_directory=isinstance(node, Folder)))
        else:
            raise _Refused(f"manifest.json says that {_shown(path)} failed, which is not there")


def _decompressed(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            plain = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _Refused(f"it is no gzip file, or damaged ({error})"[:200]) from None
    if len(plain) > MOST_BYTES:
        raise _Refused(f"it holds more than {MOST_BYTES >> 20} MiB")
    return plain


def _members(plain: bytes) -> Iterator[tuple[str, tarfile.TarInfo, bytes]]:
    """Yield each member of a tar archive: a name that is safe, the header, the content."""
    at, count = 0, 0
    long: dict[str, str] = {}
    while at + _BLOCK <= len(plain):
        block = plain[at : at + _BLOCK]
        if not block.strip(b"\0"):
            return
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise _Refused(f"it is no tar archive, or damaged ({error})"[:200]) from None
        count += 1
        if count > MOST_MEMBERS:
            raise _Refused(f"it has more than {MOST_MEMBERS} members")
        start = at + _BLOCK
        size = member.size if member.type in (*_REGULAR, *_LONG) else 0
        if size < 0 or start + size > len(plain) or (not size and member.size):
            raise _Refused("the size of a member is none")
        content = plain[start : start + size]
        at = start + -(-size // _BLOCK) * _BLOCK
        if member.type in _LONG:
            if size > _LONGEST_NAME + _BLOCK:
                raise _Refused("a name in it is too long")
            text = content.split(b"\0")[0].decode("utf-8", "surrogateescape")
            long[_LONG[member.type]] = text
            continue
        for attribute, text in long.items():
            setattr(member, attribute, text)
        long = {}
        yield _safe(member.name), member, content


def _safe(name: str) -> str:
    plain = name.removeprefix("./").removesuffix("/")
    parts = plain.split("/")
    if name.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise _Refused(f"{_shown(name)} is no name of a member")
    if len(plain) > _LONGEST_NAME or len(parts) > _DEEPEST:
        raise _Refused(f"{_shown(name)} is too long a name")
    return plain


def _loaded(name: str, content: bytes) -> Any:
    if len(content) > _MOST_OF_A_DOCUMENT:
        raise _Refused(f"{name} is larger than {_MOST_OF_A_DOCUMENT >> 20} MiB")
    try:
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise _Refused(f"{name} is no JSON") from None


def _no_number(text: str) -> None:
    raise ValueError(text)


def _validate(name: str, document: Any, wanted: dict[str, Any]) -> None:
    import jsonschema

    try:
        jsonschema.Draft202012Validator(wanted).validate(document)
    except (jsonschema.ValidationError, RecursionError) as error:
        where = "/".join(map(str, getattr(error, "absolute_path", ())))
        said = getattr(error, "message", "it is too deep")
        raise _Refused(f"{name} is not as it should be: {_shown(f'{where}: {said}')}") from None


def nvml_to_json(answer: NvmlAnswer | None) -> dict[str, Any] | None:
    """Return what NVML said as JSON."""
    if answer is None:
        return None
    gpus = []
    for gpu in answer.gpus:
        raw: dict[str, Any] = {**gpu._asdict(), "address": str(gpu.address)}
        for key in ("instances", "supported_vgpus", "creatable_vgpus", "processes"):
            if raw[key] is not None:
                raw[key] = [each._asdict() for each in raw[key]]
        for key in ("ecc", "rows"):
            raw[key] = raw[key] and raw[key]._asdict()
        gpus.append(raw)
    return {**answer._asdict(), "state": str(answer.state), "gpus": gpus}


def _nvml_of(raw: dict[str, Any] | None) -> NvmlAnswer | None:
    if raw is None:
        return None
    try:
        gpus = tuple(map(_gpu, raw["gpus"]))
        return NvmlAnswer(**{**raw, "state": State(raw["state"]), "gpus": gpus})
    except (ValueError, InvalidAddress) as error:
        raise _Refused(f"nvml.json is not as it should be: {_shown(str(error))}") from None


def _gpu(raw: dict[str, Any]) -> Gpu:
    said = {**raw, "address": PciAddress.parse(raw["address"])}
    said["errors"] = tuple(raw.get("errors", ()))
    said["mig"] = None if raw.get("mig") is None else tuple(raw["mig"])
    for key, kind in (
        ("instances", MigInstance),
        ("supported_vgpus", VgpuType),
        ("creatable_vgpus", VgpuType),
        ("processes", Process),
    ):
        if raw.get(key) is not None:
            said[key] = tuple(kind(**each) for each in raw[key])
    for key, kind in (("ecc", Ecc), ("rows", RemappedRows)):
        if raw.get(key) is not None:
            said[key] = kind(**raw[key])
    return Gpu(**said)


def _shown(text: str) -> str:
    text = "".join(c if c.isprintable() else "?" for c in text[:120])
    return text if len(text) < 120 else f"{text}..."
