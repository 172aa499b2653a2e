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

"""``host``: one row per accelerator, with what becomes of it."""

import itertools
from argparse import ArgumentParser, Namespace
from collections.abc import Container
from typing import Any

from cliff.lister import Lister

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.cli import cells, rows
from cyborg_ext_drivers.cli.looking import SKIPPED, Looking, View, same_host
from cyborg_ext_drivers.report.ledger import Decision
from cyborg_ext_drivers.survey import Assessment, Verdict

_SHORT = ("address", "device", "driver", "verdict", "reason", "resources", "traits")
_LONG = ("kind", "vendor", "model", "numa_node", "iommu_group", "findings", "deployables")
# Together with the borders no more than 120 characters.
_WIDTHS = {
    "address": 12,
    "device": 18,
    "driver": 10,
    "verdict": 8,
    "reason": 16,
    "resources": 9,
    "traits": 25,
}
_UPRIGHT_WIDTH = 98


class HostCommand(Looking, Lister):
    """Show what becomes of each accelerator of the host.

    Exit code 0: every accelerator found is reported, or there is none; 1: one is skipped or
    held; 2: the host or the configuration cannot be read.
    """

    need_sort_by_cliff = True

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the options of this subcommand."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--long",
            action="store_true",
            help="add kind, vendor, model, numa_node, iommu_group, findings and deployables",
        )
        parser.add_argument(
            "--all",
            action="store_true",
            help="list the other PCI functions as well, with why they are no accelerators",
        )
        return parser

    def take_action(self, parsed_args: Namespace):
        """Return the columns and one row per accelerator or candidate."""
        with self.looking(parsed_args) as view:
            decisions = view.decisions()
            assessments = [each.assessment for each in decisions]
            shown = [rows.of_decision(each, view) for each in decisions]
            if parsed_args.all:
                known = {row["address"] for row in shown}
                shown += _others(view, known)
                shown.sort(key=lambda row: PciAddress.parse(row["address"]))
            if any(is_wanting(each) for each in assessments):
                self.exit_code = SKIPPED
            self._summary = _summary(assessments, len(view.host.functions), same_host(parsed_args))
        columns = _SHORT + _LONG if parsed_args.long else _SHORT
        self._tells_why = parsed_args.all
        # So many columns do not fit beside each other, but below each other they do.
        self._is_upright = parsed_args.formatter == "table" and (
            len(parsed_args.columns or columns) > len(_SHORT)
        )
        # What reads a pipe searches for whole traits and codes, as long as the table fits.
        keep_words = not self.app.stdout.isatty()
        made = [self._row(row, columns, parsed_args, keep_words) for row in shown]
        if keep_words and parsed_args.formatter == "table" and not cells.fits(columns, made):
            made = [self._row(row, columns, parsed_args, False) for row in shown]
        return columns, made

    def produce_output(self, parsed_args: Namespace, column_names, data) -> int:
        """Print the rows; below a table, what they amount to and what to run next."""
        if self._is_upright:
            self._print_upright(parsed_args, column_names, data)
        else:
            super().produce_output(parsed_args, column_names, data)
        if parsed_args.formatter == "table":
            self.app.stdout.write(self._summary + "\n")
        return 0

    def _print_upright(self, parsed_args: Namespace, column_names, data) -> None:
        """Print each row as a table of its own, a line for each column."""
        included, selector = self._generate_columns_and_selector(parsed_args, column_names)
        for row in data:
            chosen = row if selector is None else tuple(itertools.compress(row, selector))
            self.formatter.emit_one(included, chosen, self.app.stdout, parsed_args)

    def _row(
        self,
        row: dict[str, Any],
        columns: tuple[str, ...],
        parsed_args: Namespace,
        keep_words: bool,
    ) -> tuple:
        formatter = parsed_args.formatter
        shown = row if formatter in ("json", "yaml") else self._for_people(row)
        widths = dict.fromkeys(columns, _UPRIGHT_WIDTH) if self._is_upright else _WIDTHS
        return tuple(
            cells.cell(
                shown[column],
                formatter,
                None if getattr(parsed_args, "max_width", 0) else widths.get(column, 20),
                keep_words,
            )
            for column in columns
        )

    def _for_people(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with sentences and names in the place of structures."""
        reason = row["reason"]
        if self._tells_why and row["kind"] is None and row["findings"]:
            reason = f"{reason}: {row['findings'][0]['message']}"
        return {
            **row,
            "reason": reason,
            "findings": rows.sentences(row["findings"]) if self._is_upright else _codes(row),
            "deployables": [each["name"] for each in row["deployables"]],
        }


def _codes(row: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in row["findings"]]


def is_wanting(assessment: Assessment) -> bool:
    """Return whether it is an accelerator that is not reported as it is.

    The display of a management controller is skipped too, but it never was an accelerator.
    """
    return assessment.verdict is not Verdict.REPORTED and assessment.is_accelerator


def _others(view: View, known: Container[str]) -> list[dict[str, Any]]:
    """Return a row for each PCI function that is not even a candidate."""
    others = (each for each in view.host.functions if each.name not in known)
    return [
        rows.of_decision(Decision(rows.of_no_accelerator(each, view), None), view)
        for each in others
    ]


def _summary(assessments: list[Assessment], functions: int, same: str) -> str:
    accelerators = [each for each in assessments if each.is_accelerator]
    wanting = [each for each in accelerators if is_wanting(each)]
    if not accelerators:
        return (
            f"No accelerator was found among {functions} PCI functions. "
            f"Next: cyborg-ext-diagnose host --all{same}"
        )
    count = f"{len(accelerators) - len(wanting)} of {len(accelerators)} accelerators reported"
    if wanting:
        return f"{count}. Next: cyborg-ext-diagnose device {wanting[0].address}{same}"
    return f"{count}. Next: cyborg-ext-diagnose traits{same}"
