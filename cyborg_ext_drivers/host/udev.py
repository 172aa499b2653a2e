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

"""What udev knows of a PCI function: names for people, events.

udev's names come from a database that changes with a package update, so they are for
people's eyes only and never part of a report.  udev describes the running machine (or
the one that umockdev stands in for) and is not asked about any other root.  A machine
without libudev or without udev's database loses names and nothing else.
"""

import os

from oslo_log import log

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.host.sysfs import Tree

LOG = log.getLogger(__name__)

# Enabling 48 virtual functions sends 97 events.
_SETTLED_SECONDS = 0.2


class Udev:
    """udev's view of one host; empty where udev cannot be asked."""

    def __init__(self, tree: Tree):
        self._captured = tree.udev_names
        can_ask = self._captured is None and _describes(tree)
        self._context = _context() if can_ask else None

    def names(self, address: PciAddress) -> tuple[str | None, str | None]:
        """Return the names of a function's vendor and model, ``None`` where not known."""
        if self._captured is not None:
            return self._captured.get(str(address), (None, None))
        device = self._device(address)
        if device is None:
            return None, None
        properties = device.properties
        return (
            properties.get("ID_VENDOR_FROM_DATABASE"),
            properties.get("ID_MODEL_FROM_DATABASE"),
        )

    def changes(self) -> "Changes | None":
        """Return what tells of changes from now on, ``None`` where udev cannot be asked.

        :raises OSError: when udev's socket cannot be opened.
        """
        return Changes(self._context) if self._context is not None else None

    def _device(self, address: PciAddress):
        if self._context is None:
            return None
        import pyudev

        try:
            return pyudev.Devices.from_name(self._context, "pci", str(address))
        except pyudev.DeviceNotFoundError:
            return None


class Changes:
    """udev's events of PCI functions; those of one burst count as one change."""

    def __init__(self, context):
        import pyudev

        self._monitor = pyudev.Monitor.from_netlink(context)
        self._monitor.filter_by("pci")
        self._monitor.start()

    def wait(self, seconds: float | None) -> bool:
        """Return whether anything came within so many seconds; ``None`` waits without end.

        A socket that overflowed has lost events, which is a change as well (ENOBUFS).
        """
        try:
            came = self._monitor.poll(seconds) is not None
            while came and self._monitor.poll(_SETTLED_SECONDS) is not None:
                pass
        except OSError as error:
            LOG.info("udev's events were lost, so everything is looked at again: %s", error)
            return True
        return came


def _describes(tree: Tree) -> bool:
    """Tell whether udev speaks of this host: the running one or umockdev's."""
    if tree.is_live:
        return True
    test_bed = os.environ.get("UMOCKDEV_DIR")
    return bool(test_bed) and os.path.realpath(test_bed) == tree.root


def _context():
    try:
        import pyudev

        return pyudev.Context()
    except ImportError as error:
        # pyudev loads libudev when the context is made and says ImportError when it cannot.
        LOG.info("Names of unknown cards are not shown: udev cannot be asked (%s)", error)
        return None
