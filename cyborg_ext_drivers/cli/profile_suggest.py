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

"""``profile suggest``: a device profile for each kind of card, and the commands for it."""

import json
import shlex
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

import yaml
from cliff.lister import Lister

from cyborg_ext_drivers.cli import cells, profiles
from cyborg_ext_drivers.cli.profiles import Profiling
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.profiles import inventory
from cyborg_ext_drivers.profiles.suggest import Profile, left_out, suggest

_SHORT = ("name", "description", "groups", "devices", "hosts")
_LONG = ("name", "description", "groups", "devices", "accelerators", "hosts", "commands")
# Together with the borders no more than 120 characters.
_WIDTHS = {"name": 24, "description": 22, "groups": 34, "hosts": 17}
_MOST = 64
_COMMANDS = "cyborg-ext-diagnose profile suggest --commands"
_HEAD = """\
# Device profiles that cyborg-ext-diagnose suggests; review, and check again with
#   cyborg-ext-diagnose profile check FILE
"""


class LibraryThere(ExtDriversError):
    """The library would be written over."""

    def __str__(self) -> str:
        return f"{self.args[0]} is there already, perhaps reviewed; name another file, or remove it"


class LibraryUnwritable(ExtDriversError):
    """The library cannot be written where it should be."""

    def __str__(self) -> str:
        file, error = self.args
        return f"the library {file} cannot be written: {error.strerror or error}"


class ProfileSuggestCommand(Profiling, Lister):
    """Suggest a device profile for each kind of card that the host, or a whole cloud, reports.

    Nothing is created: the commands are printed. Exit code 0: there is a profile to suggest; 1:
    there is none; 2: the host, the cloud or the configuration cannot be read.
    """

    need_sort_by_cliff = True

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the options of this subcommand."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--count",
            metavar="N",
            type=_count,
            default=1,
            help="how many an instance gets (default: 1)",
        )
        parser.add_argument(
            "--any",
            choices=("model", "vendor"),
            default="model",
            help="ask for any card of one model (default), or for any card of one vendor",
        )
        parser.add_argument("--flavor", default="FLAVOR", help="the flavor that the commands name")
        parser.add_argument(
            "--commands",
            action="store_true",
            help="print the commands alone, for a shell, to review and run",
        )
        parser.add_argument(
            "--library",
            metavar="FILE",
            help="write the profiles to a new YAML file that profile check reads",
        )
        return parser

    def take_action(self, parsed_args: Namespace):
        """Return the columns and one row per profile."""
        found = self.inventory(parsed_args, self.cloud(parsed_args))
        any_of_vendor = parsed_args.any == "vendor"
        self._profiles = suggest(found, parsed_args.count, any_of_vendor)
        for sentence in left_out(found, any_of_vendor):
            print(sentence, file=self.app.stderr)
        if not self._profiles:
            self.exit_code = 1
        if parsed_args.library:
            _write(parsed_args.library, self._profiles)
        self._summary = _summary(self._profiles, parsed_args, bool(found.offers))
        made = [of_profile(each, parsed_args.flavor) for each in self._profiles]
        formatter = parsed_args.formatter
        columns = _SHORT if formatter == "table" else _LONG
        if formatter not in ("json", "yaml"):
            made = [_for_people(row, formatter) for row in made]
        return columns, cells.rows(columns, made, formatter, _WIDTHS)

    def produce_output(self, parsed_args: Namespace, column_names, data) -> int:
        """Print the rows or the commands; below a table, what to run next."""
        if parsed_args.commands:
            for profile in self._profiles:
                print(f"# {profile.description}", file=self.app.stdout)
                for command in _commands(profile, parsed_args.flavor):
                    print(command, file=self.app.stdout)
            return 0
        super().produce_output(parsed_args, column_names, data)
        if parsed_args.formatter == "table":
            self.app.stdout.write(self._summary + "\n")
        return 0


def of_profile(profile: Profile, flavor: str) -> dict[str, Any]:
    """Return a profile as JSON shows it."""
    return {
        "name": profile.name,
        "description": profile.description,
        "groups": [dict(group) for group in profile.groups],
        "devices": inventory.devices(profile.offers),
        "accelerators": sum(each.units for each in profile.offers),
        "hosts": inventory.hosts(profile.offers),
        "commands": _commands(profile, flavor),
    }


def _commands(profile: Profile, flavor: str) -> list[str]:
    return [profile.create_command(), profile.flavor_command(flavor)]


def _for_people(row: dict[str, Any], formatter: str) -> dict[str, Any]:
    """Return a row with the groups as text; a table names three hosts at most."""
    groups, hosts = row["groups"], row["hosts"]
    if formatter != "table":
        return {**row, "groups": json.dumps(groups)}
    lines = [f"{key}={value}" for key, value in groups[0].items()]
    if len(groups) > 1:
        lines = [f"{len(groups)} groups of:", *lines]
    if len(hosts) > 3:
        hosts = [*hosts[:3], f"and {len(hosts) - 3} more"]
    return {**row, "groups": lines, "hosts": hosts}


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST:
        raise ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST}")
    return int(text)


def _summary(made: list[Profile], parsed_args: Namespace, is_anything_reported: bool) -> str:
    if not made and is_anything_reported:
        return "There is no profile to suggest for what is reported."
    if not made:
        further = profiles.look_further(parsed_args)
        return f"Nothing is reported to suggest a profile for. Next: {further}"
    same = profiles.same(parsed_args)
    count = f"{len(made)} profile{'s' if len(made) > 1 else ''}"
    if parsed_args.library:
        return f"{count} in {parsed_args.library}. Next: cyborg-ext-diagnose profile check " + (
            f"{parsed_args.library}{same}"
        )
    asked = _asked(parsed_args)
    return f"{count}; nothing was created. Next: {_COMMANDS}{asked}{same}"


def _asked(parsed_args: Namespace) -> str:
    """Return the options by which the same profiles are suggested again, each after a space."""
    given = (("--count", parsed_args.count, 1), ("--any", parsed_args.any, "model"))
    given += (("--flavor", parsed_args.flavor, "FLAVOR"),)
    return "".join(
        f" {name} {shlex.quote(str(value))}" for name, value, usual in given if value != usual
    )


def _write(file: str, made: list[Profile]) -> None:
    content = {
        "profiles": [
            {"name": each.name, "description": each.description, "groups": list(each.groups)}
            for each in made
        ]
    }
    text = _HEAD + yaml.safe_dump(content, sort_keys=False, default_flow_style=False, width=98)
    try:
        with open(file, "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise LibraryThere(file) from None
    except OSError as error:
        raise LibraryUnwritable(file, error) from None
