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

"""The JSON that the command has promised to print."""

import json
import pathlib

import jsonschema

ROOT = pathlib.Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "doc/source/schema/host.json").read_text())
CONTRACT = set(SCHEMA["items"]["required"])


def long_json(diagnose, *argv):
    code, out, _ = diagnose("host", "--long", "-f", "json", *argv)
    rows = json.loads(out)
    jsonschema.validate(rows, SCHEMA)
    return code, rows
