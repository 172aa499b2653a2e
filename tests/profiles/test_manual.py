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

"""The examples of the manual are what the command prints."""

import pathlib
import re
import shlex
import textwrap

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "doc/source/profiles.rst").read_text()
EXAMPLES = [
    textwrap.dedent(block).strip().split("\n", 1)
    for block in re.findall(r"code-block:: console\n\n((?:   .*\n)+)", PAGE)
]


def test_there_are_examples():
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[each[0][:60] for each in EXAMPLES])
def test_an_example_of_the_manual(command, output, diagnose):
    prompt, program, *words = shlex.split(command)
    assert (prompt, program) == ("$", "cyborg-ext-diagnose")
    assert diagnose(*words)[1].strip() == output
