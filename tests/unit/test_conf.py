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

import os
import socket
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.errors import ConfigurationError, ConfigurationFileError
from cyborg_ext_drivers.host.identity import Identity, PciClass, PciId
from cyborg_ext_drivers.options import InvalidSelector, Options, Selector

T4 = PciAddress(0, 0x3B, 0, 0)
T4_IDENTITY = Identity(PciClass("030200"), PciId("10de", "1eb8"), PciId("10de", "12a2"))


@pytest.fixture
def load(tmp_path):
    """Write cyborg.conf and load the operator's decisions from it."""

    def load(text):
        (tmp_path / "cyborg.conf").write_text(text)
        return conf.load(conf.read([str(tmp_path / "cyborg.conf")]))

    return load


def lay(root, path, text):
    at = root / path.lstrip("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text)


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
        cyborg_device_specs=('{"vendor_id": "10de"}',),
    )
    assert options.below_root("catalog_dir") == f"{tmp_path}/etc/mine"


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("host_root", "host", "absolute path"),
        ("host_root", "", "absolute path"),
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


# The files


def test_the_agents_own_files_are_found_below_the_root(tmp_path):
    lay(tmp_path, "/etc/cyborg/cyborg.conf", "[DEFAULT]\nhost = one\n")
    lay(tmp_path, "/etc/cyborg/cyborg.conf.d/10.conf", "[ext_drivers]\nvfio_only = yes\n")
    lay(tmp_path, "/etc/cyborg/cyborg-agent.conf.d/10.conf", "[DEFAULT]\nhost = two\n")
    lay(tmp_path, "/etc/cyborg/cyborg.conf.d/notes.txt", "nonsense")
    configuration = conf.read(root=str(tmp_path))
    assert conf.load(configuration).vfio_only
    assert conf.hostname(configuration) == "two"


def test_a_host_without_files_is_known_by_its_own_name(tmp_path):
    configuration = conf.read(root=str(tmp_path))
    assert conf.hostname(configuration) == socket.gethostname()
    assert conf.load(configuration) == Options()


def _host_of(tmp_path, *lines):
    lay(tmp_path, "/etc/cyborg/cyborg.conf", "\n".join(["[DEFAULT]", *lines]))
    return conf.hostname(conf.read(root=str(tmp_path)))


def test_a_host_may_be_known_by_its_address_in_the_api(tmp_path):
    assert _host_of(tmp_path, "host = ${api.host_ip}", "[api]", "host_ip = 10.0.0.5") == "10.0.0.5"


@pytest.mark.parametrize(
    ("value", "named"), [("$my_ip", "my_ip"), ("${net.my_ip}", "net"), ("gpu-$other", "other")]
)
def test_a_name_that_refers_to_no_option_of_cyborg_is_no_name(tmp_path, value, named):
    # The agent would not start; under the machine's own name all providers would change.
    with pytest.raises(ConfigurationError, match=r"\[DEFAULT\] host: ") as caught:
        _host_of(tmp_path, f"host = {value}", "my_ip = 10.0.0.5")
    assert named in caught.value.reason


def test_what_refers_to_no_option_is_named_wherever_it_stands(load):
    with pytest.raises(ConfigurationError, match=r"\[agent\] enabled_drivers: .*mine"):
        load("[agent]\nenabled_drivers = a, $mine\n")


@pytest.mark.parametrize("text", ["nonsense\n", "[ext_drivers\n", "= 3\n", b"[a]\nb = \xff\n"])
def test_a_file_that_is_no_configuration_is_named(tmp_path, text):
    path = tmp_path / "cyborg.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigurationFileError, match="cyborg.conf") as caught:
        conf.read([str(path)])
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_text_is_named_alone_and_with_the_line(tmp_path):
    (tmp_path / "right.conf").write_text("[agent]\nenabled_drivers = a\n")
    (tmp_path / "wrong.conf").write_bytes("[DEFAULT]\n# é\nhost = a\xe9\n".encode("latin-1"))
    with pytest.raises(ConfigurationFileError) as caught:
        conf.read([str(tmp_path / "right.conf"), str(tmp_path / "wrong.conf")])
    assert caught.value.path == str(tmp_path / "wrong.conf")
    assert "line 2" in caught.value.reason


def _directory(path):
    path.mkdir()


def _fifo(path):
    os.mkfifo(path)


def _socket(path):
    os.mknod(path, stat.S_IFSOCK | 0o600)


def _device(path):
    path.symlink_to("/dev/zero")


def _without_end(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)


NO_FILES = pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_directory, "it is a directory"),
        (_fifo, "it is a FIFO"),
        (_socket, "it is a socket"),
        (_device, "it is a device"),
        (_without_end, "larger than 4 MiB"),
    ],
)


@NO_FILES
def test_what_is_no_file_of_reasonable_size_is_named_and_not_waited_for(tmp_path, make, reason):
    path = tmp_path / "cyborg.conf"
    make(path)
    with pytest.raises(ConfigurationFileError, match=reason) as caught:
        conf.read([str(path)])
    assert caught.value.path == str(path)


