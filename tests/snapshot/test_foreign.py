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

"""Captures of other tools give the answers that are in them, and tell what is not."""

import gzip
import io
import json
import os
import random
import shutil
import subprocess
import tarfile

import pytest

from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.snapshot import foreign, untold
from cyborg_ext_drivers.snapshot.captured import CapturedTree, Failure
from cyborg_ext_drivers.snapshot.foreign import ForeignError
from cyborg_ext_drivers.survey import Surveyor
from cyborg_ext_drivers.testing import FakeHost

T4 = "0000:3b:00.0"
TEXT = """\
Our host does not report its GPUs.

```
$ uname -a
Linux compute7 5.15.0-105-generic #115-Ubuntu SMP x86_64 GNU/Linux
$ cat /proc/cmdline
BOOT_IMAGE=/boot/vmlinuz root=UUID=5e3a ro intel_iommu=on
$ lspci -nnmmk -D -vvv
Slot:\t0000:00:00.0
Class:\tHost bridge [0600]
Vendor:\tIntel Corporation [8086]
Device:\tSky Lake-E DMI3 Registers [2020]
Rev:\t07
IOMMUGroup:\t0

Slot:\t0000:3b:00.0
Class:\t3D controller [0302]
Vendor:\tNVIDIA Corporation [10de]
Device:\tTU104GL [Tesla T4] [1eb8]
SVendor:\tNVIDIA Corporation [10de]
SDevice:\tDevice [12a2]
Rev:\ta1
Driver:\tvfio-pci
Module:\tnvidiafb
Module:\tnouveau
NUMANode:\t0

Slot:\t0000:3c:00.0
Class:\tEthernet controller [0200]
Vendor:\tMellanox Technologies [15b3]
Device:\tMT28908 [1021]
Driver:\tmlx5_core

$ find /sys/kernel/iommu_groups/ -type l
/sys/kernel/iommu_groups/0/devices/0000:00:00.0
/sys/kernel/iommu_groups/27/devices/0000:3b:00.0
/sys/kernel/iommu_groups/27/devices/0000:3c:00.0
```
"""


def survey(found):
    return Surveyor().survey(Host(tree=CapturedTree(found.captured)))


def verdicts(survey):
    return {
        str(each.address): str(each.reason.code) if each.reason else "reported"
        for each in survey.assessments
    }


def traits(survey):
    return [d.traits for each in survey.reported for d in each.deployables]


def told_of(found):
    return "\n".join(found.notes)


# Texts


def test_what_is_pasted_into_a_report_tells_of_the_group_that_a_nic_shares():
    found = foreign.from_bytes(TEXT.encode())
    result = survey(found)
    assert verdicts(result) == {T4: "iommu-group-shared"}
    (reason,) = [each.reason for each in result.skipped]
    assert "0000:3c:00.0" in reason.message and "mlx5_core" in str(reason)
    host = Host(tree=CapturedTree(found.captured))
    assert host.kernel.release == "5.15.0-105-generic"
    assert host.kernel.parameter("intel_iommu") == "on"
    assert host.functions.get(T4).numa_node == 0
    assert str(host.functions.get(T4).identity.subsystem) == "10de:12a2"
    assert "compute7" not in repr(found.captured.nodes)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"    {line}\n" for line in text.splitlines()),
        lambda text: text.replace("0000:3b:00.0\nClass", "3b:00.0\nClass"),
        lambda text: text + text,
        lambda text: "\n".join(reversed(text.split("\n\n"))).replace("Slot", "\nSlot"),
    ],
)
def test_the_way_it_was_pasted_makes_no_difference(change):
    assert verdicts(survey(foreign.from_bytes(change(TEXT).encode()))) == {T4: "iommu-group-shared"}


