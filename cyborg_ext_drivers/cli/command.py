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

"""The entry point of ``cyborg-ext-diagnose``, which is here for the operator in a hurry."""

import gc


def main() -> int:
    """Run the command and return its exit code.

    A run of a fifth of a second leaves no garbage worth collecting, but looking for it takes
    a tenth of that time; ``watch``, which goes on, switches the collector on again.
    """
    gc.disable()
    from cyborg_ext_drivers.cli import app

    try:
        return app.main()
    finally:
        # On its way out Python looks through all that is left once more, collector or not.
        gc.freeze()
