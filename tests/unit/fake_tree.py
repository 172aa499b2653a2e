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

"""What the tests of the fake host put into it, and how they look at it."""

import os

T4 = {"vendor": "10de", "device": "1eb8", "class_": "030200", "subsystem": "10de:12a2"}
ADDRESS = "0000:3b:00.0"
UUID = "4b20d080-1b54-4048-85b3-a6a62d165c01"
TYPES = {
    "nvidia-222": {"name": "GRID T4-1B", "available_instances": 16},
    "nvidia-223": {"name": "GRID T4-2B", "available_instances": 8, "description": "num_heads=4"},
}


def read(fake, name, address=ADDRESS):
    return fake.path(f"/sys/bus/pci/devices/{address}/{name}").read_bytes().decode("latin-1")


def link(fake, path):
    return os.readlink(fake.path(path))


def tree_of(fake):
    """Return everything below the root: links by target, files by content."""
    found = {}
    for directory, names, files in os.walk(fake.root):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            key = path.removeprefix(str(fake.root))
            if os.path.islink(path):
                found[key] = os.readlink(path)
            elif os.path.isdir(path):
                found[key] = None
            elif not os.stat(path).st_mode & 0o400:
                found[key] = "takes commands"
            else:
                with open(path, "rb") as file:
                    found[key] = file.read()
    return found


def dangling_links(fake):
    """Return the links that lead nowhere or out of the root; a host has none."""
    return [
        path
        for path in tree_of(fake)
        if os.path.islink(f"{fake.root}{path}")
        and not os.path.realpath(f"{fake.root}{path}", strict=False).startswith(f"{fake.root}/sys/")
    ] + [path for path in tree_of(fake) if not os.path.exists(f"{fake.root}{path}")]
