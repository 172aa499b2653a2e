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

"""``watch`` follows the events of udev, which umockdev sends as the kernel would."""

import json
import os
import subprocess
import sys

import pytest

from cyborg_ext_drivers.testing import FakeHost, UmockdevMissing

pytest.importorskip("pyudev", reason="pyudev is not installed")


def test_each_change_of_verdict_is_one_line_after_the_event():
    with FakeHost.named("two-t4") as fake:
        try:
            preload = fake.umockdev_environment()["LD_PRELOAD"]
        except UmockdevMissing as error:
            pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, os.path.join(os.path.dirname(__file__), "watching.py")],
        env=os.environ | {"LD_PRELOAD": preload},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    died, recovered = map(json.loads, done.stdout.splitlines())
    assert (died["address"], died["before"], died["after"]) == (
        "0000:3b:00.0",
        "reported",
        "skipped",
    )
    assert died["reason"] == "config-space-dead"
    assert died["remedy"]
    assert (recovered["before"], recovered["after"]) == ("skipped", "reported")
