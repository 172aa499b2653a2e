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

"""FPGA cards: which of their functions are given away, and what is programmed into them."""

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options, Selector
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost

CARD, PORT = "0000:3b:00.0", "0000:3b:00.1"
PAC = {
    "vendor": "8086",
    "device": "09c4",
    "class_": "120000",
    "subsystem": "8086:0000",
    "sriov_totalvfs": 1,
    "sriov_offset": 1,
    "sriov_vf_device": "09c5",
}
D5005 = PAC | {"device": "0b2b", "sriov_totalvfs": 2, "sriov_vf_device": "0b2c"}
N6001 = {"vendor": "8086", "device": "bcce", "class_": "120000", "subsystem": "8086:1771"}
AFU, OTHER_AFU = "d8424dc4a4a3c413f89e433683f9040b", "9aeffe5f84570612c000c9660d824272"
REGION = "f64e598bea11517fa28e7bc65d885104"
FUNCTION_TRAIT = f"CUSTOM_FPGA_FUNCTION_ID_INTEL_{AFU.upper()}"
REGION_TRAIT = f"CUSTOM_FPGA_REGION_INTEL_{REGION.upper()}"
PAC_TRAITS = (
    "OWNER_CYBORG",
    "CUSTOM_FPGA_INTEL",
    "CUSTOM_INTEL_09C4",
    "CUSTOM_INTEL_PAC_ARRIA10",
    "CUSTOM_FPGA_INTEL_PAC_ARRIA10",
    FUNCTION_TRAIT,
    REGION_TRAIT,
)
U280 = {"vendor": "10ee", "class_": "120000", "subsystem": "10ee:000e"}
BASE, SHELL = "8" * 31 + "1", "7" * 31 + "2"
XRT = {
    "vbnv": "xilinx_u280_gen3x16_xdma_base_1",
    "interface_uuids": [BASE, SHELL],
    "logic_uuids": [SHELL, BASE],
}


def fpga(*afus, layout="dfl"):
    return {
        "layout": layout,
        "engine": {"interface_id": REGION, "bitstream_id": "0x23", "ports": len(afus)},
        "ports": [{"afu_id": afu} for afu in afus],
    }


class Agent:
    """What the agent tells Cyborg, discovery after discovery."""

    def __init__(self, fake):
        self._fake = fake
        self._options = Options(host_root=str(fake.root))
        self._ledger = Ledger("compute-1", self._options)

    def discover(self):
        """Return the report of the one card, ``None`` where there is none."""
        host = Host(self._fake.root)
        decisions = self._ledger.settle(Surveyor(self._options).survey(host), host)
        reports = [each.report for each in decisions if each.report]
        assert len(reports) <= 1
        return reports[0] if reports else None


def survey(fake):
    return Surveyor(Options(host_root=str(fake.root))).survey(Host(fake.root))


def card_of(fake):
    """Return the one card of the host."""
    (card,) = [each for each in survey(fake).assessments if each.is_accelerator]
    return card


def offered(fake):
    """Return the handles by deployable."""
    return {
        str(each.address): [str(handle.address) for handle in each.handles]
        for each in card_of(fake).deployables
    }


def findings(fake):
    return {(str(f.code), str(f.address), str(f.severity)) for f in card_of(fake).findings}


def traits(report):
    (part,) = report.deployables
    return tuple(value for key, value in part.attributes if key != "rc")


@pytest.fixture
def fake():
    with FakeHost() as host:
        yield host


@pytest.fixture(params=["dfl", "intel-fpga"])
def pac(fake, request):
    """A card of one port, under the kernel's driver and under the one before it."""
    driver = {"dfl": "dfl-pci", "intel-fpga": "intel-fpga-pci"}[request.param]
    fake.add_function(CARD, **PAC, driver=driver, fpga=fpga(AFU, layout=request.param))
    return fake


