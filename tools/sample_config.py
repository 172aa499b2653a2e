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

"""Write the sample of the options, or check that it is what they say now (``--check``)."""

import pathlib
import sys
import tempfile

from oslo_config import generator

SAMPLE = pathlib.Path(__file__).parent.parent / "etc" / "cyborg_ext_drivers.conf.sample"


def generated() -> str:
    """Return what oslo-config-generator makes of the options."""
    with tempfile.NamedTemporaryFile("r", suffix=".sample") as file:
        generator.main(
            ["--namespace", "cyborg_ext_drivers", "--output-file", file.name, "--wrap-width", "79"]
        )
        return file.read()


def main() -> int:
    """Write or check; return 1 when the sample is stale."""
    text = generated()
    if "--check" not in sys.argv[1:]:
        SAMPLE.write_text(text)
        return 0
    if SAMPLE.is_file() and SAMPLE.read_text() == text:
        return 0
    print(f"{SAMPLE} is not what the options say; write it anew with: tox -e genconfig")
    return 1


if __name__ == "__main__":
    sys.exit(main())