@pytest.mark.parametrize(
    "text",
    [
        # lspci -nnk
        "3b:00.0 3D controller [0302]: NVIDIA Corporation TU104GL [Tesla T4] [10de:1eb8] (rev a1)\n"
        "\tSubsystem: NVIDIA Corporation Device [10de:12a2]\n\tKernel driver in use: nvidia\n"
        "\tKernel modules: nvidiafb, nouveau\n",
        # lspci -nnmm -D
        '0000:3b:00.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "TU104GL [Tesla T4] '
        '[1eb8]" -ra1 -p00 "NVIDIA Corporation [10de]" "Device [12a2]"\n',
        # lspci -n
        "3b:00.0 0302: 10de:1eb8 (rev a1)\n",
        # lspci -nmm
        '3b:00.0 "0302" "10de" "1eb8" -ra1 -p00 "10de" "12a2"\n',
        # lspci -nmm -vvv
        "Slot:\t3b:00.0\nClass:\t0302\nVendor:\t10de\nDevice:\t1eb8\nRev:\ta1\n",
    ],
)
def test_every_way_of_lspci_to_name_ids_is_read(text):
    found = foreign.from_bytes(text.encode())
    (function,) = Host(tree=CapturedTree(found.captured)).functions
    assert (function.name, str(function.identity.id)) == (T4, "10de:1eb8")
    assert function.identity.pci_class.code == "030200"
    assert function.revision == "a1"
    assert untold.NO_GROUPS in found.notes


def test_groups_that_a_text_does_not_tell_are_no_answer():
    without = "\n".join(line for line in TEXT.splitlines() if "roup" not in line)
    found = foreign.from_bytes(without.encode())
    assert isinstance(found.captured.nodes["/sys/kernel/iommu_groups"], Failure)
    # Neither iommu-disabled nor no-iommu-group.
    assert verdicts(survey(found)) == {T4: "unreadable"}
    assert untold.NO_GROUPS in found.notes


def test_groups_as_scripts_print_them_are_read():
    card = "3b:00.0 3D controller [0302]: NVIDIA Corporation TU104GL [10de:1eb8] (rev a1)"
    nic = "3c:00.0 Ethernet controller [0200]: Mellanox Technologies MT28908 [15b3:1021]"
    for text in (
        f"IOMMU Group 27:\n\t{card}\n\t{nic}\n",
        f"IOMMU Group 27 {card}\nIOMMU Group 27 {nic}\n",
    ):
        found = foreign.from_bytes(text.encode())
        host = Host(tree=CapturedTree(found.captured))
        assert host.iommu.group(27).members == (T4, "0000:3c:00.0")


def test_virtual_functions_are_known_where_lspci_decodes_the_capability():
    text = (
        "0000:3b:00.0 3D controller [0302]: NVIDIA Corporation GA107GL [A2] [10de:25b6] (rev a1)\n"
        "\tCapabilities: [bcc v1] Single Root I/O Virtualization (SR-IOV)\n"
        "\t\tInitial VFs: 16, Total VFs: 16, Number of VFs: 2, Function Dependency Link: 00\n"
        "\t\tVF offset: 4, stride: 1, Device ID: 25b6\n"
        "\tIOMMU group: 20\n\n"
        "0000:3b:00.4 3D controller [0302]: NVIDIA Corporation GA107GL [A2] [10de:25b6] (rev a1)\n"
        "\tIOMMU group: 21\n\n"
        "0000:3b:00.5 3D controller [0302]: NVIDIA Corporation GA107GL [A2] [10de:25b6] (rev a1)\n"
        "\tIOMMU group: 22\n"
    )
    found = foreign.from_bytes(text.encode())
    assert "SR-IOV is not in it" not in told_of(found)
    host = Host(tree=CapturedTree(found.captured))
    assert list(map(str, host.functions.get(T4).virtual_functions)) == [
        "0000:3b:00.4",
        "0000:3b:00.5",
    ]
    assert str(host.functions.get("0000:3b:00.4").physical_function) == T4
    assert T4 in verdicts(survey(found))
    assert "0000:3b:00.4" not in verdicts(survey(found))


def test_a_card_that_fell_off_the_bus_is_dead():
    text = (
        "3b:00.0 3D controller [0302]: NVIDIA Corporation T4 [10de:1eb8] (rev ff) (prog-if ff)\n"
        "\t!!! Unknown header type 7f\n\tKernel driver in use: nvidia\n\tIOMMU group: 27\n"
    )
    assert verdicts(survey(foreign.from_bytes(text.encode()))) == {T4: "config-space-dead"}


def test_what_contradicts_itself_is_told_of():
    text = "3b:00.0 0302: 10de:1eb8 (rev a1)\n\n3b:00.0 0302: 10de:20b0 (rev a1)\n"
    found = foreign.from_bytes(text.encode())
    assert f"Of {T4} the text says two things" in told_of(found)
    (function,) = Host(tree=CapturedTree(found.captured)).functions
    assert str(function.identity.id) == "10de:1eb8"


