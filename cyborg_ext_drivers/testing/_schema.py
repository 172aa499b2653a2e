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

"""What the description of a host may say, as a JSON schema.

Every key is described here and nowhere else; an unknown key is a fault, because a
misspelt one would silently describe another host.  ``extra`` is free.
"""

from typing import Any

ADDRESS = {
    "description": 'a PCI address as sysfs prints it, in quotes: "0000:3b:00.0"',
    "type": "string",
    "pattern": r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$",
}
_ID = {
    "description": 'four hexadecimal digits in quotes: "10de"',
    "type": "string",
    "pattern": "^[0-9a-f]{4}$",
}
_SUBSYSTEM = {
    "description": 'two ids in quotes: "10de:12a2"',
    "type": "string",
    "pattern": "^[0-9a-f]{4}:[0-9a-f]{4}$",
}
_TEXT_OR_NULL = {"description": "a text or null", "type": ["string", "null"]}
_TEXT = {"description": "a text", "type": "string"}
_COUNT = {"description": "a number, 0 or more", "type": "integer", "minimum": 0}
_NAMES = {
    "description": "a list of device names: [card0, renderD128]",
    "type": "array",
    "items": {"description": "a device name", "type": "string", "pattern": "^[A-Za-z]+[0-9]+$"},
}
_FILES = {
    "description": "a map from file to its text, or to null for a file that is absent",
    "type": "object",
    "additionalProperties": _TEXT_OR_NULL,
}

IOMMU_KINDS = (
    "intel",
    "amd",
    "smmu",
    # Asked for or not: firmware gives the kernel no table of IOMMUs.
    "off-in-firmware",
    # Firmware offers it, the kernel is told not to use it.
    "off-on-command-line",
    # A kernel without IOMMU support: not even an empty listing of groups.
    "none",
    # The groups of vfio.enable_unsafe_noiommu_mode, which protect nothing.
    "vfio-noiommu",
    # The hypervisor owns the IOMMU.
    "xen",
)

_BAR = {
    "description": "a map with index and size",
    "type": "object",
    "required": ["index", "size"],
    "properties": {
        "index": {"description": "a BAR, 0 to 6", "type": "integer", "minimum": 0, "maximum": 6},
        "size": {
            "description": 'a size: "16M", "64G"',
            "type": "string",
            "pattern": "^[1-9][0-9]*[KMGT]?$",
        },
        "unassigned": {"description": "true or false", "type": "boolean"},
    },
    "additionalProperties": False,
}
_MEDIATED_TYPE = {
    "description": "a map with name and available_instances",
    "type": "object",
    "required": ["name", "available_instances"],
    "properties": {
        "name": _TEXT,
        "description": _TEXT,
        "available_instances": _COUNT,
        "device_api": _TEXT,
    },
    "additionalProperties": False,
}

NVML_STATES = (
    # No library, in either word.
    "absent",
    "missing",
    # What lies there is no library.
    "corrupt",
    "present",
    "lost",
    "mismatch",
    "no-permission",
    "driver-not-loaded",
    "blocked",
    "unknown-error",
    "slow",
    "hanging",
    "crashing",
)
NVML_GPU_STATES = (
    "present",
    "lost",
    "reset-required",
    "no-permission",
    "unlisted",
    "unknown-error",
    "hanging",
    "crashing",
)
_BOOLEAN = {"description": "true or false", "type": "boolean"}


def _map(description: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "description": description,
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"description": f"a list, each of {item['description']}", "type": "array", "items": item}


def _one_of(words: tuple[str, ...]) -> dict[str, Any]:
    return {"description": f"one of {', '.join(words)}", "enum": list(words)}


