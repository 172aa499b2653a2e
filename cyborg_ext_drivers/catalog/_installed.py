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

"""The catalogue files that other packages bring, found through stevedore.

The value of an entry point is a package, or a module; the files lie in its directory.
"""

import os
import types
from collections.abc import Iterator

from stevedore import extension

from cyborg_ext_drivers.errors import CatalogError

NAMESPACE = "cyborg_ext_drivers.catalog"


def directories(faults: list[CatalogError]) -> Iterator[tuple[str, list[str]]]:
    """Yield each entry point, as people write it, with its directories, by name.

    :param faults: takes those that cannot be loaded; they must not cost the others.
    """

    def not_loaded(_manager, entry_point, error) -> None:
        faults.append(CatalogError(_shown(entry_point), [f"cannot be imported: {error}"]))

    manager = extension.ExtensionManager(NAMESPACE, on_load_failure_callback=not_loaded)
    for each in sorted(manager, key=lambda each: each.name):
        name = _shown(each.entry_point)
        found = _directories_of(each.plugin)
        if found:
            yield name, found
        else:
            faults.append(CatalogError(name, ["is no package or module with a directory"]))


def _directories_of(plugin: object) -> list[str]:
    if not isinstance(plugin, types.ModuleType):
        return []
    if hasattr(plugin, "__path__"):
        return list(plugin.__path__)
    file = getattr(plugin, "__file__", None)
    return [os.path.dirname(file)] if file else []


def _shown(entry_point) -> str:
    return f"{NAMESPACE}: {entry_point.name} = {entry_point.value}"
