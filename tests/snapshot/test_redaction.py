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


"""What is secret is nowhere in a snapshot, and what belongs together still does."""

import gzip
import json
import re
import socket
import time

import pytest

from cyborg_ext_drivers.checks import device_spec
from cyborg_ext_drivers.checks.device_spec import InvalidDeviceSpec
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.report.ledger import Ledger
from cyborg_ext_drivers.report.state import StateFile
from cyborg_ext_drivers.snapshot import _operators_words, archive
from cyborg_ext_drivers.snapshot.redact import Redactor
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.nvml_stub import NoCompiler

CARD = "0000:3b:00.0"
HOST = "gpu-rack7-node3.corp.example"
MDEV = "4b20d080-1b54-4048-85b3-a6a62d165c01"
BOOT_ID = "5c8fd3a1-0d5e-4c83-9d2e-8f1c9ad2e0b7"
GPU_UUID = "GPU-7e1c0ab4-91a5-4f77-b0e2-90be4c9f1d35"
GPU_SERIAL = "1324217003215"
#: What must not be found, whatever it stands in.
SECRETS = {
    "host name": HOST,
    "short host name": "gpu-rack7-node3",
    "another agent's name": "gpu-rack7-old",
    "name of the machine that saves": "gpu-rack7-real",
    "password of the message bus": "rabbit-hunter2",
    "password of Keystone": "keystone-hunter3",
    "password of the database": "db-hunter4",
    "password of Nova": "nova-hunter5",
    "token on the command line": "tok-hunter6",
    "key on the command line": "luks-hunter7",
    "init's arguments": "init-hunter8",
    "word on the command line": "word-hunter9",
    "secret in the catalogue": "cat-hunter10",
    "mediated device": MDEV,
    "boot": BOOT_ID,
    "GPU": GPU_UUID[4:],
    "serial number": GPU_SERIAL,
    "serial number in sysfs": "b8-ce-f6-ff-ff-12-34-56",
    "MAC address": "b8:ce:f6:12:34:56",
    "IPv4 address": "10.20.30.41",
    "IPv6 address": "2001:470:1f0b::17",
    "user": "alice-adm",
    "Fabric Manager": "fabric-hunter11",
}
CYBORG = f"""[DEFAULT]
host = {HOST}
transport_url = rabbit://cyborg:{SECRETS["password of the message bus"]}@10.20.30.41:5672/
[agent]
enabled_drivers = ext_nvidia_gpu_driver
[api]
host_ip = 10.20.30.41
[keystone_authtoken]
username = alice-adm
password = {SECRETS["password of Keystone"]}
[database]
connection = mysql://cyborg:{SECRETS["password of the database"]}@10.20.30.41/cyborg
[ext_drivers]
exclude = 0000:d8:*
report_serials = true
"""
NOVA = f"""[DEFAULT]
my_ip = 10.20.30.41
[pci]
device_spec = {{"vendor_id": "8086", "product_id": "1533"}}
[neutron]
password = {SECRETS["password of Nova"]}
"""
COMMAND_LINE = (
    f"root=UUID={MDEV} ro intel_iommu=on hostname={HOST} ip=10.20.30.41::10.20.30.1 "
    f"rd.luks.key={SECRETS['key on the command line']} ifname=eth0:b8:ce:f6:12:34:56 "
    f"api_token={SECRETS['token on the command line']} {SECRETS['word on the command line']} "
    f"nfsaddr=2001:470:1f0b::17 -- {SECRETS['init' + chr(39) + 's arguments']}"
)
CATALOG = f"""# password: {SECRETS["secret in the catalogue"]}, ask alice-adm@{HOST}
products:
  - {{id: "10de:1eb8", model: T4, password: {SECRETS["secret in the catalogue"]}}}
"""


