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


"""The form of the documents in a snapshot, as JSON schemas; public, so keys are only ever added."""

from typing import Any

VERSION = 1
FORMAT = "cyborg-ext-drivers snapshot"
_TEXT = {"type": "string", "maxLength": 4096}
_TEXTS = {"type": "array", "items": _TEXT, "maxItems": 100000}
_VALUES = {"type": "array", "items": _TEXT, "maxItems": 10000}
_COUNT = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}


def _or_none(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


_REDACTION = _object({"kind": _TEXT, "count": _COUNT, "places": _TEXTS})

MANIFEST: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "manifest.json of a snapshot of cyborg-ext-diagnose",
    "type": "object",
    "required": ["format", "version", "made_by", "is_live", "is_raw", "host", "failures"],
    "properties": {
        "format": {"const": FORMAT},
        "version": {"type": "integer", "minimum": 1},
        "created": _TEXT,
        "made_by": {"type": "object", "additionalProperties": _or_none(_TEXT)},
        "is_live": {"type": "boolean"},
        "is_raw": {"type": "boolean"},
        "host": _object(
            {"name": {"type": "string", "minLength": 1, "maxLength": 187}},
            salt={"type": "string", "pattern": "^[0-9a-f]{32}$"},
            digest={"type": "string", "pattern": "^[0-9a-f]{64}$"},
        ),
        "failures": {
            "type": "object",
            "additionalProperties": {"type": "string", "pattern": "^E[A-Z0-9]{1,20}$"},
        },
        "closed": _TEXTS,
        "unread": _TEXTS,
        "redactions": {"type": "array", "items": _REDACTION, "maxItems": 100},
        "notes": _TEXTS,
        # What the commands say of a configuration that they refuse.
        "refused": _TEXT,
    },
}
OPTIONS: dict[str, Any] = _object(
    {
        "cyborg": _or_none({"type": "object", "additionalProperties": _VALUES}),
        "enabled_drivers": _or_none(_VALUES),
        "cyborg_device_specs": _VALUES,
        "nova_device_specs": _VALUES,
        "vgpu_types": {
            "type": "array",
            "items": {"type": "array", "prefixItems": [_TEXT, _TEXT], "minItems": 2, "maxItems": 2},
        },
    }
)
_PAIR_OF_FLAGS = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
_VGPUS = {
    "type": "array",
    "items": _object({"id": _COUNT, "name": _or_none(_TEXT)}),
}
_GPU = _object(
    {"address": _TEXT},
    is_listed={"type": "boolean"},
    errors=_TEXTS,
    mig=_or_none(_PAIR_OF_FLAGS),
    memory=_or_none(_COUNT),
    **{
        name: _or_none(_TEXT)
        for name in (
            *("name", "uuid", "serial", "vbios", "board_part", "compute_capability"),
            *("architecture", "virtualization_mode", "host_vgpu_mode"),
        )
    },
    instances={
        "type": "array",
        "items": _object(
            {
                "uuid": _or_none(_TEXT),
                "name": _or_none(_TEXT),
                "gpu_instance": _or_none(_COUNT),
                "memory": _or_none(_COUNT),
            }
        ),
    },
    supported_vgpus=_or_none(_VGPUS),
    creatable_vgpus=_or_none(_VGPUS),
    processes=_or_none(
        {
            "type": "array",
            "items": _object(
                {"pid": _COUNT, "memory": _or_none(_COUNT), "command": _or_none(_TEXT)}
            ),
        }
    ),
    ecc=_or_none(
        _object(
            {
                "is_on": {"type": "boolean"},
                "is_pending_on": {"type": "boolean"},
                "volatile": _or_none(_COUNT),
                "aggregate": _or_none(_COUNT),
                "corrected": _or_none(_COUNT),
            }
        )
    ),
    rows=_or_none(
        _object(
            {
                "correctable": _COUNT,
                "uncorrectable": _COUNT,
                "is_pending": {"type": "boolean"},
                "has_failed": {"type": "boolean"},
            }
        )
    ),
    retired_pages_pending=_or_none({"type": "boolean"}),
)
NVML: dict[str, Any] = _or_none(
    _object(
        {
            "state": _TEXT,
            "detail": {"type": "string"},
            "driver_version": _or_none(_TEXT),
            "nvml_version": _or_none(_TEXT),
            "library": _or_none(_TEXT),
            "gpus": {"type": "array", "items": _GPU, "maxItems": 4096},
        }
    )
)
UDEV: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "type": "array",
        "items": _or_none(_TEXT),
        "minItems": 2,
        "maxItems": 2,
    },
}
