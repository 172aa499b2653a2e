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


"""What the tests of the host in a file share."""

import pytest

from cyborg_ext_drivers.cli.app import main


@pytest.fixture
def diagnose(capsys):
    """Run the command; return its exit code, output and error output."""

    def run(*argv):
        capsys.readouterr()
        try:
            code = main([str(word) for word in argv])
        except SystemExit as error:
            code = error.code
        out, err = capsys.readouterr()
        return code, out, err

    return run
