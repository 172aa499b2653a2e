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

"""The families of accelerators, one file each, found through stevedore."""

from oslo_log import log
from stevedore import extension

from cyborg_ext_drivers.families.base import Family

LOG = log.getLogger(__name__)
NAMESPACE = "cyborg_ext_drivers.family"


def load() -> tuple[Family, ...]:
    """Return every family that is installed, the package's and third parties', by name.

    One that cannot be imported is logged and left out; it must not cost the others.
    """
    manager = extension.ExtensionManager(
        NAMESPACE, invoke_on_load=True, on_load_failure_callback=_not_loaded
    )
    return tuple(ext.obj for ext in sorted(manager, key=lambda ext: ext.name))


def _not_loaded(_manager, entry_point, error) -> None:
    LOG.error("The accelerator family %s cannot be loaded: %s", entry_point.name, error)
