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


"""A snapshot made of a host that is looked at, and a host made of a snapshot.

The options go through oslo.config again, so they mean what they meant.  It reads files, which are
made of checked values, in a temporary directory that is removed; nothing else is written.

Next stop: :mod:`cyborg_ext_drivers.cli.snapshot`.
"""

import contextlib
import dataclasses
import glob
import importlib.metadata
import os
import platform
import secrets
import socket
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from oslo_config import cfg

from cyborg_ext_drivers import catalog, conf
from cyborg_ext_drivers.errors import EnumerationError, ExtDriversError, ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.text import UnusableFile, read_bytes, read_text
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.snapshot import archive, schema
from cyborg_ext_drivers.snapshot.archive import Snapshot, SnapshotError
from cyborg_ext_drivers.snapshot.capture import RecordingTree, collect
from cyborg_ext_drivers.snapshot.captured import CapturedTree
from cyborg_ext_drivers.snapshot.redact import HOST, digest_of, redacted, refusal

_MOST_BYTES = 8 << 20
_CATALOG, _STATE = "/etc/cyborg/ext_catalog.d", "/var/lib/cyborg/ext_drivers"
# They are where the snapshot puts them, and NVML and tools are not asked.
_OURS = frozenset(("host_root", "catalog_dir", "state_dir", "nvml_library"))
_PACKAGES = ("cyborg-ext-drivers", "openstack-cyborg", "nvidia-ml-py", "pyudev")


class Opened(NamedTuple):
    """A snapshot as a host that can be looked at."""

    host: Host
    #: A temporary directory with etc/cyborg, etc/nova and the state files as conf.read wants them.
    root: str
    hostname: str
    manifest: Mapping[str, Any]


@contextlib.contextmanager
def opened(path: str, is_named_like: Iterable[str] | None = None) -> Iterator[Opened]:
    """Provide the host in a snapshot.

    :param is_named_like: names of this machine; ``None`` for those that it has.
    :raises SnapshotError: when the file is none that can be used.
    """
    snapshot = archive.read(path)
    hostname = _own_name(snapshot.manifest["host"], is_named_like)
    with tempfile.TemporaryDirectory(prefix="cyborg-ext-snapshot-") as root:
        try:
            _lay_out(snapshot, root, hostname)
        except (OSError, ValueError) as error:
            raise SnapshotError(path, f"its options cannot be laid out ({error})"[:300]) from None
        yield Opened(Host(tree=CapturedTree(snapshot.captured)), root, hostname, snapshot.manifest)


def _own_name(host: Mapping[str, str], names: Iterable[str] | None) -> str:
    """Return the host's name, put back where this is the very machine."""
    if "digest" in host and "salt" in host:
        salt = bytes.fromhex(host["salt"])
        for name in dict.fromkeys(_names_of_machine() if names is None else names):
            if digest_of(name, salt) == host["digest"]:
                return name
    return host["name"]


def _names_of_machine() -> Iterator[str]:
    yield socket.gethostname()
    with contextlib.suppress(ExtDriversError, cfg.Error, OSError):
        yield conf.hostname(conf.read())


def _lay_out(snapshot: Snapshot, root: str, hostname: str) -> None:
    options = snapshot.options
    if options["cyborg"] is not None:
        _write(root, "etc/cyborg/cyborg.conf", _cyborg_conf(options, hostname))
    if options["nova_device_specs"]:
        _write(
            root, "etc/nova/nova.conf", _section("pci", device_spec=options["nova_device_specs"])
        )
    for name, data in snapshot.catalog.items():
        _write(root, f"{_CATALOG[1:]}/{name}", data)
    name = snapshot.manifest["host"]["name"]
    for file, data in snapshot.state.items():
        if name != hostname:
            file = file.replace(name, urllib.parse.quote(hostname, ""))
            data = data.replace(name.encode(), hostname.encode())
        _write(root, f"{_STATE[1:]}/{file}", data)


def _write(root: str, name: str, data: str | bytes) -> None:
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def _cyborg_conf(options: Mapping[str, Any], hostname: str) -> str:
    known = {option.dest for option in conf.OPTIONS} - _OURS
    said = {name: each for name, each in options["cyborg"].items() if name in known}
    sections = [
        _section("DEFAULT", host=[hostname]),
        _section(conf.GROUP.name, **said),
        _section("pci", passthrough_whitelist=options["cyborg_device_specs"]),
    ]
    if options["enabled_drivers"] is not None:
        sections.append(_section("agent", enabled_drivers=[",".join(options["enabled_drivers"])]))
    types: dict[str, list[str]] = {}
    for address, name in options["vgpu_types"]:
        types.setdefault(name, []).append(address)
    if types:
        sections.append(_section("gpu_devices", enabled_vgpu_types=[",".join(types)]))
    for name, addresses in types.items():
        sections.append(_section(f"vgpu_{name}", device_addresses=[",".join(addresses)]))
    return "".join(sections)


