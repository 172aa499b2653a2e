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
"""``snapshot import``: what another tool captured of a host becomes a snapshot."""

import dataclasses
import secrets
import sys
from argparse import ArgumentParser, Namespace

from cliff.command import Command

from cyborg_ext_drivers.cli.looking import ContradictingOptions, Reporting
from cyborg_ext_drivers.snapshot import archive, foreign, schema
from cyborg_ext_drivers.snapshot.redact import redacted

_NAME = "imported-host"
_NO_OPTIONS = {
    "cyborg": None,
    "enabled_drivers": None,
    "cyborg_device_specs": [],
    "nova_device_specs": [],
    "vgpu_types": [],
}


class ImportCommand(Reporting, Command):
    """Make a snapshot of what another tool captured of a host.

    IN is a directory or a tar archive with sys/ somewhere in it (ghw, hwloc-gather-topology --io,
    plain tar of /sys), or a text with what lspci -nnmmk -D -vvv and find /sys/kernel/iommu_groups/
    -type l print. What it cannot tell is listed on the standard error output and kept in the
    snapshot.
    """

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add both files."""
        parser = super().get_parser(prog_name)
        parser.add_argument("source", metavar="IN", help="what another tool made")
        parser.add_argument("file", metavar="OUT", help="the snapshot to write")
        parser.add_argument(
            "--raw", action="store_true", help="keep names, serial numbers, UUIDs and addresses"
        )
        parser.add_argument("--force", action="store_true", help="replace OUT if it is there")
        return parser

    def take_action(self, parsed_args: Namespace) -> None:
        """Read one file and write the other."""
        found = foreign.read(parsed_args.source)
        data = archive.to_bytes(snapshot_of(found, parsed_args.raw))
        try:
            archive.write(parsed_args.file, data, parsed_args.force)
        except FileExistsError:
            raise ContradictingOptions(
                f"{parsed_args.file} is there already; name another file, or use --force"
            ) from None
        except OSError as error:
            raise ContradictingOptions(
                f"{parsed_args.file} cannot be written: {error.strerror or error}"
            ) from None
        for note in found.notes:
            print(f"Not told: {note}", file=sys.stderr)
        functions = len(found.captured.names("/sys/bus/pci/devices"))
        self.app.stdout.write(
            f"{parsed_args.file}: {functions} PCI functions of {found.kind}. "
            f"Next: cyborg-ext-diagnose host --snapshot {parsed_args.file}\n"
        )


def snapshot_of(found: foreign.Foreign, is_raw: bool = False) -> archive.Snapshot:
    """Return the snapshot of what another tool captured."""
    manifest = {
        "format": schema.FORMAT,
        "version": schema.VERSION,
        "made_by": {"imported from": found.kind},
        "is_live": False,
        "is_raw": is_raw,
        "host": {"name": _NAME},
        "failures": {},
        "redactions": [],
        "notes": list(found.notes),
    }
    snapshot = archive.Snapshot(found.captured, manifest, dict(_NO_OPTIONS), {}, {})
    if is_raw:
        return snapshot
    done = redacted(snapshot, _NAME, (), secrets.token_bytes(32))
    return dataclasses.replace(done, manifest={**done.manifest, "host": {"name": _NAME}})