@pytest.fixture
def seeded(monkeypatch):
    """A host with secrets wherever there may be some."""
    monkeypatch.setattr(socket, "gethostname", lambda: SECRETS["name of the machine that saves"])
    with FakeHost.named("two-t4") as fake:
        try:
            library = fake.nvml_library
        except NoCompiler as error:
            pytest.skip(str(error))
        fake.set_nvml_of(CARD, uuid=GPU_UUID, serial=GPU_SERIAL)
        fake.write_file("/etc/cyborg/cyborg.conf", CYBORG + f"nvml_library = {library}\n")
        fake.write_file("/etc/nova/nova.conf", NOVA)
        fake.write_file("/etc/hostname", f"{HOST}\n")
        fake.write_file("/etc/cyborg/ext_catalog.d/alice-adm.yaml", CATALOG)
        fake.set_command_line(COMMAND_LINE)
        fake.write_file("/proc/sys/kernel/random/boot_id", f"{BOOT_ID}\n")
        fake.write_file(
            "/usr/share/nvidia/nvswitch/fabricmanager.cfg",
            f"FABRIC_MODE=0\nFM_KEY={SECRETS['Fabric Manager']}\n",
        )
        fake.write_file(
            f"/sys/bus/mdev/devices/{MDEV}/uevent",
            f"OWNER={HOST}\n",
        )
        fake.set_attribute(CARD, "serial_number", SECRETS["serial number in sysfs"])
        fake.set_attribute(CARD, "label", f"NIC b8:ce:f6:12:34:56 of {HOST}")
        capability = (0x00010003).to_bytes(4, "little") + bytes.fromhex("56341200fffffecb8"[:16])
        space = fake.path(f"/sys/bus/pci/devices/{CARD}/config").read_bytes()
        fake.set_attribute(CARD, "config", space.ljust(256, b"\0") + capability.ljust(3840, b"\0"))
        for name in (HOST, "gpu-rack7-old"):
            host = Host(fake.root)
            options = Options(nvml_library=str(library), report_serials=True)
            ledger = Ledger(name, options)
            ledger.settle(Surveyor(options).survey(host), host)
            directory = str(fake.path("/var/lib/cyborg/ext_drivers"))
            StateFile(directory, "ext_nvidia_gpu_driver", name).save(ledger.entries)
        yield fake


def _found(data: bytes) -> set[str]:
    lower = data.lower()
    forms = {
        what: {secret, json.dumps(secret)[1:-1], secret.replace(":", "%3a")}
        for what, secret in SECRETS.items()
    }
    return {
        what for what, each in forms.items() if any(form.lower().encode() in lower for form in each)
    }


def test_no_secret_is_in_the_file(seeded, diagnose, tmp_path):
    path = tmp_path / "host.tar.gz"
    code, out, err = diagnose("snapshot", "save", path, "--host-root", seeded.root)
    assert code == 0, err
    data = path.read_bytes()
    assert _found(gzip.decompress(data)) == set()
    assert _found(data) == set()
    assert bytes.fromhex("56341200fffffecb") not in gzip.decompress(data)
    assert _found(out.encode()) == set()
    code, out, err = diagnose("snapshot", "show", path, "-f", "json")
    assert code == 0 and _found((out + err).encode()) == set()
    shown = json.loads(out)
    kinds = {each["kind"] for each in shown["redactions"]}
    assert {"UUID", "serial number", "host name", "text of the operator's", "comment"} <= kinds
    assert shown["host"] == "redacted-host" and not shown["raw"]


def test_what_matters_is_still_there(seeded, diagnose, tmp_path):
    path = tmp_path / "host.tar.gz"
    diagnose("snapshot", "save", path, "--host-root", seeded.root)
    snapshot = archive.read(str(path))
    words = snapshot.captured.nodes["/proc/cmdline"].data.decode().split()
    assert "intel_iommu=on" in words and "ro" in words
    assert snapshot.options["cyborg"]["exclude"] == ["0000:d8:*"]
    assert snapshot.options["enabled_drivers"] == ["ext_nvidia_gpu_driver"]
    _, out, _ = diagnose("host", "--long", "-f", "json", "--snapshot", path)
    rows = {row["address"]: row for row in json.loads(out)}
    assert rows[CARD]["deployables"][0]["name"] == f"redacted-host_{CARD}"
    assert rows["0000:d8:00.0"]["reason"] == "excluded-by-config"


