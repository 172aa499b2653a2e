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

"""The small cloud that these tests share; Cyborg may be missing until one of them runs."""

import pytest


@pytest.fixture
def nova():
    from tests.cloud.services import Nova

    return Nova("compute-1")


@pytest.fixture
def card():
    from tests.stack.one_card import OneCard

    return OneCard(traits=("OWNER_CYBORG", "CUSTOM_GPU_ACME", "CUSTOM_ACME_FAST"))


@pytest.fixture
def cloud(card, nova):
    from cyborg_ext_drivers.testing.stack import Stack
    from tests.cloud.services import SmallCloud

    with Stack(driver_objects=[card]) as stack, SmallCloud(stack, nova) as small:
        yield small
