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
"""Any host gets an honest answer: what is drawn is laid out, changed and surveyed.

Each example is one host and a series of changes, and each change makes another host; as
many are surveyed as the profile says:

- ``pytest`` surveys 20,000, the same ones every time;
- ``tox -e fuzz`` surveys 500,000 others, with a seed that it prints first.
  ``CYBORG_EXT_FUZZ_SEED=N tox -e fuzz`` repeats a run (``CYBORG_EXT_FUZZ_EXAMPLES`` makes it
  shorter or longer; 100 are 20,000 hosts), and ``-- -k two-t4`` one part of it.  It also makes
  long runs of :mod:`tests.stack.test_agent_loop` and of the cards that come and go in
  :mod:`tests.stack.test_steadiness`.

What failed prints the host and the changes, reduced; it can be played in a test::

    with FakeHost.named("two-t4") as fake:
        Site(fake).play([Change("bind", 0, "nvidia"), ...])

What must be true is in :mod:`tests.properties.running`, what is drawn in
:mod:`tests.properties.strategies`.
"""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, seed, settings

from cyborg_ext_drivers.testing import FakeHost, described_hosts
from tests.properties.conftest import SEED
from tests.properties.running import Site, lay_canary
from tests.properties.strategies import Change, hosts, series
from tests.properties.watching import Watch

#: Changes of one example, and in how many parts hosts are drawn, for as many processes.
LENGTH, PARTS = 24, 8


def drawn(name: object, share: float) -> Callable:
    """Return the settings of one test: its share of the profile's examples, and its seed."""

    def decorate(test: Callable) -> Callable:
        chosen = settings(
            max_examples=max(1, round(settings().max_examples * share)),
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        return seed(f"{os.environ.get(SEED)} {name}")(chosen(test))

    return decorate


@pytest.mark.parametrize("name", described_hosts())
def test_a_described_host_stays_honest_whatever_happens_to_it(name, record_property):
    count = 0
    with FakeHost.named(name) as fake:
        lay_canary(fake)
        watch = Watch(fake.outside)

        @drawn(name, share=0.16)
        @given(changes=series(LENGTH))
        def play(changes: list[Change]) -> None:
            nonlocal count
            with fake.undone():
                site = Site(fake)
                try:
                    site.play(changes, watch)
                finally:
                    count += site.count

        try:
            play()
        finally:
            record_property("hosts", count)
            watch.close()


@pytest.mark.parametrize("part", range(PARTS))
def test_any_host_gets_an_honest_answer(part, record_property):
    count = 0

    @drawn(part, share=0.4)
    @given(mapping=hosts(), changes=series(LENGTH))
    def play(mapping: dict, changes: list[Change]) -> None:
        nonlocal count
        with FakeHost.from_mapping(mapping) as fake:
            lay_canary(fake)
            watch = Watch(fake.outside)
            site = Site(fake)
            try:
                site.play(changes, watch)
            finally:
                count += site.count
                watch.close()

    try:
        play()
    finally:
        record_property("hosts", count)


def test_the_watch_sees_what_is_opened(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_text("x")
    watch = Watch(tmp_path)
    try:
        assert not watch.has_seen()
        (tmp_path / "below" / "file").read_text()
        assert watch.has_seen() and not watch.has_seen()
        list(tmp_path.iterdir())
        assert watch.has_seen()
    finally:
        watch.close()
