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

"""The fake host shows FPGAs as their drivers do, and their ports where they are."""

import os

import pytest

from cyborg_ext_drivers.errors import Malformed, Unreadable
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.testing import DescriptionError, FakeHost
from tests.unit.fake_tree import dangling_links, read, tree_of

CARD, OTHER = "0000:3b:00.0", "0000:af:00.0"
D5005 = {"vendor": "8086", "device": "0b2b", "class_": "120000", "subsystem": "8086:138d"}
ALVEO = {"vendor": "10ee", "device": "5004", "class_": "120000", "subsystem": "10ee:000e"}
AFUS = [digit * 31 + "1" for digit in "9abc"]
INTERFACE = "f64e598bea11517fa28e7bc65d885104"
BASE, LOADED = "8" * 31 + "1", "7" * 31 + "2"
VBNV = "xilinx_u250_gen3x16_xdma_shell_4_1"


def fpga_of(ports=1, layout="dfl", interface_id=INTERFACE):
    return {
        "layout": layout,
        "engine": {"interface_id": interface_id, "bitstream_id": "0x23", "ports": ports},
        "ports": [{"afu_id": afu} for afu in AFUS[:ports]],
    }


@pytest.fixture
def fake():
    """A card of three ports that can have as many virtual functions."""
    with FakeHost() as host:
        host.add_function(
            CARD,
            **D5005,
            driver="dfl-pci",
            sriov_totalvfs=3,
            sriov_offset=1,
            sriov_vf_device="0b2c",
            sriov_vf_subsystem="8086:138d",
            fpga=fpga_of(3),
        )
        yield host


def seen(fake, address):
    """Return what our own reading finds: interface ids, and the functions by port."""
    view = Host(fake.root).functions.get(str(address)).fpga
    ids = [each.id for engine in view.engines for each in engine.interface_ids]
    return ids, {port.number: port.afu_id for port in view.ports}


