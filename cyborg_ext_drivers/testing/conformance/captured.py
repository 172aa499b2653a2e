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

"""Makes described hosts of snapshots, for programs that need the files of a host.

Next stop: :mod:`cyborg_ext_drivers.testing.conformance.running`.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.snapshot import describe, opening
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost


def described(file: str, directory: str | os.PathLike) -> pathlib.Path:
    """Return the file of a described host, made of a snapshot below *directory*.

    :raises SnapshotError: when the file is no snapshot that can be opened.
    """
    with opening.opened(file) as opened:
        configuration = conf.read(None, opened.root)
        # Otherwise this machine's catalogue files and nova.conf would be described.
        configuration.set_override("host_root", opened.root, group=conf.GROUP.name)
        options = conf.with_nova(conf.of_copy(conf.load(configuration)))
        found = describe.describe(
            opened.host, Surveyor(options), _lay, "snapshot", with_serials=True, with_all=True
        )
    path = pathlib.Path(directory, "snapshot.yaml")
    path.write_text(found.yaml)
    return path


@contextlib.contextmanager
def _lay(mapping: Mapping[str, Any]) -> Iterator[str]:
    with FakeHost.from_mapping(mapping) as fake:
        yield str(fake.root)
