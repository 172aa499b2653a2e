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

"""Shows a fake host to other people's programs through umockdev's preload library.

The library sends accesses to /sys and, where the file exists, to /dev and /proc below a
root (https://github.com/martinpitt/umockdev).  udev's records in /run/udev/data are laid as
well; whether the library sends readers there depends on its release.
"""

import os

from cyborg_ext_drivers import errors


class UmockdevMissing(errors.ExtDriversError):
    """umockdev's preload library is not on this machine."""

    def __str__(self) -> str:
        return "libumockdev-preload.so is not on this machine; install the package umockdev"


def environment(root: str | os.PathLike) -> dict[str, str]:
    """Return the variables under which a new process sees the host below *root*.

    Add them to the process's environment; libraries that are preloaded already stay so.

    :raises UmockdevMissing: when umockdev is not installed.
    """
    # Imported late: it is slow, and most who use a fake host need no other program.
    import ctypes.util

    library = ctypes.util.find_library("umockdev-preload")
    if library is None:
        raise UmockdevMissing
    loaded = os.environ.get("LD_PRELOAD")
    preload = f"{library}:{loaded}" if loaded else library
    return {"LD_PRELOAD": preload, "UMOCKDEV_DIR": os.fspath(root)}