def test_the_same_uuid_stays_the_same(seeded, diagnose, tmp_path):
    path = tmp_path / "host.tar.gz"
    diagnose("snapshot", "save", path, "--host-root", seeded.root)
    snapshot = archive.read(str(path))
    (uuid,) = snapshot.captured.names("/sys/bus/mdev/devices")
    assert uuid != MDEV
    assert f"root=UUID={uuid}" in snapshot.captured.nodes["/proc/cmdline"].data.decode()
    (gpu,) = (gpu for gpu in snapshot.captured.nvml_answer.gpus if str(gpu.address) == CARD)
    documents = b"".join(snapshot.state.values()).decode()
    assert gpu.uuid.startswith("GPU-") and gpu.uuid in documents and gpu.serial in documents
    boot_id = snapshot.captured.nodes["/proc/sys/kernel/random/boot_id"].data.decode().strip()
    assert boot_id != BOOT_ID and boot_id in documents


def test_raw_keeps_what_is_secret_of_the_hardware_and_no_option_of_others(
    seeded, diagnose, tmp_path
):
    path = tmp_path / "host.tar.gz"
    code, out, _ = diagnose("snapshot", "save", path, "--raw", "--host-root", seeded.root)
    assert code == 0 and "Nothing was redacted" in out
    found = _found(gzip.decompress(path.read_bytes()))
    assert {"host name", "mediated device", "GPU", "serial number", "boot"} <= found
    assert not {each for each in found if each.startswith("password")}


def test_two_snapshots_have_nothing_in_common_by_which_hosts_are_told(seeded, diagnose, tmp_path):
    made = []
    for number in range(2):
        path = tmp_path / f"{number}.tar.gz"
        diagnose("snapshot", "save", path, "--host-root", seeded.root)
        made.append(archive.read(str(path)))
    first, second = (each.captured.names("/sys/bus/mdev/devices") for each in made)
    assert first != second
    assert made[0].manifest["host"]["digest"] != made[1].manifest["host"]["digest"]


class TestTexts:
    """What is replaced in a text, and what is not."""

    @pytest.mark.parametrize(
        "text",
        [
            "0000:3b:00.0",
            "10000:e1:00.0",
            "pci0000:3a/0000:3a:00.0",
            "10de:1eb8",
            "0x0000039000000000 0x00000393ffffffff 0x000000000014220c",
            "535.104.05",
            "90.04.96.00.02",
            "6.8.0-45-generic",
            "127.0.0.1",
            "consumer:pci:0000:3b:00.1",
            "PCI_CLASS=30200\nPCI_ID=10DE:1EB8\nPCI_SLOT_NAME=0000:3b:00.0\n",
            "0-31,64-95",
        ],
    )
    def test_ids_and_addresses_on_the_bus_stay(self, text):
        assert Redactor("node-1", (), bytes(32)).text(text) == text

    @pytest.mark.parametrize(
        "text, wanted",
        [
            ("node-1_0000:3b:00.0", "redacted-host_0000:3b:00.0"),
            ("NODE-1.example", "redacted-host.example"),
            ("node-10", "node-10"),
            ("10.0.0.7:80, 10.0.0.8, 10.0.0.7", "192.0.2.1:80, 192.0.2.2, 192.0.2.1"),
            ("fe80::1 via fe80::2", "2001:db8::1 via 2001:db8::2"),
            ("52:54:00:aa:bb:cc 52-54-00-AA-BB-CC", "02:00:00:00:00:01 02-00-00-00-00-01"),
            ("rabbit://bob:pw@node", "rabbit://redacted:redacted@node"),
            ("/home/bob/lib.so", "/home/redacted-user-1/lib.so"),
            ("admin_password = hunter2", "admin_password = redacted"),
            ('"auth_token": "abc"', '"auth_token": "redacted"'),
        ],
    )
    def test_what_names_somebody_is_replaced(self, text, wanted):
        assert Redactor("node-1", (), bytes(32)).text(text) == wanted

    def test_uuids_keep_their_order(self):
        redactor = Redactor("node-1", (), bytes(32))
        uuids = sorted(f"{number:08x}-0000-4000-8000-00000000000{number}" for number in range(9))
        redactor.learn_uuids(uuids)
        made = [redactor.text(each) for each in uuids]
        assert made == sorted(made) and not set(made) & set(uuids)