def divide(fake, address=CARD, count=1, driver="dfl-pci"):
    """Do what an operator does: let the ports go, then enable virtual functions."""
    for port in range(count):
        fake.release_port(address, port)
    return [str(each) for each in fake.enable_virtual_functions(address, count, driver=driver)]


class TestWhatIsGivenAway:
    """The ports' virtual functions, or the card."""

    def test_a_card_without_virtual_functions_is_given_away_whole(self, pac):
        assert offered(pac) == {CARD: [CARD]}
        assert findings(pac) == set()
        assert traits(Agent(pac).discover()) == PAC_TRAITS

    def test_with_the_port_on_a_virtual_function_that_is_given_away(self, pac):
        divide(pac, driver=pac.description.functions[0].driver)
        assert offered(pac) == {CARD: [PORT]}
        assert findings(pac) == {
            ("management-function", CARD, "info"),
            ("vfs-enabled", CARD, "info"),
        }
        assert traits(Agent(pac).discover()) == PAC_TRAITS

    def test_several_ports_are_handles_of_one_provider(self, fake):
        fake.add_function(CARD, **D5005, driver="dfl-pci", fpga=fpga(AFU, AFU))
        virtual = divide(fake, count=2)
        assert offered(fake) == {CARD: virtual}

    def test_ports_that_differ_promise_no_function(self, fake):
        fake.add_function(CARD, **D5005, driver="dfl-pci", fpga=fpga(AFU, OTHER_AFU))
        divide(fake, count=2)
        assert ("fpga-functions-differ", CARD, "warning") in findings(fake)
        named = traits(Agent(fake).discover())
        assert not [each for each in named if each.startswith("CUSTOM_FPGA_FUNCTION_ID")]

    def test_what_one_of_several_ports_holds_is_no_promise_while_another_tells_nothing(self, fake):
        fake.add_function(CARD, **D5005, driver="dfl-pci", fpga=fpga(AFU, OTHER_AFU))
        _, second = divide(fake, count=2)
        agent = Agent(fake)
        before = agent.discover()
        fake.bind(second, "vfio-pci")
        assert agent.discover() == before
        assert FUNCTION_TRAIT not in traits(Agent(fake).discover())

    def test_ports_that_held_the_same_are_told_as_before_while_one_of_them_agrees(self, fake):
        fake.add_function(CARD, **D5005, driver="dfl-pci", fpga=fpga(AFU, AFU))
        _, second = divide(fake, count=2)
        agent = Agent(fake)
        before = agent.discover()
        assert FUNCTION_TRAIT in traits(before)
        fake.bind(second, "vfio-pci")
        assert agent.discover() == before
        fake.set_afu_id(CARD, 0, OTHER_AFU)
        named = traits(agent.discover())
        assert not [each for each in named if each.startswith("CUSTOM_FPGA_FUNCTION_ID")]

    def test_two_ports_of_a_whole_card_promise_only_what_both_hold(self, fake):
        fake.add_function(CARD, **D5005, driver="dfl-pci", fpga=fpga(AFU, OTHER_AFU))
        agent = Agent(fake)
        before = agent.discover()
        assert ("fpga-functions-differ", CARD, "warning") in findings(fake)
        fake.make_unreadable(CARD, fake.port_file(CARD, 1))
        assert agent.discover() == before
        assert FUNCTION_TRAIT not in traits(before)

    def test_a_card_that_vanished_is_told_by_its_virtual_functions(self, pac):
        divide(pac)
        agent = Agent(pac)
        before = agent.discover()
        pac.remove_attribute(CARD, "vendor")
        assert agent.discover() == before


