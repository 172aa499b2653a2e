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

"""``device ADDRESS``: all that is known of one PCI function, and what Cyborg gets of it."""

import dataclasses
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from cliff.show import ShowOne

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.checks.base import Finding, Passed
from cyborg_ext_drivers.cli import board, cells, rows
from cyborg_ext_drivers.cli.host import is_wanting
from cyborg_ext_drivers.cli.looking import SKIPPED, Looking, View
from cyborg_ext_drivers.errors import ExtDriversError, ReadError
from cyborg_ext_drivers.host import topology
from cyborg_ext_drivers.host.iommu import IommuGroup
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.report.ledger import Decision
from cyborg_ext_drivers.survey import Assessment

_WIDTH = 96
_NEAREST = 5


class NoSuchFunction(ExtDriversError):
    """An address at which there is no PCI function."""

    def __init__(self, address: PciAddress, known: list[PciAddress]):
        self.address = address
        self.nearest = sorted(known, key=lambda each: _distance(each, address))[:_NEAREST]
        super().__init__(address, known)

    def __str__(self) -> str:
        nearest = ", ".join(map(str, self.nearest)) or "none"
        return f"there is no PCI function {self.address}; the nearest are {nearest}"


def _distance(one: PciAddress, other: PciAddress) -> tuple[int, ...]:
    """Tell how far apart two addresses are: the same bus with another device comes first."""
    pairs = zip(dataclasses.astuple(one), dataclasses.astuple(other))
    return tuple(abs(mine - theirs) for mine, theirs in pairs)