def _saved(diagnose, root, path):
    code, _, err = diagnose("snapshot", "save", path, "--host-root", root)
    assert code == 0, err
    return archive.read(str(path)), gzip.decompress(path.read_bytes())


def test_the_listing_names_no_uuid_though_places_are_below_one(diagnose, tmp_path):
    with FakeHost.named("two-t4") as fake:
        name = f"/sys/bus/pci/devices/{CARD}/nvidia/{MDEV}/type/uuid"
        fake.write_file(name, f"{MDEV}\n")
        snapshot, data = _saved(diagnose, fake.root, tmp_path / "host.tar.gz")
    assert any("/type" in place for r in snapshot.manifest["redactions"] for place in r["places"])
    assert MDEV.encode() not in data


def test_what_the_kernel_is_called_and_who_uses_a_gpu_tells_no_name(seeded, diagnose, tmp_path):
    seeded.write_file("/proc/sys/kernel/osrelease", "6.8.0-gpu-rack7-node3\n")
    seeded.set_nvml_of(CARD, processes=[{"pid": 4242, "memory": 1, "command": "gpu-rack7-node3"}])
    snapshot, data = _saved(diagnose, seeded.root, tmp_path / "host.tar.gz")
    assert any(gpu.processes for gpu in snapshot.captured.nvml_answer.gpus)
    assert b"gpu-rack7-node3" not in data.lower()


@pytest.mark.parametrize(
    "word",
    [
        "root=iscsi:bob:hunter2@10.1.2.3::3260::iqn.2020-01.example:lun",
        "root=/dev/mapper/gpu--rack7--node3--vg-root",
        "BOOT_IMAGE=http://maas.corp.example:5248/vmlinuz",
    ],
)
def test_a_root_that_names_a_server_or_a_volume_goes(word):
    made = Redactor("gpu-rack7-node3", (), bytes(32)).command_line(f"{word} ro")
    assert made == f"{word.partition('=')[0]}=redacted ro"


@pytest.mark.parametrize(
    "word",
    ["root=/dev/nvme0n1p2", "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.8.0", "vfio-pci.ids=10de:1eb8"],
)
def test_words_that_concern_devices_stay(word):
    assert Redactor("node-1", (), bytes(32)).command_line(f"{word} ro") == f"{word} ro"


def test_a_volume_group_is_found_by_the_name_that_device_mapper_gives_it():
    redactor = Redactor("gpu-rack7-node3", (), bytes(32))
    assert redactor.text("/dev/mapper/gpu--rack7--node3--vg-root") == (
        "/dev/mapper/redacted-host--vg-root"
    )


@pytest.mark.parametrize("text", ["GPU_NODE7", "rack GPU_NODE7.", "CUSTOM_GPU_NODE7"])
def test_a_name_is_found_as_a_trait_spells_it(text):
    found = Redactor("gpu-node7", (), bytes(32)).text(text)
    assert found == text.replace("GPU_NODE7", "REDACTED_HOST")


def test_a_mac_address_is_found_as_switches_print_it():
    redactor = Redactor("gpu-node7", (), bytes(32))
    assert redactor.text("port b8ce.f612.3456") == "port 0200.0000.0001"
    assert redactor.text("b8:ce:f6:12:34:56") == "02:00:00:00:00:01"
    assert redactor.text("firmware 535.161.05") == "firmware 535.161.05"


