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

"""What NVIDIA's driver, and the platform's security manager, add to a function.

Source: the README of NVIDIA/vgpu-device-manager for the folder ``nvidia`` of a virtual function;
Documentation/ABI/testing/sysfs-class-tsm and sysfs-bus-pci for ``tsm``.
"""

from cyborg_ext_drivers.testing._description import FunctionDescription, VendorVgpu
from cyborg_ext_drivers.testing._files import Entry, Link, Special


def entries(function: FunctionDescription, here: str) -> dict[str, Entry]:
    """Return the files of a virtual function's vGPU and of a secure stream, where there is one."""
    tree: dict[str, Entry] = {}
    # Not while another driver holds it: the folder goes with the driver nvidia.
    if function.vendor_vgpu is not None and function.driver == "nvidia":
        files = _vgpu(function.vendor_vgpu)
        tree |= {f"{here}/nvidia/{name}": entry for name, entry in files.items()}
    if function.tsm is not None:
        tree |= _stream(function.tsm, function, here)
    return tree


def _vgpu(vgpu: VendorVgpu) -> dict[str, Entry]:
    lines = ["ID    : vGPU Name"] if vgpu.header and vgpu.creatable else []
    lines += [f"{number:<6}: {name}" for number, name in vgpu.creatable]
    return {
        "current_vgpu_type": b"" if vgpu.current is None else f"{vgpu.current}\n".encode(),
        "creatable_vgpu_types": "".join(f"{line}\n" for line in lines).encode(),
        "gpu_instance_id": b"",
        "placement_id": b"",
        "vgpu_params": b"",
    }


def _stream(manager: str, function: FunctionDescription, here: str) -> dict[str, Entry]:
    device = f"/sys/devices/faux/tdx_host/tsm/{manager}"
    address = function.address
    # Numbered on each host bridge anew, of which the fake host has one for each bus.
    stream = f"pci{address.domain:04x}:{address.bus:02x}:stream0.0.0"
    return {
        device: Special.DIRECTORY,
        f"/sys/class/tsm/{manager}": Link(device),
        f"{device}/{stream}": Link(here),
        f"{here}/tsm/connect": f"{manager}\n".encode(),
        f"{here}/tsm/disconnect": Special.WRITE_ONLY,
    }
