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

"""A described host as values: what is on it and what should be reported of it.

The keys are those of :mod:`._schema`; here is what they become.  Next stop:
:mod:`._machine`, which changes under test.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.testing import _schema, _validation

DEFAULT_KERNEL = "6.8.0-45-generic"
#: The group of a function whose description names none: one of its own, as behind a
#: port that isolates.  ``None`` is a function that the IOMMU does not serve.
OWN_GROUP = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """One base address register: ``0: 16777216``."""

    index: int
    size: int
    unassigned: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class MediatedType:
    """A type of mediated device that a function offers: ``GRID T4-2B``."""

    id: str
    name: str
    #: What could be created on an empty card.
    available_instances: int
    description: str | None = None
    device_api: str = "vfio-pci"


@dataclasses.dataclass(frozen=True, slots=True)
class VendorVgpu:
    """What NVIDIA's driver says of a virtual function that it serves: type 1145 of some."""

    #: The number of its type, 0 for none; ``None`` is an empty file, which means the same.
    current: int | None = 0
    #: (number, name) of the types that could be created.
    creatable: tuple[tuple[int, str], ...] = ()
    #: Whether the list has a header; not every release of the driver writes one.
    header: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class FpgaEngine:
    """The management engine of an Intel FPGA."""

    #: ``None`` where nothing can be reprogrammed.
    interface_id: str | None = None
    bitstream_id: str | None = "0x202000200000237"
    #: How many ports the card has, wherever they are.
    ports: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class FpgaPort:
    """A port of an Intel FPGA and what is programmed behind it."""

    number: int
    #: ``None`` is a file that is absent.
    afu_id: str | None = None
    #: Whether the physical function has let go of it.
    released: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Fpga:
    """What the driver of an Intel FPGA shows below one function: an engine, ports or both."""

    #: ``dfl`` or ``intel-fpga``.
    layout: str = "dfl"
    engine: FpgaEngine | None = None
    ports: tuple[FpgaPort, ...] = ()

    def with_port(self, port: FpgaPort) -> "Fpga":
        """Return it with one more port, or with this one instead of that of its number."""
        others = tuple(each for each in self.ports if each.number != port.number)
        ports = sorted((*others, port), key=lambda port: port.number)
        return dataclasses.replace(self, ports=tuple(ports))


@dataclasses.dataclass(frozen=True, slots=True)
class Xrt:
    """What XRT's drivers show of a card below one of its functions."""

    ready: bool = True
    #: Whether it runs the image of the factory; only the managing function says so.
    golden: bool = False
    vbnv: str | None = None
    interface_uuids: tuple[str, ...] = ()
    logic_uuids: tuple[str, ...] = ()
    #: Which kernels are loaded; only the function for users says so.
    xclbin_uuid: str | None = None


