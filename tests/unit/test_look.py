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

"""Drivers that are asked one after the other see one machine; each time anew."""

import gc

import pytest

from cyborg_ext_drivers.report import look
from cyborg_ext_drivers.testing import FakeHost


@pytest.fixture
def fake():
    with FakeHost.named("two-t4") as fake:
        yield fake


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that stands still, but for what is added to it."""
    now = [100.0]
    monkeypatch.setattr(look.time, "monotonic", lambda: now[0])
    return now


def seen(shared, driver):
    with shared.host(driver) as host:
        return host


def test_two_drivers_in_a_row_share_a_round_and_the_next_is_another(fake, clock):
    shared = look.at(str(fake.root))
    first = seen(shared, "nvidia")
    assert seen(shared, "amd") is first
    second = seen(shared, "nvidia")
    assert second is not first
    assert seen(shared, "amd") is second


def test_a_driver_that_is_asked_later_sees_the_machine_as_it_is_then(fake, clock):
    shared = look.at(str(fake.root))
    first = seen(shared, "nvidia")
    clock[0] += 0.1
    assert seen(shared, "amd") is not first


def test_a_driver_that_begins_sees_nothing_of_the_rounds_before(fake, clock):
    shared = look.at(str(fake.root))
    first = seen(shared, "nvidia")
    assert look.at(str(fake.root)) is shared
    assert seen(shared, "amd") is not first


def test_two_hosts_have_nothing_in_common_and_nothing_outlasts_its_drivers(fake):
    with FakeHost.named("two-t4") as other:
        one, another = look.at(str(fake.root)), look.at(str(other.root))
        assert one is not another
        path = str(other.root)
    del another
    gc.collect()
    assert path not in look._LOOKS and str(fake.root) in look._LOOKS