_NVML = _map(
    "a map of what NVML says of the GPU",
    {
        "state": _one_of(NVML_GPU_STATES),
        # Where NVML is to write another one than the function's.
        "bus_id": _TEXT,
        "name": _TEXT,
        "memory_mib": _COUNT,
        "uuid": _TEXT,
        "serial": _TEXT,
        "vbios": _TEXT,
        "board_part": _TEXT,
        "compute_capability": {
            "description": 'two numbers in quotes: "8.0"',
            "type": "string",
            "pattern": r"^[0-9]+\.[0-9]+$",
        },
        "architecture": _one_of(("Turing", "Ampere", "Ada", "Hopper", "Blackwell")),
        "virtualization_mode": _one_of(
            ("none", "passthrough", "vgpu-guest", "host-vgpu", "host-vsga")
        ),
        "host_vgpu_mode": _one_of(("non-sriov", "sriov")),
        "mig": _map(
            "a map with enabled, pending and instances",
            {
                "enabled": _BOOLEAN,
                "pending": _BOOLEAN,
                "instances": _list_of(
                    _map(
                        "a map with name and memory_mib",
                        {"name": _TEXT, "memory_mib": _COUNT},
                        "name",
                    )
                ),
            },
        ),
        "processes": _list_of(
            _map(
                "a map with pid, command, kind and memory_mib",
                {
                    "pid": _COUNT,
                    "command": _TEXT,
                    "kind": _one_of(("compute", "graphics")),
                    "memory_mib": _COUNT,
                },
                "pid",
                "command",
            )
        ),
        "ecc": _map(
            "a map with enabled, pending, volatile and aggregate",
            {
                "enabled": _BOOLEAN,
                "pending": _BOOLEAN,
                "volatile": _COUNT,
                "aggregate": _COUNT,
            },
        ),
        "rows": _map(
            "a map with correctable, uncorrectable, pending and failed",
            {
                "correctable": _COUNT,
                "uncorrectable": _COUNT,
                "pending": _BOOLEAN,
                "failed": _BOOLEAN,
            },
        ),
        "retired_pages_pending": _BOOLEAN,
        "vgpu_types": _list_of(
            _map(
                "a map with id, name and creatable",
                {"id": _COUNT, "name": _TEXT, "creatable": _BOOLEAN},
                "id",
                "name",
            )
        ),
    },
)
_VENDOR_VGPU = {
    "description": "a map with current and creatable, as below nvidia/ of a virtual function",
    "type": "object",
    "properties": {
        "current": {
            "description": "the number of a type of vGPU, 0 for none, null for an empty file",
            "type": ["integer", "null"],
            "minimum": 0,
        },
        "creatable": {
            "description": "a map from the numbers of types to their names",
            "type": "object",
            "additionalProperties": _TEXT,
        },
        "header": {"description": "true or false", "type": "boolean"},
    },
    "additionalProperties": False,
}

_FPGA_ID = {
    "description": "an id of 32 hexadecimal digits in quotes, or null for none",
    "type": ["string", "null"],
    "pattern": "^[0-9a-f]{32}$",
}
_FPGA = _map(
    "a map with layout, engine and ports, as the driver of an Intel FPGA shows them",
    {
        # In which files: those of the kernel's driver, or of the older one of OPAE 1.x.
        "layout": _one_of(("dfl", "intel-fpga")),
        # Only on the function that manages the card.
        "engine": _map(
            "a map with interface_id, bitstream_id and ports",
            {
                # null where nothing can be reprogrammed.
                "interface_id": _FPGA_ID,
                "bitstream_id": {
                    "description": 'a hexadecimal number in quotes: "0x202000200000237"',
                    "type": ["string", "null"],
                    "pattern": "^0x[0-9a-f]{1,16}$",
                },
                # How many the card has, wherever they are.
                "ports": _COUNT,
            },
        ),
        # Those that this function has; of a virtual function, the one that it was given.
        "ports": _list_of(
            _map(
                "a map with afu_id, number and released",
                {"afu_id": _FPGA_ID, "number": _COUNT, "released": _BOOLEAN},
            )
        ),
    },
)
_UUIDS = {
    "description": "a list of ids of 32 hexadecimal digits in quotes",
    "type": "array",
    "items": {
        "description": "an id of 32 hexadecimal digits in quotes",
        "type": "string",
        "pattern": "^[0-9a-f]{32}$",
    },
}
_XRT = _map(
    "a map with ready, golden, vbnv, interface_uuids, logic_uuids and xclbin_uuid, as XRT's "
    "drivers show them",
    {
        "ready": _BOOLEAN,
        "golden": _BOOLEAN,
        "vbnv": _TEXT_OR_NULL,
        "interface_uuids": _UUIDS,
        "logic_uuids": _UUIDS,
        "xclbin_uuid": _TEXT_OR_NULL,
    },
)

