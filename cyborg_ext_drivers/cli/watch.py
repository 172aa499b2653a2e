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

"""``watch``: each change of verdict, as cards come and go."""

import contextlib
import gc
import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from cliff.command import Command

from cyborg_ext_drivers.cli import rows
from cyborg_ext_drivers.cli.looking import ContradictingOptions, Looking, View
from cyborg_ext_drivers.survey import Assessment

_POLL_SECONDS = 1.0
# What dies, and what the agent gives up after some discoveries, causes no event of udev.
_QUIET_SECONDS = 60.0


class WatchCommand(Looking, Command):
    """Follow udev's events, look once a minute, and print each change of verdict until Ctrl-C."""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the options of this subcommand."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "-f", "--format", choices=("text", "json"), default="text", dest="formatter"
        )
        parser.add_argument(
            "--for", type=float, metavar="SECONDS", dest="seconds", help="end after so long"
        )
        return parser

    def take_action(self, parsed_args: Namespace) -> None:
        """Print the changes as they come."""
        if parsed_args.snapshot is not None:
            raise ContradictingOptions("nothing changes in a snapshot; use host or device")
        gc.enable()
        with self.looking(parsed_args) as view, contextlib.suppress(KeyboardInterrupt):
            changes = view.host.udev.changes()
            if changes is None:
                print("udev cannot be asked about this host; looking every second", file=sys.stderr)
            wait = changes.wait if changes else _sleep
            self._watch(view, wait, parsed_args)

    def _watch(
        self, view: View, wait: Callable[[float | None], object], parsed_args: Namespace
    ) -> None:
        end = None if parsed_args.seconds is None else time.monotonic() + parsed_args.seconds
        known = _verdicts(view)
        print(f"Watching {len(known)} accelerators and candidates", file=sys.stderr)
        while (left := _left(end)) is None or left > 0:
            wait(_sooner(left, _QUIET_SECONDS))
            now = _verdicts(view)
            for address in sorted(known.keys() | now.keys()):
                before, after = known.get(address), now.get(address)
                if _said(before) != _said(after):
                    self._print(address, before, after, parsed_args.formatter)
            known = now

    def _print(
        self,
        address: str,
        before: Assessment | None,
        after: Assessment | None,
        formatter: str,
    ) -> None:
        change = {
            "address": address,
            "before": _said(before)[0],
            "after": _said(after)[0],
            "reason": str(after.reason.code) if after and after.reason else None,
            "driver": rows.driver_of(after) if after else None,
            "message": after.reason.message if after and after.reason else None,
            "remedy": after.reason.remedy if after and after.reason else None,
        }
        self.app.stdout.write(_line(change, formatter) + "\n")
        self.app.stdout.flush()


def _line(change: dict[str, str | None], formatter: str) -> str:
    if formatter == "json":
        return json.dumps(change)
    line = f"{change['address']}  {change['before'] or 'absent'} -> {change['after'] or 'absent'}"
    if change["reason"]:
        line += f"  {change['reason']}: {change['message']}. {change['remedy']}"
    return line


def _verdicts(view: View) -> dict[str, Assessment]:
    assessments = (decision.assessment for decision in view.again().decisions())
    return {str(assessment.address): assessment for assessment in assessments}


def _said(assessment: Assessment | None) -> tuple[str | None, str | None, int]:
    """Return verdict, reason and the number of attach handles: what a change is measured by."""
    if assessment is None:
        return None, None, 0
    reason = str(assessment.reason.code) if assessment.reason else None
    handles = sum(len(each.handles) for each in assessment.deployables)
    return str(assessment.verdict), reason, handles


def _sleep(seconds: float | None) -> None:
    """Stand in for udev's events: look again every second."""
    time.sleep(_sooner(seconds, _POLL_SECONDS))


def _sooner(seconds: float | None, most: float) -> float:
    return most if seconds is None else min(seconds, most)


def _left(end: float | None) -> float | None:
    return None if end is None else end - time.monotonic()
