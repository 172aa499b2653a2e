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

"""What the drivers of XRT show of an Alveo or Versal card below one PCI function.

Read, in the function's own directory: ``mgmt_pf``, ``user_pf``, ``ready``, ``mfg``,
``interface_uuids``, ``logic_uuids``, ``xclbinuuid`` and ``rom.m.<n>/VBNV`` or
``rom.u.<n>/VBNV`` (Xilinx/XRT, mgmt-sysfs.c, xocl_sysfs.c and feature_rom.c).  The drivers,
xclmgmt and xocl, are outside the kernel; without them nothing of this is there.

Next stop: :mod:`cyborg_ext_drivers.host.fpga_id`.
"""

import errno
import re

from cyborg_ext_drivers.errors import Malformed, Unreadable
from cyborg_ext_drivers.host.directory import Directory, shown
from cyborg_ext_drivers.host.fpga_id import read_id, read_ids
from cyborg_ext_drivers.host.sysfs import Tree

INTERFACES, LOGIC, LOADED = "interface_uuids", "logic_uuids", "xclbinuuid"
_NOTHING = re.compile("[0-]*")
_ROM = re.compile(r"rom\.[mu]\.([0-9]{1,12})")
_VBNV = re.compile(r"[!-~]{1,255}")
# mgmt prints %d, user 0x%x.
_FLAGS = {"0": False, "1": True, "0x0": False, "0x1": True}


class XrtView:
    """What can be seen of a card through XRT below one function; read when asked for.

    :param path: the host's path of the function.
    """

    def __init__(self, tree: Tree, path: str):
        self._tree = tree
        #: The host's path of the function.
        self.path = path

    def path_of(self, attribute: str) -> str:
        """Return the host's path of an attribute, for evidence."""
        return f"{self.path}/{attribute}"

    @property
    def is_managed(self) -> bool:
        """Whether xclmgmt shows it as the function that manages a card.

        :raises ReadError: when it cannot be told.
        """
        return self._directory.has("mgmt_pf")

    @property
    def is_user(self) -> bool:
        """Whether xocl shows it as the function that a user works with.

        :raises ReadError: when it cannot be told.
        """
        return self._directory.has("user_pf")

    @property
    def is_shown(self) -> bool:
        """Whether a driver of XRT shows anything of it.

        :raises ReadError: when it cannot be told.
        """
        return self.is_managed or self.is_user

    @property
    def is_ready(self) -> bool | None:
        """Whether the driver has done with it, ``None`` when it does not say.

        The user function is ready only while its peer on the managing function is.

        :raises ReadError: when it cannot be read or is neither 0 nor 1.
        """
        return self._flag("ready")

    @property
    def is_golden(self) -> bool | None:
        """Whether it runs the golden image, with which it has no user function.

        ``None`` when the driver does not say: only the managing function does.

        :raises ReadError: when it cannot be read or is neither 0 nor 1.
        """
        return self._flag("mfg")

    @property
    def shell(self) -> str | None:
        """The platform's name (VBNV): ``xilinx_u250_gen3x16_xdma_shell_4_1``.

        ``None`` when the driver does not say.

        :raises ReadError: when it cannot be read or is no name.
        """
        matches = filter(None, map(_ROM.fullmatch, self._directory.names() or ()))
        for match in sorted(matches, key=lambda match: (int(match[1]), match[0])):
            rom = self._tree.directory(self.path_of(match[0]))
            text = rom.text("VBNV")
            if text and not _VBNV.fullmatch(text):
                expected = "the name of a platform"
                raise Malformed(rom.path_of("VBNV"), shown(text.encode()), expected)
            if text:
                return text
        return None

    @property
    def interface_uuids(self) -> tuple[str, ...] | None:
        """Which images fit the card, the base first, then what is loaded on it.

        Empty where the card has no such metadata: while it is not ready, and with shells of
        one stage.  ``None`` when the file is absent.

        :raises ReadError: when it cannot be read or a line is no id.
        """
        return self._ids(INTERFACES)

    @property
    def logic_uuids(self) -> tuple[str, ...] | None:
        """Which images are on the card, in the same order as :attr:`interface_uuids`.

        :raises ReadError: when it cannot be read or a line is no id.
        """
        return self._ids(LOGIC)

    @property
    def xclbin_uuid(self) -> str | None:
        """Which kernels are loaded upon the shell, ``None`` for none and where it is not told.

        Only the user function tells it.

        :raises ReadError: when it cannot be read or is no id.
        """
        text = self._directory.text(LOADED)
        if text is None or _NOTHING.fullmatch(text):
            return None
        return read_id(self._directory, LOADED)

    @property
    def _directory(self) -> Directory:
        return self._tree.directory(self.path)

    def _ids(self, name: str) -> tuple[str, ...] | None:
        try:
            return read_ids(self._directory, name)
        except Unreadable as error:
            # What both drivers answer where a card has no metadata.
            if error.errno == errno.EINVAL:
                return ()
            raise

    def _flag(self, name: str) -> bool | None:
        text = self._directory.text(name)
        if text is not None and text not in _FLAGS:
            raise Malformed(self.path_of(name), shown(text.encode()), "0 or 1")
        return None if text is None else _FLAGS[text]