class TestSeveralFunctions:
    """An image of the Open FPGA Stack: several physical functions are one card."""

    @pytest.fixture
    def card(self, fake):
        slot = CARD[:-1]
        on_vfio = {"driver": "vfio-pci"}
        managing = {
            "driver": "dfl-pci",
            "sriov_totalvfs": 3,
            "sriov_offset": 5,
            "sriov_vf_device": "bccf",
            "fpga": {"engine": {"interface_id": REGION, "ports": 1}, "ports": []},
        }
        for number in (0, 1, 2, 4):
            fake.add_function(f"{slot}{number}", **N6001, **(managing if number == 0 else on_vfio))
        fake.add_function(
            f"{slot}3", vendor="1af4", device="1000", class_="120000", driver="virtio-pci"
        )
        return fake

    def test_all_but_the_managing_one_are_given_away(self, card):
        slot = CARD[:-1]
        assert offered(card) == {f"{slot}{n}": [f"{slot}{n}"] for n in (1, 2, 4)}
        assert ("management-function", CARD, "info") in findings(card)
        (virtio,) = [each for each in survey(card).skipped]
        assert (str(virtio.address), str(virtio.reason.code)) == (
            f"{slot}3",
            "not-an-accelerator",
        )

    def test_the_virtual_functions_of_the_managing_one_come_beside_them(self, card):
        virtual = [str(each) for each in card.enable_virtual_functions(CARD, 3)]
        given = offered(card)
        assert given[CARD] == virtual
        assert sorted(given) == [CARD, *(f"{CARD[:-1]}{n}" for n in (1, 2, 4))]

    def test_to_cyborg_it_is_one_device(self, card):
        report = Agent(card).discover()
        assert len(report.deployables) == 3
        assert {part.driver_name for part in report.deployables} == {"INTEL"}

    def test_an_operator_may_name_one_of_them_or_the_card(self, card):
        one, board = f"{CARD[:-1]}1", "8086:bcce"
        options = Options(
            host_root=str(card.root),
            extra_traits=(
                (Selector.parse(one), ("CUSTOM_LOOPBACK",)),
                (Selector.parse(board), ("CUSTOM_BOARD",)),
            ),
        )
        (found,) = Surveyor(options).survey(Host(card.root)).reported
        last = {str(each.address)[-1]: each.traits[-2:] for each in found.deployables}
        assert last["1"] == ("CUSTOM_LOOPBACK", "CUSTOM_BOARD")
        assert last["2"] == last["4"] == ("CUSTOM_INTEL_N6001", "CUSTOM_BOARD")

    def test_members_of_one_group_go_to_one_instance(self, card):
        slot = CARD[:-1]
        card.move_to_group(f"{slot}4", card.group_of(f"{slot}2"))
        assert sorted(offered(card)) == [f"{slot}1", f"{slot}2"]

    def test_without_groups_of_their_own_the_managing_one_keeps_them(self, card):
        for number in (1, 2, 4):
            card.move_to_group(f"{CARD[:-1]}{number}", card.group_of(CARD))
        assert offered(card) == {}
        assert str(card_of(card).reason.code) == "iommu-group-shared"

    def test_a_function_that_is_gone_is_held_like_a_card_of_its_own(self, card):
        agent = Agent(card)
        before = agent.discover()
        card.remove_function(f"{CARD[:-1]}2")
        assert [agent.discover() for _ in range(2)] == [before, before]
        names = [part.name for part in agent.discover().deployables]
        assert names == [f"compute-1_{CARD[:-1]}{number}" for number in (1, 4)]
        card.put_back(f"{CARD[:-1]}2")
        assert agent.discover() == before

    def test_a_function_that_cannot_be_told_leaves_the_card_in_doubt(self, card):
        agent = Agent(card)
        before = agent.discover()
        card.make_unreadable(f"{CARD[:-1]}2", "uevent")
        assert agent.discover() == before