def test_a_password_of_several_words_goes_as_a_whole():
    made = Redactor("node-1", (), bytes(32)).text('{"password": "alpha beta", "id": "10de"}')
    assert made == '{"password": "redacted", "id": "10de"}'


def test_a_command_line_that_is_no_text_stays_none(diagnose, tmp_path):
    with FakeHost.named("two-t4") as fake:
        fake.path("/proc/cmdline").write_bytes(b"quiet password=hunter\xff2\n")
        snapshot, data = _saved(diagnose, fake.root, tmp_path / "host.tar.gz")
    assert b"hunter" not in data
    with pytest.raises(UnicodeDecodeError):
        snapshot.captured.nodes["/proc/cmdline"].data.decode()


@pytest.mark.parametrize("name", ["alveo-u250", "alveo-u50-golden"])
def test_an_image_of_an_fpga_keeps_its_id(name, diagnose, tmp_path):
    with FakeHost.named(name) as fake:
        there = diagnose("traits", "-f", "json", "--host-root", fake.root)
        diagnose("snapshot", "save", tmp_path / "host.tar.gz", "--host-root", fake.root)
    assert diagnose("traits", "-f", "json", "--snapshot", tmp_path / "host.tar.gz") == there


@pytest.mark.parametrize("name", ["gpu", "nvidia", "host", "cards", "d8", "t4"])
def test_a_host_that_is_called_as_a_word_of_the_options_answers_the_same(name, diagnose, tmp_path):
    with FakeHost.named("two-t4") as fake:
        fake.write_file(
            "/etc/cyborg/cyborg.conf",
            f"[DEFAULT]\nhost = {name}\n[agent]\nenabled_drivers = ext_nvidia_gpu_driver\n"
            "[ext_drivers]\nexclude = 0000:d8:*\nextra_traits = 10de:* = CUSTOM_GPU_A\n",
        )
        host = Host(fake.root)
        ledger = Ledger(name, Options())
        ledger.settle(Surveyor(Options()).survey(host), host)
        directory = str(fake.path("/var/lib/cyborg/ext_drivers"))
        StateFile(directory, "ext_nvidia_gpu_driver", name).save(ledger.entries)
        there = diagnose("host", "--long", "-f", "json", "--host-root", fake.root)
        snapshot, _ = _saved(diagnose, fake.root, tmp_path / "host.tar.gz")
    assert "ext_nvidia_gpu_driver.redacted-host.json" in snapshot.state
    assert f'"{name}_0000' not in b"".join(snapshot.state.values()).decode()
    code, out, err = diagnose(
        "host", "--long", "-f", "json", "--snapshot", tmp_path / "host.tar.gz"
    )
    assert (code, out.replace("redacted-host_", f"{name}_"), err) == there


def test_a_word_of_a_trait_hides_no_other_name():
    redactor = Redactor("node7", ["node7-ipmi"], bytes(32))
    redactor.learn_words(["CUSTOM_NODE7", "exclude"])
    assert redactor.text("node7-ipmi") == "redacted-host-2"
    assert redactor.text("node7_0000:3b:00.0") == "redacted-host_0000:3b:00.0"
    assert redactor.text("CUSTOM_NODE7") == "CUSTOM_NODE7"


