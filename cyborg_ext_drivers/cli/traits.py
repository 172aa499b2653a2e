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

from argparse import Namespace

from cliff.lister import Lister

from cyborg_ext_drivers.cli import cells, rows
from cyborg_ext_drivers.cli.looking import Looking, View

_COLUMNS = ("name", "type", "devices", "accelerators", "cards")


class TraitsCommand(Looking, Lister):
    """List each trait and resource class that this host would report, and of how many cards."""

    need_sort_by_cliff = True

    def take_action(self, parsed_args: Namespace):
        """Return the columns and one row per resource class and trait, classes first."""
        with self.looking(parsed_args) as view:
            counted = _counted(view)
        return _COLUMNS, [
            tuple(cells.cell(value, parsed_args.formatter) for value in row) for row in counted
        ]


def _counted(view: View) -> list[tuple[str, str, int, int, dict[str, int]]]:
    counts: dict[tuple[str, str], tuple[set[str], int, dict[str, int]]] = {}
    for assessment in view.survey().reported:
        for deployable in rows.reported_deployables(assessment, view):
            card = rows.name_of(assessment, view) or "?"
            names = [("resource class", deployable["resource_class"])]
            names += [("trait", trait) for trait in deployable["traits"]]
            for key in names:
                devices, total, cards = counts.get(key, (set(), 0, {}))
                if str(assessment.address) not in devices:
                    cards[card] = cards.get(card, 0) + 1
                devices.add(str(assessment.address))
                counts[key] = devices, total + deployable["num_accelerators"], cards
    return [
        (name, kind, len(devices), total, cards)
        for (kind, name), (devices, total, cards) in sorted(counts.items())
    ]