class TestWhatIsProgrammed:
    """The traits of function and region, as long as they are told and after."""

    STATES = {
        "port released": lambda fake: fake.release_port(CARD, 0),
        "no driver": lambda fake: fake.unbind(CARD),
        "with an instance": lambda fake: fake.bind(CARD, "vfio-pci"),
        "no file": lambda fake: fake.set_afu_id(CARD, 0, None),
        "zeros": lambda fake: fake.set_afu_id(CARD, 0, "0" * 32),
        "ones": lambda fake: fake.set_afu_id(CARD, 0, "f" * 32),
        "too short": lambda fake: fake.set_afu_id(CARD, 0, AFU[1:]),
        "too long": lambda fake: fake.set_afu_id(CARD, 0, AFU + "0"),
        "no digits": lambda fake: fake.set_afu_id(CARD, 0, "x" * 32),
        "empty": lambda fake: fake.set_afu_id(CARD, 0, ""),
        "busy": lambda fake: fake.make_unreadable(CARD, fake.port_file(CARD, 0)),
    }

    @pytest.mark.parametrize("state", STATES)
    def test_what_cannot_be_told_now_is_told_as_before(self, pac, state):
        agent = Agent(pac)
        before = agent.discover()
        self.STATES[state](pac)
        for _ in range(5):
            assert agent.discover() == before
        assert all(not f.is_blocker for f in card_of(pac).findings)

    @pytest.mark.parametrize("state", STATES)
    def test_a_card_that_never_told_has_no_such_trait_and_a_finding(self, pac, state):
        self.STATES[state](pac)
        named = traits(Agent(pac).discover())
        assert named[:5] == PAC_TRAITS[:5]
        assert FUNCTION_TRAIT not in named
        codes = {code for code, _address, _severity in findings(pac)}
        assert codes & {"fpga-no-afu", "fpga-driver-missing"}

    def test_another_function_takes_the_place_of_the_one_before(self, pac):
        agent = Agent(pac)
        agent.discover()
        pac.set_afu_id(CARD, 0, OTHER_AFU)
        named = traits(agent.discover())
        assert f"CUSTOM_FPGA_FUNCTION_ID_INTEL_{OTHER_AFU.upper()}" in named
        assert FUNCTION_TRAIT not in named

    def test_of_a_virtual_function_that_an_instance_has_it_is_told_as_before(self, pac):
        (port,) = divide(pac, driver=pac.description.functions[0].driver)
        agent = Agent(pac)
        before = agent.discover()
        assert FUNCTION_TRAIT in traits(before)
        pac.bind(port, "vfio-pci")
        assert agent.discover() == before
        assert ("fpga-driver-missing", port, "info") in findings(pac)

    def test_what_one_card_told_is_not_told_of_another_in_its_place(self, pac):
        agent = Agent(pac)
        agent.discover()
        pac.remove_function(CARD)
        pac.add_function(CARD, **D5005, driver="vfio-pci")
        assert not set(traits(agent.discover())) & {FUNCTION_TRAIT, REGION_TRAIT}

    @pytest.mark.parametrize("said", ["0" * 32, "f" * 32, "nonsense", "", REGION[2:]])
    def test_an_interface_that_cannot_be_told_is_a_warning(self, fake, said):
        card = fpga(AFU)
        card["engine"]["interface_id"] = REGION
        fake.add_function(CARD, **PAC, driver="dfl-pci", fpga=card)
        agent = Agent(fake)
        before = agent.discover()
        region = "fpga_region/region0/dfl-fme.0/dfl-fme-region.0/fpga_region/region1/compat_id"
        fake.set_attribute(CARD, region, said)
        assert agent.discover() == before
        assert ("fpga-region-unknown", CARD, "warning") in findings(fake)


