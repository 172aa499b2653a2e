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

"""A value that cannot be used stops the agent with the option's name and the value."""

import re

import pytest
from oslo_config import cfg

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.errors import ConfigurationError
from cyborg_ext_drivers.options import Options, Selector


@pytest.fixture
def load(tmp_path):
    """Write cyborg.conf and load the operator's decisions from it."""

    def load(text):
        (tmp_path / "cyborg.conf").write_text(text)
        return conf.load(conf.read([str(tmp_path / "cyborg.conf")]))

    return load


def test_an_empty_file_means_the_defaults(load):
    options = load("")
    assert options == Options(enabled_drivers=("fake_driver",))
    assert options.host_root == "/"
    assert options.catalog_dir == "/etc/cyborg/ext_catalog.d"
    assert not options.vfio_only and not options.include and not options.exclude


def test_no_file_at_all_means_the_defaults_and_no_word_of_cyborgs_drivers():
    assert conf.load(cfg.ConfigOpts()) == Options()


def test_what_the_operator_decided(load, tmp_path):
    options = load(
        f"""
[ext_drivers]
host_root = {tmp_path}
catalog_dir = /etc/mine
include = 0000:3b:00.0, 10de:*
exclude = 3b:00.1
vfio_only = yes
ignore_findings = companion-bound, console-device
extra_traits = 10de:1eb8=CUSTOM_RACK_7, CUSTOM_CHEAP
extra_traits = 0000:5e:*=CUSTOM_RACK_8
withdraw_after = 5
on_fault = keep
nvml_library = /opt/nvidia/libnvidia-ml.so.1
nvml_timeout = 0.5
program_timeout = 90
[agent]
enabled_drivers = ext_nvidia_gpu_driver, nvidia_gpu_driver
[pci]
passthrough_whitelist = {{"vendor_id": "10de"}}
"""
    )
    assert options == Options(
        host_root=str(tmp_path),
        catalog_dir="/etc/mine",
        include=(Selector("0000:3b:00.0"), Selector("10de:*", is_id=True)),
        exclude=(Selector("0000:3b:00.1"),),
        vfio_only=True,
        ignore_findings=frozenset(("companion-bound", "console-device")),
        extra_traits=(
            (Selector("10de:1eb8", is_id=True), ("CUSTOM_RACK_7", "CUSTOM_CHEAP")),
            (Selector("0000:5e:*"), ("CUSTOM_RACK_8",)),
        ),
        enabled_drivers=("ext_nvidia_gpu_driver", "nvidia_gpu_driver"),
        withdraw_after=5,
        on_fault="keep",
        nvml_library="/opt/nvidia/libnvidia-ml.so.1",
        nvml_timeout=0.5,
        program_timeout=90,
        state_dir=f"{tmp_path}/var/lib/cyborg/ext_drivers",
        cyborg_device_specs=('{"vendor_id": "10de"}',),
    )
    assert options.below_root("catalog_dir") == f"{tmp_path}/etc/mine"


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("host_root", "host", "absolute path"),
        ("host_root", "", "absolute path"),
        ("withdraw_after", "0", "whole numbers 1 to 10080"),
        ("withdraw_after", "10081", "whole numbers 1 to 10080"),
        ("withdraw_after", "three", "whole numbers 1 to 10080"),
        ("withdraw_after", "", "whole numbers 1 to 10080"),
        ("nvml_library", "libnvidia-ml.so.1", "absolute path"),
        ("nvml_timeout", "0", "seconds from 0.1 to 60"),
        ("nvml_timeout", "61", "seconds from 0.1 to 60"),
        ("nvml_timeout", "nan", "seconds from 0.1 to 60"),
        ("nvml_timeout", "soon", "seconds from 0.1 to 60"),
        ("nvml_timeout", "", "seconds from 0.1 to 60"),
        ("program_timeout", "0", "whole numbers 1 to 604800"),
        ("program_timeout", "604801", "whole numbers 1 to 604800"),
        ("program_timeout", "for ever", "whole numbers 1 to 604800"),
        ("on_fault", "", "withdraw, keep"),
        ("state_dir", "", "absolute path"),
        ("catalog_dir", "", "absolute path"),
        ("on_fault", "hope", "withdraw, keep"),
        ("state_dir", "var/lib", "absolute path"),
        ("host_root", "/there/is/no/such/directory", "no such directory"),
        ("host_root", "/proc/version", "no such directory"),
        ("host_root", "/srv/$nothing", "nothing"),
        ("catalog_dir", "etc/mine", "absolute path"),
        ("catalog_dir", "${nothing}", "nothing"),
        ("vfio_only", "perhaps", "boolean"),
        ("vfio_only", "", "boolean"),
        ("include", "gpu0", "neither a PCI address"),
        ("include", "10de:1eb8, 10de", "neither a PCI address"),
        ("exclude", "0000:3b:00.0:0", "neither a PCI address"),
        ("extra_traits", "10de:1eb8", "SELECTOR=TRAIT"),
        ("extra_traits", "10de:1eb8=", "SELECTOR=TRAIT"),
        ("extra_traits", "10de:1eb8= ,", "SELECTOR=TRAIT"),
        ("extra_traits", "gpu0=CUSTOM_X", "neither a PCI address"),
        ("extra_traits", "10de:1eb8=RACK_7", "CUSTOM_"),
        ("extra_traits", "10de:1eb8=CUSTOM_A, custom_b", "custom_b"),
        ("extra_traits", "10de:1eb8=OWNER_NOVA", "CUSTOM_"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_option(load, option, value, reason):
    with pytest.raises(ConfigurationError) as caught:
        load(f"[ext_drivers]\n{option} = {value}\n")
    assert caught.value.option == option
    said = str(caught.value)
    assert said.startswith(f"[ext_drivers] {option}")
    assert value in said or "$" in value
    assert reason in said


def _overridden(option, value):
    configuration = cfg.ConfigOpts()
    conf.register(configuration)
    configuration([], default_config_files=[], default_config_dirs=[])
    configuration.set_override(option, value, group="ext_drivers")
    return configuration


def test_options_that_were_overridden_are_checked_as_well():
    configuration = _overridden("host_root", "relative")
    try:
        with pytest.raises(ConfigurationError, match="host_root = relative"):
            conf.load(configuration)
    finally:
        configuration.clear_override("host_root", group="ext_drivers")


def test_what_one_configuration_overrides_is_none_of_anothers():
    configuration = _overridden("catalog_dir", "/etc/other")
    try:
        assert conf.load(configuration).catalog_dir == "/etc/other"
        assert conf.load(cfg.ConfigOpts()).catalog_dir == Options().catalog_dir
    finally:
        configuration.clear_override("catalog_dir", group="ext_drivers")


def test_registering_twice_changes_nothing():
    configuration = cfg.ConfigOpts()
    conf.register(configuration)
    conf.register(configuration)
    assert set(configuration["ext_drivers"]) == {option.name for option in conf.OPTIONS}


def test_every_option_is_explained_to_the_operator():
    ((group, options),) = conf.list_opts()
    assert group.name == "ext_drivers"
    assert {option.dest for option in options} <= {field for field in Options.__dataclass_fields__}
    for option in options:
        assert option.help.endswith("."), option.name
        # The manual is made of it, and there such a word is a link.
        assert not re.search(r"\w_\W", re.sub("``.*?``", "", option.help)), option.name


def test_what_refers_to_no_option_is_named_wherever_it_stands(load):
    with pytest.raises(ConfigurationError, match=r"\[agent\] enabled_drivers: .*mine"):
        load("[agent]\nenabled_drivers = a, $mine\n")
