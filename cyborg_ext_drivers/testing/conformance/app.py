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

"""``cyborg-ext-conformance DRIVER ...``: does a Cyborg driver keep what Cyborg relies on?

Exit code 0: no violation.  1: violations.  2: it could not be run.
"""

import argparse
import contextlib
import difflib
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata

from cyborg_ext_drivers import errors
from cyborg_ext_drivers.testing import described_hosts, load
from cyborg_ext_drivers.testing.conformance import captured, render
from cyborg_ext_drivers.testing.conformance.running import (
    CannotRun,
    Outcome,
    Place,
    check_tools,
    try_driver,
)

#: Where drivers register.
NAMESPACE = "cyborg.accelerator.driver"
GOOD, VIOLATED, BROKEN = 0, 1, 2
#: Described hosts that between them have each kind of card that a driver of Cyborg knows.
DEFAULT_HOSTS = (
    "two-t4",
    "a2-with-virtual-functions",
    "pac-arria10",
    "alveo-u250",
    "qat-old-and-new",
    "eight-ascend-910b",
    "flex-170-with-31-virtual-functions",
    "no-accelerators",
    str(pathlib.Path(__file__).with_name("cards-of-cyborgs-own-drivers.yaml")),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        _check_drivers(parsed.drivers)
        settings = _settings(parsed.option)
        with contextlib.ExitStack() as stack:
            places = _places(parsed, stack)
            check_tools()
            outcomes = [
                outcome for name in parsed.drivers for outcome in try_driver(name, places, settings)
            ]
    except (errors.ExtDriversError, OSError, ValueError) as error:
        print(f"cyborg-ext-conformance: {error}", file=sys.stderr)
        return BROKEN
    print(render.FORMATS[parsed.format](outcomes))
    return _exit_code(outcomes)


def _exit_code(outcomes: Sequence[Outcome]) -> int:
    impossible = [outcome for outcome in outcomes if outcome.impossible]
    for driver, reason in dict.fromkeys((each.driver, each.impossible) for each in impossible):
        print(f"cyborg-ext-conformance: {driver} was not tried: {reason}", file=sys.stderr)
    if impossible:
        return BROKEN
    return VIOLATED if any(outcome.violations for outcome in outcomes) else GOOD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cyborg-ext-conformance",
        description="Run drivers of Cyborg, anybody's, on hosts that are not there, take their "
        "reports to the real conductor and Placement, and show what breaks there. Exit code 0: "
        "nothing; 1: something; 2: a driver could not be run.",
    )
    parser.add_argument("drivers", nargs="+", metavar="DRIVER", help=f"a name in {NAMESPACE}")
    host = parser.add_argument_group("the hosts")
    host.add_argument(
        "--fake",
        action="append",
        default=[],
        metavar="NAME",
        help="a described host, by its name or file; can be repeated (default: "
        f"{', '.join(map(_shown, DEFAULT_HOSTS))})",
    )
    host.add_argument("--all", action="store_true", help="all described hosts of this package")
    host.add_argument(
        "--host-root",
        metavar="DIR",
        help="a host's root directory, or a copy of it; nothing there is changed",
    )
    host.add_argument(
        "--snapshot",
        action="append",
        default=[],
        metavar="FILE",
        help="a host in a file, as cyborg-ext-diagnose snapshot save writes it; can be repeated",
    )
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        metavar="GROUP.NAME=VALUE",
        help="a line of cyborg.conf that the driver needs; can be repeated",
    )
    formats = sorted(render.FORMATS)
    parser.add_argument("-f", "--format", choices=formats, default="table", help="(%(default)s)")
    return parser


def _check_drivers(names: Sequence[str]) -> None:
    installed = sorted({entry.name for entry in metadata.entry_points(group=NAMESPACE)})
    for name in names:
        if name not in installed:
            near = difflib.get_close_matches(name, installed, n=3) or installed
            raise CannotRun(f"no driver is called {name!r}; there is {', '.join(near)}")


def _shown(name: str) -> str:
    return pathlib.Path(name).stem if name in DEFAULT_HOSTS else name


def _places(parsed: argparse.Namespace, stack: contextlib.ExitStack) -> list[Place]:
    own = {_shown(name): name for name in DEFAULT_HOSTS}
    names = [own.get(name, name) for name in parsed.fake]
    if parsed.all:
        names += [name for name in described_hosts() if name not in names]
    places = []
    if parsed.host_root is not None:
        root = pathlib.Path(parsed.host_root).resolve()
        if not (root / "sys").is_dir():
            raise CannotRun(f"there is no sys/ below {root}, so it is no root of a host")
        places.append(Place(parsed.host_root, "root", str(root)))
    for file in parsed.snapshot:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-"))
        path = captured.described(file, directory)
        places.append(Place(pathlib.Path(file).name, "fake", str(path)))
    for name in names or ([] if places else DEFAULT_HOSTS):
        load(name)
        places.append(Place(_shown(name), "fake", name))
    return places


def _settings(options: Sequence[str]) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    for option in options:
        left, equals, value = option.partition("=")
        group, dot, name = left.rpartition(".")
        if not (equals and dot and group and name):
            raise CannotRun(f"--option {option!r} is not GROUP.NAME=VALUE")
        settings.setdefault(group, {})[name] = value
    return settings


if __name__ == "__main__":
    sys.exit(main())
