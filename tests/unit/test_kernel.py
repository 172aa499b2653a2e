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

"""What the kernel says of itself, and what is not known when it says nothing."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers.errors import Malformed, Unreadable
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.kernel import HYPERVISOR, Kernel, parse_command_line
from cyborg_ext_drivers.host.sysfs import Tree
from cyborg_ext_drivers.testing import FakeHost


@pytest.fixture
def lay(tmp_path):
    """Lay files out by the host's paths and return the host's kernel."""

    def lay(files):
        for path, text in files.items():
            at = tmp_path / path.lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(text)
        return Kernel(Tree(tmp_path))

    return lay


def test_a_host_that_says_nothing_is_not_known(lay):
    kernel = lay({})
    assert kernel.release is None
    assert kernel.architecture is None
    assert kernel.command_line == ()
    assert kernel.parameter("iommu") is None
    assert kernel.modules == frozenset()
    assert not kernel.has_module("vfio_pci")
    assert kernel.module_parameter("vfio", "enable_unsafe_noiommu_mode") is None
    assert not kernel.is_xen_host


def test_release_and_architecture(lay):
    kernel = lay(
        {
            "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
            "/proc/sys/kernel/arch": "aarch64\n",
        }
    )
    assert kernel.release == "6.8.0-45-generic"
    assert kernel.architecture == "aarch64"


def test_the_running_machine_always_knows_its_architecture():
    assert Kernel(Tree("/")).architecture == os.uname().machine


def test_modules_and_their_parameters(lay):
    kernel = lay(
        {
            "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode": "Y\n",
            "/sys/module/vfio_pci/initstate": "live\n",
        }
    )
    assert kernel.modules == {"vfio", "vfio_pci"}
    assert kernel.has_module("vfio-pci") and kernel.has_module("vfio_pci")
    assert not kernel.has_module("nvidia")
    assert kernel.module_parameter("vfio", "enable_unsafe_noiommu_mode") == "Y"
    assert kernel.module_parameter("vfio", "other") is None
    assert kernel.module_parameter("nvidia", "NVreg_x") is None


@pytest.mark.parametrize(("text", "is_xen"), [("xen\n", True), ("kvm\n", False)])
def test_only_xen_is_xen(lay, text, is_xen):
    assert lay({HYPERVISOR: text}).is_xen_host is is_xen


def test_the_last_value_of_a_parameter_wins(lay):
    kernel = lay({"/proc/cmdline": "iommu=off quiet intel_iommu=on,sm_on iommu=pt\n"})
    assert kernel.parameter("iommu") == "pt"
    assert kernel.parameter("intel_iommu") == "on,sm_on"
    assert kernel.parameter("quiet") == ""
    assert kernel.parameter("amd_iommu") is None


def test_dashes_and_underscores_of_a_name_are_the_same_and_those_of_a_value_are_not(lay):
    kernel = lay({"/proc/cmdline": "vfio-pci.ids=10de:1eb8 a-b=c-d"})
    assert kernel.parameter("vfio_pci.ids") == "10de:1eb8"
    assert kernel.parameter("a_b") == "c-d"


def test_a_command_line_that_cannot_be_read_is_not_an_empty_one(lay, tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cmdline").symlink_to("cmdline")
    kernel = lay({})
    with pytest.raises(Unreadable):
        kernel.parameter("iommu")
    (tmp_path / "proc" / "cmdline").unlink()
    (tmp_path / "proc" / "cmdline").write_bytes(b"\xff\xfe")
    with pytest.raises(Malformed):
        lay({}).parameter("iommu")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("  \n", ()),
        ("ro quiet", (("ro", None), ("quiet", None))),
        ("a= b==c", (("a", ""), ("b", "=c"))),
        ('dyndbg="file x +p" ro', (("dyndbg", "file x +p"), ("ro", None))),
        ('"acpi_osi=Windows 2015" ro', (("acpi_osi", "Windows 2015"), ("ro", None))),
        ("a=1\tb=2\nc=3", (("a", "1"), ("b", "2"), ("c", "3"))),
        ("it's iommu=off", (("it's", None), ("iommu", "off"))),
    ],
)
def test_words_of_a_command_line(text, words):
    assert parse_command_line(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # The EFI stub and systemd-boot write paths as EFI does.
        (r"initrd=\EFI\arch\initramfs.img", (("initrd", r"\EFI\arch\initramfs.img"),)),
        # lib/cmdline.c knows double quotes only.
        ("a='b iommu=off c'", (("a", "'b"), ("iommu", "off"), ("c'", None))),
    ],
)
def test_backslashes_and_single_quotes_mean_nothing_to_the_kernel(text, words):
    assert parse_command_line(text) == words


words = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'\\="), min_size=1
)


@given(st.lists(st.tuples(words, st.none() | words)), st.sampled_from([" ", "  ", "\t", "\n"]))
def test_plain_words_come_back_in_their_order(pairs, space):
    text = space.join(name if value is None else f"{name}={value}" for name, value in pairs)
    assert parse_command_line(text) == tuple((n.replace("-", "_"), v) for n, v in pairs)


@given(st.text() | st.text("ab=\"'\\- ", max_size=20))
def test_any_command_line_can_be_parsed(text):
    for name, value in parse_command_line(text):
        assert "-" not in name and "=" not in name
        assert value is None or isinstance(value, str)


@given(words, st.text("abc =-", max_size=12))
def test_quotes_keep_white_space_together(name, value):
    expected = ((name.replace("-", "_"), value), ("ro", None))
    assert parse_command_line(f'{name}="{value}" ro') == expected


def test_each_boot_has_an_id_of_its_own(lay):
    assert lay({}).boot_id is None
    assert lay({"/proc/sys/kernel/random/boot_id": "5c8f1d0e\n"}).boot_id == "5c8f1d0e"
    with FakeHost() as fake:
        first = Host(fake.root).kernel.boot_id
        assert first and Host(fake.root).kernel.boot_id == first
        fake.reboot()
        assert Host(fake.root).kernel.boot_id not in (None, first)
