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


"""``snapshot save`` and ``snapshot show``: a host in a file."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from cliff.command import Command
from cliff.show import ShowOne

from cyborg_ext_drivers.cli import cells, rows
from cyborg_ext_drivers.cli.device import fields_of
from cyborg_ext_drivers.cli.looking import ContradictingOptions, Looking, Reporting, View
from cyborg_ext_drivers.errors import EnumerationError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.report.ledger import Decision
from cyborg_ext_drivers.snapshot import archive, opening
from cyborg_ext_drivers.snapshot.capture import RecordingTree
from cyborg_ext_drivers.snapshot.captured import Failure, Folder, Present

_STDOUT = "-"
_WIDTH = 96
_MOST_SHOWN = 12


class SaveCommand(Looking, Command):
    """Save the host into a file that somebody else can look at as if it were there.

    Host names, serial numbers, UUIDs, addresses of networks, user names and what opens doors are
    replaced, unless --raw is given; snapshot show lists what was.
    """

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the file."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "file", metavar="FILE", help="the file to write, - for the standard output"
        )
        parser.add_argument(
            "--raw", action="store_true", help="keep names, serial numbers, UUIDs and addresses"
        )
        parser.add_argument("--force", action="store_true", help="replace FILE if it is there")
        return parser

    def take_action(self, parsed_args: Namespace) -> None:
        """Look at the host and write the file."""
        if parsed_args.snapshot is not None:
            raise ContradictingOptions("a snapshot is saved already; copy the file instead")
        progress = Progress()
        with self.looking(
            parsed_args, lambda root: Host(tree=RecordingTree(root)), also_if_refused=True
        ) as view:
            if view.refused is not None:
                print(f"Saved without what is configured: {view.refused}", file=sys.stderr)
            asked, notes = _ask_everything(view, progress)
            options = view.surveyor.options
            snapshot = opening.made(
                view.host.tree,
                view.host,
                options,
                opening.options_of(view.configuration, options, view.hostname),
                view.hostname,
                asked,
                parsed_args.raw,
                lambda done, total: progress.show("saving", done, total),
                notes,
                view.refused,
            )
        data = archive.to_bytes(snapshot)
        progress.end()
        if parsed_args.file == _STDOUT:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        try:
            archive.write(parsed_args.file, data, parsed_args.force)
        except FileExistsError:
            raise ContradictingOptions(
                f"{parsed_args.file} exists; name another file, or replace it with --force"
            ) from None
        except OSError as error:
            raise ContradictingOptions(
                f"{parsed_args.file} cannot be written: {error.strerror or error}"
            ) from None
        self.app.stdout.write(_written(parsed_args.file, len(data), snapshot) + "\n")


def _ask_everything(view: View, progress: "Progress") -> tuple[list[PciFunction], list[str]]:
    """Ask of the host all that the subcommands ask, so that what they read is noted.

    Return what is or might be an accelerator, and notes.
    """
    try:
        decisions = view.decisions()
        functions = list(view.host.functions)
    except EnumerationError as error:
        return [], [str(error)]
    known = {each.assessment.function.name for each in decisions}
    others = [each for each in functions if each.name not in known]
    total = len(decisions) + len(others)
    for done, decision in enumerate(decisions):
        progress.show("reading", done, total)
        fields_of(decision, view)
    for done, function in enumerate(others):
        progress.show("reading", len(decisions) + done, total)
        fields_of(Decision(rows.of_no_accelerator(function, view), None), view)
    return [each.assessment.function for each in decisions], []


def _written(path: str, size: int, snapshot: archive.Snapshot) -> str:
    said = f"{path}: {size / 1024:.0f} KiB."
    if snapshot.manifest["is_raw"]:
        return f"{said} Nothing was redacted: show it to nobody who may not know the host."
    count = sum(each["count"] for each in snapshot.manifest["redactions"])
    return f"{said} {count} values were redacted. Next: cyborg-ext-diagnose snapshot show {path}"


class Progress:
    """How far it is, on the standard error output, for what takes longer than a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._next = clock() + 1
        self._is_shown = False

    def show(self, what: str, done: int, total: int) -> None:
        """Tell how far it is, at most every half a second."""
        if self._clock() < self._next or not total:
            return
        self._next = self._clock() + 0.5
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{what}: {100 * done // total:3d} %", end=end, file=sys.stderr, flush=True)
        self._is_shown = end == "\r"

    def end(self) -> None:
        """Leave the line to what comes next."""
        if self._is_shown:
            print(" " * 20, end="\r", file=sys.stderr, flush=True)


class ShowCommand(Reporting, ShowOne):
    """Show what is in a snapshot: whose it is, what failed, and what was redacted."""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the file."""
        parser = super().get_parser(prog_name)
        parser.add_argument("file", metavar="FILE", help="what snapshot save has written")
        return parser

    def take_action(self, parsed_args: Namespace):
        """Return the fields and their values."""
        fields = _content(archive.read(parsed_args.file))
        if parsed_args.formatter not in ("json", "yaml"):
            fields = {name: _text(name, value) for name, value in fields.items()}
        return tuple(fields), tuple(
            cells.cell(value, parsed_args.formatter, _WIDTH) for value in fields.values()
        )


def _content(snapshot: archive.Snapshot) -> dict[str, Any]:
    captured, manifest = snapshot.captured, snapshot.manifest
    nodes = captured.nodes.values()
    functions = captured.names("/sys/bus/pci/devices")
    answer = captured.nvml_answer
    return {
        "version": manifest["version"],
        "created": manifest.get("created"),
        "host": manifest["host"]["name"],
        "made_by": dict(manifest["made_by"]),
        "captured": "on the host itself" if captured.is_live else "of a copy below another root",
        "pci_functions": len(functions),
        "files": sum(not isinstance(each, Folder | Present | Failure) for each in nodes),
        "nvml": str(answer.state) if answer else None,
        "options": sorted(snapshot.options["cyborg"] or ()),
        "catalogue_files": len(snapshot.catalog),
        "state_files": len(snapshot.state),
        "failures": dict(manifest["failures"]),
        "raw": manifest["is_raw"],
        "redactions": list(manifest.get("redactions", ())),
        "refused": manifest.get("refused"),
        "notes": list(manifest.get("notes", ())),
    }


def _text(name: str, value: Any) -> Any:
    if name == "redactions":
        return [_redaction(each) for each in value]
    if isinstance(value, dict):
        return _shortened([f"{key}: {each}" for key, each in value.items()])
    return value


def _redaction(entry: dict[str, Any]) -> str:
    places = _shortened(entry["places"], 3)
    return f"{entry['kind']}: {entry['count']} in {', '.join(places)}"


def _shortened(lines: list[str], most: int = _MOST_SHOWN) -> list[str]:
    more = len(lines) - most
    return [*lines[:most], f"and {more} more"] if more > 0 else lines
