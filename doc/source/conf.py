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

"""Configuration of Sphinx."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_ext"))

project = "cyborg-ext-drivers"
author = "cyborg-ext-drivers maintainers"
copyright = "cyborg-ext-drivers maintainers"

extensions = [
    "sphinx.ext.autodoc",
    "oslo_config.sphinxext",
    "stevedore.sphinxext",
    "findings",
    "conformance",
]
# The manual of what needs these is made where they are not installed.
autodoc_mock_imports = ["cyborg", "oslo_db", "placement"]
html_theme = "alabaster"
html_theme_options = {"description": "Accelerators that can really be attached"}
exclude_patterns = ["_ext", "conformance-table.rst"]
