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

"""What the tests of device profiles share."""

import json

import pytest


@pytest.fixture
def suggested(diagnose):
    """Return what ``profile suggest`` says as JSON."""
    return lambda *argv: json.loads(diagnose("profile", "suggest", "-f", "json", *argv)[1])


@pytest.fixture
def checked(diagnose):
    """Return exit code and what ``profile check`` says as JSON, on two Tesla T4 by default."""

    def run(profile, *argv):
        argv = argv or ("--fake", "two-t4")
        code, out, err = diagnose("profile", "check", "-f", "json", profile, *argv)
        return code, json.loads(out) if out else err

    return run
