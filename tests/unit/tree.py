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

"""A directory that stands for a host's root."""

import pathlib

from cyborg_ext_drivers.host.sysfs import Tree

CARD = "/sys/devices/pci0000:3a/0000:3b:00.0"
BUS = "/sys/bus/pci/devices"


class Root:
    """A directory that stands for a host's root, filled by the host's paths."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def at(self, path):
        return self.path / path.lstrip("/")

    def file(self, path, content="x\n"):
        at = self.at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content if isinstance(content, bytes) else content.encode())

    def link(self, path, target):
        at = self.at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(target)

    def function(self, name, content="DRIVER=vfio-pci\n", below="pci0000:3a"):
        self.file(f"/sys/devices/{below}/{name}/uevent", content)
        self.link(f"{BUS}/{name}", f"../../../devices/{below}/{name}")

    @property
    def tree(self):
        return Tree(self.path)
