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

"""Shows what Cyborg and Placement make of a host: ``python -m cyborg_ext_drivers.testing.demo``.

The drivers report the host to the real conductor and the real Placement of
:mod:`cyborg_ext_drivers.testing.stack`; after that an instance asks for the first accelerator
and gets its attach handle.  The host is described in this package, or any directory that has a
host's sys/ in it, ``/`` included: nothing is written there.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import pathlib
import shlex
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from cyborg_ext_drivers import errors
from cyborg_ext_drivers.testing import FakeHost, _tables, described_hosts, load

if TYPE_CHECKING:
    from cyborg_ext_drivers.testing import stack

_NAMESPACE = "cyborg.accelerator.driver"
_WIDTH = 120
_NOTHING = (
    "No accelerator is reported for this host, so Cyborg and Placement have nothing to offer.\n"
    "To see why, for each PCI function: cyborg-ext-diagnose {same}"
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one cycle of the agent brought, and what one instance got after it."""

    devices: Sequence[stack.Device]
    providers: Sequence[stack.Provider]
    #: The only group of the device profile that the instance names; empty without a device.
    group: dict[str, str]
    bound: Sequence[stack.BoundHandle]
    #: Why the instance got nothing.
    refusal: str
    logs: Sequence[str]


class Unusable(errors.ExtDriversError):
    """The command line asks for something that is not there."""


def gather(root: pathlib.Path, drivers: Sequence[str], hostname: str) -> Outcome:
    """Let the drivers report the host below *root*, and an instance ask for an accelerator."""
    from cyborg_ext_drivers.testing.stack import Stack

    options = {"ext_drivers": {"host_root": root}}
    with Stack(hostname, drivers, options=options, in_process_privileges=True) as running:
        running.report()
        devices, providers = running.devices(), running.providers()
        group = find_group(devices)
        bound, refusal = [], ""
        try:
            bound = running.bind([group]) if group else []
        except Exception as error:  # What the services answer is what is shown.
            refusal = f"{type(error).__name__}: {error}"
        return Outcome(devices, providers, group, bound, refusal, running.logs)


def find_group(devices: Sequence[stack.Device]) -> dict[str, str]:
    """Return the group of a device profile that asks for one of the first reported kind."""
    for deployable in (each for device in devices for each in device.deployables):
        group = {f"resources:{deployable.resource_class}": "1"}
        for trait in deployable.traits:
            # A profile may name CUSTOM_ traits only, and for CUSTOM_FPGA_XILINX Cyborg's API
            # makes two accelerator requests, for the two functions of the older cards.
            if trait.startswith("CUSTOM_") and trait != "CUSTOM_FPGA_XILINX":
                return {**group, f"trait:{trait}": "required"}
        return group
    return {}


def find_drivers(asked: Sequence[str]) -> list[str]:
    """Return *asked*, or without it all drivers whose name starts with ``ext_``.

    :raises Unusable: when one is not installed, or none.
    """
    installed = {entry.name for entry in metadata.entry_points(group=_NAMESPACE)}
    for name in asked:
        if name not in installed:
            near = difflib.get_close_matches(name, installed, n=3) or sorted(installed)
            raise Unusable(f"no driver is called {name!r}; there is {', '.join(near)}")
    found = list(asked) or sorted(name for name in installed if name.startswith("ext_"))
    if not found:
        raise Unusable(
            f"no driver whose name starts with ext_ is installed in {_NAMESPACE}: install "
            "cyborg-ext-drivers, or name a driver with --driver"
        )
    return found


@contextlib.contextmanager
def opened(host: str) -> Iterator[pathlib.Path]:
    """Yield the root directory of a host that is given by name, directory or description.

    :raises Unusable: when there is no such host.
    """
    if _is_root(host):
        yield pathlib.Path(host).resolve()
        return
    try:
        fake = FakeHost(load(host))
    except IsADirectoryError:
        raise Unusable(f"there is no sys/ below {host}, so it is no root of a host") from None
    except (errors.ExtDriversError, OSError) as error:
        raise Unusable(str(error)) from None
    with fake:
        yield fake.root


def _is_root(host: str) -> bool:
    return pathlib.Path(host, "sys").is_dir()


def render(outcome: Outcome, host: str) -> str:
    """Return the outcome as tables.

    :param host: as it was named; see :func:`opened`.
    """
    if not outcome.devices:
        option = "--host-root" if _is_root(host) else "--fake"
        return _NOTHING.format(same=f"{option} {shlex.quote(host)}")
    parts = [
        _tables.devices(outcome.devices),
        _tables.deployables(outcome.devices),
        _tables.attach_handles(outcome.devices),
        _tables.providers(outcome.providers),
        _render_instance(outcome),
    ]
    return "\n\n".join(parts)


def _render_instance(outcome: Outcome) -> str:
    asked = ", ".join(f"{key}={value}" for key, value in outcome.group.items())
    title = f"An instance whose device profile says\n  {asked}\ngets"
    if outcome.refusal:
        return f"{title} nothing: {outcome.refusal}"
    names = {provider.uuid: provider.name for provider in outcome.providers}
    return _tables.bound_handles(title, outcome.bound, names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cyborg_ext_drivers.testing.demo",
        description="Report a host to a real Cyborg and a real Placement, and show what they "
        "make of it. Nothing outside of this process is changed.",
    )
    parser.add_argument(
        "hosts",
        nargs="*",
        metavar="HOST",
        help="a described host (see --list), a YAML description, or a directory with sys/",
    )
    parser.add_argument("--list", action="store_true", help="list the described hosts and stop")
    parser.add_argument("--host-root", metavar="DIR", help="a host's root directory, such as /")
    drivers_help = f"an entry point in {_NAMESPACE}, can be repeated; default: all named ext_*"
    parser.add_argument("--driver", action="append", default=[], metavar="NAME", help=drivers_help)
    parser.add_argument(
        "--hostname", default="compute-1", help="name of the compute host (%(default)s)"
    )
    return parser


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    parsed = parser.parse_args(arguments)
    parsed.hosts += [parsed.host_root] if parsed.host_root else []
    if not (parsed.hosts or parsed.list):
        parser.error("name a HOST; --list shows those that are described")
    return parsed


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _list_hosts() -> None:
    names = described_hosts()
    width = max(map(len, names), default=0)
    for name in names:
        line = f"{name:{width}}  {load(name).title or ''}"
        print(textwrap.fill(line, _WIDTH, subsequent_indent=" " * (width + 2)))


def _show(host: str, drivers: Sequence[str], hostname: str) -> None:
    with opened(host) as root:
        starting = f"Starting Cyborg and Placement; {host} is reported by {', '.join(drivers)} ..."
        _say(textwrap.fill(starting, _WIDTH, break_long_words=False, break_on_hyphens=False))
        outcome = gather(root, drivers, hostname)
    print(f"\n{host} as {hostname}\n\n{render(outcome, host)}")
    if outcome.logs:
        print("\nLogged")
    for line in outcome.logs:
        print(textwrap.fill(line, _WIDTH, subsequent_indent="    "))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parsed = _arguments(arguments)
    if parsed.list:
        _list_hosts()
        return 0
    try:
        drivers = find_drivers(parsed.driver)
        with warnings.catch_warnings():
            # Deprecations of libraries are nothing that the reader of a table can act on.
            warnings.simplefilter("ignore")
            for host in parsed.hosts:
                _show(host, drivers, parsed.hostname)
    except Unusable as error:
        _say(f"error: {error}")
        return 2
    except (errors.ExtDriversError, ImportError) as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
