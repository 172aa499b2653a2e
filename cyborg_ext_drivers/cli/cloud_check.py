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

"""``cloud check``: which link between Cyborg, Placement and Nova is broken."""

from argparse import ArgumentParser, Namespace
from typing import Any

from cliff.lister import Lister

from cyborg_ext_drivers.cli import cells, clouds
from cyborg_ext_drivers.cli.looking import BROKEN, GOOD, SKIPPED
from cyborg_ext_drivers.cloud import chain
from cyborg_ext_drivers.cloud.findings import CloudFinding
from cyborg_ext_drivers.cloud.records import Unknown
from cyborg_ext_drivers.profiles.inventory import many

_SHORT = ("code", "project", "subject", "message")
_COLUMNS = ("code", "severity", "project", "subject", "host", "message", "evidence")
_WHOLE = (*_COLUMNS, "remedy", "commands")
_WIDTHS = {"code": 24, "project": 11, "subject": 28, "message": 44}
UNKNOWN = "unknown"


class CloudCheckCommand(clouds.AskingCloud, Lister):
    """Say which link from Cyborg over Placement to Nova is broken, and whose it is.

    Only asks, and changes nothing. Exit code 0: no link is broken; 1: one is; 2: the cloud, or a
    part of it, cannot be asked and nothing broken was found.
    """

    need_sort_by_cliff = False

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add what is asked about."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--profile", metavar="NAME", help="only this device profile")
        parser.add_argument("--host", metavar="HOST", help="only this compute host")
        return parser

    def take_action(self, parsed_args: Namespace):
        """Return the columns and a row per finding, and per part that was not answered."""
        cloud = self.cloud(parsed_args)
        checked = chain.check(cloud, parsed_args.profile, parsed_args.host)
        self._checked = checked
        self.exit_code = SKIPPED if checked.is_broken else BROKEN if checked.unknown else GOOD
        rows = [_row(each) for each in checked.findings]
        rows += [_unknown(each) for each in checked.unknown]
        columns = _SHORT if parsed_args.formatter == "table" else _WHOLE
        return columns, [
            tuple(
                cells.cell(
                    row[column], parsed_args.formatter, _WIDTHS.get(column), column == "code"
                )
                for column in columns
            )
            for row in rows
        ]

    def below(self) -> list[str]:
        """Return what to do and what confirms it."""
        return _below(self._checked)


def _row(finding: CloudFinding) -> dict[str, Any]:
    return {
        "code": finding.code.name,
        "severity": str(finding.severity),
        "project": finding.code.project,
        "subject": finding.subject,
        "host": finding.host,
        "message": finding.message,
        "evidence": [{"path": each.path, "value": each.value} for each in finding.evidence],
        "remedy": finding.code.remedy,
        "commands": list(finding.commands),
    }


def _unknown(unknown: Unknown) -> dict[str, Any]:
    return {
        "code": UNKNOWN,
        "severity": UNKNOWN,
        "host": None,
        "evidence": [],
        "remedy": None,
        "commands": [],
        **clouds.row_of_unknown(unknown),
    }


def _below(checked: chain.Checked) -> list[str]:
    lines = []
    for finding in checked.findings:
        lines.append(cells.plain(f"{finding.code.name} ({finding.subject})"))
        lines += clouds.sentences("; ".join(str(each) for each in finding.evidence))
        lines += clouds.sentences(f"{finding.code.remedy}.")
        for command in finding.commands:
            lines += clouds.command_lines(command)
    broken = sum(each.is_broken for each in checked.findings)
    counted = (
        f"{many(checked.devices, 'device')} on {many(checked.hosts, 'host')}, "
        f"{many(checked.profiles, 'device profile')}, {many(checked.requests, 'request')} sent"
    )
    said = many(broken, "broken link") if broken else "No broken link"
    doubt = f"; {many(len(checked.unknown), 'part')} unknown" if checked.unknown else ""
    return [*lines, f"{said}{doubt}: {counted}."]
