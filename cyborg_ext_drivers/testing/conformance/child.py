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

"""The process that the driver runs in: ``python -m ...child REQUEST ANSWER``, both JSON files.

umockdev's library is loaded into it and looks for ``UMOCKDEV_DIR`` at every access, so one
process goes from host to host.
"""

import contextlib
import json
import os
import pathlib
import sys
import warnings
from typing import Any


def main(request: str, answer: str) -> None:
    """Try a driver on each host of the request, and write what was found."""
    warnings.simplefilter("ignore")
    asked = json.loads(pathlib.Path(request).read_text())
    results = [_on_host(asked, host) for host in asked["hosts"]]
    pathlib.Path(answer).write_text(json.dumps(results))


def _on_host(asked: dict[str, Any], host: dict[str, str]) -> dict[str, Any]:
    from cyborg_ext_drivers.testing import FakeHost, load
    from cyborg_ext_drivers.testing.conformance.trial import Impossible, Trial

    with contextlib.ExitStack() as stack:
        fake = None
        if host["kind"] == "fake":
            fake = stack.enter_context(FakeHost(load(host["where"])))
            root = fake.root
        else:
            root = pathlib.Path(host["where"])
        if root != pathlib.Path("/"):
            os.environ["UMOCKDEV_DIR"] = str(root)
            stack.callback(os.environ.pop, "UMOCKDEV_DIR", None)
        trial = Trial(asked["driver"], root, fake, asked["settings"])
        try:
            found = list(dict.fromkeys(trial.run()))
        except Impossible as error:
            return {"host": host["name"], "impossible": str(error)}
        return {"host": host["name"], "devices": trial.devices, "found": found}


if __name__ == "__main__":
    main(*sys.argv[1:])