#: The drivers under which a function shows what is on an Intel FPGA.
FPGA_DRIVERS = frozenset(("dfl-pci", "intel-fpga-pci"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDescription:
    """One PCI function as the kernel would show it: ``0000:3b:00.0``."""

    address: PciAddress
    vendor: str
    device: str
    #: Six hexadecimal digits: base, sub, interface.
    class_: str
    subsystem: str = "0000:0000"
    revision: str = "00"
    #: What udev's database calls it; nothing reads it but people.
    name: str | None = None
    driver: str | None = None
    iommu_group: int | None = OWN_GROUP
    numa_node: int = -1
    boot_vga: int = 0
    parent: PciAddress | None = None
    physfn: PciAddress | None = None
    sriov_totalvfs: int | None = None
    #: ``None`` is the number of virtual functions that there are.
    sriov_numvfs: int | None = None
    sriov_offset: int = 4
    sriov_stride: int = 1
    sriov_vf_device: str | None = None
    #: ``None`` is the vendor of the card's and no device.
    sriov_vf_subsystem: str | None = None
    #: Files that differ from what the rest of the description makes them; ``None`` is absent.
    attributes: Mapping[str, str | bytes | None] = dataclasses.field(default_factory=dict)
    bars: tuple[Bar, ...] | None = None
    #: ``None`` for power follows the driver, as in the kernel.
    power_state: str | None = None
    runtime_status: str | None = None
    reset_method: str | None = "flr bus"
    config: bytes | None = None
    drm: tuple[str, ...] = ()
    accel: tuple[str, ...] = ()
    mdev_types: tuple[MediatedType, ...] = ()
    #: What NVML says of it, beside what is usual.
    nvml: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: ``None`` where NVIDIA's driver does not serve it.
    vendor_vgpu: VendorVgpu | None = None
    #: ``None`` for what is no Intel FPGA.
    fpga: Fpga | None = None
    #: ``None`` for what is no card of XRT's.
    xrt: Xrt | None = None
    #: The TEE security manager that has a secure stream to it.
    tsm: str | None = None

    @property
    def is_bridge(self) -> bool:
        """Whether it is a PCI bridge, which has a header of its own type."""
        return self.class_.startswith("0604")

    @property
    def shows_fpga(self) -> bool:
        """Whether its driver shows what is on the FPGA."""
        return self.fpga is not None and self.driver in FPGA_DRIVERS

    @property
    def is_on_vfio(self) -> bool:
        """Whether vfio-pci or one of its variants holds it."""
        # Not above: what reads a host logs through oslo.log, and importing this is to be cheap.
        from cyborg_ext_drivers.host.pci import is_vfio

        return is_vfio(self.driver)


@dataclasses.dataclass(frozen=True, slots=True)
class Reported:
    """A device that should be reported, with the handles of its one deployable."""

    address: PciAddress
    resource_class: str
    handles: tuple[PciAddress, ...]
    #: All traits in their order; ``None`` where the description does not say.
    traits: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Expectation:
    """What should be said of a host; every display or accelerator function is in it."""

    reported: tuple[Reported, ...] = ()
    #: The codes of the findings that skip a function.
    skipped: Mapping[PciAddress, tuple[str, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostDescription:
    """A host and what is expected of it: ``two-t4``."""

    name: str | None = None
    #: One sentence: what is special about this host.
    title: str | None = None
    source: str | None = None
    kernel: str = DEFAULT_KERNEL
    #: ``None`` is a usual one for this kind of IOMMU.
    cmdline: str | None = None
    #: How many times it was booted; what a host cannot change while it runs, a boot does.
    boots: int = 1
    architecture: str = "x86_64"
    #: One of ``_schema.IOMMU_KINDS``.
    iommu: str = "intel"
    modules: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    functions: tuple[FunctionDescription, ...] = ()
    files: Mapping[str, str | bytes | None] = dataclasses.field(default_factory=dict)
    nvidia_driver: str | None = None
    #: What the tree has no place for: NVML, Nova, remarks.
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    expected: Expectation = Expectation()

    @classmethod
    def from_mapping(
        cls,
        mapping: Mapping[str, Any],
        origin: str = "the description",
        line_of: Callable[[_validation.Path], int | None] = lambda path: None,
    ) -> "HostDescription":
        """Read a description as YAML gives it.

        :raises DescriptionError: with every fault that it has.
        """
        _validation.check_host(mapping, origin, line_of)
        return cls(
            name=mapping.get("name"),
            title=mapping.get("title"),
            source=mapping.get("source"),
            expected=_expectation(mapping.get("expected", {})),
            **_host(mapping["host"]),
        )


_APART = {"nvml", "nvml_lists", "nvml_library", "mdev_bus", "nova_pci_device_spec", "extra"}
_BRIDGE = {"vendor": "8086", "device": "2030", "class": "060400", "driver": "pcieport"}


def _host(host: Mapping[str, Any]) -> dict[str, Any]:
    architecture = host.get("architecture", host.get("arch", "x86_64"))
    bridges = tuple(_BRIDGE | bridge for bridge in host.get("bridges", ()))
    fields = {
        key: host[key] for key in ("kernel", "cmdline", "nvidia_driver", "files") if key in host
    }
    return fields | {
        "architecture": architecture,
        "iommu": iommu_kind(host.get("iommu", True), architecture),
        "modules": modules(host.get("modules", ())),
        "functions": tuple(map(_function, (*bridges, *host["functions"]))),
        "extra": {key: host[key] for key in sorted(_APART & host.keys())},
    }


def iommu_kind(kind: str | bool, architecture: str) -> str:
    """Return the kind of IOMMU that a description means.

    ``True`` is the usual one of the architecture, ``False`` one that firmware hides.

    :raises ValueError: when there is no such kind.
    """
    if kind is True:
        return "smmu" if architecture == "aarch64" else "intel"
    name = "off-in-firmware" if kind is False else kind
    if name not in _schema.IOMMU_KINDS:
        raise ValueError(f"{kind!r} is no kind of IOMMU; there is {', '.join(_schema.IOMMU_KINDS)}")
    return name


def modules(given: Mapping[str, Mapping | None] | tuple | list) -> dict[str, dict[str, str]]:
    """Return modules with their parameters, named as /sys/module names them."""
    pairs = given.items() if isinstance(given, Mapping) else ((name, None) for name in given)
    return {
        name.replace("-", "_"): {key: _parameter(value) for key, value in (values or {}).items()}
        for name, values in pairs
    }


def _parameter(value: object) -> str:
    """Return a parameter as the kernel prints it: Y and N for truth values."""
    return {True: "Y", False: "N"}[value] if isinstance(value, bool) else str(value)


def function(mapping: Mapping[str, Any]) -> FunctionDescription:
    """Read the description of one function.

    :raises DescriptionError: with every fault that it has.
    """
    _validation.check_function(mapping)
    return _function(mapping)


def _function(mapping: Mapping[str, Any]) -> FunctionDescription:
    fields: dict[str, Any] = {key: value for key, value in mapping.items() if key != "extra"}
    fields["class_"] = fields.pop("class")
    for key in ("address", "parent", "physfn"):
        if key in fields:
            fields[key] = PciAddress.parse(fields[key])
    if "config" in fields:
        dead = fields["config"] == "dead"
        fields["config"] = b"\xff" * 256 if dead else bytes.fromhex(fields["config"])
    if "bars" in fields:
        fields["bars"] = tuple(Bar(**bar | {"size": _size(bar["size"])}) for bar in fields["bars"])
    if "mdev_types" in fields:
        types = fields["mdev_types"].items()
        fields["mdev_types"] = tuple(MediatedType(id=key, **value) for key, value in types)
    if "vendor_vgpu" in fields:
        fields["vendor_vgpu"] = _vendor_vgpu(**fields["vendor_vgpu"])
    if "fpga" in fields:
        fields["fpga"] = _fpga(**fields["fpga"])
    if "xrt" in fields:
        fields["xrt"] = xrt(**fields["xrt"])
    for key in ("drm", "accel"):
        if key in fields:
            fields[key] = tuple(fields[key])
    return FunctionDescription(**fields)


def _vendor_vgpu(creatable: Mapping[Any, str] = MappingProxyType({}), **more: Any) -> VendorVgpu:
    types = sorted((int(number), name) for number, name in creatable.items())
    return VendorVgpu(creatable=tuple(types), **more)


def _fpga(
    layout: str = "dfl",
    engine: Mapping[str, Any] | None = None,
    ports: Sequence[Mapping[str, Any]] = (),
) -> Fpga:
    return Fpga(
        layout=layout,
        engine=None if engine is None else FpgaEngine(**engine),
        ports=tuple(FpgaPort(**{"number": place} | port) for place, port in enumerate(ports)),
    )


def xrt(**given: Any) -> Xrt:
    """Return what XRT shows, from the keys of a description."""
    lists = {key: tuple(given[key]) for key in ("interface_uuids", "logic_uuids") if key in given}
    return Xrt(**given | lists)


def virtual_function(
    physical: FunctionDescription, number: int, driver: str | None
) -> FunctionDescription:
    """Return one virtual function; its routing id may carry into device and bus."""
    address = physical.address
    routing = address.bus << 8 | address.device << 3 | address.function
    routing += physical.sriov_offset + number * physical.sriov_stride
    return FunctionDescription(
        address=PciAddress(address.domain, routing >> 8, routing >> 3 & 0x1F, routing & 7),
        vendor=physical.vendor,
        device=physical.sriov_vf_device or physical.device,
        class_=physical.class_,
        subsystem=physical.sriov_vf_subsystem or f"{physical.subsystem.split(':')[0]}:0000",
        revision=physical.revision,
        driver=driver,
        numa_node=physical.numa_node,
        physfn=address,
        reset_method="flr",
        # One of them fits, whatever the card holds.
        mdev_types=tuple(
            dataclasses.replace(each, available_instances=1) for each in physical.mdev_types
        ),
    )


def _size(text: str) -> int:
    unit = "KMGT".find(text[-1]) + 1
    return int(text[:-1] if unit else text) << (10 * unit)


def _expectation(expected: Mapping[str, Any]) -> Expectation:
    skipped = expected.get("skipped", {})
    return Expectation(
        reported=tuple(map(_reported, expected.get("reported", ()))),
        skipped={
            PciAddress.parse(address): (codes,) if isinstance(codes, str) else tuple(codes)
            for address, codes in skipped.items()
        },
    )


def _reported(entry: Mapping[str, Any]) -> Reported:
    handles = entry.get("handles", [entry["address"]])
    return Reported(
        address=PciAddress.parse(entry["address"]),
        resource_class=entry["resource_class"],
        handles=tuple(map(PciAddress.parse, handles)),
        traits=tuple(entry["traits"]) if "traits" in entry else None,
    )
