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

"""``profile check``: whether a device profile breaks a rule, and what would satisfy it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from cliff.lister import Lister

from cyborg_ext_drivers.cli import cells
from cyborg_ext_drivers.cli.profiles import Profiling
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.profiles import inventory, matching, reading, rules
from cyborg_ext_drivers.profiles.inventory import Inventory
from cyborg_ext_drivers.profiles.matching import Answer, GroupAnswer
from cyborg_ext_drivers.profiles.reading import Draft
from cyborg_ext_drivers.profiles.rules import Level, Problem

if TYPE_CHECKING:
    from cyborg_ext_drivers.cloud.asking import Cloud

_STRUCTURED = ("name", "verdict", "hosts", "problems", "groups")
_COLUMNS = ("profile", "group", "asks_for", "verdict", "answer")
# Together with the borders no more than 120 characters.
_WIDTHS = {"profile": 20, "asks_for": 24, "answer": 46}
_MOST_FILE = 8 << 20
_NOT_GOOD = (Level.REFUSED, Level.FAILS)


class FileUnreadable(ExtDriversError):
    """What is given is no text of a profile, and no file that can be read."""

    def __str__(self) -> str:
        given, error = self.args
        reason = getattr(error, "strerror", None) or error
        return (
            f"{rules.shown(given)} cannot be read: {reason}. Give a file, the JSON text itself, "
            "- for standard input, or with --cloud the name of a device profile"
        )


class ProfileCheckCommand(Profiling, Lister):
    """Check a device profile: Cyborg's rules, and whether any device that is reported satisfies it.

    Exit code 0: it schedules, as each one given does; 1: one breaks a rule, or nothing satisfies
    it; 2: the profile, the host, the cloud or the configuration cannot be read.
    """

    need_sort_by_cliff = True

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add what this subcommand takes."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "profile",
            metavar="PROFILE",
            help="a file (JSON or YAML; a profile, a list of groups or a library), the JSON text "
            "itself, - for standard input, or with --cloud the name of a device profile",
        )
        return parser

    def take_action(self, parsed_args: Namespace):
        """Return the columns and the rows: one per group and problem, in JSON one per profile."""
        cloud = self.cloud(parsed_args)
        drafts = _read(parsed_args.profile, cloud)
        found = self.inventory(parsed_args, cloud, _named(drafts))
        checked = [of_draft(draft, found) for draft in drafts]
        good = sum(each["verdict"] == "schedules" for each in checked)
        if good < len(checked):
            self.exit_code = 1
        self._summary = (
            f"{good} of {len(checked)} profile{'s' if len(checked) > 1 else ''} "
            f"schedule{'s' if len(checked) == 1 else ''} on {found.source}."
        )
        if parsed_args.formatter in ("json", "yaml"):
            return _STRUCTURED, [tuple(each[key] for key in _STRUCTURED) for each in checked]
        rows = [row for each in checked for row in _rows(each)]
        return _COLUMNS, cells.rows(_COLUMNS, rows, parsed_args.formatter, _WIDTHS)

    def produce_output(self, parsed_args: Namespace, column_names, data) -> int:
        """Print the rows; below a table, what they amount to."""
        super().produce_output(parsed_args, column_names, data)
        if parsed_args.formatter == "table":
            self.app.stdout.write(self._summary + "\n")
        return 0


def of_draft(draft: Draft, found: Inventory) -> dict[str, Any]:
    """Return what is said of a profile, as JSON shows it."""
    answer = matching.match(draft.groups, found)
    of_groups = [problem for each in answer.groups for problem in each.problems]
    problems = list(dict.fromkeys([*draft.problems, *of_groups, *answer.problems]))
    return {
        "name": draft.name,
        "verdict": _verdict(problems, answer),
        "hosts": list(answer.hosts),
        "problems": [_of_problem(each) for each in problems],
        "groups": [_of_group(each) for each in answer.groups],
    }


def _verdict(problems: list[Problem], answer: Answer) -> str:
    if any(each.level is Level.REFUSED for each in problems):
        return "refused"
    if any(each.level is Level.FAILS for each in problems) or not answer.hosts:
        return "unsatisfied"
    return "schedules"


def _of_problem(problem: Problem) -> dict[str, Any]:
    return {**problem._asdict(), "level": problem.level.value}


def _of_group(answer: GroupAnswer) -> dict[str, Any]:
    group, offers = answer.group, answer.offers
    return {
        "group": group.number,
        "resources": group.resources,
        "required": list(group.required),
        "forbidden": list(group.forbidden),
        "accel": {key: str(value) for key, value in group.accel.items()},
        "devices": inventory.devices(offers),
        "accelerators": sum(each.units for each in offers),
        "hosts": inventory.hosts(offers),
    }


def _rows(checked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table: first each group with what satisfies it, then each problem."""
    name = checked["name"] or "(no name)"
    rows = []
    for group in checked["groups"]:
        hosts = group["hosts"]
        more = [f"and {len(hosts) - 4} more hosts"] if len(hosts) > 4 else []
        rows.append(
            {
                "profile": name,
                "group": group["group"],
                "asks_for": _asked(group),
                "verdict": "ok" if group["devices"] else "nothing",
                "answer": [
                    f"{inventory.many(group['accelerators'], 'accelerator')} of "
                    f"{inventory.many(group['devices'], 'device')}",
                    *(hosts[:4] and [f"on {', '.join(hosts[:4])}"]),
                    *more,
                ]
                if group["devices"]
                else "",
            }
        )
    for problem in checked["problems"]:
        rows.append(
            {
                "profile": name,
                "group": "" if problem["group"] is None else problem["group"],
                "asks_for": problem["code"],
                "verdict": problem["level"],
                "answer": [f"{problem['message']}.", f"What to do: {problem['remedy']}."],
            }
        )
    return rows


