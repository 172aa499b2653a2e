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

"""Cards that tests put into a host, as real ones describe themselves."""

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.identity import Identity, PciClass, PciId
from cyborg_ext_drivers.host.pci import PciFunction
from cyborg_ext_drivers.testing import FakeHost

T4 = "0000:3b:00.0"
A40 = "0000:5e:00.0"


def add_t4(host: FakeHost, **more) -> None:
    """Put a T4 in, on vfio-pci where nothing else is said."""
    card = {"vendor": "10de", "device": "1eb8", "class_": "030200", "driver": "vfio-pci"}
    host.add_function(T4, **(card | {"subsystem": "10de:12a2", "revision": "a1"} | more))


def add_a40(host: FakeHost, **more) -> None:
    """Put an A40 in, which can have virtual functions."""
    card = {"vendor": "10de", "device": "2235", "class_": "030200", "subsystem": "10de:145a"}
    host.add_function(A40, **(card | {"sriov_totalvfs": 32} | more))


def function_of(host: FakeHost, address: str = T4) -> PciFunction | None:
    """Return what a fresh look at the host shows at an address."""
    return Host(host.root).functions.get(address)


def identity(pci_id: str, subsystem: str | None = None, pci_class: str = "030200") -> Identity:
    """Return what a function with these ids is."""
    vendor, device = pci_id.split(":")
    return Identity(
        PciClass(pci_class),
        PciId(vendor, device),
        PciId(*subsystem.split(":")) if subsystem else None,
    )
