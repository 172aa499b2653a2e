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

"""What the unit tests share."""

import pytest

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.testing import FakeHost
from tests.cards import add_a40, add_t4
from tests.unit import fake_tree
from tests.unit.tree import Root


@pytest.fixture
def root(tmp_path):
    """A directory that stands for the root of a host."""
    (tmp_path / "host").mkdir()
    return Root(tmp_path / "host")


@pytest.fixture
def outside(tmp_path):
    """What lies beside the root, and must never be seen."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    (tmp_path / "outside" / "uevent").write_text("DRIVER=secret\n")
    return tmp_path / "outside"


@pytest.fixture
def load_catalog(tmp_path):
    """Lay the operator's files out and load the catalogue with them."""

    def load(**files):
        for name, text in files.items():
            at = tmp_path / f"{name}.yaml"
            at.write_bytes(text) if isinstance(text, bytes) else at.write_text(text)
        return catalog.load(tmp_path)

    return load


@pytest.fixture
def fake():
    """A host with one T4 in group 27 on NVIDIA's driver."""
    with FakeHost() as host:
        host.add_function(
            fake_tree.ADDRESS, **fake_tree.T4, driver="nvidia", iommu_group=27, numa_node=0
        )
        yield host


@pytest.fixture
def t4_and_a40():
    """A host with a T4 on vfio-pci and an A40, which can have virtual functions."""
    with FakeHost() as host:
        add_t4(host, numa_node=1, iommu_group=0)
        add_a40(host)
        yield host
