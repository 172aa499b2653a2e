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

"""What only a card's own driver knows is remembered, so that the report does not flicker."""

import dataclasses
import json

import pytest

from cyborg_ext_drivers.report.board import complete
from cyborg_ext_drivers.report.contract import DeviceReport

STANDARD = {"product_id": "1eb8", "subsystem_id": "10de:12a2", "revision": "a1"}
SEEN = {
    "product": "Tesla T4",
    "memory_mib": 15360,
    "compute_capability": "7.5",
    "serial_number": "0323418000000",
    "uuid": "GPU-8f6d3c1e-0000-4000-8000-000000000001",
}


def report(standard=STANDARD, **vendor_information):
    return DeviceReport(
        type="GPU",
        vendor="10de",
        model="NVIDIA 1eb8",
        std_board_info=json.dumps(standard, sort_keys=True),
        vendor_board_info=json.dumps({"vendor": "NVIDIA", **vendor_information}, sort_keys=True),
        cpid_info="{}",
        deployables=(),
    )


def told(device):
    return json.loads(device.vendor_board_info)


def test_what_the_driver_says_fills_the_gaps_of_the_catalogue():
    answer = told(complete(report(memory_mib=16384), None, SEEN, with_serials=False))
    assert answer == {
        "vendor": "NVIDIA",
        "memory_mib": 16384,
        "product": "Tesla T4",
        "compute_capability": "7.5",
    }


@pytest.mark.parametrize("seen", [{}, {"architecture": "turing"}])
def test_what_was_seen_once_is_told_while_the_driver_says_nothing(seen):
    before = complete(report(), None, SEEN, with_serials=True)
    after = complete(report(), before, seen, with_serials=True)
    assert told(after) == told(before) | seen
    if not seen:
        assert after == before


def test_serials_are_told_only_to_whom_asks_for_them_and_forgotten_with_the_option():
    with_them = complete(report(), None, SEEN, with_serials=True)
    without = complete(report(), with_them, SEEN, with_serials=False)
    assert told(with_them)["uuid"] == SEEN["uuid"]
    assert not {"uuid", "serial_number"} & told(without).keys()


def test_another_card_of_the_model_brings_its_own_serial():
    before = complete(report(), None, SEEN, with_serials=True)
    other = {key: value for key, value in SEEN.items() if key != "serial_number"}
    after = complete(report(), before, other | {"uuid": "GPU-2"}, with_serials=True)
    assert told(after)["uuid"] == "GPU-2"
    assert "serial_number" not in told(after)


def test_of_another_model_in_the_place_nothing_is_remembered():
    before = complete(report(), None, SEEN, with_serials=True)
    other = report({**STANDARD, "product_id": "2235"})
    assert complete(other, before, {}, with_serials=True) is other


def test_the_catalogue_wins_over_what_was_remembered():
    before = complete(report(), None, SEEN, with_serials=False)
    after = complete(report(memory_mib=16384), before, {}, with_serials=False)
    assert told(after)["memory_mib"] == 16384


def test_a_report_that_needs_nothing_is_the_same_object():
    whole = report()
    assert complete(whole, dataclasses.replace(whole), {}, with_serials=True) is whole


def test_what_is_programmed_into_a_card_is_told_as_it_is_now_and_as_it_was_while_nobody_tells():
    before = complete(report(), None, {}, with_serials=False, programmed={"shell": "one"})
    assert json.loads(before.vendor_board_info)["shell"] == "one"
    hidden = complete(report(), before, {}, with_serials=False)
    assert hidden == before
    other = complete(report(), before, {}, with_serials=False, programmed={"shell": "two"})
    assert json.loads(other.vendor_board_info)["shell"] == "two"
