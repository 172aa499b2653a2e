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

"""The outcomes as a table, as JSON or YAML, and as the table of a manual."""

import json
import textwrap
from collections.abc import Callable, Sequence

import yaml

from cyborg_ext_drivers.testing.conformance.codes import CODES, Violation
from cyborg_ext_drivers.testing.conformance.running import Outcome


def as_text(outcomes: Sequence[Outcome]) -> str:
    """Return a paragraph for each violation of each driver, with one host's evidence."""
    paragraphs = []
    for driver in dict.fromkeys(outcome.driver for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.driver == driver]
        paragraphs.append(_summary(driver, mine))
        paragraphs += [_paragraph(group) for group in _grouped(mine).values()]
    return "\n\n".join(paragraphs)


def _summary(driver: str, outcomes: Sequence[Outcome]) -> str:
    if any(outcome.impossible for outcome in outcomes):
        return f"{driver}: not tried"
    codes, devices = len(_grouped(outcomes)), sum(outcome.devices for outcome in outcomes)
    found = _counted(codes, "kind", "kinds") + " of violation" if codes else "conforms"
    note = "" if devices else "; nothing was tried of what a card needs"
    hosts = _counted(len(outcomes), "host", "hosts")
    return f"{driver}: {found} ({hosts}, {_counted(devices, 'device', 'devices')} reported{note})"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _grouped(outcomes: Sequence[Outcome]) -> dict[str, list[Violation]]:
    grouped: dict[str, list[Violation]] = {}
    for violation in (each for outcome in outcomes for each in outcome.violations):
        grouped.setdefault(violation.code, []).append(violation)
    return {code: grouped[code] for code in CODES if code in grouped}


def _paragraph(group: Sequence[Violation]) -> str:
    first, hosts = group[0], dict.fromkeys(each.host for each in group)
    code = CODES[first.code]
    more = f" (and on {_counted(len(hosts) - 1, 'other', 'others')})" if len(hosts) > 1 else ""
    lines = [
        f"{first.code} on {first.host}{more}",
        *textwrap.wrap(f"{first.evidence}", 108),
        *textwrap.wrap(f"{code.rule}.", 108),
        *textwrap.wrap(f"{code.consequence}.", 108),
    ]
    return "\n    ".join(["  " + lines[0], *lines[1:]])


def as_rows(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """Return each violation with all its evidence, and what was not tried, as dictionaries."""
    rows = []
    for outcome in outcomes:
        if outcome.impossible:
            head = {"driver": outcome.driver, "host": outcome.host}
            rows.append({"code": "not-tried", **head, "evidence": outcome.impossible})
        rows += [violation.as_dict() for violation in outcome.violations]
    return rows


def as_rst(outcomes: Sequence[Outcome]) -> str:
    """Return a list-table of the manual: driver, violation, one host's evidence."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 20 25 55", ""]
    lines += ["   * - driver", "     - violation", "     - for example"]
    for cells in _cells(outcomes):
        lines += [f"   * - ``{cells[0]}``", f"     - {cells[1]}", f"     - {cells[2]}"]
    return "\n".join(lines)


def as_markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the same table for Markdown."""
    rows = [f"| `{driver}` | {code} | {text} |" for driver, code, text in _cells(outcomes)]
    return "\n".join(["| driver | violation | for example |", "|---|---|---|", *rows])


def _cells(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str]]:
    cells = []
    for driver in dict.fromkeys(outcome.driver for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.driver == driver]
        impossible = [outcome.impossible for outcome in mine if outcome.impossible]
        devices = sum(outcome.devices for outcome in mine)
        if impossible:
            cells.append((driver, "not tried", impossible[0]))
        elif not _grouped(mine):
            text = f"{_counted(devices, 'device', 'devices')} on " if devices else ""
            text += _counted(len(mine), "host", "hosts") if devices else "reported no device"
            cells.append((driver, "none", text))
        for code, group in _grouped(mine).items():
            cells.append((driver, code, f"{group[0].host}: {group[0].evidence}"))
    return [tuple(text.replace("|", "/").replace("*", "") for text in each) for each in cells]


#: What ``-f`` takes.
FORMATS: dict[str, Callable[[Sequence[Outcome]], str]] = {
    "table": as_text,
    "json": lambda outcomes: json.dumps(as_rows(outcomes), indent=2),
    "yaml": lambda outcomes: yaml.safe_dump(as_rows(outcomes), sort_keys=False).rstrip(),
    "rst": as_rst,
    "markdown": as_markdown,
}
