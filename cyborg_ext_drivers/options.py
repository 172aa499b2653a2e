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

"""What the operator decided, as one value; :mod:`cyborg_ext_drivers.conf` reads it."""

import dataclasses
import os


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The options that the pipeline asks for, with the defaults of an empty cyborg.conf."""

    #: The directory below which sys/, proc/, etc/ and dev/ of the host are found.
    host_root: str = "/"
    #: The operator's catalogue files, a path of the host.
    catalog_dir: str = "/etc/cyborg/ext_catalog.d"

    def below_root(self, option: str) -> str:
        """Return the path that an option names, as this machine sees it."""
        return os.path.join(self.host_root, getattr(self, option).lstrip("/"))
