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
"""How many hosts are drawn, from which seed, and how many there were in the end."""

import os
import random
import time

import pytest
from hypothesis import Phase, settings

SEED = "CYBORG_EXT_FUZZ_SEED"

settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("CYBORG_EXT_FUZZ_EXAMPLES", "2500")),
    print_blob=True,
    phases=(Phase.generate, Phase.shrink),
)
_started = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Choose a seed for a long run; the processes that share the work inherit it.

    It is that of hypothesis as well, for what does not make its own from it.
    """
    if config.getoption("hypothesis_profile", None) == "fuzz":
        os.environ.setdefault(SEED, str(random.randrange(10**9)))
        if config.option.hypothesis_seed is None:
            config.option.hypothesis_seed = os.environ[SEED]


def pytest_report_header():
    """Print the seed of a long run first."""
    if SEED in os.environ:
        return f"fuzz: {SEED}={os.environ[SEED]} repeats this run"
    return None


def pytest_terminal_summary(terminalreporter):
    """Print how many hosts were surveyed, and the seed where --quiet has left it out."""
    if SEED in os.environ and terminalreporter.config.get_verbosity() < 0:
        terminalreporter.write_line(pytest_report_header())
    reports = [each for found in terminalreporter.stats.values() for each in found]
    calls = [each for each in reports if getattr(each, "when", None) == "call"]
    hosts = sum(dict(each.user_properties).get("hosts", 0) for each in calls)
    spent = sum(each.duration for each in calls if "hosts" in dict(each.user_properties))
    if hosts:
        rate = hosts / max(spent, 0.001)
        terminalreporter.write_line(
            f"{hosts} hosts were surveyed in {time.monotonic() - _started:.0f} s, "
            f"{rate:.0f} in each second of a process"
        )
