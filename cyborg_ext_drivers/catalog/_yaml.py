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

"""YAML as an operator may have written it: where what stands, and what is too much.

Next stop: :mod:`cyborg_ext_drivers.catalog.schema`.
"""

from collections.abc import Iterator
from typing import Any

import yaml

# The values of a catalogue file nest 5 deep and have up to 120 characters.  More than so much is a
# mistake or an attack: PyYAML recurses over nesting, and a number of a MiB takes it a minute.
_MOST_DEPTH = 16
_MOST_CHARACTERS = 1000
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str) -> Any:
    """Return what a YAML text holds, fast; one that is not trusted is looked at before."""
    return yaml.load(text, Loader=_Loader)


def compose(text: str) -> yaml.Node | None:
    """Return the nodes of a YAML text, which know their lines."""
    return yaml.compose(text, Loader=_Loader)


def excesses(text: str) -> Iterator[str]:
    """Yield what no catalogue file has and what it would be costly to read on for."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            yield f"line {line}: aliases (*name) are not allowed; write the value out"
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > _MOST_CHARACTERS:
            yield f"line {line}: a value has more than {_MOST_CHARACTERS} characters"
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MOST_DEPTH:
                yield f"line {line}: lists and maps are nested more than {_MOST_DEPTH} deep"
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def fault_of(error: yaml.YAMLError) -> str:
    """Return what is wrong with a text that is no YAML, with the line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark else problem


class Lines:
    """Where in a YAML text each value stands, and which keys stand there twice."""

    def __init__(self, node: yaml.Node | None):
        self._root = node
        #: Line and name of each key that an object has had before.
        self.repeated: list[tuple[int, str]] = []
        self._search(node)

    @property
    def duplicates(self) -> list[str]:
        """Return a sentence for each key that stands twice in an object."""
        return [f"line {line}: {key}: the key stands there twice" for line, key in self.repeated]

    def of(self, path) -> int:
        """Return the line, from 1, of the value at a path of keys and indexes."""
        node = self._root
        for step in path:
            child = self._child(node, step)
            if child is None:
                break
            node = child
        return node.start_mark.line + 1

    def _search(self, node: yaml.Node | None) -> None:
        if isinstance(node, yaml.SequenceNode):
            for child in node.value:
                self._search(child)
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen if isinstance(key.value, str) else False:
                    self.repeated.append((key.start_mark.line + 1, key.value))
                seen.add(str(key.value))
                self._search(value)

    @staticmethod
    def _child(node: yaml.Node, step: Any) -> yaml.Node | None:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            return node.value[step]
        if isinstance(node, yaml.MappingNode):
            return next((value for key, value in node.value if key.value == str(step)), None)
        return None
