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

"""How a subcommand looks at a host: its options, the survey, the exit code."""

import contextlib
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from typing import NamedTuple

from oslo_config import cfg
from stevedore import driver, exception

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.cli import cells
from cyborg_ext_drivers.errors import (
    ConfigurationError,
    ConfigurationFileError,
    ExtDriversError,
)
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.report.ledger import Decision, Entry, Ledger
from cyborg_ext_drivers.report.state import StateError, StateFile
from cyborg_ext_drivers.survey import Surveyor

#: Exit codes.
GOOD, SKIPPED, BROKEN = 0, 1, 2
#: Where ``--fake`` finds described hosts; the testing room registers itself there.
FAKE_HOSTS = "cyborg_ext_drivers.fake_host"


class View(NamedTuple):
    """One host as a subcommand sees it."""

    host: Host
    surveyor: Surveyor
    hostname: str
    #: Where the options come from.
    configuration: cfg.ConfigOpts | None = None
    #: Why the configuration that was found is not that of the surveyor.
    refused: ExtDriversError | None = None

    def decisions(self) -> list[Decision]:
        """Look at the host and return what becomes of each accelerator and candidate.

        :raises EnumerationError: when its PCI functions cannot be listed.
        """
        survey = self.surveyor.survey(self.host)
        ledger = Ledger(self.hostname, self.surveyor.options, self._reported())
        return ledger.preview(survey, self.host)

    def again(self) -> "View":
        """Return the same host to be looked at anew."""
        return self._replace(host=self.host.again())

    def doubts(self) -> list[str]:
        """Return, a sentence each, why it may be unknown what the agent has reported."""
        return [
            f"Not checked whether a card is held: {doubt}"
            for state in self._states()
            if (doubt := _doubt(state, self.hostname))
        ]

    def _reported(self) -> dict[str, Entry]:
        """Return what the drivers of this host have told Cyborg, as far as it can be read."""
        reported: dict[str, Entry] = {}
        for state in self._states():
            with contextlib.suppress(StateError):
                reported |= state.read()
        return reported

    def _states(self) -> list[StateFile]:
        """Return where the drivers that the agent loads keep what they reported."""
        options = self.surveyor.options
        return [
            StateFile(options.state_dir, family.driver, self.hostname)
            for family in self.surveyor.families
            if options.enabled_drivers is None or family.driver in options.enabled_drivers
        ]


def _doubt(state: StateFile, hostname: str) -> str | None:
    try:
        others = {} if state.read() else state.others()
    except StateError as error:
        return str(error)
    if not others:
        return None
    return (
        f"{', '.join(others)} is of an agent with another [DEFAULT] host than {hostname}. "
        "Name the host's own cyborg.conf with --config-file, or remove the file if no agent has "
        "that name any more"
    )


class Reporting:
    """What all subcommands share: what goes wrong is one sentence and exit code 2."""

    def get_epilog(self) -> str:
        """Return no epilog: cliff's own reads the metadata of everything installed."""
        return ""

    def run(self, parsed_args: Namespace) -> int:
        """Run the subcommand and return its exit code."""
        self.exit_code = GOOD
        try:
            return super().run(parsed_args) or self.exit_code
        except BrokenPipeError:
            raise
        except (ExtDriversError, OSError, ValueError) as error:
            # cliff says ValueError for a column that is not there.
            print(f"{self.app.NAME}: {error}", file=sys.stderr)
            return BROKEN


