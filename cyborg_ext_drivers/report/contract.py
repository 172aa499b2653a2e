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

"""What is handed to Cyborg, as plain values, and the limits that it must keep.

The conductor matches devices by the text of ``cpid_info``, handles by that of
``attach_info`` and attributes by key; it sends every attribute whose key is not ``rc`` to
Placement as a trait; its database cuts long texts.  A report that breaks a limit fails as a
whole, for the whole host, so each is checked before it leaves.  Sources:
cyborg.conductor.manager, cyborg.db.sqlalchemy.models, cyborg.common.constants, Placement's
API reference.
"""

import dataclasses
import json
from collections.abc import Iterator

from cyborg_ext_drivers import traits as trait_grammar
from cyborg_ext_drivers.families.base import Accelerator, AttachHandle, Deployable

DEVICE_TYPES = ("GPU", "FPGA", "AICHIP", "QAT", "NIC", "SSD")
_MOST_TEXT = 255
_MOST_DRIVER_NAME = 100
_MOST_PROVIDER_NAME = 200
# What lspci calls the classes; in-tree drivers put these words into std_board_info.
_CONTROLLERS = {
    "0300": "VGA compatible controller",
    "0301": "XGA compatible controller",
    "0302": "3D controller",
    "0380": "Display controller",
    "0b40": "Co-processor",
    "1200": "Processing accelerators",
}


@dataclasses.dataclass(frozen=True)
class DeployableReport:
    """One resource provider to be: its name, what it has, what an instance gets of it."""

    name: str
    driver_name: str
    #: (key, value), ``rc`` first and then ``trait_<TRAIT>`` in the order of the traits.
    attributes: tuple[tuple[str, str], ...]
    #: (type, text) of each attach handle.
    handles: tuple[tuple[str, str], ...]

    @property
    def num_accelerators(self) -> int:
        """How many instances can use it: as many as there are handles."""
        return len(self.handles)


@dataclasses.dataclass(frozen=True)
class DeviceReport:
    """One device to be, with its deployables."""

    type: str
    vendor: str
    model: str
    std_board_info: str
    vendor_board_info: str
    cpid_info: str
    deployables: tuple[DeployableReport, ...]


def to_report(
    accelerator: Accelerator, deployables: tuple[Deployable, ...], hostname: str
) -> DeviceReport:
    """Return what Cyborg is told of an accelerator; it depends on the hardware alone."""
    return DeviceReport(
        type=accelerator.family.kind,
        vendor=accelerator.identity.id.vendor,
        model=accelerator.name,
        std_board_info=json.dumps(_standard_information(accelerator), sort_keys=True),
        vendor_board_info=json.dumps(_vendor_information(accelerator), sort_keys=True),
        cpid_info=accelerator.address.to_json(),
        deployables=tuple(
            _to_deployable(
                deployable,
                accelerator.family.programmed_by or accelerator.family.driver,
                hostname,
            )
            for deployable in deployables
        ),
    )


def _to_deployable(deployable: Deployable, driver: str, hostname: str) -> DeployableReport:
    attributes = [("rc", deployable.resource_class)]
    # The key is the trait's own name: with keys that count, a changed order makes Placement
    # lose traits that Cyborg's database still shows.
    attributes.extend((f"trait_{trait}", trait) for trait in deployable.traits)
    return DeployableReport(
        name=f"{hostname}_{deployable.address}",
        driver_name=driver,
        attributes=tuple(attributes),
        handles=tuple(_to_handle(handle) for handle in deployable.handles),
    )


def _to_handle(handle: AttachHandle) -> tuple[str, str]:
    if handle.asked_type is None:
        return handle.type, handle.address.to_json()
    # As cyborg.accelerator.common.utils.mdev_str_to_json writes it, the keys sorted.
    fields = json.loads(handle.address.to_json())
    fields["asked_type"] = handle.asked_type
    fields["vgpu_mark"] = f"{handle.asked_type}_{handle.number}"
    return handle.type, json.dumps(fields, sort_keys=True)


def _standard_information(accelerator: Accelerator) -> dict[str, str | None]:
    identity = accelerator.identity
    return {
        "product_id": identity.id.device,
        "controller": _CONTROLLERS.get(identity.pci_class.base_and_sub),
        "class": identity.pci_class.code or None,
        "subsystem_id": str(identity.subsystem) if identity.subsystem else None,
        "revision": accelerator.revision,
    }


def _vendor_information(accelerator: Accelerator) -> dict[str, str | int | None]:
    product = accelerator.product
    known = (
        {
            "product": accelerator.name,
            "architecture": product.architecture,
            "compute_capability": product.compute_capability,
            "memory_mib": product.memory_mib,
        }
        if product
        else {}
    )
    return {"vendor": accelerator.vendor, **{k: v for k, v in known.items() if v is not None}}


def violations(report: DeviceReport) -> list[str]:
    """Return every limit that a report breaks, each as one sentence; empty when it is good."""
    return [*_device_violations(report), *_deployable_violations(report)]


def _device_violations(report: DeviceReport) -> Iterator[str]:
    if report.type not in DEVICE_TYPES:
        yield f"the type {report.type!r} is none of Cyborg's ({', '.join(DEVICE_TYPES)})"
    for field in ("vendor", "model", "cpid_info"):
        yield from _text(field, getattr(report, field), _MOST_TEXT)
    if not report.deployables:
        yield "it has no deployable"


def _deployable_violations(report: DeviceReport) -> Iterator[str]:
    handles = [handle for part in report.deployables for handle in set(part.handles)]
    names = [part.name for part in report.deployables]
    if len(set(handles)) != len(handles) or len(set(names)) != len(names):
        yield "two deployables have the same name, or the same attach handle"
    for deployable in report.deployables:
        yield from _text("the deployable's name", deployable.name, _MOST_PROVIDER_NAME)
        yield from _text("driver_name", deployable.driver_name, _MOST_DRIVER_NAME)
        if not deployable.handles:
            yield f"{deployable.name} has no attach handle"
        if len(set(deployable.handles)) != len(deployable.handles):
            yield f"{deployable.name} has the same attach handle twice"
        for attach_type, info in deployable.handles:
            if attach_type not in ("PCI", "MDEV"):
                yield f"the attach type {attach_type!r} is none of Cyborg's"
            yield from _text("attach_info", info, _MOST_TEXT)
        yield from _attribute_violations(deployable)


def _attribute_violations(deployable: DeployableReport) -> Iterator[str]:
    keys = [key for key, _ in deployable.attributes]
    if keys.count("rc") != 1 or len(set(keys)) != len(keys):
        yield f"{deployable.name} has no resource class, or an attribute twice"
    for key, value in deployable.attributes:
        if key == "rc":
            if not trait_grammar.is_resource_class(value):
                yield f"no device profile can name the resource class {value!r}"
        elif key != f"trait_{value}":
            yield f"the attribute {key!r} is neither rc nor trait_{value}"
        elif value != trait_grammar.OWNER_CYBORG:
            try:
                trait_grammar.check(value)
            except trait_grammar.InvalidTrait as error:
                yield str(error)


def _text(field: str, value: str, most: int) -> Iterator[str]:
    if not value:
        yield f"{field} is empty"
    if len(value) > most:
        yield f"{field} has {len(value)} characters, more than Cyborg's {most}: {value[:60]}..."