#: Texts of which nothing says that they are secret, each in a place of its own.
PRIVATE = {
    "network of a device_spec": "acme-tenant-net",
    "tag of Nova that nobody knows": "zebra-tag",
    "its value": "zebra-value",
    "interface": "enp59s0acme",
    "value of a refused device_spec": "zebra-refused",
    "list of a device_spec": "zebra-list",
    "network in cyborg.conf": "cyborg-tenant-net",
    "source of the catalogue": "wiki.acme.example",
    "name of the source": "acmewiki",
    "comment": "zebra-comment",
    "file of the catalogue": "zebra-file",
    "key of a refused catalogue": "zebrakey",
    "value of a refused catalogue": "zebra-name",
    "text of a catalogue that is no YAML": "zebra-broken",
    "serial number in a text": "ZBR123456",
    "token with a comma": "zebra-tok-one",
    "the rest of it": "zebra-tok-two",
    "header": "zebra-bearer",
    "user of a URL": "zebra-user",
    "server of cloud-init": "seed.acme",
    "host of systemd": "zebra-systemd",
    "flag of the command line": "zebraflag",
    "name of a word of the command line": "zebrakeyword",
    "parameter of a module": "ZebraRegistry",
    "label": "zebra label",
    "line of a uevent": "zebra-uevent",
    "domain": "corp.example",
    "name in a vendor's folder": "gpu-rack7-node3",
}
SPECS = """[pci]
device_spec = {"vendor_id": "10de", "product_id": "1eb8", "physical_network": "acme-tenant-net"}
device_spec = {"address": "0000:d8:*", "zebra-tag": "zebra-value", "managed": "no"}
device_spec = {"devname": "enp59s0acme"}
device_spec = {'vendor_id': 'zebra-refused'}
device_spec = [{"vendor_id": "8086", "traits": "CUSTOM_A, CUSTOM_B", "x": ["zebra-list"]}]
"""
CATALOGS = {
    "zebra-file": """# zebra-comment
sources: {acmewiki: "https://wiki.acme.example/gpus"}   # zebra-comment
devices:
  - {id: "10de:1eb8", kind: GPU, name: "Tesla T4, ours", model: T4}  # acmewiki
""",
    "refused": 'devices:\n  - {id: "10de:1eb9", kind: GPU, name: zebra-name, zebrakey: 1}\n',
    "broken": "devices: [zebra-broken\n",
}
LABEL = (
    "zebra label S/N: ZBR123456 token=zebra-tok-one,zebra-tok-two Authorization: Bearer "
    "zebra-bearer http://zebra-user@wiki.acme.example/"
)


@pytest.fixture
def private(monkeypatch):
    """A host with texts of its operator's wherever there may be some."""
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    with FakeHost.named("two-t4") as fake:
        fake.write_file(
            "/etc/cyborg/cyborg.conf",
            f"[DEFAULT]\nhost = {HOST}\n[agent]\nenabled_drivers = ext_nvidia_gpu_driver,"
            'pci_driver\n[pci]\npassthrough_whitelist = {"vendor_id": "10de", '
            '"physical_network": "cyborg-tenant-net"}\n',
        )
        fake.write_file("/etc/nova/nova.conf", SPECS)
        for name, text in CATALOGS.items():
            fake.write_file(f"/etc/cyborg/ext_catalog.d/{name}.yaml", text)
        fake.set_command_line(
            "ro intel_iommu=on zebraflag zebrakeyword=1 systemd.hostname=zebra-systemd "
            "ds=nocloud;s=http://seed.acme/ quiet"
        )
        fake.write_file("/sys/module/nvidia/parameters/NVreg_RegistryDwords", "ZebraRegistry=1\n")
        fake.write_file("/sys/module/vfio_pci/parameters/disable_denylist", "Y\n")
        fake.set_attribute(CARD, "label", LABEL)
        uevent = fake.path(f"/sys/bus/pci/devices/{CARD}/uevent").read_text()
        fake.set_attribute(CARD, "uevent", f"{uevent}OWNER=zebra-uevent\n")
        fake.write_file(f"/sys/bus/pci/devices/{CARD}/nvidia/gpu-rack7-node3/name", LABEL)
        yield fake


def test_texts_of_the_operator_are_nowhere_in_the_file(private, diagnose, tmp_path):
    snapshot, data = _saved(diagnose, private.root, tmp_path / "host.tar.gz")
    lower = data.lower()
    assert {what for what, text in PRIVATE.items() if text.lower().encode() in lower} == set()
    nodes = snapshot.captured.nodes
    assert nodes["/proc/cmdline"].data.split()[:2] == [b"ro", b"intel_iommu=on"]
    assert nodes["/sys/module/vfio_pci/parameters/disable_denylist"].data == b"Y\n"
    places = {place for each in snapshot.manifest["redactions"] for place in each["places"]}
    assert {"options.json", "catalog/003.yaml"} <= places
    stands = set(re.findall(r"redacted-text-\d+", str(snapshot.options)))
    assert len(stands) == 8