class TestAlveo:
    """A function that manages the card, and one for users."""

    USER = "0000:3b:00.1"

    @pytest.fixture
    def card(self, fake):
        fake.add_function(CARD, **U280, device="500c", driver="xclmgmt", xrt=XRT)
        fake.add_function(self.USER, **U280, device="500d", driver="xocl", xrt=XRT)
        return fake

    def test_the_function_for_users_is_given_away(self, card):
        assert offered(card) == {CARD: [self.USER]}
        assert findings(card) == {("management-function", CARD, "info")}
        report = Agent(card).discover()
        assert report.model == "Alveo U280"
        assert report.deployables[0].driver_name == "XILINX"
        assert traits(report) == (
            "OWNER_CYBORG",
            "CUSTOM_FPGA_XILINX",
            "CUSTOM_XILINX_500C",
            "CUSTOM_XILINX_ALVEO_U280",
            "CUSTOM_FPGA_PRODUCT_ID_500C",
            "CUSTOM_FPGA_PRODUCT_ID_500D",
            f"CUSTOM_FPGA_FUNCTION_ID_XILINX_{BASE}",
            f"CUSTOM_FPGA_REGION_XILINX_{SHELL}",
        )
        assert '"shell": "xilinx_u280_gen3x16_xdma_base_1"' in report.vendor_board_info

    @pytest.mark.parametrize("driver", [None, "vfio-pci", "xocl"])
    def test_whoever_has_the_function_for_users_the_report_is_the_same(self, card, driver):
        agent = Agent(card)
        before = agent.discover()
        card.unbind(self.USER) if driver is None else card.bind(self.USER, driver)
        assert agent.discover() == before

    @pytest.mark.parametrize("driver", [None, "vfio-pci"])
    def test_without_its_driver_the_card_is_given_away_all_the_same(self, card, driver):
        agent = Agent(card)
        before = agent.discover()
        card.unbind(CARD) if driver is None else card.bind(CARD, driver)
        assert agent.discover() == before
        assert ("fpga-driver-missing", CARD, "warning") in findings(card)

    def test_virtual_functions_of_it_are_given_away_in_its_place(self, card):
        card.remove_function(self.USER)
        card.add_function(
            self.USER,
            **U280,
            device="500d",
            driver="xocl",
            sriov_totalvfs=4,
            sriov_offset=3,
            sriov_vf_device="a03f",
        )
        virtual = [str(each) for each in card.enable_virtual_functions(self.USER, 2)]
        assert offered(card) == {CARD: virtual}
        assert ("vfs-enabled", self.USER, "info") in findings(card)

    def test_a_group_with_the_managing_function_on_its_driver_cannot_be_given_away(self, card):
        card.move_to_group(self.USER, card.group_of(CARD))
        assert str(card_of(card).reason.code) == "iommu-group-shared"

    def test_a_group_with_the_managing_function_on_no_driver_can(self, card):
        card.move_to_group(self.USER, card.group_of(CARD))
        card.unbind(CARD)
        assert offered(card) == {CARD: [self.USER]}

    def test_while_virtual_functions_of_it_are_expected_it_is_not_given_away_whole(self, card):
        card.remove_function(self.USER)
        card.add_function(self.USER, **U280, device="500d", driver="xocl", sriov_totalvfs=4)
        options = Options(host_root=str(card.root), vfs_expected=(Selector.parse("10ee:500d"),))
        (found,) = Surveyor(options).survey(Host(card.root)).assessments
        assert str(found.reason.code) == "vfs-expected"

    @pytest.mark.parametrize("device", ["d000", "d03c", "d04c", "e098"])
    def test_the_ids_of_golden_images_are_known(self, fake, device):
        fake.add_function(CARD, **U280, device=device, driver="xclmgmt")
        assert str(card_of(fake).reason.code) == "fpga-golden-image"

    def test_without_a_function_for_users_there_is_nothing_to_give(self, card):
        card.remove_function(self.USER)
        assert str(card_of(card).reason.code) == "fpga-no-user-function"

    def test_a_function_for_users_alone_is_not_given_away(self, card):
        card.remove_function(CARD)
        (found,) = survey(card).assessments
        assert str(found.reason.code) == "fpga-no-management-function"

    def test_while_the_managing_function_is_away_the_one_for_users_stays_whose_it_is(self, card):
        agent = Agent(card)
        before = agent.discover()
        card.bind(self.USER, "vfio-pci")
        card.remove_function(CARD)
        for _ in range(5):
            assert agent.discover() == before
        card.remove_function(self.USER)
        assert [agent.discover() for _ in range(3)] == [before, before, None]

    def test_a_card_that_says_that_its_image_is_golden_is_skipped(self, card):
        card.remove_function(self.USER)
        card.set_xrt(CARD, golden=True)
        assert str(card_of(card).reason.code) == "fpga-golden-image"

    def test_a_card_without_metadata_has_no_such_traits_and_no_finding(self, fake):
        said = {"vbnv": "xilinx_u280_xdma_201920_3"}
        fake.add_function(CARD, **U280, device="500c", driver="xclmgmt", xrt=said)
        fake.add_function(self.USER, **U280, device="500d", driver="xocl", xrt=said)
        assert len(traits(Agent(fake).discover())) == 6
        assert findings(fake) == {("management-function", CARD, "info")}

    @pytest.mark.parametrize("name", ["interface_uuids", "logic_uuids"])
    @pytest.mark.parametrize("said", ["nonsense\n", "0" * 32, "\xff\xfe"])
    def test_metadata_that_cannot_be_used_is_a_warning(self, card, name, said):
        agent = Agent(card)
        before = agent.discover()
        card.set_attribute(CARD, name, said)
        assert agent.discover() == before
        assert ("fpga-region-unknown", CARD, "warning") in findings(card)

    def test_kernels_that_are_loaded_are_the_function_and_stay_while_an_instance_has_it(self, card):
        agent = Agent(card)
        agent.discover()
        kernels = "5" * 31 + "4"
        card.set_xrt(self.USER, xclbin_uuid=kernels)
        loaded = agent.discover()
        assert f"CUSTOM_FPGA_FUNCTION_ID_XILINX_{kernels}" in traits(loaded)
        assert f"CUSTOM_FPGA_FUNCTION_ID_XILINX_{BASE}" not in traits(loaded)
        card.bind(self.USER, "vfio-pci")
        assert agent.discover() == loaded
        card.set_xrt(self.USER, xclbin_uuid=None)
        card.bind(self.USER, "xocl")
        assert f"CUSTOM_FPGA_FUNCTION_ID_XILINX_{BASE}" in traits(agent.discover())

    @pytest.mark.parametrize("said", ["nonsense", "f" * 32, "\xff", "5" * 31])
    def test_kernels_that_are_told_as_nonsense_are_not_believed(self, card, said):
        agent = Agent(card)
        before = agent.discover()
        card.set_attribute(self.USER, "xclbinuuid", said)
        assert agent.discover() == before

    def test_a_card_that_is_not_ready_says_so(self, card):
        card.set_xrt(CARD, ready=False)
        assert ("fpga-region-unknown", CARD, "warning") in findings(card)

    def test_another_shell_takes_the_place_of_the_one_before(self, card):
        agent = Agent(card)
        agent.discover()
        other = "6" * 31 + "3"
        card.set_xrt(CARD, vbnv="xilinx_u280_gen3x16_xdma_base_2", logic_uuids=[SHELL, other])
        report = agent.discover()
        assert f"CUSTOM_FPGA_FUNCTION_ID_XILINX_{other}" in traits(report)
        assert f"CUSTOM_FPGA_FUNCTION_ID_XILINX_{BASE}" not in traits(report)
        assert '"shell": "xilinx_u280_gen3x16_xdma_base_2"' in report.vendor_board_info


def test_virtual_functions_that_a_virtual_machine_has_are_a_card_each(fake):
    given = {"vendor": "8086", "device": "bccf", "class_": "120000", "subsystem": "8086:1771"}
    for address in (CARD, PORT):
        fake.add_function(address, **given, driver="vfio-pci")
    assert [str(each.address) for each in survey(fake).reported] == [CARD, PORT]


def test_a_copy_of_a_host_without_class_files_tells_its_fpgas(pac):
    for name in ("uevent", "class", "config"):
        pac.remove_attribute(CARD, name)
    assert offered(pac) == {CARD: [CARD]}
