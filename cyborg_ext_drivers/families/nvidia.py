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

"""NVIDIA GPUs: every display controller of vendor 10de, whatever its name is.

Class 0300 (VGA), 0302 (3D) and 0380 alike, by number and never by a text that a package
update changes.  The audio, USB and UCSI functions of a card are companions, NVSwitches are
bridges (class 0680), virtual functions belong to their physical function.

Next stop: :mod:`cyborg_ext_drivers.families.vgpu`.
"""

from collections.abc import Sequence

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.families import vgpu
from cyborg_ext_drivers.families.base import Accelerator, Deployable, Family, Partition
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.identity import Identity
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.options import Options


class NvidiaFamily(Family):
    """NVIDIA GPUs, whole or as vGPUs of one type."""

    name = "nvidia_gpu"
    driver = "ext_nvidia_gpu_driver"
    kind = "GPU"
    resource_class = "PGPU"
    virtual_function_class = "VGPU"
    # Without a type of vGPU they are of no use, and with one Nova would take them away from it;
    # see is_divided_by.
    is_divisible = False

    def recognises(self, identity: Identity, kind: str | None) -> bool:
        """Return whether it is a display controller of NVIDIA's."""
        return identity.id.vendor == "10de" and identity.pci_class.is_display

    def in_tree_drivers(self, identity: Identity) -> tuple[str, ...]:
        """Return Cyborg's own driver, which looks for the words of classes 0300 and 0302."""
        seen = identity.pci_class.base_and_sub in ("0300", "0302")
        return ("nvidia_gpu_driver",) if seen else ()

    def older_traits(self, identity: Identity) -> tuple[str, ...]:
        """Return Cyborg 4 to 9's spelling, ``CUSTOM_GPU_PRODUCT_ID_1EB8``."""
        return (traits.custom("GPU", "PRODUCT_ID", identity.id.device),)

    def partition(self, accelerator: Accelerator, host: Host, options: Options) -> Partition | None:
        """Return the vGPUs that ``[vgpu_<type>] device_addresses`` ask of a card.

        :raises ReadError: when the host does not say how many it can have.
        """
        return vgpu.partition(accelerator, host, options) if options.vgpu_types else None

    def unmet(self, host: Host, options: Options) -> tuple[str, ...]:
        """Return which addresses in the options are of no GPU of NVIDIA's."""
        if not options.vgpu_types:
            return ()
        found = host.functions.select(lambda identity: self.recognises(identity, None))
        return vgpu.unmet(list(found), host, options)

    def is_divided_by(self, virtual: Sequence[PciFunction], options: Options) -> bool:
        """Return whether NVIDIA's driver serves them, and the operator wants them offered so."""
        return options.report_vendor_vfio and any(each.vendor_vgpu for each in virtual)

    def deployables(self, accelerator: Accelerator) -> tuple[Deployable, ...]:
        """Return what of the card is scheduled; virtual functions have the trait of their type.

        It is made of the type's number, ``CUSTOM_NVIDIA_26B9_VGPU_1145``: the name of a type is
        to be seen only while one more of it could be created.

        :raises ReadError: when the host does not say what they are.
        """
        found = super().deployables(accelerator)
        kinds = {vgpu_type_of(each) for each in accelerator.given} - {None}
        if len(kinds) != 1:
            return found
        identity = accelerator.identity
        kind = traits.custom(accelerator.vendor, identity.id.device, f"VGPU_{kinds.pop()}")
        older = self.older_traits(identity)
        return tuple(
            each._replace(traits=(*(t for t in each.traits if t not in older), kind, *older))
            for each in found
        )


def vgpu_type_of(function: PciFunction) -> int | None:
    """Return the number of the type of vGPU that NVIDIA's driver serves, ``None`` for none.

    :raises ReadError: when it cannot be read.
    """
    vgpu = function.vendor_vgpu
    return vgpu.current if vgpu else None