class TestIntel:
    """Engines and ports of an Intel FPGA."""

    @pytest.mark.parametrize("layout", ["dfl", "intel-fpga"])
    def test_both_layouts_tell_the_same(self, fake, layout):
        fake.add_function(OTHER, **D5005, driver="intel-fpga-pci", fpga=fpga_of(1, layout))
        assert seen(fake, OTHER) == ([INTERFACE], {0: AFUS[0]})
        (engine,) = Host(fake.root).functions.get(OTHER).fpga.engines
        assert (engine.bitstream_id, engine.ports_num) == ("0x23", 1)
        assert dangling_links(fake) == []

    def test_the_files_are_those_of_the_kernel(self, fake):
        region = "fpga_region/region0"
        assert read(fake, f"{region}/dfl-port.2/afu_id", CARD) == f"{AFUS[2]}\n"
        assert read(fake, f"{region}/dfl-port.2/id", CARD) == "2\n"
        assert read(fake, f"{region}/dfl-fme.0/ports_num", CARD) == "3\n"
        nested = f"{region}/dfl-fme.0/dfl-fme-region.1/fpga_region/region2/compat_id"
        assert read(fake, nested, CARD) == f"{INTERFACE}\n"
        assert sorted(os.listdir(fake.path("/sys/class/fpga_region"))) == [
            f"region{number}" for number in range(4)
        ]

    def test_the_files_of_the_older_driver_are_its_own(self, fake):
        fake.add_function(
            OTHER, **D5005, driver="intel-fpga-pci", fpga=fpga_of(1, layout="intel-fpga")
        )
        device = "fpga/intel-fpga-dev.0"
        assert read(fake, f"{device}/intel-fpga-fme.1/pr/interface_id", OTHER) == f"{INTERFACE}\n"
        assert read(fake, f"{device}/intel-fpga-port.3/afu_id", OTHER) == f"{AFUS[0]}\n"
        assert os.listdir(fake.path("/sys/class/fpga")) == ["intel-fpga-dev.0"]

    def test_numbers_run_over_the_whole_host_and_the_lowest_free_is_taken(self, fake):
        fake.add_function(OTHER, **D5005, driver="dfl-pci", fpga=fpga_of())
        assert fake.port_file(OTHER, 0) == "fpga_region/region4/dfl-port.3/afu_id"
        fake.unbind(CARD)
        fake.unbind(OTHER)
        fake.bind(OTHER, "dfl-pci")
        assert fake.port_file(OTHER, 0) == "fpga_region/region0/dfl-port.0/afu_id"

    @pytest.mark.parametrize("driver", [None, "vfio-pci", "pci-stub"])
    def test_it_is_shown_only_under_a_driver_that_shows_it(self, fake, driver):
        before = tree_of(fake)
        fake.unbind(CARD) if driver is None else fake.bind(CARD, driver)
        assert not Host(fake.root).functions.get(CARD).fpga.is_shown
        assert not fake.path("/sys/class/fpga_region").exists()
        assert dangling_links(fake) == []
        fake.bind(CARD, "dfl-pci")
        assert seen(fake, CARD)[1] == dict(enumerate(AFUS[:3]))
        assert tree_of(fake).keys() >= before.keys()

    def test_a_card_without_a_region_for_images_has_no_interface_id(self, fake):
        fake.add_function(OTHER, **D5005, driver="dfl-pci", fpga=fpga_of(interface_id=None))
        assert seen(fake, OTHER) == ([], {0: AFUS[0]})

    def test_a_port_that_is_released_comes_back_when_it_is_assigned(self, fake):
        before = tree_of(fake)
        fake.release_port(CARD, 1)
        assert seen(fake, CARD) == ([INTERFACE], {0: AFUS[0], 2: AFUS[2]})
        fake.assign_port(CARD, 1)
        assert tree_of(fake) == before

    def test_virtual_functions_take_the_ports_along(self, fake):
        before = tree_of(fake)
        virtual = fake.enable_virtual_functions(CARD, 2, driver="dfl-pci")
        assert seen(fake, CARD) == ([INTERFACE], {2: AFUS[2]})
        assert [seen(fake, each) for each in virtual] == [
            ([], {0: AFUS[0]}),
            ([], {1: AFUS[1]}),
        ]
        assert dangling_links(fake) == []
        fake.disable_virtual_functions(CARD)
        assert tree_of(fake) == before

    def test_a_virtual_function_on_vfio_shows_nothing_of_its_port(self, fake):
        (virtual,) = fake.enable_virtual_functions(CARD, 1, driver="vfio-pci")
        assert seen(fake, virtual) == ([], {})
        assert 0 not in seen(fake, CARD)[1]

    def test_as_many_virtual_functions_as_ports_that_were_released(self, fake):
        for port in (0, 2):
            fake.release_port(CARD, port)
        with pytest.raises(ValueError, match="has let go of 2 ports"):
            fake.enable_virtual_functions(CARD, 3)
        virtual = fake.enable_virtual_functions(CARD, 2, driver="dfl-pci")
        assert [seen(fake, each)[1] for each in virtual] == [{0: AFUS[0]}, {2: AFUS[2]}]
        fake.disable_virtual_functions(CARD)
        assert seen(fake, CARD)[1] == {1: AFUS[1]}

    def test_virtual_functions_have_the_ids_that_the_description_says(self, fake):
        (virtual,) = fake.enable_virtual_functions(CARD, 1)
        assert str(virtual) == "0000:3b:00.1"
        assert read(fake, "sriov_vf_device", CARD) == "0b2c\n"
        assert read(fake, "device", virtual) == "0x0b2c\n"
        assert read(fake, "subsystem_device", virtual) == "0x138d\n"

    def test_programming_changes_the_id_wherever_the_port_is(self, fake):
        (virtual,) = fake.enable_virtual_functions(CARD, 1, driver="dfl-pci")
        fake.set_afu_id(CARD, 0, AFUS[3])
        fake.set_afu_id(CARD, 1, "f" * 32)
        assert seen(fake, virtual)[1] == {0: AFUS[3]}
        with pytest.raises(Malformed, match="holds 'ffff"):
            seen(fake, CARD)
        fake.set_afu_id(CARD, 1, None)
        assert seen(fake, CARD)[1] == {1: None, 2: AFUS[2]}

    def test_the_file_of_a_port_can_be_made_unreadable(self, fake):
        fake.make_unreadable(CARD, fake.port_file(CARD, 1))
        with pytest.raises(Unreadable, match="dfl-port.1/afu_id"):
            seen(fake, CARD)

    def test_a_port_that_is_not_there_is_named(self, fake):
        with pytest.raises(ValueError, match="0000:3b:00.0 has no port 7"):
            fake.release_port(CARD, 7)
        fake.release_port(CARD, 1)
        with pytest.raises(ValueError, match="does not show port 1"):
            fake.port_file(CARD, 1)

    def test_a_host_from_the_description_of_another_shows_the_same(self, fake):
        fake.release_port(CARD, 2)
        with FakeHost(fake.description) as again:
            assert seen(again, CARD) == seen(fake, CARD)

    def test_what_is_undone_is_as_before(self, fake):
        before = tree_of(fake)
        with fake.undone():
            fake.enable_virtual_functions(CARD, 3, driver="dfl-pci")
            fake.set_afu_id(CARD, 0, AFUS[3])
        assert tree_of(fake) == before


