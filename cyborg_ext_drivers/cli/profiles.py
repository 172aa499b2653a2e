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

"""What the subcommands of ``profile`` share: the inventory of the hosts or the cloud meant."""

from __future__ import annotations

import pathlib
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cyborg_ext_drivers.cli.looking import ContradictingOptions, Looking, same_host
from cyborg_ext_drivers.profiles import inventory
from cyborg_ext_drivers.profiles.inventory import Inventory, Offer

if TYPE_CHECKING:
    from cyborg_ext_drivers.cloud.asking import Cloud

_OF_HOSTS = ("host_root", "fake", "snapshot", "config_file")


class Profiling(Looking):
    """A subcommand that rests on what one or several hosts report, or all of a cloud."""

    takes_several = True

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the options of the cloud.

        Of openstacksdk's own there is only the one that names a cloud: the SDK is not imported,
        and need not be there, where a host is meant.
        """
        parser = super().get_parser(prog_name)
        group = parser.add_argument_group("the cloud")
        group.add_argument(
            "--cloud",
            action="store_true",
            help="instead of a host all hosts of a cloud: that of OS_CLOUD and the other OS_* "
            "variables, or of clouds.yaml",
        )
        group.add_argument(
            "--os-cloud",
            metavar="NAME",
            help="instead of a host all hosts of this cloud in clouds.yaml",
        )
        return parser

    def cloud(self, parsed_args: Namespace) -> Cloud | None:
        """Return the cloud that the options mean, ``None`` when they mean hosts.

        :raises ContradictingOptions: when they mean both.
        :raises CloudUnusable: when openstacksdk is missing, or finds no such cloud.
        """
        if not _is_cloud(parsed_args):
            return None
        given = [each for each in _OF_HOSTS if getattr(parsed_args, each) is not None]
        if given:
            option = given[0].replace("_", "-")
            raise ContradictingOptions(f"a cloud has hosts of its own; leave out --{option}")
        # Who looks at a host does not wait for what asks a cloud.
        from cyborg_ext_drivers.cli import clouds

        return clouds.named(parsed_args.os_cloud)

    def inventory(
        self, parsed_args: Namespace, cloud: Cloud | None, named: Iterable[str] = ()
    ) -> Inventory:
        """Return what the hosts that the options mean report.

        :param cloud: what :meth:`cloud` returned.
        :param named: traits that are asked about; a cloud can have more than the hosts report.
        :raises ExtDriversError: when a host, the cloud or the configuration cannot be read.
        """
        if cloud is not None:
            from cyborg_ext_drivers.cloud import offers as of_cloud

            name = f" {parsed_args.os_cloud}" if parsed_args.os_cloud else ""
            return Inventory(of_cloud.offers(cloud, named), f"the hosts of the cloud{name}")
        offers: list[Offer] = []
        names: list[str] = []
        for given, view in self.looking_at_all(parsed_args):
            # Copies and described hosts need not know what the host is called.
            name = view.hostname
            if parsed_args.fake or name in names:
                name = pathlib.Path(given).stem if parsed_args.fake else given
            name = name if name not in names else f"{name}-{len(names) + 1}"
            names.append(name)
            offers += inventory.of_decisions(view.decisions(), name)
        return Inventory(tuple(offers), names[0] if len(names) == 1 else f"{len(names)} hosts")


def same(parsed_args: Namespace) -> str:
    """Return the options by which another subcommand of ``profile`` looks at the same."""
    return same_cloud(parsed_args) or (" --cloud" if parsed_args.cloud else same_host(parsed_args))


def look_further(parsed_args: Namespace) -> str:
    """Return the command that says why nothing is reported."""
    if _is_cloud(parsed_args):
        return f"cyborg-ext-diagnose cloud check{same_cloud(parsed_args)}"
    return f"cyborg-ext-diagnose host{same_host(parsed_args)}"


def same_cloud(parsed_args: Namespace) -> str:
    """Return the option that names the cloud, after a space."""
    return f" --os-cloud {shlex.quote(parsed_args.os_cloud)}" if parsed_args.os_cloud else ""


def _is_cloud(parsed_args: Namespace) -> bool:
    return parsed_args.cloud or parsed_args.os_cloud is not None
