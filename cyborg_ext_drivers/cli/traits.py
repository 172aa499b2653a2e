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

"""``traits``: what an operator pastes into a device profile."""

import collections
from argparse import Namespace
from typing import Any

from cliff.lister import Lister

from cyborg_ext_drivers.cli import cells, rows
from cyborg_ext_drivers.cli.looking import Looking, View

_COLUMNS = ("name", "type", "devices", "accelerators", "cards")
# Together with the borders no more than 120 characters.
_WIDTHS = {"name": 52, "cards": 22}


class TraitsCommand(Looking, Lister):
    """List each trait and resource class that this host would report, and of how many cards."""

    need_sort_by_cliff = True

    def take_action(self, parsed_args: Namespace):
        """Return the columns and one row per resource class and trait, classes first."""
        with self.looking(parsed_args) as view:
            found = counted(view)
        given = [dict(zip(_COLUMNS, row)) for row in found]
        return _COLUMNS, cells.rows(_COLUMNS, given, parsed_args.formatter, _WIDTHS)


def counted(view: View) -> list[tuple[str, str, int, int, dict[str, int]]]:
    totals: collections.Counter[tuple[str, str]] = collections.Counter()
    # The name of each card that has it, by address.
    cards: dict[tuple[str, str], dict[str, str | None]] = {}
    for decision in view.decisions():
        row = rows.of_decision(decision, view)
        for deployable in row["deployables"]:
            for key in _names(deployable):
                totals[key] += deployable["num_accelerators"]
                cards.setdefault(key, {})[row["address"]] = row["device"]
    return [
        (
            key[1],
            key[0],
            len(cards[key]),
            totals[key],
            dict(collections.Counter(cards[key].values())),
        )
        for key in sorted(totals)
    ]


def _names(deployable: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a device profile can name of a deployable, each with its kind."""
    traits = [("trait", trait) for trait in deployable["traits"]]
    return [("resource class", deployable["resource_class"]), *traits]