class Looking(Reporting):
    """What all subcommands that look at a host share; mixed into a cliff command."""

    #: Whether ``--host-root`` and ``--fake`` can be repeated; see :meth:`looking_at_all`.
    takes_several = False

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the common options."""
        parser = super().get_parser(prog_name)
        group = parser.add_argument_group("the host")
        action = "append" if self.takes_several else "store"
        repeated = ", can be repeated" if self.takes_several else ""
        group.add_argument(
            "--host-root",
            metavar="DIR",
            action=action,
            help="the directory below which sys/, proc/ and etc/ of the host are (default: what "
            f"cyborg.conf says, or /){repeated}",
        )
        group.add_argument(
            "--config-file",
            metavar="FILE",
            action="append",
            help="a configuration file, can be repeated (default: what cyborg-agent would read)",
        )
        group.add_argument(
            "--fake",
            metavar="NAME",
            action=action,
            help="instead of a real host a described one: its name in the package, or its "
            f"file{repeated}",
        )
        group.add_argument(
            "--snapshot",
            metavar="FILE",
            action=action,
            help=f"instead of a real host one in a file, as snapshot save writes it{repeated}",
        )
        return parser

    @contextlib.contextmanager
    def looking(
        self,
        parsed_args: Namespace,
        host_at: Callable[[str], Host] = Host,
        also_if_refused: bool = False,
    ) -> Iterator[View]:
        """Provide the host that the options mean.

        :param host_at: makes the host below a root.
        :param also_if_refused: look without the configuration where it is refused.
        :raises ExtDriversError: when the host or the configuration cannot be read.
        """
        given = Given(parsed_args.host_root, parsed_args.fake, parsed_args.snapshot)
        with _looking(given, parsed_args.config_file, host_at, also_if_refused) as view:
            yield view

    def looking_at_all(self, parsed_args: Namespace) -> Iterator[tuple[str | None, View]]:
        """Provide each host that the options mean, one after the other, with how it was given.

        :raises ExtDriversError: when a host or the configuration cannot be read.
        """
        hosts = [Given(host_root=root) for root in parsed_args.host_root or ()]
        hosts += [Given(fake=fake) for fake in parsed_args.fake or ()]
        hosts += [Given(snapshot=file) for file in parsed_args.snapshot or ()]
        for given in hosts or [Given()]:
            with _looking(given, parsed_args.config_file) as view:
                yield next(filter(None, given), None), view


class Given(NamedTuple):
    """By which of the options a host is given; by none it is the running machine."""

    host_root: str | None = None
    fake: str | None = None
    snapshot: str | None = None


@contextlib.contextmanager
def _looking(
    given: Given,
    files: list[str] | None,
    host_at: Callable[[str], Host] = Host,
    also_if_refused: bool = False,
) -> Iterator[View]:
    with contextlib.ExitStack() as stack:
        if given.snapshot is not None:
            view = _in_snapshot(given, files, stack)
        else:
            root = given.host_root
            if given.fake is not None:
                root = str(stack.enter_context(_fake_host(given.fake)).root)
            view = (_view_at_least if also_if_refused else _view)(root, files, host_at)
        gaps = _gaps(view.host) if given.host_root is not None else ()
        for said in (*view.doubts(), *view.surveyor.unmet(view.host), *gaps):
            print(said, file=sys.stderr)
        yield view


def same_host(parsed_args: Namespace) -> str:
    """Return the options by which another subcommand looks at the same host; each after a space."""
    named = [("--host-root", each) for each in _each(parsed_args.host_root)]
    named += [("--fake", each) for each in _each(parsed_args.fake)]
    named += [("--snapshot", each) for each in _each(parsed_args.snapshot)]
    named += [("--config-file", file) for file in parsed_args.config_file or ()]
    return "".join(f" {name} {shlex.quote(value)}" for name, value in named if value is not None)


def _each(given: list[str] | str | None) -> list[str | None]:
    return given if isinstance(given, list) else [given]


def _gaps(host: Host) -> list[str]:
    """Return, a sentence each, what a copy that another tool made does not tell."""
    # Who looks at a real host does not wait for what tells of copies.
    from cyborg_ext_drivers.snapshot import untold

    return [f"Not told: {each}" for each in untold.of(host.tree)] if untold.is_partial(host) else []


def _in_snapshot(given: Given, files: list[str] | None, stack: contextlib.ExitStack) -> View:
    # Who looks at a real host does not wait for what opens files.
    from cyborg_ext_drivers.snapshot import opening

    if given.host_root is not None or given.fake is not None:
        raise ContradictingOptions("--snapshot is a host of its own; leave the other one out")
    opened = stack.enter_context(opening.opened(given.snapshot))
    if "refused" in opened.manifest and files is None:
        raise RefusedOnHost(cells.plain(opened.manifest["refused"]))
    view = _view(opened.root, files, lambda root: opened.host)
    return view._replace(hostname=opened.hostname)


def _view_at_least(
    root: str | None, files: list[str] | None, host_at: Callable[[str], Host]
) -> View:
    """Return a view of a host whatever is configured there: with Cyborg's part alone, or none."""
    try:
        return _view(root, files, host_at)
    except (ConfigurationError, ConfigurationFileError) as error:
        refused = error
    try:
        return _view(root, files, host_at, with_nova=False)._replace(refused=refused)
    except (ConfigurationError, ConfigurationFileError):
        return _view(root, [], host_at, with_nova=False)._replace(refused=refused)


def _view(
    root: str | None,
    files: list[str] | None,
    host_at: Callable[[str], Host],
    with_nova: bool = True,
) -> View:
    configuration = conf.read(files, root or "/")
    if root is not None:
        configuration.set_override("host_root", conf.absolute(root), group=conf.GROUP.name)
    options = conf.load(configuration)
    if root is not None:
        options = conf.of_copy(options)
    try:
        options = conf.with_nova(options) if with_nova else options
    except ConfigurationFileError as error:
        if not error.is_denied:
            raise
        print(f"Not checked whether Nova claims a card: {error}", file=sys.stderr)
    surveyor = Surveyor(options)
    for fault in surveyor.catalog.faults:
        print(f"A catalogue file is left out: {fault}", file=sys.stderr)
    host = host_at(options.host_root)
    return View(host, surveyor, conf.hostname(configuration), configuration)


def _fake_host(name: str):
    try:
        kind = driver.DriverManager(FAKE_HOSTS, "described").driver
    except (ImportError, exception.NoMatches) as error:
        raise FakeHostsMissing("--fake", error) from None
    return kind.named(name)


class ContradictingOptions(ExtDriversError):
    """Options that name two hosts, or ask of one what it cannot do."""


class RefusedOnHost(ExtDriversError):
    """What is configured on the host of a snapshot was refused there, in these words."""


class FakeHostsMissing(ExtDriversError):
    """The room with the described hosts cannot be loaded."""

    def __init__(self, wanted_by: str, error: Exception):
        self.wanted_by = wanted_by
        self.error = error
        super().__init__(wanted_by, error)

    def __str__(self) -> str:
        return (
            f"{self.wanted_by} needs the described hosts; install 'cyborg-ext-drivers[testing]' "
            f"({self.error})"
        )
