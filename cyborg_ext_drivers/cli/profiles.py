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

"""What the subcommands of ``profile`` share: the inventory of the hosts that are meant."""

import pathlib
from argparse import Namespace

from cyborg_ext_drivers.cli.looking import Looking
from cyborg_ext_drivers.profiles import inventory
from cyborg_ext_drivers.profiles.inventory import Inventory, Offer


class Profiling(Looking):
    """A subcommand that rests on what one or several hosts report."""

    takes_several = True

    def inventory(self, parsed_args: Namespace) -> Inventory:
        """Return what the hosts that the options mean report.

        :raises ExtDriversError: when a host or the configuration cannot be read.
        """
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
