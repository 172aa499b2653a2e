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

"""Assessments as plain values: what JSON shows, and what tables are made of.

The keys are a contract, documented in doc/ with a JSON schema.
"""

import json
from typing import Any

from cyborg_ext_drivers.checks.base import Finding
from cyborg_ext_drivers.checks.identity import NOT_AN_ACCELERATOR
from cyborg_ext_drivers.cli.looking import View
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.report.contract import DeployableReport
from cyborg_ext_drivers.report.ledger import Decision
from cyborg_ext_drivers.survey import Assessment


def of_decision(decision: Decision, view: View) -> dict[str, Any]:
    """Return all that ``host --long`` says of one accelerator or candidate."""
    assessment, report = decision
    accelerator = assessment.accelerator
    deployables = [of_deployable(each) for each in report.deployables] if report else []
    return {
        "address": str(assessment.address),
        "device": name_of(decision, view),
        "driver": driver_of(assessment),
        "verdict": str(assessment.verdict),
        "reason": str(assessment.reason.code) if assessment.reason else None,
        "resources": _resources(deployables),
        "traits": _unique(trait for each in deployables for trait in each["traits"]),
        "kind": accelerator.family.kind if accelerator else report.type if report else None,
        "vendor": accelerator.vendor if accelerator else _vendor(decision, view),
        "model": accelerator.model if accelerator else None,
        "numa_node": readable(assessment, "numa_node"),
        "iommu_group": readable(assessment, "iommu_group"),
        "findings": [of_finding(finding) for finding in assessment.findings],
        "deployables": deployables,
    }


def of_no_accelerator(function: PciFunction, view: View) -> Assessment:
    """Return what is said of a PCI function that is not even a candidate: why it is none."""
    finding = NOT_AN_ACCELERATOR.finding(
        function.address,
        why_not(function, view),
        (function.path_of("class"), function.identity.pci_class if function.identity else ""),
        remedy=_of_its_card(function, view),
    )
    return Assessment(function, None, (finding,))


def _of_its_card(function: PciFunction, view: View) -> str | None:
    """Return where it is told what becomes of a part of a card."""
    try:
        manager = view.surveyor.manager_of(function, view.host)
        card = function.physical_function or (manager and manager.address)
    except ReadError:
        return None
    return card and f"See what becomes of its card: cyborg-ext-diagnose device {card}"


def why_not(function: PciFunction, view: View) -> str:
    """Return in one sentence why a function is no accelerator."""
    identity = function.identity
    if identity is None:
        return "What it is cannot be read"
    catalog, functions = view.surveyor.catalog, view.host.functions
    try:
        parent, is_virtual = function.physical_function, function.is_virtual
        manager = view.surveyor.manager_of(function, view.host)
        rule = catalog.exclusion(
            identity, function.address, lambda: functions.ids_above(function)
        ) or catalog.companion(identity)
    except ReadError as error:
        return str(error)
    if parent is not None:
        return f"It is a virtual function of {parent}"
    if is_virtual:
        return "It is a virtual function"
    if manager is not None:
        return f"It is a function of the card that {manager} manages"
    if rule is not None:
        return f"It is {rule.what}"
    if not identity.pci_class.code:
        return "Its class is missing"
    return f"Class {identity.pci_class} is none that accelerators use"


def of_finding(finding: Finding) -> dict[str, Any]:
    """Return a finding with its evidence and remedy."""
    return {
        "code": str(finding.code),
        "severity": str(finding.severity),
        "address": str(finding.address) if finding.address else None,
        "message": finding.message,
        "evidence": [{"path": each.path, "value": each.value} for each in finding.evidence],
        "remedy": finding.remedy,
        "ignored": finding.is_ignored,
    }


def sentences(findings: list[dict[str, Any]]) -> list[str]:
    """Return findings as lines for people: what is so, and what to do about it."""
    return [
        line
        for each in findings
        for line in (f"{each['code']}: {each['message']}.", f"  What to do: {each['remedy']}.")
    ]


def of_deployable(report: DeployableReport) -> dict[str, Any]:
    """Return a deployable as Cyborg gets it."""
    attributes = dict(report.attributes)
    return {
        "name": report.name,
        "resource_class": attributes.pop("rc"),
        "num_accelerators": report.num_accelerators,
        "traits": list(attributes.values()),
        "attach_handles": [
            {"type": kind, "info": json.loads(info)} for kind, info in report.handles
        ],
    }


def name_of(decision: Decision, view: View) -> str | None:
    """Return what people call the device; udev names what the catalogue does not know."""
    assessment, report = decision
    accelerator, identity = assessment.accelerator, assessment.function.identity
    if identity is None:
        return report.model if report else None
    if accelerator and accelerator.product:
        return accelerator.name
    product = view.surveyor.catalog.product(identity)
    if product:
        return product.name
    _, model = view.host.udev.names(assessment.address)
    return model or (accelerator.name if accelerator else str(identity.id))


def driver_of(assessment: Assessment) -> str | None:
    """Return the driver that the function is bound to, ``None`` when none or not readable."""
    return readable(assessment, "driver")


def readable(assessment: Assessment, attribute: str) -> Any:
    """Return an attribute of the function, ``None`` where it is absent or cannot be read.

    That it cannot be read is a finding of its own.
    """
    try:
        return getattr(assessment.function, attribute)
    except ReadError:
        return None


def _vendor(decision: Decision, view: View) -> str | None:
    identity = decision.assessment.function.identity
    if identity is not None:
        number = identity.id.vendor
    elif decision.report:
        number = decision.report.vendor
    else:
        return None
    return view.surveyor.catalog.vendor(number) or number


def _resources(deployables: list[dict[str, Any]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for each in deployables:
        totals[each["resource_class"]] = (
            totals.get(each["resource_class"], 0) + each["num_accelerators"]
        )
    return totals


def _unique(values) -> list[str]:
    return list(dict.fromkeys(values))