def test_what_is_said_of_the_host_is_the_same_but_for_those_texts(private, diagnose, tmp_path):
    path = tmp_path / "host.tar.gz"
    _saved(diagnose, private.root, path)
    for command in (("host", "--long"), ("traits",), ("device", CARD)):
        there, here = (
            diagnose(*command, "-f", "json", *given)
            for given in (("--host-root", private.root), ("--snapshot", path))
        )
        assert (here[0], _plain(json.loads(here[1]))) == (there[0], _plain(json.loads(there[1])))
    assert "Tesla T4, ours" in diagnose("device", CARD, "--snapshot", path)[1]


def _plain(value):
    """Return an answer without the host's name and the values of device_spec."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        is_spec = str(value.get("path")).startswith(("nova.conf [pci]", "cyborg.conf [pci]"))
        return {key: _plain(each) for key, each in value.items() if key != "value" or not is_spec}
    return value.replace(HOST, "redacted-host") if isinstance(value, str) else value


@pytest.mark.parametrize(
    "text",
    [
        '{"vendor_id": "10de", "product_id": "*"}',
        '{"address": {"domain": ".*", "bus": "3[bc]", "slot": "00", "function": "0"}}',
        '{"address": "3b:00.0", "resource_class": "CUSTOM_T4", "managed": "no"}',
        '[{"vendor_id": "10de"}, {"address": "*:3b:*.*", "physical_network": null}]',
        "{vendor_id: 10de}",
        "",
    ],
)
def test_a_device_spec_without_tags_stays_as_it_stands(text):
    assert _operators_words.spec(text, lambda word: "redacted") == text


@pytest.mark.parametrize(
    "text",
    [
        '{"vendor_id": "hunter"}',
        '{"address": {"bus": "(hunter"}}',
        '{"address": "hunter"}',
        "{'vendor_id': '10de', 'physical_network': 'hunter'}",
        '"hunter"',
        '{"a": "hunt\\er"}',
        '["hunter"]',
        '{"vendor_id": ["hunter"]}',
    ],
)
def test_a_device_spec_that_nova_refuses_is_refused_without_its_texts(text):
    made = _operators_words.spec(text, Redactor("node-1", (), bytes(32)).word)
    assert "hunt" not in made
    with pytest.raises(InvalidDeviceSpec):
        device_spec.parse(made)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("S/N: ABC123", "S/N: redacted-serial-1"),
        ("token=a,b,c next", "token=redacted next"),
        ("{token: a, model: T4}", "{token: redacted, model: T4}"),
        ("Authorization: Bearer abc.def", "Authorization: redacted"),
        ("sent bearer abcd1234 now", "sent bearer redacted now"),
        ("basic 16 GiB", "basic 16 GiB"),
        ("a basic card", "a basic card"),
        ("https://key@host/x", "https://redacted:redacted@host/x"),
    ],
)
def test_what_opens_doors_is_found_in_texts(text, wanted):
    assert Redactor("node-1", (), bytes(32)).text(text) == wanted


@pytest.mark.parametrize(
    "word", ["password", "token=", "a_", "a ", "://", "bearer ", "s/n ", "00:"]
)
def test_a_text_of_a_stranger_does_not_keep_the_search_busy(word):
    """Patterns that go back over a text took minutes for one page; this limit is no measure."""
    text = (word * 4096)[:4096] + "!"
    redactor = Redactor("node-1", (), bytes(32))
    start = time.process_time()
    redactor.text(text)
    redactor.content("/sys/module/nvidia/parameters/x", text.encode())
    redactor.command_line(text)
    assert time.process_time() - start < 20
