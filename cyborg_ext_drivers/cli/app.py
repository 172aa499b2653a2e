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

"""The application: which subcommand is meant, and what its exit code says."""

import contextlib
import importlib.metadata
import logging
import sys
from collections.abc import Iterator, Sequence

from cliff.app import App
from cliff.commandmanager import CommandManager
from stevedore.named import NamedExtensionManager

NAMESPACE = "cyborg_ext_drivers.cli"
DEFAULT_COMMAND = "host"
_FLAGS = frozenset(("--debug", "-v", "-vv", "-vvv", "--verbose", "-q", "--quiet"))
_ENDS = frozenset(("--version", "-h", "--help", "help", "complete"))


class _Subcommands(CommandManager):
    """The subcommands, of which none is imported before it is run."""

    def load_commands(self, namespace: str) -> None:
        """Learn the names of all subcommands; cliff itself would import each as well."""
        self.group_list.append(namespace)
        found = NamedExtensionManager(namespace, names=()).list_entry_points()
        # As cliff does it: profile_check is what people call "profile check".
        self.commands |= {each.name.replace("_", " "): each for each in found}


class DiagnoseApp(App):
    """The command as a whole."""

    NAME = "cyborg-ext-diagnose"
    # INFO is for the agent's log; here the answer itself says it.
    DEFAULT_VERBOSE_LEVEL = 0

    def __init__(self) -> None:
        super().__init__(
            description=(
                "Tell for each accelerator of a host what Cyborg is told of it, and for each one "
                "that is skipped why, on what evidence, and what to do. Without a subcommand: "
                "host. Exit codes: 0 when every accelerator found is reported, 1 when one is "
                "skipped or held, 2 when host or configuration cannot be read."
            ),
            version=_version(),
            command_manager=_Subcommands(NAMESPACE),
            deferred_help=True,
        )

    def run(self, argv: Sequence[str]) -> int:
        """Run the subcommand that *argv* means, ``host`` when it names none."""
        #: As given, for options that depend on others: those of a cloud's credentials.
        self.given = list(argv)
        return super().run(with_default(list(argv)))


def _version() -> str:
    """Return the version where it is asked for; reading it takes as long as a small host."""
    if "--version" not in sys.argv:
        return ""
    return importlib.metadata.version("cyborg-ext-drivers")


def with_default(argv: list[str]) -> list[str]:
    """Return *argv* with the default subcommand where it names none.

    >>> with_default(["-v", "--long"])
    ['-v', 'host', '--long']
    """
    position = 0
    while position < len(argv):
        word = argv[position]
        if word in _FLAGS or word.startswith("--log-file="):
            position += 1
        elif word == "--log-file":
            position += 2
        else:
            break
    rest = argv[position:]
    if rest and (rest[0] in _ENDS or not rest[0].startswith("-")):
        return argv
    return [*argv[:position], DEFAULT_COMMAND, *rest]


@contextlib.contextmanager
def logging_as_before() -> Iterator[None]:
    """Leave the process's logging as it was found.

    cliff sets the root logger to DEBUG and adds a handler for each run: a process that calls the
    command more than once, as tests do, would collect all that its libraries say.
    """
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)
            handler.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    with logging_as_before():
        return DiagnoseApp().run(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