class TestXrt:
    """The two functions of an Alveo card."""

    @pytest.fixture
    def alveo(self):
        told = {"vbnv": VBNV, "interface_uuids": [BASE, LOADED], "logic_uuids": [LOADED]}
        with FakeHost() as host:
            host.add_function(CARD, **ALVEO, driver="xclmgmt", xrt=told)
            host.add_function("0000:3b:00.1", **ALVEO | {"device": "5005"}, driver="xocl", xrt=told)
            yield host

    def test_each_function_shows_the_files_of_its_driver(self, alveo):
        assert read(alveo, "mgmt_pf", CARD) == ""
        assert read(alveo, "ready", CARD) == "1\n"
        assert read(alveo, "rom.m.15104/VBNV", CARD) == f"{VBNV}\n"
        assert read(alveo, "ready", "0000:3b:00.1") == "0x1\n"
        assert read(alveo, "rom.u.15105/VBNV", "0000:3b:00.1") == f"{VBNV}\n"
        managed, user = (each.xrt for each in Host(alveo.root).functions)
        assert (managed.is_managed, managed.is_user, managed.is_golden) == (True, False, False)
        assert (user.is_managed, user.is_user, user.is_golden) == (False, True, None)
        assert managed.shell == user.shell == VBNV
        assert managed.interface_uuids == user.interface_uuids == (BASE, LOADED)
        assert managed.logic_uuids == (LOADED,)

    @pytest.mark.parametrize("driver", [None, "vfio-pci"])
    def test_nothing_is_shown_under_another_driver(self, alveo, driver):
        alveo.unbind(CARD) if driver is None else alveo.bind(CARD, driver)
        view = Host(alveo.root).functions.get(CARD).xrt
        assert not view.is_shown
        assert (view.shell, view.is_golden, view.interface_uuids) == (None, None, None)

    def test_what_is_said_can_change(self, alveo):
        alveo.set_xrt(CARD, golden=True, ready=False, logic_uuids=[])
        view = Host(alveo.root).functions.get(CARD).xrt
        assert (view.is_golden, view.is_ready, view.logic_uuids) == (True, False, ())
        assert view.interface_uuids == (BASE, LOADED)
        alveo.set_xrt(CARD, vbnv=None)
        assert Host(alveo.root).functions.get(CARD).xrt.shell is None


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"fpga": {"layout": "opae"}}, "fpga.layout: 'opae' is not one of dfl, intel-fpga"),
        ({"fpga": {"ports": [{"afu_id": "x"}]}}, "ports[0].afu_id: 'x' is not an id of 32"),
        ({"fpga": {"engin": {}}}, "the key is unknown; did you mean engine"),
        (
            {"fpga": {"ports": [{}, {"number": 0}]}},
            "fpga.ports[1]: port 0 is described twice",
        ),
        ({"xrt": {"ready": "yes"}}, "xrt.ready: 'yes' is not true or false"),
        ({"xrt": {"logic_uuids": ["x"]}}, "xrt.logic_uuids[0]: 'x' is not an id of 32"),
    ],
)
def test_what_is_described_wrongly_is_named(more, fault):
    with pytest.raises(DescriptionError) as caught:
        FakeHost().add_function(CARD, **D5005, **more)
    assert fault in str(caught.value)
