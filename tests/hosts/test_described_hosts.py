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

"""Each described host gives exactly what it says is expected of it."""

import dataclasses
import random
import shutil

import pytest

from cyborg_ext_drivers.errors import EnumerationError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost, described_hosts, load


@pytest.fixture(scope="module")
def surveyor():
    return Surveyor()


def shown(survey):
    """Return a survey's reported part in the words of an expectation."""
    return [
        (
            str(deployable.address),
            deployable.resource_class,
            [str(handle.address) for handle in deployable.handles],
            list(deployable.traits),
        )
        for assessment in survey.reported
        for deployable in assessment.deployables
    ]


@pytest.mark.parametrize("name", described_hosts())
def test_a_described_host_gives_its_expectation(name, surveyor):
    expected = load(name).expected
    with FakeHost.named(name) as fake:
        survey = surveyor.survey(Host(fake.root))
        skipped = {str(a.address): str(a.reason.code) for a in survey.skipped}
    assert [row[:3] for row in shown(survey)] == [
        (str(row.address), row.resource_class, [str(handle) for handle in row.handles])
        for row in expected.reported
    ]
    for row, wanted in zip(shown(survey), expected.reported):
        assert not wanted.traits or row[3] == list(wanted.traits)
    assert set(skipped) == {str(address) for address in expected.skipped}
    for address, codes in expected.skipped.items():
        assert skipped[str(address)] in codes


@pytest.mark.parametrize("name", described_hosts())
def test_the_order_in_which_the_kernel_lists_functions_changes_nothing(name, surveyor):
    description = load(name)
    reports = set()
    for seed in range(10):
        functions = list(description.functions)
        random.Random(seed).shuffle(functions)
        with FakeHost(dataclasses.replace(description, functions=functions)) as fake:
            reports.add(repr(shown(surveyor.survey(Host(fake.root)))))
    assert len(reports) == 1


def test_every_finding_names_its_evidence_and_a_remedy(surveyor):
    for name in described_hosts():
        with FakeHost.named(name) as fake:
            for assessment in surveyor.survey(Host(fake.root)).assessments:
                for finding in assessment.findings:
                    assert finding.evidence, finding
                    assert finding.remedy and finding.message, finding
                    assert all(each.path.startswith("/") for each in finding.evidence)


def test_a_bus_that_cannot_be_listed_raises_instead_of_reporting_nothing(surveyor):
    with FakeHost.named("two-t4") as fake:
        fake.make_directory_unlistable()
        with pytest.raises(EnumerationError, match="/sys/bus/pci/devices cannot be listed"):
            surveyor.survey(Host(fake.root))


@pytest.mark.parametrize(
    "attribute, value",
    [
        ("vendor", "0x10dex"),
        ("device", "0xZZZZ"),
        ("class", "3D controller"),
        ("subsystem_device", b"\xff\xfe"),
        ("revision", "0x1000"),
        ("numa_node", "zero"),
        ("boot_vga", "maybe"),
        ("uevent", "PCI_CLASS=30200\nPCI_ID=10DE:1EB8:77\n"),
        ("device", "0x20b0"),
    ],
)
def test_a_malformed_value_costs_its_own_card_only(surveyor, attribute, value):
    with FakeHost.named("two-t4") as fake:
        first, second = (str(a.address) for a in surveyor.survey(Host(fake.root)).reported)
        fake.set_attribute(first, attribute, value)
        survey = surveyor.survey(Host(fake.root))
    assert [str(a.address) for a in survey.reported] == [second]
    (skipped,) = survey.skipped
    assert str(skipped.address) == first
    assert str(skipped.reason.code) == "unreadable"
    assert f"/sys/bus/pci/devices/{first}/{attribute}" in skipped.reason.message
    assert skipped.reason.evidence[0].path == f"/sys/bus/pci/devices/{first}/{attribute}"
    if isinstance(value, str) and "\n" not in value:
        assert value in skipped.reason.message


@pytest.mark.parametrize("attribute", ["vendor", "uevent", "class", "iommu_group", "config"])
def test_an_unreadable_attribute_costs_its_own_card_only(surveyor, attribute):
    with FakeHost.named("two-t4") as fake:
        first, second = (str(a.address) for a in surveyor.survey(Host(fake.root)).reported)
        fake.make_unreadable(first, attribute)
        survey = surveyor.survey(Host(fake.root))
    assert [str(a.address) for a in survey.reported] == [second]
    assert str(survey.skipped[0].reason.code) == "unreadable"


