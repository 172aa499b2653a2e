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

"""Finds and reads the YAML files that describe hosts.

The shipped ones lie in ``hosts/`` beside this module, one host a file, named after what
is special about it.
"""

import difflib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import yaml

from cyborg_ext_drivers import errors
from cyborg_ext_drivers.testing._description import HostDescription
from cyborg_ext_drivers.testing._validation import DescriptionError, Fault, Path

_HOSTS = pathlib.Path(__file__).with_name("hosts")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UnknownHost(errors.ExtDriversError, LookupError):
    """A name that no shipped description of a host has."""

    def __init__(self, name: str, known: list[str]):
        self.name = name
        #: The names that are spelt most alike, or all where none is.
        self.nearest = difflib.get_close_matches(name, known, n=3) or known
        super().__init__(name, self.nearest)

    def __str__(self) -> str:
        return f"no described host is called {self.name!r}; there is {', '.join(self.nearest)}"


def described_hosts() -> list[str]:
    """Return the names of all hosts that are described in this package, sorted."""
    return sorted(path.stem for path in _HOSTS.glob("*.yaml"))


def load(name_or_path: str | os.PathLike) -> HostDescription:
    """Return a description by its name, or by the path of its file.

    A text is a path when it has a slash or ends in ``.yaml``.

    :raises UnknownHost: when no shipped description has the name.
    :raises DescriptionError: when the file breaks the schema.
    :raises OSError: when the file cannot be read.
    """
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and "/" not in text and not text.endswith((".yaml", ".yml")):
        known = described_hosts()
        if text not in known:
            raise UnknownHost(text, known)
        return _read(_HOSTS / f"{text}.yaml")
    return _read(pathlib.Path(text))


def _read(path: pathlib.Path) -> HostDescription:
    origin = str(path)
    loader = _Loader(path.read_text(encoding="utf-8"))
    try:
        node = loader.get_single_node()
        repeated = list(_repeated_keys(node, ()))
        mapping = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise DescriptionError(origin, [Fault((), f"it is no YAML: {error}")]) from None
    finally:
        loader.dispose()
    if repeated:
        raise DescriptionError(origin, repeated)
    return HostDescription.from_mapping(mapping, origin, lambda path: _line(node, path))


def _repeated_keys(node: yaml.Node | None, path: Path) -> Iterator[Fault]:
    """Find keys that a mapping has twice, of which YAML would take the last in silence."""
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from _repeated_keys(item, (*path, position))
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                yield Fault((*path, key.value), "the key is repeated", _line_of(key))
            seen.add(key.value)
            yield from _repeated_keys(value, (*path, key.value))


def _line(node: yaml.Node | None, path: Path) -> int | None:
    """Return the line that a path leads to, or that of the last step that exists."""
    line = None if node is None else _line_of(node)
    for step in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
            line = _line_of(node)
        elif isinstance(node, yaml.MappingNode):
            found = [pair for pair in node.value if pair[0].value == step]
            if not found:
                break
            line, node = _line_of(found[0][0]), found[0][1]
    return line


def _line_of(node: yaml.Node) -> int:
    return node.start_mark.line + 1
