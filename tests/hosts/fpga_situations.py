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

"""Every finding about FPGA cards, on a described host, with its remedy."""

from tests.hosts.described_site import Situation

AFU = "d8424dc4a4a3c413f89e433683f9040b"
CARD, USER = "0000:3b:00.0", "0000:3b:00.1"
ALVEO = {"vendor": "10ee", "class_": "120000", "subsystem": "10ee:000e"}
INTERFACE = "fpga_region/region0/dfl-fme.0/dfl-fme-region.0/fpga_region/region1/compat_id"


def second_function(site):
    """Program another function into the second virtual function than into the first."""
    site.fake.remove_function(CARD)
    site.fake.add_function(
        CARD,
        vendor="8086",
        device="0b2b",
        class_="120000",
        driver="dfl-pci",
        sriov_totalvfs=2,
        sriov_offset=1,
        sriov_vf_device="0b2c",
        fpga={
            "engine": {"interface_id": AFU, "ports": 2},
            "ports": [{"afu_id": AFU}, {"afu_id": AFU[::-1]}],
        },
    )
    for port in (0, 1):
        site.fake.release_port(CARD, port)
    site.fake.enable_virtual_functions(CARD, 2, driver="dfl-pci")


FPGA_SITUATIONS = [
    Situation(
        code="management-function",
        host="pac-arria10-port-on-virtual-function",
        address="0000:04:00.0",
        says="without virtual functions the card is given away whole",
        remedy=lambda site: site.fake.disable_virtual_functions("0000:04:00.0"),
    ),
    Situation(
        code="management-function",
        host="alveo-u250",
        address="0000:65:00.0",
        says="Nothing is to be done; leave it on the driver",
        # Without the function for users there is nothing left to tell.
        remedy=lambda site: site.fake.remove_function("0000:65:00.1"),
        offered=False,
    ),
    Situation(
        code="fpga-driver-missing",
        host="pac-d5005-unbound",
        address=CARD,
        says=f"Bind {CARD} to dfl-pci",
        remedy=lambda site: site.fake.bind(CARD, "dfl-pci"),
    ),
    Situation(
        code="fpga-driver-missing",
        host="alveo-management-unbound",
        address=CARD,
        says=f"Install XRT on the host and bind {CARD} to xclmgmt",
        remedy=lambda site: site.fake.bind(CARD, "xclmgmt"),
    ),
    Situation(
        code="fpga-no-afu",
        host="silicom-n5010",
        address="0000:65:00.0",
        prepare=lambda site: site.fake.set_afu_id("0000:65:00.0", 0, "0" * 32),
        says="Program the card, with Cyborg or fpgaconf",
        remedy=lambda site: site.fake.set_afu_id("0000:65:00.0", 0, AFU),
    ),
    Situation(
        code="fpga-no-afu",
        host="pac-arria10",
        address="0000:04:00.0",
        prepare=lambda site: site.fake.release_port("0000:04:00.0", 0),
        says="assign the port again (fpgaport assign)",
        remedy=lambda site: site.fake.assign_port("0000:04:00.0", 0),
    ),
    Situation(
        code="fpga-functions-differ",
        host="pac-d5005-virtual-functions",
        address=CARD,
        prepare=second_function,
        says="Program the same function into all of them",
        remedy=lambda site: site.fake.set_afu_id(CARD, 1, AFU),
    ),
    Situation(
        code="fpga-region-unknown",
        host="silicom-n5010",
        address="0000:65:00.0",
        prepare=lambda site: site.fake.set_attribute("0000:65:00.0", INTERFACE, "f" * 32),
        says="at the kernel log for the card",
        remedy=lambda site: site.fake.set_attribute("0000:65:00.0", INTERFACE, AFU),
    ),
    Situation(
        code="fpga-golden-image",
        host="alveo-u50-golden",
        address=CARD,
        says=f"Flash its shell: xbmgmt program --device {CARD} --base; then boot cold",
        remedy=lambda site: (
            site.fake.remove_function(CARD),
            site.fake.add_function(CARD, **ALVEO, device="5020", driver="xclmgmt"),
            site.fake.add_function(USER, **ALVEO, device="5021"),
        ),
    ),
    Situation(
        code="fpga-no-user-function",
        host="alveo-u200-no-user-function",
        address=CARD,
        says="rescan the bus (echo 1 > /sys/bus/pci/rescan)",
        remedy=lambda site: site.fake.add_function(USER, **ALVEO, device="5001"),
    ),
    Situation(
        code="fpga-no-management-function",
        host="alveo-u250",
        address="0000:65:00.1",
        prepare=lambda site: site.fake.remove_function("0000:65:00.0"),
        says="Rescan the bus (echo 1 > /sys/bus/pci/rescan)",
        remedy=lambda site: site.fake.put_back("0000:65:00.0"),
        then_at="0000:65:00.0",
    ),
]
