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

"""Values as cells: text in tables, flat text in csv and value, themselves in JSON and YAML."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

_MOST_COLUMNS = 120
_STRUCTURED = frozenset(("json", "yaml"))


def cell(value: Any, formatter: str, width: int | None = None, keep_words: bool = False) -> Any:
    """Return a value as the formatter wants it.

    :param width: wrap the text of a table at so many characters; ``None`` leaves it as it is.
    :param keep_words: wrap at spaces only, so that a trait or a code can be searched for.
    """
    if formatter in _STRUCTURED:
        return value
    lines = _lines(value)
    if formatter != "table":
        return " ".join(lines)
    if width is not None:
        lines = [part for line in lines for part in wrapped(line, width, keep_words)]
    return "\n".join(lines)


def rows(
    columns: Sequence[str],
    given: Sequence[Mapping[str, Any]],
    formatter: str,
    widths: Mapping[str, int],
) -> list[tuple]:
    """Return rows as the formatter wants them; traits stay whole while the table fits."""
    for keep_words in (True, False):
        made = [
            tuple(cell(row[each], formatter, widths.get(each), keep_words) for each in columns)
            for row in given
        ]
        if formatter != "table" or fits(columns, made):
            break
    return made


def plain(text: str) -> str:
    r"""Return a text with what a terminal would obey, or could not show, spelled out.

    >>> plain("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def fits(columns: Sequence[str], made: Sequence[Sequence[str]]) -> bool:
    """Return whether a table of these rows is no wider than 120 characters."""
    widths = [
        max(len(line) for text in column for line in str(text).split("\n"))
        for column in zip(columns, *made)
    ]
    return sum(widths) + 3 * len(widths) + 1 <= _MOST_COLUMNS


def wrapped(line: str, width: int, keep_words: bool = False) -> list[str]:
    """Return a line in pieces of at most *width* characters; nothing is cut off."""
    if len(line) <= width:
        return [line]
    pieces = textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
    if keep_words:
        return pieces or [""]
    return [part for piece in pieces or [""] for part in _broken(piece, width)]


def _broken(word: str, width: int) -> list[str]:
    """Break what has no space after an underscore, a slash or a colon, at worst anywhere."""
    pieces = []
    while len(word) > width:
        breaks = [match.end() for match in re.finditer("[_/:.,-]", word[:width])]
        at = breaks[-1] if breaks else width
        pieces.append(word[:at])
        word = word[at:]
    return [*pieces, word]


def _lines(value: Any) -> list[str]:
    if value is None:
        return [""]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, Mapping):
        return [f"{key}={each}" for key, each in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [line for each in value for line in _lines(each)]
    return [plain(line) for line in str(value).splitlines()] or [""]
