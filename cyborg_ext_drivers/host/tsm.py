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

"""Which functions the platform's TEE Security Manager (TSM) has a secure stream to.

Read: the links in ``/sys/class/tsm/tsm*`` (Documentation/ABI/testing/sysfs-class-tsm):
``stream<H>.<R>.<E>``, later ``pci<DDDD:BB>:stream<H>.<R>.<E>``, each to the function at the other
end.  ``tsm/connect`` of the function would say the same and more, but waits while any function is
being connected (drivers/pci/tsm.c).
"""

import re
from collections.abc import Iterator

from cyborg_ext_drivers.address import is_sysfs_name
from cyborg_ext_drivers.errors import Malformed
from cyborg_ext_drivers.host.sysfs import Tree

CLASS = "/sys/class/tsm"
_TSM = re.compile(r"tsm\d+")
_STREAM = re.compile(r"(?:pci[0-9a-f]{4,8}:[0-9a-f]{2}:)?stream\d+\.\d+\.\d+")


class Tsm:
    """The TEE Security Managers of one host; most have none."""

    def __init__(self, tree: Tree):
        self._tree = tree

    def streams(self) -> Iterator[tuple[str, str]]:
        """Yield the host's path of each secure stream, and the function that it leads to.

        :raises ReadError: when the managers cannot be listed, or a link leads to no function.
        """
        for manager in sorted(filter(_TSM.fullmatch, self._tree.names(CLASS) or ())):
            directory = self._tree.directory(f"{CLASS}/{manager}")
            for name in sorted(filter(_STREAM.fullmatch, directory.names() or ())):
                target = directory.link(name)
                if target is not None and not is_sysfs_name(target):
                    raise Malformed(directory.path_of(name), target, "a PCI function")
                if target is not None:
                    yield directory.path_of(name), target
