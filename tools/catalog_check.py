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

"""Check the package's catalogue, file by file and all together: ``catalog check``.

Prints a sentence for each fault, with file and line.  The golden traits are compared with
those of an earlier commit (``--since``, by default the one before the last): lines may be
added, never changed or taken out.
"""

import argparse
import pathlib
import subprocess
import sys

from cyborg_ext_drivers.catalog import consistency

TOP = pathlib.Path(__file__).resolve().parent.parent
CATALOG = pathlib.Path("cyborg_ext_drivers", "catalog")
GOLDEN = pathlib.Path("tests", "golden", "traits.txt")


def main(arguments: list[str] | None = None, top: pathlib.Path = TOP) -> int:
    """Print what is wrong below *top*; return 1 when anything is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", default="HEAD^", help="the commit to compare golden traits with")
    since = parser.parse_args(arguments).since
    files = sorted((top / CATALOG).glob("*.yaml"))
    found = consistency.faults({str(CATALOG / file.name): file.read_text() for file in files})
    for revision in (since, "HEAD"):
        found.extend(_broken(top, revision))
    for fault in dict.fromkeys(found):
        print(fault)
    return 1 if found else 0


def _broken(top: pathlib.Path, revision: str) -> list[str]:
    """Return a sentence for each golden line of a revision that is not there any more."""
    # The path is relative to where git is asked, which need not be the repository's top.
    shown = subprocess.run(
        ["git", "show", f"{revision}:./{GOLDEN}"], cwd=top, capture_output=True, text=True
    )
    if shown.returncode:
        # A released archive and the first commit of a clone have nothing to compare with.
        print(f"{GOLDEN} is not compared: {shown.stderr.strip()}", file=sys.stderr)
        return []
    lost = consistency.promises_broken(shown.stdout, (top / GOLDEN).read_text())
    return [
        f"{GOLDEN}: this line of {revision} was changed or taken out, but device profiles rely "
        f"on it: {line}"
        for line in lost
    ]


if __name__ == "__main__":
    sys.exit(main())
