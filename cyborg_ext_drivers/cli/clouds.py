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

"""What the subcommands that ask a cloud share: whose cloud, progress, what was not answered."""

import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import Any

from cyborg_ext_drivers.cli import cells
from cyborg_ext_drivers.cli.looking import Reporting
from cyborg_ext_drivers.cloud import asking
from cyborg_ext_drivers.cloud.records import Unknown

_MOST_COLUMNS = 120


class AskingCloud(Reporting):
    """The options of a cloud, those of openstack's own command; mixed into a cliff command."""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add ``--os-cloud`` and the credentials' options, as openstacksdk has them."""
        parser = super().get_parser(prog_name)
        others = {action.dest for action in parser._actions}
        try:
            asking.add_options(parser, list(getattr(self.app, "given", ())))
        except asking.CloudUnusable:
            # Said when the command runs; until then its option is no mistake.
            if "--os-cloud" not in parser._option_string_actions:
                parser.add_argument("--os-cloud", help=SUPPRESS)
        # The SDK takes all it is given for its own, and a profile is something else to it.
        self._options = {action.dest for action in parser._actions} - others
        return parser

    def cloud(self, parsed_args: Namespace) -> asking.Cloud:
        """Return the cloud that the options, the environment and clouds.yaml mean.

        :raises CloudUnusable: when there is none.
        """
        options = {key: each for key, each in vars(parsed_args).items() if key in self._options}
        return asking.open_cloud(Namespace(**options), _tell)

    def produce_output(self, parsed_args: Namespace, column_names, data) -> int:
        """Print the rows; below a table, of which there is none without rows, :meth:`below`."""
        rows = list(data)
        if rows or parsed_args.formatter != "table":
            super().produce_output(parsed_args, column_names, rows)
        if parsed_args.formatter == "table":
            self.app.stdout.write("\n".join(self.below()) + "\n")
        return 0

    def below(self) -> list[str]:
        """Return the lines below the table."""
        raise NotImplementedError


def named(name: str | None) -> asking.Cloud:
    """Return the cloud of this name in clouds.yaml, that of the environment for ``None``.

    :raises CloudUnusable: when there is none.
    """
    return asking.open_cloud(None if name is None else Namespace(os_cloud=name), _tell)


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def row_of_unknown(unknown: Unknown) -> dict[str, Any]:
    """Return what a part that was not answered has in common with a finding."""
    return {
        "project": unknown.service,
        "subject": unknown.part,
        "message": f"{unknown.request}: {unknown.reason}",
    }


def command_lines(command: str) -> list[str]:
    """Return a command line, in several that the shell takes for one where it is too long."""
    pieces = [""]
    # Between words only: behind a quote the shell would take the end of the line as it stands.
    for word in map(shlex.quote, shlex.split(cells.plain(command))):
        if len(pieces[-1]) + len(word) >= _MOST_COLUMNS - 8 and pieces[-1]:
            pieces.append("")
        pieces[-1] += f" {word}" if pieces[-1] else word
    last = len(pieces) - 1
    return [
        ("  $ " if number == 0 else "      ") + piece + ("" if number == last else " \\")
        for number, piece in enumerate(pieces)
    ]


def sentences(text: str) -> list[str]:
    """Return a text in lines of a terminal."""
    return [
        "  " + line for line in cells.wrapped(cells.plain(text), _MOST_COLUMNS - 4, keep_words=True)
    ]