@NO_FILES
def test_the_same_among_the_files_of_nova(tmp_path, make, reason):
    lay(tmp_path, "/etc/nova/nova.conf.d/10.conf", "")
    make(tmp_path / "etc/nova/nova.conf.d/20.conf")
    with pytest.raises(ConfigurationFileError, match=f"20.conf .*{reason}"):
        conf.nova_device_specs(str(tmp_path))


def test_dev_null_stands_for_no_configuration():
    options = conf.load(conf.read([os.devnull]))
    assert options == Options(enabled_drivers=("fake_driver",))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationFileError, match="No such file"):
        conf.read([str(tmp_path / "cyborg.conf")])


def test_what_nova_takes_for_itself(tmp_path):
    assert conf.nova_device_specs(str(tmp_path)) == ()
    lay(
        tmp_path,
        "/etc/nova/nova.conf",
        '[pci]\ndevice_spec = {"address": "0000:3b:00.0"}\ndevice_spec = {"vendor_id": "10de"}\n',
    )
    assert conf.nova_device_specs(str(tmp_path)) == (
        '{"address": "0000:3b:00.0"}',
        '{"vendor_id": "10de"}',
    )


def test_what_nova_takes_for_itself_by_its_older_names(tmp_path):
    lay(tmp_path, "/etc/nova/nova.conf", "[DEFAULT]\npci_passthrough_whitelist = old\n")
    assert conf.nova_device_specs(str(tmp_path)) == ("old",)
    lay(tmp_path, "/etc/nova/nova.conf", "[pci]\npassthrough_whitelist = newer\n")
    assert conf.nova_device_specs(str(tmp_path)) == ("newer",)


def test_a_value_of_nova_that_refers_to_no_option_is_named(tmp_path):
    lay(tmp_path, "/etc/nova/nova.conf", "[pci]\ndevice_spec = $mine\n")
    with pytest.raises(ConfigurationFileError, match=r"nova.conf .*\[pci\] device_spec: .*mine"):
        conf.nova_device_specs(str(tmp_path))


def test_novas_file_that_is_no_configuration_is_named(tmp_path):
    lay(tmp_path, "/etc/nova/nova.conf", "nonsense\n")
    with pytest.raises(ConfigurationFileError, match="nova.conf"):
        conf.nova_device_specs(str(tmp_path))


# Selectors


@pytest.mark.parametrize(
    "text",
    [
        "0000:3b:00.0",
        "3b:00.0",
        "0000:3B:00.0",
        "0000:3b:*",
        "0000:*:00.0",
        "*:3b:00.?",
        "0000:3[a-c]:00.0",
        "10de:1eb8",
        "10DE:1EB8",
        "10de:*",
        "*:1eb8",
        " 10de:1eb? ",
    ],
)
def test_selectors_of_a_card(text):
    assert Selector.parse(text).matches(T4, T4_IDENTITY)


@pytest.mark.parametrize(
    "text", ["0000:3b:00.1", "0001:3b:00.0", "0000:5e:*", "10de:1eb9", "1002:*", "*:3b:00.[1-7]"]
)
def test_selectors_of_other_cards(text):
    assert not Selector.parse(text).matches(T4, T4_IDENTITY)


@pytest.mark.parametrize("text", ["00000000:3B:00.0", "0:3b:0.0", "pci_0000_3b_00_0"])
def test_an_address_in_another_tools_spelling_selects_the_card_or_is_refused(text):
    # Doing neither would offer a card that exclude names.
    try:
        selector = Selector.parse(text)
    except InvalidSelector:
        return
    assert selector.matches(T4, T4_IDENTITY)


@given(
    st.builds(
        PciAddress,
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, 0xFF),
        st.integers(0, 0x1F),
        st.integers(0, 7),
    )
)
def test_every_address_selects_itself_and_no_other(address):
    selector = Selector.parse(str(address))
    assert str(selector) == str(address)
    assert selector.matches(address, T4_IDENTITY)
    assert selector.matches(T4, T4_IDENTITY) == (address == T4)


@given(st.text() | st.text("0123abcdef:.*?[]!-", max_size=20))
def test_any_text_is_a_selector_or_invalid(text):
    try:
        selector = Selector.parse(text)
    except InvalidSelector as error:
        assert repr(text) in str(error)
    else:
        assert selector.matches(T4, T4_IDENTITY) in (True, False)


@given(st.from_regex(r"([0-9a-f]{1,5}:){0,3}[0-9a-f]{1,5}\.[0-9a-f]{1,2}", fullmatch=True))
def test_a_selector_without_globs_names_a_function_or_is_refused(text):
    try:
        selector = Selector.parse(text)
    except InvalidSelector:
        return
    assert selector.matches(PciAddress.parse(text), T4_IDENTITY)
