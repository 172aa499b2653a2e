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

"""Run by test_watch.py under umockdev's preload: a host that changes while watch looks at it.

Prints the lines that ``cyborg-ext-diagnose watch -f json`` printed.
"""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

from cyborg_ext_drivers.testing import FakeHost


def main() -> None:
    """Lay a host into umockdev's test bed, let a card die, and send the event."""
    library = ctypes.CDLL("libumockdev.so.0")
    library.umockdev_testbed_new.restype = ctypes.c_void_p
    library.umockdev_testbed_get_root_dir.restype = ctypes.c_char_p
    library.umockdev_testbed_get_root_dir.argtypes = [ctypes.c_void_p]
    library.umockdev_testbed_uevent.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    test_bed = library.umockdev_testbed_new()
    root = pathlib.Path(library.umockdev_testbed_get_root_dir(test_bed).decode())
    with FakeHost.named("two-t4") as fake:
        shutil.copytree(fake.root, root, symlinks=True, dirs_exist_ok=True)
    command = [sys.executable, "-m", "cyborg_ext_drivers.cli.app", "watch", "-f", "json"]
    watching = subprocess.Popen(
        [*command, "--for", "60"],
        env=os.environ | {"UMOCKDEV_DIR": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = []
    for line in watching.stderr:
        said.append(line)
        if line.startswith("Watching"):
            break
    assert not [line for line in said if "udev cannot be asked" in line], said
    directory = (root / "sys/bus/pci/devices/0000:3b:00.0").resolve()
    path = b"/" + os.fsencode(directory.relative_to(root))
    for content in (b"\xff" * 64, b"\xde\x10\xb8\x1e" + bytes(60)):
        (directory / "config").write_bytes(content)
        library.umockdev_testbed_uevent(test_bed, path, b"change")
        print(watching.stdout.readline(), end="")
    watching.terminate()
    watching.communicate()


if __name__ == "__main__":
    main()
