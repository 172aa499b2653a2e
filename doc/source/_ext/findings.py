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

"""The directive ``findings``: every code with its title, explanation and remedy.

Made from the checks themselves, so that the manual says what the drivers say.
"""

from docutils import nodes
from docutils.parsers.rst import Directive

from cyborg_ext_drivers import checks


class Findings(Directive):
    """A section for each code, by check."""

    def run(self):
        """Return the sections."""
        return [self._section(code) for check in checks.load() for code in check.codes]

    def _section(self, code):
        section = nodes.section(ids=[code.name], names=[code.name])
        section += nodes.title(text=code.name)
        section += nodes.paragraph(text=f"{code.title} ({code.severity}).")
        section += nodes.paragraph(text=code.explanation)
        section += nodes.paragraph(text=f"What to do: {code.remedy}.")
        return section


def setup(app):
    """Register the directive."""
    app.add_directive("findings", Findings)
    return {"parallel_read_safe": True}
