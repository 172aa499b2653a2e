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

"""An SQLite database in the place of one that a project keeps in a module global.

Cyborg and Placement each hold one ``oslo_db`` transaction context per process, which can
be started once only.  Next stop: :mod:`cyborg_ext_drivers.testing._placement`.
"""

import pathlib

import fixtures
from oslo_db.sqlalchemy import enginefacade


class Database(fixtures.Fixture):
    """One empty SQLite file that *manager* uses until clean-up."""

    def __init__(self, manager, path: pathlib.Path):
        super().__init__()
        self._manager = manager
        self._path = path

    def _setUp(self) -> None:
        replacement = enginefacade.transaction_context()
        # Nobody needs these rows after a power cut, so SQLite need not wait for the disk.
        replacement.configure(connection=f"sqlite:///{self._path}", sqlite_synchronous=False)
        self.addCleanup(self._manager.patch_factory(replacement))
        self.engine = replacement.writer.get_engine()
        self.addCleanup(self.engine.dispose)
