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

"""``codes``: the catalogue of findings."""

from argparse import ArgumentParser, Namespace

from cliff.lister import Lister

from cyborg_ext_drivers import checks
from cyborg_ext_drivers.checks.base import Code
from cyborg_ext_drivers.cli import cells
from cyborg_ext_drivers.cli.looking import Reporting
from cyborg_ext_drivers.errors import ExtDriversError

_COLUMNS = ("code", "severity", "title")
_WHOLE = (*_COLUMNS, "explanation", "remedy")
_WIDTH = 88


class UnknownCode(ExtDriversError):
    """A code that no check has."""

    def __init__(self, code: str, known: list[str]):
        import difflib

        self.code = code
        self.nearest = difflib.get_close_matches(code, known, 3, 0.4)
        super().__init__(code, known)

    def __str__(self) -> str:
        hint = f" (did you mean {', '.join(self.nearest)}?)" if self.nearest else ""
        return f"there is no finding {self.code!r}{hint}; cyborg-ext-diagnose codes lists all"


class CodesCommand(Reporting, Lister):
    """List the findings, or explain one of them."""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the code to explain."""
        parser = super().get_parser(prog_name)
        parser.add_argument("code", nargs="?", metavar="CODE", help="explain this finding")
        return parser

    def take_action(self, parsed_args: Namespace):
        """Return the columns and one row per code."""
        known = [code for check in checks.load() for code in check.codes]
        if parsed_args.code is None:
            listed = sorted(known, key=lambda code: code.name)
            return _COLUMNS, [_row(code, _COLUMNS, parsed_args) for code in listed]
        chosen = [code for code in known if code.name == parsed_args.code]
        if not chosen:
            raise UnknownCode(parsed_args.code, [code.name for code in known])
        return _WHOLE, [_row(chosen[0], _WHOLE, parsed_args)]

    def produce_output(self, parsed_args: Namespace, column_names, data) -> int:
        """Print the list, or one code as fields below each other."""
        if parsed_args.code is None or parsed_args.formatter != "table":
            return super().produce_output(parsed_args, column_names, data)
        self.formatter.emit_one(column_names, next(iter(data)), self.app.stdout, parsed_args)
        return 0


def _row(code: Code, columns: tuple[str, ...], parsed_args: Namespace) -> tuple:
    values = {
        "code": code.name,
        "severity": str(code.severity),
        "title": code.title,
        "explanation": code.explanation,
        "remedy": code.remedy,
    }
    return tuple(cells.cell(values[name], parsed_args.formatter, _WIDTH) for name in columns)
