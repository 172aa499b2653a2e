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


"""All tests of Acme's driver; the fixtures are those of cyborg-ext-drivers."""

import pathlib
import shutil

import pytest

from cyborg_ext_drivers.testing.conformance import app as conformance

HOST = pathlib.Path(__file__).parents[1] / "hosts" / "two-roadrunners.yaml"
SOUND, EARLY = "0000:3b:00.0", "0000:d8:00.0"
ROADRUNNER = {"resources:CUSTOM_ACME_NPU": "1", "trait:CUSTOM_ACME_ROADRUNNER": "required"}
pytestmark = pytest.mark.fake_host(HOST)


def test_an_instance_gets_the_sound_card(fake_host, cyborg_stack):
    stack = cyborg_stack("acme_npu_driver")
    stack.report()
    (bound,) = stack.bind([ROADRUNNER])
    assert bound.info["bus"] == "3b"
    assert any(EARLY in line and "acme-early-silicon" in line for line in stack.logs)


def test_whatever_the_card_is_bound_to_nothing_is_written(fake_host, cyborg_stack):
    stack = cyborg_stack("acme_npu_driver")
    stack.report()
    stack.clear_writes()
    fake_host.unbind(SOUND)
    stack.report()
    assert stack.writes() == []


def test_lspci_sees_the_same_cards(run_on_fake_host):
    if shutil.which("lspci") is None:
        pytest.skip("lspci is not on this machine")
    seen = run_on_fake_host("lspci", "-nD", "-d", "acce:").stdout
    assert [line.split()[0] for line in seen.splitlines()] == [SOUND, EARLY]


def test_it_keeps_what_cyborg_relies_on(capsys):
    code = conformance.main(["acme_npu_driver", "--fake", str(HOST)])
    said = capsys.readouterr()
    if code == 2 and "is not on this machine" in said.err:
        pytest.skip(said.err)
    assert code == 0, said
