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

"""Hosts that are not there, for tests without hardware: :class:`FakeHost`.

Nothing here imports Cyborg.  Next stop: one described host in ``hosts/``, then
:mod:`cyborg_ext_drivers.testing.fakehost`.
"""

from cyborg_ext_drivers.testing._description import (
    Bar,
    Expectation,
    FunctionDescription,
    HostDescription,
    MediatedType,
    Reported,
)
from cyborg_ext_drivers.testing._loading import UnknownHost, described_hosts, load
from cyborg_ext_drivers.testing._machine import MediatedDevice, UnknownFunction
from cyborg_ext_drivers.testing._oddities import Oddity
from cyborg_ext_drivers.testing._umockdev import UmockdevMissing
from cyborg_ext_drivers.testing._validation import DescriptionError, Fault
from cyborg_ext_drivers.testing.fakehost import FakeHost

__all__ = [
    "Bar",
    "DescriptionError",
    "Expectation",
    "FakeHost",
    "Fault",
    "FunctionDescription",
    "HostDescription",
    "MediatedDevice",
    "MediatedType",
    "Oddity",
    "Reported",
    "UmockdevMissing",
    "UnknownFunction",
    "UnknownHost",
    "described_hosts",
    "load",
]