class DeviceCommand(Looking, ShowOne):
    """Show one PCI function: what it is, its group, each check, and what Cyborg gets of it."""

    def get_parser(self, prog_name: str) -> ArgumentParser:
        """Add the address."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "address", metavar="ADDRESS", help="as lspci prints it; domain 0 may be left out"
        )
        return parser

    def take_action(self, parsed_args: Namespace):
        """Return the fields and their values."""
        address = PciAddress.parse(parsed_args.address)
        with self.looking(parsed_args) as view:
            decision = _decision(address, view)
            if is_wanting(decision.assessment):
                self.exit_code = SKIPPED
            fields = fields_of(decision, view)
        if parsed_args.formatter not in ("json", "yaml"):
            fields = {name: _text(name, value) for name, value in fields.items()}
        return tuple(fields), tuple(
            cells.cell(value, parsed_args.formatter, _WIDTH) for value in fields.values()
        )


def _decision(address: PciAddress, view: View) -> Decision:
    """Return what becomes of the function at an address, an accelerator or not.

    :raises NoSuchFunction: when there is none, and none is held.
    """
    decisions = view.decisions()
    decision = next((each for each in decisions if each.assessment.address == address), None)
    if decision:
        return decision
    function = view.host.functions.get(address)
    if function is None:
        raise NoSuchFunction(address, [each.address for each in view.host.functions])
    return Decision(rows.of_no_accelerator(function, view), None)


def fields_of(decision: Decision, view: View) -> dict[str, Any]:
    """Return all that is known of one function, by the names under which it is shown."""
    closer = view.surveyor.look_closer(decision.assessment, view.host)
    decision = decision._replace(assessment=closer)
    assessment, report = decision
    function = assessment.function
    row = rows.of_decision(decision, view)
    shown = {name: row[name] for name in ("address", "device", "kind", "vendor", "model")}
    shown |= _identity(function)
    shown |= {name: row[name] for name in ("driver", "verdict", "reason", "numa_node")}
    shown |= {
        "iommu_group": row["iommu_group"],
        "group_members": _or_failure(lambda: _members(row["iommu_group"], view)),
        "parents": _or_failure(lambda: list(topology.parents_of(function))),
        "link": _or_failure(lambda: _link(function)),
        "regions": _or_failure(lambda: [_region(each) for each in function.regions]),
    }
    shown["nvml"] = _or_failure(lambda: board.told_by_driver(function, view))
    shown["checks"] = _checks(assessment)
    shown["findings"] = row["findings"]
    shown["report"] = dataclasses.asdict(report) if report else None
    return shown


def _identity(function: PciFunction) -> dict[str, Any]:
    identity = function.identity
    if identity is None:
        return {"id": None, "class": None, "subsystem": None, "revision": None}
    return {
        "id": str(identity.id),
        "class": str(identity.pci_class),
        "subsystem": str(identity.subsystem) if identity.subsystem else None,
        "revision": _or_failure(lambda: function.revision),
    }


def _or_failure(read):
    try:
        return read()
    except ReadError as error:
        return f"not readable: {error}"


def _members(number: int | None, view: View) -> list[dict[str, Any]]:
    if number is None:
        return []
    group = view.host.iommu.group(number)
    members = group.members
    if members is None:
        members = view.host.functions.by_group.get(number, ())
    return [_member(name, group, view) for name in members]


def _member(name: str, group: IommuGroup, view: View) -> dict[str, Any]:
    function = view.host.functions.get(name)
    if function is None:
        driver = _or_failure(lambda: view.host.iommu.driver_of(group, name))
        return {"address": name, "id": None, "class": None, "driver": driver}
    identity = function.identity
    return {
        "address": name,
        "id": str(identity.id) if identity else None,
        "class": str(identity.pci_class) if identity else None,
        "driver": _or_failure(lambda: function.driver),
    }


def _link(function: PciFunction) -> dict[str, Any] | None:
    link = topology.link_of(function)
    return dataclasses.asdict(link) if link else None


def _region(region) -> dict[str, Any]:
    return {
        "number": region.number,
        "start": f"{region.start:#x}",
        "bytes": region.size,
        "memory": region.is_memory,
        "assigned": not region.is_unassigned,
    }


def _checks(assessment: Assessment) -> list[dict[str, Any]]:
    """Return every question that was asked, those that were answered well included."""
    outcomes = [_outcome(finding) for finding in assessment.findings]
    outcomes += [_outcome(passed) for passed in assessment.passed]
    return sorted(outcomes, key=lambda outcome: outcome["code"])


def _outcome(outcome: Finding | Passed) -> dict[str, Any]:
    evidence = [{"path": path, "value": str(value)} for path, value in outcome.evidence]
    if isinstance(outcome, Passed):
        result = "fine"
    else:
        result = "ignored" if outcome.is_ignored else str(outcome.severity)
    return {"code": str(outcome.code), "outcome": result, "evidence": evidence}


def _text(name: str, value: Any) -> Any:
    """Return a structured value as lines for people."""
    # What could not be read is a sentence already.
    is_plain = value is None or isinstance(value, str | int)
    return value if is_plain or name not in _TEXTS else _TEXTS[name](value)


def _members_text(members: list[dict[str, Any]]) -> list[str]:
    return [f"{m['address']}  {m['id']}  driver {m['driver'] or 'none'}" for m in members]


def _regions_text(regions: list[dict[str, Any]]) -> list[str]:
    return [
        f"{r['number']}: {r['bytes'] >> 10} KiB at {r['start'] if r['assigned'] else 'nowhere'}"
        for r in regions
    ]


def _checks_text(outcomes: list[dict[str, Any]]) -> list[str]:
    return [
        f"{outcome['outcome']:8}{outcome['code']}: "
        + "; ".join(f"{each['path']} = {each['value']}" for each in outcome["evidence"])
        for outcome in outcomes
    ]


_TEXTS: dict[str, Callable[[Any], Any]] = {
    "group_members": _members_text,
    "parents": " > ".join,
    "link": lambda link: str(topology.Link(**link)),
    "regions": _regions_text,
    "nvml": board.as_text,
    "checks": _checks_text,
    "findings": rows.sentences,
    "report": lambda report: json.dumps(report, indent=2),
}
