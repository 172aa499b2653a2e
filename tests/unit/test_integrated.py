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

"""A graphics processor that the catalogue does not know, by where it hangs."""

import pytest

from cyborg_ext_drivers.checks.identity import INTEGRATED_GPU, IdentityCheck
from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost

PORT, SWITCH, GRAPHICS = "0000:00:01.1", "0000:01:00.0", "0000:02:00.0"


class RadeonFamily(Family):
    """Every display controller of AMD's."""

    name, driver, kind, resource_class = "radeon", "radeon_driver", "GPU", "PGPU"

    def recognises(self, identity, kind):
        return identity.id.vendor == "1002" and identity.pci_class.is_display


FAMILIES = (RadeonFamily(),)


@pytest.fixture
def fake():
    """A host with an unknown display controller of AMD's below a bridge of AMD's."""
    with FakeHost() as host:
        host.add_function(PORT, vendor="1022", device="14dd", class_="060400")
        host.add_function(SWITCH, vendor="1002", device="1479", class_="060400", parent=PORT)
        yield host


def survey(fake, parent, families=FAMILIES):
    """Return what is said of the controller, below a bridge."""
    fake.add_function(
        GRAPHICS, vendor="1002", device="ffff", class_="030000", iommu_group=9, parent=parent
    )
    options = Options(host_root=str(fake.root))
    surveyor = Surveyor(options=options, families=families, checks=(IdentityCheck(),))
    (assessment,) = surveyor.survey(Host(fake.root)).assessments
    return assessment


def test_one_without_a_switch_is_taken_for_the_processors_own(fake):
    reason = survey(fake, PORT).reason
    assert reason.code is INTEGRATED_GPU
    assert "the catalogue does not know it" in reason.message
    assert 'if it is a card, add an entry for id "1002:ffff" (kind GPU, ' in reason.remedy


def test_one_below_the_switch_of_a_card_is_a_card(fake):
    assessment = survey(fake, SWITCH)
    assert assessment.reason is None
    assert [finding.code.name for finding in assessment.findings] == ["unknown-device"]


def test_the_operators_entry_makes_a_card_of_it(fake):
    fake.write_file(
        "/etc/cyborg/ext_catalog.d/mine.yaml",
        'devices: [{id: "1002:ffff", kind: GPU, model: MINE, name: Mine}]\n',
    )
    assert survey(fake, PORT).reason is None


@pytest.mark.parametrize(("parent", "is_integrated"), [(PORT, True), (SWITCH, False)])
def test_without_a_family_it_is_said_as_well(fake, parent, is_integrated):
    assessment = survey(fake, parent, families=())
    assert (assessment.reason.code is INTEGRATED_GPU) is is_integrated
