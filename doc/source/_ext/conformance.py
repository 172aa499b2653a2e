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


"""The directive ``conformance-codes``: each violation, the rule it breaks, what it costs."""

from docutils import nodes
from docutils.parsers.rst import Directive

from cyborg_ext_drivers.testing.conformance.codes import CODES


class Codes(Directive):
    """A definition list of all codes."""

    def run(self):
        """Return the list."""
        listed = nodes.definition_list()
        for code in CODES.values():
            item = nodes.definition_list_item()
            item += nodes.term("", "", nodes.literal(text=code.name))
            text = nodes.paragraph(text=f"{code.rule}. {code.consequence}.")
            item += nodes.definition("", text)
            listed += item
        return [listed]


def setup(app):
    """Register the directive."""
    app.add_directive("conformance-codes", Codes)
    return {"parallel_read_safe": True}
