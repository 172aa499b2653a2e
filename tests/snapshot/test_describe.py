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

"""A description made of a host makes a host of which the same is said."""

import contextlib
import json

import pytest
import yaml

from cyborg_ext_drivers.cli.app import main
from cyborg_ext_drivers.cli.describe import layer, name_of
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.options import Options
from cyborg_ext_drivers.snapshot.captured import Captured, CapturedTree
from cyborg_ext_drivers.snapshot.describe import describe
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost, Oddity, described_hosts, load
from cyborg_ext_drivers.testing.conformance import captured
from cyborg_ext_drivers.testing.nvml_stub import NoCompiler

T4 = "0000:3b:00.0"
MY_CATALOG = 'devices:\n- {id: "10de:1eb8", kind: GPU, model: MY-T4, name: My T4}\n'


def described(fake, options=None, name="copy", **more):
    options = options or Options(host_root=str(fake.root))
    return describe(Host(fake.root), Surveyor(options), layer(), name, **more)


@pytest.fixture
def run(capsys):
    """Run the command and return its exit code, what it prints, and its complaints."""

    def run(*argv):
        capsys.readouterr()
        code = main([str(word) for word in argv])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def copy_of(tmp_path, run):
    """Provide what a host becomes that is described and laid out again."""

    @contextlib.contextmanager
    def copy_of(fake):
        code, text, complaints = run("snapshot", "describe", "--host-root", fake.root)
        assert code == 0, complaints
        (tmp_path / "copy.yaml").write_text(text)
        with FakeHost.from_file(tmp_path / "copy.yaml") as copy:
            yield copy

    return copy_of


def everything_said(run, root):
    """Return all that three subcommands print of a host, with the exit codes."""
    said = {
        word: run(*word.split(), "-f", "json", "--host-root", root)[:2]
        for word in ("host --long", "traits")
    }
    for row in json.loads(said["host --long"][1]):
        address = row["address"]
        said[address] = run("device", address, "-f", "json", "--host-root", root)[:2]
    return said


@pytest.mark.parametrize("name", described_hosts())
def test_a_described_host_that_is_described_gives_the_same_answers(name, run, copy_of):
    with FakeHost.named(name) as fake, copy_of(fake) as copy:
        assert everything_said(run, copy.root) == everything_said(run, fake.root)


@pytest.mark.parametrize(
    "name",
    ["two-t4", "hgx-a100", "pac-d5005-virtual-functions", "pac-n3000", "l40s-vgpu-types-set",
     "in-tree-driver-and-nova", "gb200-memory-as-nodes", "iommu-off", "copy-padded-by-tar"],
)  # fmt: skip
def test_a_snapshot_is_described_as_its_host_is(name, run, tmp_path):
    with FakeHost.named(name) as fake:
        assert run("snapshot", "save", "--host-root", fake.root, tmp_path / "it.tar.gz")[0] == 0
        host = run("snapshot", "describe", "--host-root", fake.root, "--name", "it")
    code, text, complaints = host
    # Who else has a network of that name is no matter of a card's.
    text = text.replace('"physnet1"', '"redacted-text-1"')
    assert run("snapshot", "describe", tmp_path / "it.tar.gz") == (code, text, complaints)
    assert code == 0


def test_one_host_is_described_at_a_time(run, tmp_path):
    code, text, complaints = run("snapshot", "describe", tmp_path / "a", "--snapshot", "b")
    assert (code, text) == (2, "")
    assert "two snapshots" in complaints


def test_the_description_of_two_t4_reads_like_one_written_by_hand(run):
    code, text, complaints = run("snapshot", "describe", "--fake", "two-t4", "--name", "my-t4s")
    assert (code, complaints) == (0, "")
    assert text.startswith("name: my-t4s\ntitle: 2 accelerators are reported and 0 are skipped.\n")
    assert text == run("snapshot", "describe", "--fake", "two-t4", "--name", "my-t4s")[1]
    first = yaml.safe_load(text)["host"]["functions"][0]
    assert first == {
        "address": T4,
        "vendor": "10de",
        "device": "1eb8",
        "class": "030200",
        "subsystem": "10de:12a2",
        "revision": "a1",
        "driver": "nvidia",
        "iommu_group": 27,
        "numa_node": 0,
        "parent": "0000:3a:00.0",
    }
    assert f'  - address: "{T4}"\n    vendor: "10de"\n' in text


