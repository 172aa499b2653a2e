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

"""The files of Cyborg and Nova: which are read, and which are refused by name."""

import os
import socket
import stat

import pytest

from cyborg_ext_drivers import conf
from cyborg_ext_drivers.errors import ConfigurationError, ConfigurationFileError
from cyborg_ext_drivers.options import Options


def lay(root, path, text):
    at = root / path.lstrip("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text)


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


@pytest.mark.parametrize("name", ["..", "a/../b", "é", "a b"])
def test_a_name_that_cyborg_refuses_is_refused_with_what_it_should_be(tmp_path, name):
    with pytest.raises(ConfigurationError, match="host name or an IP address"):
        _host_of(tmp_path, f"host = {name}")


@pytest.mark.parametrize(
    ("state_dir", "wanted"),
    [
        ("/srv/state", "{root}/srv/state"),
        ("{root}/srv/state", "{root}/srv/state"),
        (None, "{root}/var/lib/cyborg/ext_drivers"),
    ],
)
def test_the_state_of_a_copy_lies_in_the_copy(tmp_path, state_dir, wanted):
    lines = ["[ext_drivers]", f"host_root = {tmp_path}"]
    if state_dir:
        lines.append(f"state_dir = {state_dir.format(root=tmp_path)}")
    lay(tmp_path, "/etc/cyborg/cyborg.conf", "\n".join(lines))
    options = conf.of_copy(conf.load(conf.read(root=str(tmp_path))))
    assert options.state_dir == wanted.format(root=tmp_path)


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
