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

"""``cloud arqs``: accelerator requests that hold a device for nobody."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from cliff.lister import Lister

from cyborg_ext_drivers.cli import cells, clouds
from cyborg_ext_drivers.cli.looking import BROKEN, GOOD, SKIPPED
from cyborg_ext_drivers.cloud import requests
from cyborg_ext_drivers.cloud.requests import Leftover
from cyborg_ext_drivers.profiles.inventory import many

_SHORT = ("uuid", "verdict", "state", "age", "host", "device", "message")
_WHOLE = (
    "uuid",
    "verdict",
    "state",
    "message",
    "age",
    "host",
    "device",
    "instance",
    "profile",
    "command",
)
_WIDTHS = {
    "uuid": 18,
    "verdict": 11,
    "state": 12,
    "age": 7,
    "host": 12,
    "device": 14,
    "message": 22,
}
_MOST_SECONDS = 3600
_SERVICE_TOKEN = (
    "Cyborg lets only a service delete a request that has an instance (HTTP 403): where the "
    "command is refused, send the same DELETE with the header X-Service-Token of a user with the "
    "service role, as Nova does."
)


class CloudArqsCommand(clouds.AskingCloud, Lister):
    """List the accelerator requests that are left over, stuck or bound to what is gone.

    Only asks; the commands that delete are printed and never run. Exit code 0: there is none; 1:
    there is one; 2: the cloud cannot be asked, or not enough of it to say.
    """

    need_sort_by_cliff = False

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add how long is waited."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--settle",
            type=_seconds,
            default=10.0,
            metavar="SECONDS",
            help="look twice, so far apart, at a request in a state that passes (default: 10)",
        )
        return parser

    def take_action(self, parsed_args: Namespace):
        """Return the columns and a row per request, and per part that was not answered."""
        self._looked = looked = requests.look(self.cloud(parsed_args), parsed_args.settle)
        verdicts = {each.verdict for each in looked.leftovers}
        is_doubtful = bool(looked.unknown) or requests.UNKNOWN in verdicts
        self.exit_code = BROKEN if is_doubtful else GOOD
        if verdicts - {requests.UNKNOWN}:
            self.exit_code = SKIPPED
        formatter = parsed_args.formatter
        columns = _SHORT if formatter == "table" else _WHOLE
        rows = [_row(each, formatter) for each in looked.leftovers]
        rows += [
            {
                **dict.fromkeys(_WHOLE),
                "verdict": requests.UNKNOWN,
                "device": each.part,
                "message": f"{each.service}: {each.request}: {each.reason}",
            }
            for each in looked.unknown
        ]
        return columns, [
            tuple(cells.cell(row[column], formatter, _WIDTHS.get(column)) for column in columns)
            for row in rows
        ]

    def below(self) -> list[str]:
        """Return the commands that would delete, and the numbers."""
        return _below(self._looked)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _MOST_SECONDS:
        raise ArgumentTypeError(f"{text!r} is no number of seconds from 0 to {_MOST_SECONDS}")
    return seconds


def _row(each: Leftover, formatter: str) -> dict[str, Any]:
    row = each._asdict()
    if formatter == "table":
        row["age"] = _for_people(each.age)
    return row


def _for_people(age: int | None) -> str:
    if age is None:
        return "untold"
    for seconds, letter in ((86400, "d"), (3600, "h"), (60, "min")):
        if age >= seconds:
            return f"{age // seconds} {letter}"
    return f"{age} s"


def _below(looked: requests.Looked) -> list[str]:
    sure = [each for each in looked.leftovers if each.command]
    lines = ["To delete them, when you are sure:"] if sure else []
    for each in sure:
        lines += clouds.command_lines(each.command)
    if any(each.instance for each in sure):
        lines += clouds.sentences(_SERVICE_TOKEN)
    numbers = requests.counted(looked.leftovers)
    said = ", ".join(f"{number} {verdict}" for verdict, number in sorted(numbers.items()))
    return [*lines, f"{many(looked.total, 'accelerator request')}: {said or 'none left over'}."]
