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

"""The operator's options for vGPU, as Cyborg's own driver has them, and what is wrong with them."""

import re

import pytest
from oslo_config import cfg

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ConfigurationError

A, B, C = (PciAddress.parse(text) for text in ("84:00.0", "85:00.0", "86:00.0"))


@pytest.fixture
def load(tmp_path):
    """Write cyborg.conf and load the types of vGPU from it."""

    def load(text):
        (tmp_path / "cyborg.conf").write_text(text)
        return conf.load(conf.read([str(tmp_path / "cyborg.conf")])).vgpu_types

    return load


def test_the_example_of_cyborgs_own_manual(load):
    assert load(
        """
[gpu_devices]
enabled_vgpu_types = nvidia-35, nvidia-36
[vgpu_nvidia-35]
device_addresses = 0000:84:00.0,0000:85:00.0
[vgpu_nvidia-36]
device_addresses = 0000:86:00.0
"""
    ) == ((A, "nvidia-35"), (B, "nvidia-35"), (C, "nvidia-36"))


@pytest.mark.parametrize(
    "text",
    ["", "[gpu_devices]\nenabled_vgpu_types =\n", "[vgpu_nvidia-35]\ndevice_addresses = x\n"],
)
def test_without_an_enabled_type_there_are_none(load, text):
    assert load(text) == ()


def vgpu(kinds, **addresses):
    lines = ["[gpu_devices]", f"enabled_vgpu_types = {kinds}"]
    for kind, value in addresses.items():
        lines += [f"[vgpu_{kind.replace('_', '-')}]", f"device_addresses = {value}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("spelling", ["0000:84:00.0", "84:00.0", "00000000:84:00.0"])
def test_an_address_may_be_spelled_as_elsewhere(load, spelling):
    assert load(vgpu("nvidia-35,", nvidia_35=f"{spelling.upper()},")) == ((A, "nvidia-35"),)


def test_an_address_that_is_named_twice_is_refused_as_in_tree(load):
    with pytest.raises(ConfigurationError, match=f"names {A} twice"):
        load(vgpu("nvidia-35,", nvidia_35=f"{A}, {str(A).removeprefix('0000:')}"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (vgpu("nvidia-35"), "[vgpu_nvidia-35] device_addresses: it is missing"),
        (vgpu("nvidia-35", nvidia_35=""), "[vgpu_nvidia-35] device_addresses: it is missing"),
        (
            vgpu("nvidia-35", nvidia_35="0000:84:00.0, gpu1"),
            "[vgpu_nvidia-35] device_addresses = gpu1: 'gpu1' is not a PCI address",
        ),
        (
            vgpu("nvidia-35", nvidia_35="0000:84:00"),
            "[vgpu_nvidia-35] device_addresses = 0000:84:00: ",
        ),
        (
            vgpu("nvidia-35,nvidia-36", nvidia_35="84:00.0", nvidia_36="0000:84:00.0"),
            "[vgpu_nvidia-36] device_addresses = 0000:84:00.0: [vgpu_nvidia-35] names it as well",
        ),
        (vgpu("../../../tmp"), "[gpu_devices] enabled_vgpu_types: '../../../tmp' is no type"),
        (vgpu("nvidia-35/create"), "[gpu_devices] enabled_vgpu_types: 'nvidia-35/create' is no"),
        (vgpu(".."), "[gpu_devices] enabled_vgpu_types: '..' is no type"),
        (vgpu("nvidia 35"), "[gpu_devices] enabled_vgpu_types: 'nvidia 35' is no type"),
        (vgpu("n" * 65), "[gpu_devices] enabled_vgpu_types: 'nnn"),
        ("[gpu_devices]\nenabled_vgpu_types = $mine\n", "[gpu_devices] enabled_vgpu_types: "),
    ],
)
def test_what_cannot_be_used_is_named(load, text, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        load(text)


def test_cyborgs_own_registration_may_come_before_and_after():
    devices = pytest.importorskip("cyborg.conf.devices", reason="Cyborg is not installed")
    for is_first in (True, False):
        configuration = cfg.ConfigOpts()
        devices.register_opts(configuration)
        configuration([], default_config_files=[], default_config_dirs=[])
        configuration.set_override("enabled_vgpu_types", ["nvidia-35"], group="gpu_devices")
        if is_first:
            devices.register_dynamic_opts(configuration)
            configuration.set_override("device_addresses", ["84:00.0"], group="vgpu_nvidia-35")
        else:
            with pytest.raises(ConfigurationError, match="it is missing"):
                conf.load(configuration)
            configuration.set_override("device_addresses", ["84:00.0"], group="vgpu_nvidia-35")
        assert conf.load(configuration).vgpu_types == ((A, "nvidia-35"),)
        devices.register_dynamic_opts(configuration)
        assert list(configuration["vgpu_nvidia-35"]["device_addresses"]) == ["84:00.0"]
        configuration.clear()
