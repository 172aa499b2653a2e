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

"""A library with NVML's symbols, for tests without NVIDIA's driver.

:func:`compile` makes it from the C source beside this file; what it says stands in the file
``nvml.description`` beside the library, whose keys the source explains.  A
:class:`~cyborg_ext_drivers.testing.FakeHost` writes that from its own description.
"""

import os
import pathlib
import shutil
import subprocess

from cyborg_ext_drivers import errors

SONAME = "libnvidia-ml.so.1"
DESCRIPTION = "nvml.description"
_SOURCE = pathlib.Path(__file__).with_name("_nvml_stub.c")


class NoCompiler(errors.ExtDriversError):
    """The stub cannot be compiled on this machine."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"the stand-in for NVML cannot be compiled: {self.reason}"


def compile(directory: str | os.PathLike) -> pathlib.Path:
    """Compile the library into a directory and return its path.

    :raises NoCompiler: when there is no C compiler, or it fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler("there is neither cc nor gcc; install gcc and libc6-dev")
    library = pathlib.Path(directory, SONAME)
    command = [compiler, "-std=gnu11", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}"]
    try:
        subprocess.run(
            [*command, "-o", str(library), str(_SOURCE), "-ldl"],
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        raise NoCompiler(error.stderr.strip()[-500:] or f"{compiler} failed") from None
    return library
