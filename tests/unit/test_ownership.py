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

"""Whose the card is: what is said of an option names the file that it stands in."""

import logging

import pytest

from cyborg_ext_drivers.checks.ownership import specs
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost

T4 = "0000:3b:00.0"


def findings(code, **options):
    with FakeHost.named("two-t4") as fake:
        surveyor = Surveyor(Options(host_root=str(fake.root), **options))
        survey = surveyor.survey(Host(fake.root))
    (assessment,) = (a for a in survey.assessments if str(a.address) == T4)
    return [finding for finding in assessment.findings if finding.code.name == code]


def test_what_cyborgs_pci_driver_takes_is_shown_with_the_value_of_cyborg_conf():
    (finding,) = findings(
        "in-tree-driver-enabled",
        enabled_drivers=("ext_nvidia_gpu_driver", "pci_driver"),
        cyborg_device_specs=('{"vendor_id": "10de"}',),
    )
    assert [tuple(evidence) for evidence in finding.evidence] == [
        ("cyborg.conf [agent] enabled_drivers", "ext_nvidia_gpu_driver,pci_driver"),
        ("cyborg.conf [pci] passthrough_whitelist", '{"vendor_id": "10de"}'),
    ]


def test_cyborgs_pci_driver_is_no_rival_for_a_card_that_it_is_not_to_take():
    assert not findings(
        "in-tree-driver-enabled",
        enabled_drivers=("ext_nvidia_gpu_driver", "pci_driver"),
        cyborg_device_specs=('{"vendor_id": "8086"}',),
    )


@pytest.mark.parametrize(
    ("options", "named", "other"),
    [
        ({"nova_device_specs": ("wrong",)}, "nova.conf [pci] device_spec", "cyborg"),
        (
            {"cyborg_device_specs": ("wrong",), "enabled_drivers": ("pci_driver",)},
            "cyborg.conf [pci] passthrough_whitelist",
            "nova",
        ),
    ],
)
def test_a_value_that_cannot_be_used_is_logged_with_the_file_it_stands_in(
    caplog, options, named, other
):
    specs.cache_clear()
    with caplog.at_level(logging.WARNING):
        findings("any", **options)
    (record,) = caplog.records
    assert named in record.getMessage() and "'wrong'" in record.getMessage()
    assert other not in record.getMessage().lower()