FUNCTION: dict[str, Any] = {
    "description": "a map that describes one PCI function",
    "type": "object",
    "required": ["address", "vendor", "device", "class"],
    "properties": {
        "address": ADDRESS,
        "vendor": _ID,
        "device": _ID,
        "class": {
            "description": 'six hexadecimal digits in quotes: "030200"',
            "type": "string",
            "pattern": "^[0-9a-f]{6}$",
        },
        "subsystem": _SUBSYSTEM,
        "revision": {
            "description": 'two hexadecimal digits in quotes: "a1"',
            "type": "string",
            "pattern": "^[0-9a-f]{2}$",
        },
        "name": _TEXT,
        "driver": {
            "description": "a driver's name, or null when unbound",
            "type": ["string", "null"],
            "pattern": "^[A-Za-z0-9_-]+$",
        },
        "iommu_group": {
            "description": "a group's number, or null for none",
            "type": ["integer", "null"],
            "minimum": 0,
        },
        "numa_node": {
            "description": "a node's number, -1 where firmware does not say",
            "type": "integer",
            "minimum": -1,
        },
        "boot_vga": {"description": "0 or 1", "type": "integer", "enum": [0, 1]},
        "parent": ADDRESS,
        "physfn": ADDRESS,
        "sriov_totalvfs": _COUNT,
        "sriov_numvfs": _COUNT,
        # Of virtual functions that are enabled under test.
        "sriov_offset": _COUNT,
        "sriov_stride": _COUNT,
        "sriov_vf_device": _ID,
        "sriov_vf_subsystem": _SUBSYSTEM,
        "attributes": _FILES,
        "bars": {"description": "a list of BARs", "type": "array", "items": _BAR},
        "power_state": _TEXT,
        "runtime_status": _TEXT,
        "reset_method": _TEXT_OR_NULL,
        "config": {
            "description": '"dead", or bytes as hexadecimal text',
            "type": "string",
            "pattern": "^(dead|([0-9a-f]{2}\\s*)+)$",
        },
        "drm": _NAMES,
        "accel": _NAMES,
        "mdev_types": {
            "description": "a map from the type's id to what it is",
            "type": "object",
            "additionalProperties": _MEDIATED_TYPE,
        },
        "nvml": _NVML,
        "vendor_vgpu": _VENDOR_VGPU,
        "fpga": _FPGA,
        "xrt": _XRT,
        "tsm": {
            "description": "the security manager that has a secure stream to it: tsm0",
            "type": "string",
            "pattern": "^tsm[0-9]+$",
        },
        "extra": {},
    },
    "additionalProperties": False,
}
_BRIDGE = FUNCTION | {"required": ["address"]}

_HOST = {
    "description": "a map that describes the host",
    "type": "object",
    "required": ["functions"],
    "properties": {
        "kernel": {
            "description": 'a kernel release in quotes: "6.8.0-45-generic"',
            "type": "string",
            "pattern": r"^[0-9]+\.[0-9]+",
        },
        "cmdline": _TEXT,
        "architecture": _TEXT,
        "arch": _TEXT,
        "iommu": {
            "description": f"true, false or one of {', '.join(IOMMU_KINDS)}",
            "enum": [True, False, *IOMMU_KINDS],
        },
        "modules": {
            "description": "a list of modules, or a map from module to its parameters",
            "anyOf": [
                {"type": "array", "items": _TEXT},
                {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
            ],
        },
        "functions": {"description": "a list of functions", "type": "array", "items": FUNCTION},
        "bridges": {"description": "a list of bridges", "type": "array", "items": _BRIDGE},
        "files": _FILES | {"propertyNames": {"description": "an absolute path", "pattern": "^/"}},
        "nvidia_driver": _TEXT,
        "nvml": _one_of(NVML_STATES),
        # The GPUs that NVML lists, where these are not all that are bound to nvidia.
        "nvml_lists": {"description": "a list of addresses", "type": "array", "items": ADDRESS},
        # The version of NVML, where it is not the driver's.
        "nvml_library": _TEXT,
        # What Nova says on this host; the tree has no place for it.
        "mdev_bus": {},
        "nova_pci_device_spec": {},
        "extra": {},
    },
    "additionalProperties": False,
}

_REPORTED = {
    "description": "a map with address and resource_class",
    "type": "object",
    "required": ["address", "resource_class"],
    "properties": {
        "address": ADDRESS,
        "resource_class": {
            "description": "a resource class of Cyborg, such as PGPU",
            "type": "string",
            "pattern": "^(FPGA|GPU|PGPU|VGPU|CUSTOM_[A-Z0-9_]+)$",
        },
        "handles": {"description": "a list of addresses", "type": "array", "items": ADDRESS},
        "traits": {"description": "a list of traits", "type": "array", "items": _TEXT},
    },
    "additionalProperties": False,
}
_CODE = {
    "description": "the code of a finding, such as iommu-disabled",
    "type": "string",
    "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$",
}
_EXPECTED = {
    "description": "a map with reported and skipped",
    "type": "object",
    "properties": {
        "reported": {"description": "a list of devices", "type": "array", "items": _REPORTED},
        "skipped": {
            "description": "a map from address to a code or a list of codes",
            "type": "object",
            "propertyNames": ADDRESS,
            "additionalProperties": {
                "description": "a code or a list of codes",
                "anyOf": [_CODE, {"type": "array", "items": _CODE, "minItems": 1}],
            },
        },
    },
    "additionalProperties": False,
}

DESCRIPTION: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "description": "a map with at least the key host",
    "type": "object",
    "required": ["host"],
    "properties": {
        "name": {
            "description": "a name in kebab case",
            "type": "string",
            "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$",
        },
        "title": _TEXT,
        "source": _TEXT,
        "host": _HOST,
        "expected": _EXPECTED,
    },
    "additionalProperties": False,
}
