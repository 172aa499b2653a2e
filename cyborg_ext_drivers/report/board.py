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

"""What a card's own driver says of it for people, remembered once it was seen.

The catalogue comes first.  What it does not know, and what it cannot know as a serial number,
only NVML can tell, and NVML answers as long as the card is bound to its driver and not while an
instance has it.  So what was told once is told again, and the report does not flicker.

Next stop: :mod:`cyborg_ext_drivers.report.ledger`.
"""

import dataclasses
import json
from collections.abc import Mapping
from types import MappingProxyType

from cyborg_ext_drivers.host.nvml import Gpu
from cyborg_ext_drivers.report.contract import DeviceReport

#: What tells one card from others of its model.
SERIALS = ("serial_number", "uuid")


def complete(
    report: DeviceReport,
    before: DeviceReport | None,
    seen: Mapping[str, str | int],
    with_serials: bool,
    programmed: Mapping[str, str] = MappingProxyType({}),
) -> DeviceReport:
    """Return a report with what is known of the board beside what the catalogue says.

    :param before: what Cyborg was told last of a card in this place, ``None`` for a new one.
    :param seen: what the driver says now, empty while it says nothing.
    :param with_serials: whether Cyborg is to be told serial numbers and UUIDs.
    :param programmed: what the driver says of what can change with the same card.
    """
    told = json.loads(report.vendor_board_info)
    remembered = _remembered(report, before)
    if any(seen.get(key, value) != value for key, value in remembered.items() if key in SERIALS):
        # Another card of the same model.
        remembered = {}
    # What was told stays as it was: another release of the driver may spell it otherwise.
    known = {**seen, **remembered, **programmed}
    more = {
        key: value
        for key, value in known.items()
        if key not in told and (with_serials or key not in SERIALS)
    }
    if not more:
        return report
    return dataclasses.replace(report, vendor_board_info=json.dumps(told | more, sort_keys=True))


def seen_by(gpu: Gpu) -> dict[str, str | int]:
    """Return what NVML says of a board, by the keys of the board information; memory in MiB."""
    said = {
        # As the catalogue spells it.
        "architecture": gpu.architecture and gpu.architecture.lower(),
        "compute_capability": gpu.compute_capability,
        "memory_mib": None if gpu.memory is None else gpu.memory >> 20,
        "product": gpu.name,
        "serial_number": gpu.serial,
        "uuid": gpu.uuid,
    }
    return {key: value for key, value in said.items() if value}


def is_same_card(report: DeviceReport, before: DeviceReport | None) -> bool:
    """Return whether what was told before was told of the same card, or one of the same model."""
    return before is not None and before.std_board_info == report.std_board_info


def _remembered(report: DeviceReport, before: DeviceReport | None) -> dict[str, str | int]:
    """Return what was told of the same card; one of another model is another card."""
    if before is None or not is_same_card(report, before):
        return {}
    return json.loads(before.vendor_board_info)
