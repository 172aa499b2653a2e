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

"""The grammar of traits: promises that a cloud's device profiles rely on.

A trait matches ``CUSTOM_[A-Z0-9_]+`` and has at most 255 characters (Placement's API
reference, traits).  The model in it comes from the catalogue only; pci.ids, udev and NVML
change their names with a package update, which would rename a trait under a running cloud.
"""

import functools
import re

from cyborg_ext_drivers.errors import ExtDriversError

#: What os-traits defines for devices that Cyborg owns; Nova reports OWNER_NOVA.
OWNER_CYBORG = "OWNER_CYBORG"
#: What a card is told by that is dead and kept ([ext_drivers] on_fault).
FAULTY = "CUSTOM_ACCEL_FAULTY"
MOST_CHARACTERS = 255

_OTHERS = re.compile("[^A-Z0-9]+")
_CUSTOM = re.compile("CUSTOM_[A-Z0-9_]+")
_RESOURCE_CLASS = re.compile("(FPGA|GPU|PGPU|VGPU|CUSTOM_[A-Z0-9_]+)")


class InvalidTrait(ExtDriversError, ValueError):
    """A text that Placement would refuse as a trait."""

    def __init__(self, trait: str):
        self.trait = trait
        super().__init__(trait)

    def __str__(self) -> str:
        return (
            f"{self.trait!r} is no trait: write CUSTOM_ and then upper-case letters, digits and "
            f"underscores, at most {MOST_CHARACTERS} characters"
        )


def normalise(text: str) -> str:
    """Return *text* in upper case, every run of other characters as one ``_``, none at the ends."""
    return _OTHERS.sub("_", text.upper()).strip("_")


def custom(*parts: str) -> str:
    """Return ``CUSTOM_`` and the normalised parts: ``CUSTOM_GPU_NVIDIA``.

    :raises InvalidTrait: when nothing is left of a part or it is too long.
    """
    normal = [normalise(part) for part in parts]
    if not all(normal):
        raise InvalidTrait("_".join(["CUSTOM", *parts]))
    return check("_".join(["CUSTOM", *normal]))


def check(trait: str) -> str:
    """Return *trait* when Placement takes it as a custom trait.

    :raises InvalidTrait: when it does not.
    """
    if not _CUSTOM.fullmatch(trait) or len(trait) > MOST_CHARACTERS:
        raise InvalidTrait(trait)
    return trait


def is_resource_class(name: str) -> bool:
    """Return whether a device profile of Cyborg's can ask for a resource class."""
    return bool(_RESOURCE_CLASS.fullmatch(name)) and len(name) <= MOST_CHARACTERS


@functools.lru_cache(maxsize=4096)
def of_device(
    kind: str,
    vendor: str,
    product_id: str,
    model: str | None,
    partition: str | None = None,
    older: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the traits of one deployable, in their fixed order and each once.

    :param kind: ``GPU``, ``FPGA`` and so on.
    :param vendor: the vendor's name from the catalogue, or its PCI id.
    :param product_id: the PCI device id; it is in a trait whatever the catalogue knows.
    :param model: the catalogue's token, ``None`` for a card that it does not know.
    :param partition: the partition's type, ``T4-2B``, as in-tree drivers write it.
    :param older: spellings of earlier Cyborg releases that profiles still use.
    :raises InvalidTrait: when a part has nothing that a trait can hold.
    """
    traits = [OWNER_CYBORG, custom(kind, vendor), custom(vendor, product_id)]
    if model is not None:
        traits.append(custom(vendor, model))
    if partition is not None:
        traits.append(custom(vendor, product_id, partition))
    traits.extend(older)
    return tuple(dict.fromkeys(traits))