@pytest.mark.parametrize(
    "text, said",
    [
        (b"", "lists no PCI functions"),
        (b"Dear all,\nmy GPU is gone.\n", "lists no PCI functions"),
        (b"/sys/kernel/iommu_groups/1/devices/0000:3b:00.0\n", "lists no PCI functions"),
        (b"3b:00.0 3D controller: NVIDIA Corporation TU104GL [Tesla T4] (rev a1)\n", "-nn"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "neither a tar archive"),
        (b"PK\x03\x04rest", "zip"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (b"\x1f\x8bnonsense", "damaged"),
        (b"BZh9nonsense", "damaged"),
        (b"\xfd7zXZ\0nonsense", "damaged"),
    ],
)
def test_what_is_no_capture_is_one_sentence(text, said):
    with pytest.raises(ForeignError, match=said) as error:
        foreign.from_bytes(text, "report.txt")
    assert str(error.value).startswith("report.txt is no capture of a host")
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not shutil.which("lspci"), reason="lspci is not installed")
@pytest.mark.parametrize(
    "name",
    ["two-t4", "gpu-with-bound-audio", "gpu-shares-group-with-nic", "domain-0001", "hgx-a100",
     "mixed-models", "v100-pairs-in-groups", "eight-mi300x"],
)  # fmt: skip
@pytest.mark.parametrize("arguments", ["-nnmmk -D -vvv", "-nnk -D -vvv"])
def test_what_lspci_itself_prints_gives_the_same_verdicts(name, arguments):
    with FakeHost.named(name) as fake:
        environment = {**os.environ, **fake.umockdev_environment()}
        printed = subprocess.run(
            ["lspci", *arguments.split()], env=environment, stdout=subprocess.PIPE, check=True
        ).stdout
        links = sorted(fake.path("/sys/kernel/iommu_groups").glob("*/devices/*"))
        printed += "".join(f"/{each.relative_to(fake.root)}\n" for each in links).encode()
        wanted = Surveyor().survey(Host(fake.root))
    found = survey(foreign.from_bytes(printed))
    assert verdicts(found) == verdicts(wanted)
    assert traits(found) == traits(wanted)


# Trees of files


