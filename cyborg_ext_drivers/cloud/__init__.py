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

"""A read-only look at Cyborg, Placement and Nova through openstacksdk.

Nothing here creates, changes or deletes: :mod:`~cyborg_ext_drivers.cloud.asking` has no other
request than GET.  :mod:`~cyborg_ext_drivers.cloud.reading` turns answers into plain records,
:mod:`~cyborg_ext_drivers.cloud.chain` says which link between the three projects is broken,
:mod:`~cyborg_ext_drivers.cloud.requests` which accelerator requests are left over, and
:mod:`~cyborg_ext_drivers.cloud.offers` what device profiles can ask of the cloud.  openstacksdk
(extra ``[cloud]``) is imported when a cloud is opened, not before.
"""
