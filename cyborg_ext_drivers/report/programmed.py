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

"""What is programmed into a card is told as before, while its driver does not tell.

The id of an FPGA's function is to be seen as long as a driver of the host has the card; an
instance's driver, or none, shows nothing.  Cyborg deletes the trait that one report leaves out, and
every profile that names it finds no host.

Next stop: :mod:`cyborg_ext_drivers.report.ledger`.
"""

import dataclasses
from collections.abc import Sequence

from cyborg_ext_drivers.families.base import Deployable
from cyborg_ext_drivers.report.board import is_same_card
from cyborg_ext_drivers.report.contract import DeployableReport, DeviceReport


def complete(
    report: DeviceReport, before: DeviceReport | None, deployables: Sequence[Deployable]
) -> DeviceReport:
    """Return a report with the traits of before that the host can neither confirm nor deny now.

    :param before: what Cyborg was told last of a card in this place, ``None`` for a new one.
    :param deployables: what the report was made of, in the same order.
    """
    if before is None or not is_same_card(report, before):
        return report
    told = {each.name: each for each in before.deployables}
    parts = tuple(
        _complete(part, told[part.name], deployable.unknown) if part.name in told else part
        for part, deployable in zip(report.deployables, deployables)
    )
    return report if parts == report.deployables else dataclasses.replace(report, deployables=parts)


def _complete(
    part: DeployableReport, before: DeployableReport, unknown: tuple[str, ...]
) -> DeployableReport:
    repeated = [pair for pair in before.attributes if unknown and pair[1].startswith(unknown)]
    if not repeated:
        return part
    # What was told is better than what is assumed.
    certain = [pair for pair in part.attributes if not pair[1].startswith(unknown)]
    attributes = [*certain, *repeated]
    places = {pair: number for number, pair in enumerate(before.attributes)}
    attributes.sort(key=lambda pair: places.get(pair, len(places)))
    return dataclasses.replace(part, attributes=tuple(attributes))
