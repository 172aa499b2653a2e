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
"""``snapshot describe``: a host as YAML, to be put beside the described hosts of a test suite."""

import contextlib
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cliff.command import Command
from stevedore import driver, exception

from cyborg_ext_drivers.cli.looking import (
    FAKE_HOSTS,
    ContradictingOptions,
    FakeHostsMissing,
    Looking,
)
from cyborg_ext_drivers.report.ledger import Decision
from cyborg_ext_drivers.snapshot import describe
from cyborg_ext_drivers.survey import Verdict

_UNNAMED = "described-host"
_MOST_TOLD = 20


class DescribeCommand(Looking, Command):
    """Print a described host: what matters of a host, with today's verdicts as its expectation.

    It is of a snapshot, or of the host that the options mean. Loaded again (--fake, or FakeHost) it
    gives the same assessments; what it cannot say is told on the standard error output.
    """

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the file and what to say."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            help="a snapshot (default: the host that the other options mean)",
        )
        parser.add_argument(
            "--name", help="what the described host is called (default: made of FILE's name)"
        )
        parser.add_argument(
            "--all",
            action="store_true",
            help="describe all PCI functions, also those that nothing depends on",
        )
        parser.add_argument(
            "--raw",
            action="store_true",
            help="say serial numbers and UUIDs of the host's GPUs; those in a snapshot are "
            "always said, as it was redacted when it was made, or not",
        )
        return parser

    def take_action(self, parsed_args: Namespace) -> None:
        """Print the description."""
        if parsed_args.file is not None:
            if parsed_args.snapshot is not None:
                raise ContradictingOptions("two snapshots are named; describe one of them")
            parsed_args.snapshot = parsed_args.file
        lay = layer()
        with self.looking(parsed_args) as view:
            found = describe.describe(
                view.host,
                view.surveyor,
                lay,
                parsed_args.name or name_of(parsed_args.snapshot),
                with_serials=parsed_args.raw or parsed_args.snapshot is not None,
                with_all=parsed_args.all,
            )
            held = _held(view.decisions())
        self.app.stdout.write(found.yaml)
        missing = (*found.missing, *held)
        for sentence in missing[:_MOST_TOLD]:
            print(f"Not described: {sentence}", file=sys.stderr)
        if len(missing) > _MOST_TOLD:
            print(f"... and {len(missing) - _MOST_TOLD} more", file=sys.stderr)


def layer() -> describe.Layer:
    """Return what lays out a description: the room of the described hosts.

    :raises FakeHostsMissing: when it cannot be loaded.
    """
    try:
        kind: Any = driver.DriverManager(FAKE_HOSTS, "described").driver
    except (ImportError, exception.NoMatches) as error:
        raise FakeHostsMissing("snapshot describe", error) from None
    return _laying(kind.from_mapping)


def _laying(make: Callable[[Mapping[str, Any]], Any]) -> describe.Layer:
    @contextlib.contextmanager
    def lay(mapping: Mapping[str, Any]) -> Iterator[str]:
        with make(mapping) as fake:
            yield str(fake.root)

    return lay


def name_of(path: str | None) -> str:
    """Return a name in kebab case, made of a file's.

    >>> name_of("/tmp/Compute_7.tar.gz")
    'compute-7'
    """
    stem = os.path.basename(path or "").partition(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or _UNNAMED


def _held(decisions: list[Decision]) -> Iterator[str]:
    for each in decisions:
        if each.assessment.verdict is Verdict.HELD:
            yield (
                f"{each.assessment.address} is held, as it was reported before; what was "
                "reported before is no part of a description"
            )
