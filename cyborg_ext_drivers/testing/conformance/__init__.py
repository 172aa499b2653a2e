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

"""Does a Cyborg driver keep what the conductor relies on?  ``cyborg-ext-conformance``.

:mod:`.record` turns what a driver discovers into plain values, :mod:`.rules` judges them,
:mod:`.trial` changes a fake host under the driver and takes its report to the real conductor
and Placement, :mod:`.running` does that in a process that sees the fake host as its own, and
:mod:`.app` is the command.  Next stop: :mod:`.codes`.
"""