def test_the_verdicts_of_today_are_the_expectation(tmp_path, run, copy_of):
    with FakeHost.named("power-gone-or-asleep") as fake, copy_of(fake):
        pass
    expected = load(str(tmp_path / "copy.yaml")).expected
    assert [str(each.address) for each in expected.reported] == ["0000:5e:00.0", "0000:af:00.0"]
    assert expected.reported[0].traits[:2] == ("OWNER_CYBORG", "CUSTOM_GPU_NVIDIA")
    assert {str(a): codes for a, codes in expected.skipped.items()} == {T4: ("powered-off",)}


def test_virtual_functions_stand_in_the_expectation_as_handles():
    with FakeHost.named("pac-d5005-virtual-functions") as fake:
        found = described(fake)
    first, second = found.mapping["expected"]["reported"]
    assert (first["address"], first["handles"]) == ("0000:3b:00.0", ["0000:3b:00.1"])
    assert (second["address"], second["handles"]) == ("0000:af:00.0", ["0000:af:00.1"])


@pytest.mark.parametrize(
    "change",
    [
        lambda fake: fake.set_attribute(T4, "revision", "0xa1\n\0\0\0"),
        lambda fake: fake.set_attribute(T4, "numa_node", "zero"),
        lambda fake: fake.remove_attribute(T4, "uevent"),
        lambda fake: fake.remove_attribute(T4, "class"),
        lambda fake: fake.remove_attribute(T4, "revision"),
        lambda fake: fake.remove_attribute(T4, "driver"),
        lambda fake: fake.remove_attribute(T4, "config"),
        lambda fake: fake.remove_attribute(T4, "reset"),
        lambda fake: fake.set_attribute(T4, "config", b"\xff" * 64),
        lambda fake: fake.set_attribute(T4, "max_link_width", "8"),
        lambda fake: fake.move_to_group(T4, None),
        lambda fake: fake.set_iommu("amd"),
        lambda fake: fake.set_iommu("off-in-firmware"),
        lambda fake: fake.set_iommu("off-on-command-line"),
        lambda fake: fake.set_iommu("none"),
        lambda fake: fake.set_iommu("xen"),
        lambda fake: fake.set_command_line("intel_iommu=on intremap=off"),
        lambda fake: fake.set_modules({"vfio_pci": {"disable_idle_d3": True}, "kvm": None}),
        lambda fake: fake.write_file("/sys/kernel/iommu_groups/27/reserved_regions",
                                     "0x00000000000e0000 0x00000000000fffff direct"),
        lambda fake: fake.write_file("/etc/cyborg/cyborg.conf",
                                     f"[ext_drivers]\nexclude = {T4}\nextra_traits = "
                                     "10de:*=CUSTOM_MINE,CUSTOM_OTHER\n[agent]\nenabled_drivers="
                                     "ext_nvidia_gpu_driver\n"),
        lambda fake: fake.write_file("/etc/nova/nova.conf",
                                     '[pci]\ndevice_spec = {"address": "*:3b:00.*"}\n'),
        lambda fake: fake.write_file("/etc/cyborg/ext_catalog.d/mine.yaml", "vendor: nonsense"),
        lambda fake: fake.write_file("/etc/cyborg/ext_catalog.d/mine.yml", MY_CATALOG),
        lambda fake: fake.inject(Oddity("absent", "/sys/kernel/iommu_groups")),
        lambda fake: fake.inject(Oddity("absent", "/sys/class/iommu")),
        lambda fake: fake.inject(Oddity("absent", "/sys/firmware")),
    ],
)  # fmt: skip
def test_what_is_odd_about_a_host_is_described(change, run, copy_of):
    with FakeHost.named("two-t4") as fake:
        change(fake)
        with copy_of(fake) as copy:
            assert everything_said(run, copy.root) == everything_said(run, fake.root)


@pytest.mark.parametrize("attribute", ["vendor", "uevent", "iommu_group", "config"])
def test_what_cannot_be_read_is_told_of_and_not_invented(attribute, run):
    with FakeHost.named("two-t4") as fake:
        fake.make_unreadable(T4, attribute)
        code, text, complaints = run("snapshot", "describe", "--host-root", fake.root)
    assert code == 0
    assert "Not described: " in complaints
    assert T4 in complaints
    assert yaml.safe_load(text)["expected"]["skipped"] == {T4: "unreadable"}


def test_the_private_part_of_a_command_line_stays_private():
    with FakeHost.named("two-t4") as fake:
        fake.set_command_line("root=UUID=5e3ab0c1 ip=10.1.2.3 token=s3cret amd_iommu=off iommu=pt")
        found = described(fake)
    assert found.mapping["host"]["cmdline"] == "amd_iommu=off iommu=pt"
    assert "s3cret" not in found.yaml and "10.1.2.3" not in found.yaml