def _asked(group: dict[str, Any]) -> list[str]:
    return [
        *(f"{name}={count}" for name, count in group["resources"].items()),
        *group["required"],
        *(f"not {trait}" for trait in group["forbidden"]),
        *(f"{key}={value}" for key, value in group["accel"].items()),
    ]


def _named(drafts: list[Draft]) -> set[str]:
    """Return the traits that the profiles name and a profile can name."""
    groups = [
        rules.read_group(number, group)
        for draft in drafts
        if isinstance(draft.groups, list)
        for number, group in enumerate(draft.groups)
    ]
    named = {trait for group in groups for trait in (*group.required, *group.forbidden)}
    return {trait for trait in named if trait.startswith("CUSTOM_")}


def _read(given: str, cloud: Cloud | None) -> list[Draft]:
    """Return the profiles that the argument means: of the cloud, what is no text and no file.

    :raises NoProfile: when it holds none.
    :raises FileUnreadable: when there is no such file, or it cannot be read.
    :raises UnknownProfile: when the cloud has none of that name either.
    """
    if given == "-":
        data, source = sys.stdin.buffer.read(_MOST_FILE), "standard input"
    elif _is_text(given):
        return reading.read(given, "the text", is_argument=True)
    else:
        try:
            with open(given, "rb") as opened:
                data, source = opened.read(_MOST_FILE), given
        except (FileNotFoundError, IsADirectoryError) as error:
            if cloud is None:
                raise FileUnreadable(given, error) from None
            return _of_cloud(cloud, given)
        except (OSError, ValueError) as error:
            raise FileUnreadable(given, error) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise reading.NoProfile(source, f"it is no text in UTF-8 ({error})") from None
    return reading.read(text, source)


def _of_cloud(cloud: Cloud, name: str) -> list[Draft]:
    from cyborg_ext_drivers.cloud import offers

    found = offers.profile(cloud, name)
    content = {"name": found.name, "groups": [dict(group) for group in found.groups]}
    return reading.read(json.dumps(content), f"the device profile {name}")


def _is_text(given: str) -> bool:
    """Return whether an argument is the profile itself and no file's name."""
    text = given.strip()
    return not text or text[0] in "[{'" or "\n" in text or reading.is_group(text)
