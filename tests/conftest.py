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

"""What holds for all tests."""

import os

import hypothesis
import pytest

# Its own tests run where it is installed: tests/unit/test_example_vendor.py.
collect_ignore = ["example_vendor"]

# How long an example takes says something of the machine, not of the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture
def diagnose(capsys):
    """Run the command; return its exit code, output and error output."""

    def run(*argv):
        from cyborg_ext_drivers.cli.app import main

        capsys.readouterr()
        try:
            code = main([str(word) for word in argv])
        except SystemExit as error:
            code = error.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


def pytest_sessionfinish(session, exitstatus):
    """Let a skipped test fail the run where everything that tests need was installed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CYBORG_EXT_NO_SKIPS") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = 1
        reporter.write_line("CYBORG_EXT_NO_SKIPS is set, and tests were skipped", red=True)