def test_functions_that_nothing_depends_on_are_left_out_unless_asked_for(run):
    _code, text, complaints = run("snapshot", "describe", "--fake", "domain-0001")
    assert "1 other PCI functions are left out" in complaints
    _, whole, complaints = run("snapshot", "describe", "--fake", "domain-0001", "--all")
    assert complaints == ""
    assert len(yaml.safe_load(whole)["host"]["functions"]) == 1 + len(
        yaml.safe_load(text)["host"]["functions"]
    )


def test_what_the_operator_decided_is_described_of_a_snapshot_for_other_programs(run, tmp_path):
    claim = '[pci]\ndevice_spec = {"vendor_id": "10de", "product_id": "1eb8"}\n'
    with FakeHost.named("two-t4") as fake:
        fake.write_file("/etc/nova/nova.conf", claim)
        fake.write_file("/etc/cyborg/ext_catalog.d/mine.yaml", MY_CATALOG)
        assert run("snapshot", "save", tmp_path / "it", "--raw", "--host-root", fake.root)[0] == 0
    with FakeHost.from_file(captured.described(str(tmp_path / "it"), tmp_path)) as copy:
        assert copy.path("/etc/nova/nova.conf").read_text() == claim
        code, text, _ = run("traits", "-f", "json", "--host-root", copy.root)
    assert code == 0 and "CUSTOM_NVIDIA_MY_T4" in text


def test_mediated_devices_are_told_of(run):
    with FakeHost.named("t4-on-vgpu-host-driver") as fake:
        card = next(each for each in fake.description.functions if each.mdev_types)
        kind = card.mdev_types[0].id
        fake.create_mediated_device(card.address, kind, "4b20d080-1b54-4048-85b3-a6a62d165c01")
        _, _text, complaints = run("snapshot", "describe", "--host-root", fake.root)
    assert "Not described: " in complaints


def test_a_host_without_a_bus_is_one_sentence(run, tmp_path):
    code, text, complaints = run("snapshot", "describe", "--host-root", tmp_path)
    assert (code, text) == (2, "")
    assert complaints.count("\n") == 1


def test_a_name_that_is_none_is_one_sentence(run):
    code, text, complaints = run("snapshot", "describe", "--fake", "two-t4", "--name", "Two T4")
    assert (code, text) == (2, "")
    assert "'Two T4' is no name" in complaints


def test_the_name_is_made_of_the_files():
    assert name_of("/tmp/Compute_7.example.tar.gz") == "compute-7"
    assert name_of(None) == name_of("/tmp/...") == "described-host"


# NVML


def nvml_hosts():
    return [n for n in described_hosts() if any(f.nvml for f in load(n).functions)
            or load(n).extra.get("nvml") not in (None, "present")]  # fmt: skip


def answers(fake):
    """Return what NVML says, and all that is said of each card with it."""
    options = Options(host_root=str(fake.root), nvml_library=str(fake.nvml_library))
    host = Host(fake.root)
    surveyor = Surveyor(options)
    closer = [surveyor.look_closer(each, host) for each in surveyor.survey(host).assessments]
    said = [[(str(f.code), str(f.severity), f.message) for f in each.findings] for each in closer]
    answer = host.nvml.ask(host.functions, str(fake.nvml_library), 5.0)
    return answer._replace(library=None), said


@pytest.mark.parametrize("name", nvml_hosts())
def test_what_nvml_says_is_said_again(name):
    try:
        with FakeHost.named(name) as fake:
            before = answers(fake)
            options = Options(host_root=str(fake.root), nvml_library=str(fake.nvml_library))
            found = described(fake, options, with_serials=True)
    except NoCompiler as error:
        pytest.skip(str(error))
    with FakeHost.from_mapping(yaml.safe_load(found.yaml)) as copy:
        assert answers(copy) == before


def test_serial_numbers_of_a_host_are_not_said_unless_asked_for():
    try:
        with FakeHost.named("two-t4") as fake:
            fake.set_nvml_of(T4, serial="1324120000001", uuid="GPU-secret")
            options = Options(host_root=str(fake.root), nvml_library=str(fake.nvml_library))
            plain = described(fake, options).yaml
            raw = described(fake, options, with_serials=True).yaml
    except NoCompiler as error:
        pytest.skip(str(error))
    for word in ("1324120000001", "GPU-secret"):
        assert word not in plain
        assert word in raw


def test_a_snapshot_is_looked_at_again_as_a_snapshot():
    host = Host(tree=CapturedTree(Captured())).again()
    assert isinstance(host.tree, CapturedTree)
