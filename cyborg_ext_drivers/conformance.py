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

"""The entry point of ``cyborg-ext-conformance``, which says it where an extra is missing."""

import sys


def main() -> int:
    """Run the command and return its exit code."""
    try:
        from cyborg_ext_drivers.testing.conformance import app
    except ImportError as error:
        if (error.name or "").startswith("cyborg_ext_drivers"):
            raise
        print(
            f"cyborg-ext-conformance: it needs more than the drivers ({error}); install "
            "'cyborg-ext-drivers[stack]'",
            file=sys.stderr,
        )
        return 2
    return app.main()