@pytest.mark.parametrize(
    "attribute", ["revision", "numa_node", "power_state", "subsystem_vendor", "config", "modalias"]
)
def test_what_the_kernel_may_leave_out_is_not_missed(surveyor, attribute):
    with FakeHost.named("two-t4") as fake:
        before = shown(surveyor.survey(Host(fake.root)))
        first = before[0][0]
        fake.remove_attribute(first, attribute)
        assert shown(surveyor.survey(Host(fake.root))) == before


def test_the_report_is_the_same_whatever_the_card_is_bound_to(surveyor):
    with FakeHost.named("two-t4") as fake:
        first = str(surveyor.survey(Host(fake.root)).reported[0].address)
        seen = set()
        for driver in ("nvidia", "nouveau", "vfio-pci", None):
            fake.unbind(first) if driver is None else fake.bind(first, driver)
            seen.add(repr(shown(surveyor.survey(Host(fake.root)))))
    assert len(seen) == 1


def test_what_changes_between_two_surveys_is_seen():
    """The same surveyor looks twice; what it remembers must not hide a change."""
    surveyor = Surveyor()
    changes = [
        lambda fake, address: fake.move_to_group(address, None),
        lambda fake, address: fake.set_attribute(address, "boot_vga", "1"),
        lambda fake, address: fake.set_attribute(address, "config", b"\xff" * 64),
        lambda fake, address: fake.set_attribute(address, "numa_node", "x"),
        lambda fake, address: fake.bind(address, "pci-stub"),
        lambda fake, address: fake.remove_function(address),
    ]
    for change in changes:
        with FakeHost.named("two-t4") as fake:
            host = Host(fake.root)
            before = surveyor.survey(host.again()).reported
            first, second = (str(a.address) for a in before)
            assert len(surveyor.survey(host.again()).reported) == 2
            change(fake, first)
            reported = surveyor.survey(host.again()).reported
            assert [str(a.address) for a in reported] == [second]


def test_virtual_functions_are_never_cards_even_when_only_the_physical_one_knows(surveyor):
    with FakeHost() as fake:
        fake.add_function(
            "0000:3b:00.0", vendor="10de", device="20f1", class_="030200", sriov_totalvfs=4
        )
        virtual = fake.enable_virtual_functions("0000:3b:00.0", 2)
        for address in virtual:
            fake.remove_attribute(address, "physfn")
            fake.remove_attribute(address, "config")
        fake.remove_attribute("0000:3b:00.0", "virtfn0")
        survey = surveyor.survey(Host(fake.root))
    reasons = {str(a.address): str(a.reason.code) for a in survey.skipped}
    assert reasons["0000:3b:00.0"] == "vfs-enabled"
    assert str(virtual[1]) not in {str(a.address) for a in survey.assessments}


def test_groups_are_known_from_the_functions_links_where_the_listing_is_lost():
    surveyor = Surveyor()
    nic = "0000:e1:00.0"
    with FakeHost.named("two-t4") as fake:
        fake.add_function(
            nic, vendor="15b3", device="1021", class_="020000", driver="mlx5_core", iommu_group=99
        )
        shutil.rmtree(fake.path("/sys/kernel/iommu_groups"))
        host = Host(fake.root)
        first = surveyor.survey(host.again()).reported[0]
        assert len(surveyor.survey(host.again()).reported) == 2
        link = fake.path(f"/sys/bus/pci/devices/{nic}/iommu_group")
        link.unlink()
        link.symlink_to(f"../../../kernel/iommu_groups/{first.function.iommu_group}")
        (skipped,) = surveyor.survey(host.again()).skipped
    assert skipped.address == first.address
    assert str(skipped.reason.code) == "iommu-group-shared"


def test_a_neighbour_that_the_host_takes_is_seen_by_the_next_survey():
    surveyor = Surveyor()
    with FakeHost.named("two-t4") as fake:
        host = Host(fake.root)
        reported = surveyor.survey(host.again()).reported
        first = reported[0]
        fake.add_function(
            "0000:e1:00.0",
            vendor="15b3",
            device="1021",
            class_="020000",
            driver="mlx5_core",
            iommu_group=first.function.iommu_group,
        )
        (skipped,) = surveyor.survey(host.again()).skipped
        assert skipped.address == first.address
        assert str(skipped.reason.code) == "iommu-group-shared"
        fake.bind("0000:e1:00.0", "vfio-pci")
        assert len(surveyor.survey(host.again()).reported) == 2


def test_parts_are_given_away_though_the_driver_of_the_card_cannot_be_read(surveyor):
    with FakeHost.named("mi355x-divided-by-gim") as fake:
        before = shown(surveyor.survey(Host(fake.root)))
        fake.make_unreadable("0000:05:00.0", "driver")
        assert shown(surveyor.survey(Host(fake.root))) == before