def _section(name: str, **options: Iterable[str]) -> str:
    lines = [f"[{name}]"]
    for option, values in options.items():
        for value in values:
            if not f"{name}{value}".isprintable() or "]" in name:
                raise ValueError(f"{option} has a value that is no line of text")
            # A dollar would refer to another option.
            lines.append(f"{option} = {value.replace('$', '$$')}")
    return "\n".join(lines) + "\n"


def options_of(configuration: cfg.ConfigOpts, options: Options, hostname: str) -> dict[str, Any]:
    """Return the operator's decisions as ``options.json`` holds them, and nothing else."""
    is_read = options.enabled_drivers is not None
    return {
        "cyborg": _said(configuration) if is_read else None,
        "enabled_drivers": list(options.enabled_drivers) if is_read else None,
        "cyborg_device_specs": list(options.cyborg_device_specs),
        "nova_device_specs": list(options.nova_device_specs),
        "vgpu_types": [[str(address), name] for address, name in options.vgpu_types],
    }


def _said(configuration: cfg.ConfigOpts) -> dict[str, list[str]]:
    said = {}
    for option in conf.OPTIONS:
        value = configuration[conf.GROUP.name][option.dest]
        if option.dest in _OURS or value == option.default:
            continue
        if isinstance(option, cfg.ListOpt):
            said[option.dest] = [",".join(value)]
        else:
            said[option.dest] = list(value) if isinstance(value, list) else [str(value)]
    return said


def made(
    tree: RecordingTree,
    host: Host,
    options: Options,
    said: Mapping[str, Any],
    hostname: str,
    functions: Iterable = (),
    is_raw: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    notes: Iterable[str] = (),
    refused: Exception | None = None,
) -> Snapshot:
    """Return the snapshot of a host after it was looked at.

    :param said: see :func:`options_of`.
    :param refused: why what is configured is not in *said*.
    """
    with contextlib.suppress(EnumerationError):
        host.nvml.ask(host.functions, options.nvml_library, options.nvml_timeout)
    captured = collect(tree, host, functions, progress)
    with contextlib.suppress(EnumerationError):
        captured.udev_names = {
            str(each.address): names
            for each in host.functions
            if any(names := host.udev.names(each.address))
        }
    snapshot = Snapshot(
        captured,
        {
            "format": schema.FORMAT,
            "version": schema.VERSION,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "made_by": _versions(host),
            "is_live": tree.is_live,
            "is_raw": is_raw,
            "host": {"name": hostname},
            "failures": {},
            "redactions": [],
            "notes": list(notes),
            **({"refused": refusal(refused)} if refused is not None else {}),
        },
        said,
        _files(_catalog_of(options)),
        _files(sorted(glob.glob(os.path.join(glob.escape(options.state_dir), "*.json")))),
    )
    if is_raw:
        return snapshot
    names = _other_names(tree, hostname)
    done = redacted(snapshot, hostname, names, secrets.token_bytes(32))
    salt = secrets.token_bytes(16)
    host_entry = {"name": HOST, "salt": salt.hex(), "digest": digest_of(hostname, salt)}
    return dataclasses.replace(done, manifest={**done.manifest, "host": host_entry})


def _other_names(tree: RecordingTree, hostname: str) -> list[str]:
    names = [hostname, socket.gethostname()]
    root = "" if tree.is_live else tree.root
    for path in ("/etc/hostname", "/proc/sys/kernel/hostname"):
        with contextlib.suppress(UnusableFile):
            names.append(read_text(root + path, 4096).strip())
    short = [name.partition(".")[0] for name in names if not name.replace(".", "").isdecimal()]
    return [name for name in dict.fromkeys([*names, *short]) if name and name != hostname]


def _versions(host: Host) -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    try:
        found["kernel"] = host.kernel.release
    except ReadError:
        found["kernel"] = None
    return found


def _catalog_of(options: Options) -> list[str]:
    try:
        return catalog.files_in(options.below_root("catalog_dir"))
    except OSError:
        return []


def _files(paths: Iterable[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in paths:
        with contextlib.suppress(UnusableFile):
            name = os.path.basename(path)
            if not archive.PLAIN_NAME.fullmatch(name):
                name = f"{len(found) + 1:03d}.{name.rpartition('.')[2]}"
            found[name] = read_bytes(path, _MOST_BYTES)
    return found