def tar_of(fake, prefix="", start="", mode="w:gz", kinds=tarfile.GNU_FORMAT, pad=False):
    """Return what plain tar makes of a host."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode, format=kinds) as tar:
        top = fake.path(start)
        for path in sorted(top.rglob("*")):
            member = tar.gettarinfo(path, prefix + str(path.relative_to(top)))
            if not member.isreg():
                tar.addfile(member)
                continue
            try:
                data = path.read_bytes()
            except OSError:
                data = b""
            # sysfs says 4096 of every file.
            data = data.ljust(4096, b"\0") if pad else data
            member.type, member.size = tarfile.REGTYPE, len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.parametrize("prefix", ["./", "", "host1/", "/", "a/b/c/"])
@pytest.mark.parametrize("name", ["gpu-with-bound-audio", "a2-with-virtual-functions"])
def test_a_tar_archive_of_sys_gives_the_same_verdicts(name, prefix):
    with FakeHost.named(name) as fake:
        wanted = Surveyor().survey(Host(fake.root))
        found = foreign.from_bytes(tar_of(fake, f"{prefix}sys/", "/sys"))
    assert verdicts(survey(found)) == verdicts(wanted)
    assert traits(survey(found)) == traits(wanted)
    assert "The kernel's release is not in it" in found.notes
    assert untold.NO_GROUPS not in found.notes


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("kinds", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_each_compression_and_format_of_tar_is_read(mode, kinds):
    with FakeHost.named("two-t4") as fake:
        data = tar_of(fake, "./", mode=mode, kinds=kinds)
        wanted = Surveyor().survey(Host(fake.root))
    assert verdicts(survey(foreign.from_bytes(data))) == verdicts(wanted)


def test_tar_from_within_sys_is_read():
    with FakeHost.named("two-t4") as fake:
        found = foreign.from_bytes(tar_of(fake, "./", "/sys"))
    assert verdicts(survey(found)) == {T4: "reported", "0000:d8:00.0": "reported"}


def test_zeros_that_tar_added_are_cut_off_and_told_of():
    with FakeHost.named("two-t4") as fake:
        fake.set_attribute(T4, "config", bytes(64))
        found = foreign.from_bytes(tar_of(fake, "sys/", "/sys", pad=True))
        assert verdicts(survey(found))["0000:d8:00.0"] == "reported"
        nodes = found.captured.nodes
        (vendor,) = [nodes[path] for path in nodes if path.endswith(f"{T4}/vendor")]
        (config,) = [nodes[path] for path in nodes if path.endswith(f"{T4}/config")]
    assert vendor.data == b"0x10de\n"
    assert len(config.data) == 4096
    assert "tar had padded" in told_of(found)


def test_a_sparse_archive_has_nothing_in_it_and_says_so():
    with FakeHost.named("two-t4") as fake:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for path in sorted(fake.path("/sys").rglob("*")):
                member = tar.gettarinfo(path, str(path.relative_to(fake.root)))
                if member.isreg():
                    member.size = 4096
                tar.addfile(member, io.BytesIO(bytes(4096)) if member.isreg() else None)
    with pytest.raises(ForeignError, match="--sparse"):
        foreign.from_bytes(data.getvalue())


def test_absolute_links_stay_on_the_host():
    with FakeHost.named("two-t4") as fake:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for path in sorted(fake.path("/sys").rglob("*")):
                member = tar.gettarinfo(path, str(path.relative_to(fake.root)))
                if member.issym():
                    real = os.path.realpath(path)
                    member.linkname = real.removeprefix(os.path.realpath(fake.root))
                file = path.open("rb") if member.isreg() and os.access(path, os.R_OK) else None
                if member.isreg() and file is None:
                    member.size = 0
                tar.addfile(member, file)
    found = foreign.from_bytes(data.getvalue())
    assert verdicts(survey(found)) == {T4: "reported", "0000:d8:00.0": "reported"}


def ghw_snapshot(fake):
    """Return what ghwc snapshot keeps: links, drivers and nine entries of each function."""
    kept = ("class", "device", "driver", "irq", "local_cpulist", "modalias", "numa_node",
            "revision", "vendor")  # fmt: skip
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for link in sorted(fake.path("/sys/bus/pci/devices").iterdir()):
            tar.add(link, str(link.relative_to(fake.root)))
            real = link.resolve()
            for name in kept:
                path = real / name
                if path.exists() or path.is_symlink():
                    tar.add(path, str(path.relative_to(os.path.realpath(fake.root))))
        for driver in sorted(fake.path("/sys/bus/pci/drivers").iterdir()):
            tar.add(driver, str(driver.relative_to(fake.root)), recursive=False)
    return stream.getvalue()


def test_a_snapshot_of_ghw_tells_cards_and_drivers_but_no_groups(tmp_path, diagnose):
    with FakeHost.named("two-t4") as fake:
        data = ghw_snapshot(fake)
    found = foreign.from_bytes(data)
    host = Host(tree=CapturedTree(found.captured))
    assert host.functions.get(T4).driver == "nvidia"
    assert verdicts(survey(found)) == {T4: "unreadable", "0000:d8:00.0": "unreadable"}
    said = told_of(found)
    for words in ("IOMMU groups", "Configuration space", "SR-IOV", "Registers", "Power states"):
        assert (
            f"{words} {'is' if words in ('SR-IOV', 'Configuration space') else 'are'} not" in said
        )
    assert "Drivers are not in it" not in said
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(tmp_path, filter="fully_trusted")
    code, out, complaints = diagnose("host", "--host-root", tmp_path, "-f", "json")
    assert code == 1
    assert len(json.loads(out)) == 2
    assert "Not told: IOMMU groups are not in it" in complaints


def hwloc_archive(fake, name="compute7"):
    """Return what hwloc-gather-topology --io makes: copies by cat, links as they are."""
    stream = io.BytesIO()
    root = fake.root
    with tarfile.open(fileobj=stream, mode="w:bz2") as tar:
        tops = [*sorted(fake.path("/sys/devices").glob("pci*")), fake.path("/sys/bus/pci/devices")]
        for top in (*tops, fake.path("/proc/cmdline"), fake.path("/proc/version")):
            for path in [top, *sorted(top.rglob("*"))]:
                member = tar.gettarinfo(path, f"{name}/{path.relative_to(root)}")
                file = None
                if member.isreg():
                    data = path.read_bytes() if os.stat(path).st_mode & 0o444 else b""
                    member.type, member.size, file = tarfile.REGTYPE, len(data), io.BytesIO(data)
                tar.addfile(member, file)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["two-t4", "gpu-shares-group-with-nic", "group-zero"])
def test_an_archive_of_hwloc_tells_groups_by_the_links_of_their_members(name):
    with FakeHost.named(name) as fake:
        found = foreign.from_bytes(hwloc_archive(fake))
        wanted = Surveyor().survey(Host(fake.root))
        release = Host(fake.root).kernel.release
    assert verdicts(survey(found)) == verdicts(wanted)
    assert "What firmware reserves in a group is not in it" in told_of(found)
    # Of /proc/version.
    assert Host(tree=CapturedTree(found.captured)).kernel.release == release


def test_an_archive_of_hwloc_without_its_io_says_what_is_missing():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:bz2") as tar:
        tar.addfile(tarfile.TarInfo("compute7/sys/devices/system/node"))
    with pytest.raises(ForeignError, match="--io"):
        foreign.from_bytes(stream.getvalue())


def test_a_directory_becomes_a_snapshot_as_well(tmp_path, diagnose):
    with FakeHost.named("two-t4") as fake:
        code, _out, complaints = diagnose("snapshot", "import", fake.root, tmp_path / "out.tar.gz")
        assert code == 0, complaints
        ours = diagnose("host", "--long", "-f", "json", "--snapshot", tmp_path / "out.tar.gz")
        theirs = diagnose("host", "--long", "-f", "json", "--host-root", fake.root)
    rows, wanted = json.loads(ours[1]), json.loads(theirs[1])
    for row in (*rows, *wanted):
        for deployable in row["deployables"]:
            deployable["name"] = deployable["name"].rpartition("_")[2]
    assert rows == wanted


# The command


def test_an_import_is_a_snapshot_that_remembers_what_it_cannot_tell(tmp_path, diagnose):
    report, out = tmp_path / "report.txt", tmp_path / "out.tar.gz"
    report.write_text(TEXT)
    code, printed, complaints = diagnose("snapshot", "import", report, out)
    assert code == 0
    assert printed.startswith(f"{out}: 3 PCI functions of the text of lspci. Next: ")
    assert "Not told: Configuration space is not in it" in complaints
    code, printed, _ = diagnose("snapshot", "show", out, "-f", "json")
    assert code == 0
    notes = json.loads(printed)["notes"]
    assert any("Configuration space is not in it" in note for note in notes)
    code, printed, _ = diagnose("host", "--snapshot", out, "-f", "json")
    assert (code, json.loads(printed)[0]["reason"]) == (1, "iommu-group-shared")
    code, printed, _ = diagnose("snapshot", "describe", out)
    assert code == 0
    assert f'"{T4}": iommu-group-shared' in printed


def test_a_file_that_is_there_is_not_replaced_unasked(tmp_path, diagnose):
    report, out = tmp_path / "report.txt", tmp_path / "out.tar.gz"
    report.write_text(TEXT)
    out.write_text("mine")
    code, _out, complaints = diagnose("snapshot", "import", report, out)
    assert (code, out.read_text()) == (2, "mine")
    assert "--force" in complaints
    assert diagnose("snapshot", "import", report, out, "--force")[0] == 0


def test_what_cannot_be_imported_is_one_sentence_and_no_file(tmp_path, diagnose):
    report, out = tmp_path / "report.txt", tmp_path / "out.tar.gz"
    report.write_text("nothing\n")
    for source in (report, tmp_path / "absent", tmp_path, "/dev/zero"):
        code, printed, complaints = diagnose("snapshot", "import", source, out)
        assert (code, printed, complaints.count("\n")) == (2, "", 1)
    assert not out.exists()


# Hostile files


def archive_with(*members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, value in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                member.linkname = value
            data = value.encode() if kind == tarfile.REGTYPE else b""
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


CARD = f"sys/bus/pci/devices/{T4}"
IDS = [
    (f"{CARD}/vendor", tarfile.REGTYPE, "0x10de\n"),
    (f"{CARD}/device", tarfile.REGTYPE, "0x1eb8\n"),
    (f"{CARD}/class", tarfile.REGTYPE, "0x030200\n"),
]


@pytest.mark.parametrize(
    "members, said",
    [
        ([("../sys/bus/pci", tarfile.DIRTYPE, "")], "leads out of it"),
        ([("sys/bus/pci/devices/../../x", tarfile.REGTYPE, "")], "leads out of it"),
        ([*IDS, ("other/sys/bus/pci/devices", tarfile.DIRTYPE, "")], "two hosts"),
        ([("etc/passwd", tarfile.REGTYPE, "root")], "no PCI functions"),
    ],
)
def test_names_that_lead_astray_are_refused(members, said):
    with pytest.raises(ForeignError, match=said):
        foreign.from_bytes(archive_with(*members))


def test_links_and_odd_members_read_nothing_of_this_machine():
    members = [
        *IDS,
        (f"{CARD}/revision", tarfile.SYMTYPE, "/etc/hostname"),
        (f"{CARD}/numa_node", tarfile.LNKTYPE, "/etc/passwd"),
        (f"{CARD}/boot_vga", tarfile.CHRTYPE, ""),
        (f"{CARD}/power_state", tarfile.FIFOTYPE, ""),
        (f"{CARD}/iommu_group", tarfile.SYMTYPE, "../../../../../../../../../etc"),
        (f"{CARD}/vendor/below", tarfile.REGTYPE, "nonsense"),
        ("sys/bus/pci/devices/0000:3c:00.0", tarfile.SYMTYPE, "0000:3c:00.0"),
        ("sys/bus/pci/devices/0000:3d:00.0", tarfile.SYMTYPE, "../../../../../../../.."),
    ]
    found = foreign.from_bytes(archive_with(*members))
    assert "2 entries that are neither" in told_of(found)
    assert verdicts(survey(found))[T4] == "unreadable"


def test_bombs_are_refused_before_they_burst(monkeypatch):
    monkeypatch.setattr(foreign, "MOST_BYTES", 1 << 20)
    for mode in ("w:gz", "w:bz2", "w:xz"):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode=mode) as tar:
            member = tarfile.TarInfo("sys/bus/pci/devices/large")
            member.size = 8 << 20
            tar.addfile(member, io.BytesIO(bytes(member.size)))
        with pytest.raises(ForeignError, match="more than 1 MiB"):
            foreign.from_bytes(stream.getvalue())


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_would_fill_the_memory_is_refused(kind):
    member = tarfile.TarInfo("sys/bus/pci/devices/large")
    member.type, member.size = kind, 8 << 20
    data = gzip.compress(member.tobuf(tarfile.USTAR_FORMAT) + bytes(member.size), 1)
    with pytest.raises(ForeignError, match="a header in it is longer than 1 MiB"):
        foreign.from_bytes(data)


def test_the_map_of_a_sparse_file_does_not_fill_the_memory():
    member = tarfile.TarInfo("sys/bus/pci/devices/large")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    # isextended of the header and of each block that follows (tar(5), old GNU sparse format).
    header[482] = 1
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 32)
    with pytest.raises(ForeignError, match="a header in it is longer than 1 MiB"):
        foreign.from_bytes(gzip.compress(bytes(header) + (bytes(504) + b"\1" + bytes(7)) * 9999, 1))


def test_more_members_than_a_host_has_are_refused(monkeypatch):
    with FakeHost.named("two-t4") as fake:
        data = tar_of(fake, "sys/", "/sys")
        for name in ("MOST_MEMBERS", "MOST_KEPT", "MOST_KEPT_BYTES"):
            with monkeypatch.context() as patch:
                patch.setattr(foreign, name, 5)
                with pytest.raises(ForeignError, match="more than"):
                    foreign.from_bytes(data)


def test_ten_thousand_lines_of_functions_are_read_and_too_many_refused(monkeypatch):
    monkeypatch.setattr("cyborg_ext_drivers.snapshot._lspci._MOST_FUNCTIONS", 100)
    text = "".join(f"{bus:02x}:00.0 0302: 10de:1eb8\n" for bus in range(200))
    with pytest.raises(ForeignError, match="more than 100 functions"):
        foreign.from_bytes(text.encode())


@pytest.mark.parametrize("mode", ["w", "w:gz", "text"])
def test_damaged_captures_are_an_answer_or_a_sentence(mode):
    with FakeHost.named("two-t4") as fake:
        data = TEXT.encode() if mode == "text" else tar_of(fake, "sys/", "/sys/bus", mode=mode)
        if mode != "text":
            data = tar_of(fake, "", mode=mode)
    for seed in range(150):
        chance = random.Random(seed)
        mutated = bytearray(data)
        for _ in range(chance.randint(1, 12)):
            at = chance.randrange(len(mutated))
            mutated[at : at + chance.choice([1, 1, 8, 512])] = chance.randbytes(
                chance.choice([0, 1, 4, 512])
            )
        try:
            found = foreign.from_bytes(bytes(mutated[: chance.choice([len(data), len(data) // 2])]))
        except ForeignError as error:
            assert "\n" not in str(error)
        else:
            survey(found)
