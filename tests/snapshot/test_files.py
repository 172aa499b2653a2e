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


"""Whatever is in a file, opening it gives an answer or one sentence, and leaves nothing behind.

``CYBORG_EXT_SNAPSHOT_MUTATIONS=5000`` tries so many files instead of a few hundred.
"""

import errno
import gzip
import io
import json
import os
import pathlib
import random
import stat
import tarfile

import jsonschema
import pytest

from cyborg_ext_drivers.snapshot import archive, opening, schema
from cyborg_ext_drivers.testing import FakeHost

MANY = int(os.environ.get("CYBORG_EXT_SNAPSHOT_MUTATIONS", "300"))
#: How many of the files that can be opened are looked at with the command.
_LOOKED_AT = 8
_NAMES = (
    "../evil",
    "/etc/passwd",
    "root/../../evil",
    "root/sys/../../x",
    "manifest.json",
    "state/../../evil",
    "catalog/a/b.yaml",
    "state/" + "a" * 300,
    "root/" + "a/" * 100,
    "root/" + "n" * 5000,
    "nothing",
    "root/sys/bus/pci/devices/0000:3b:00.0/vendor",
)
_WORDS = ("", "\0", "../..", 0, -1, None, True, [], {}, "x" * 9999, 1e300, "$host", "\n[x]\ny=1")


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """The bytes of a snapshot that has a bit of everything."""
    path = tmp_path_factory.mktemp("intact") / "host.tar.gz"
    with FakeHost.named("two-t4") as fake:
        fake.write_file(
            "/etc/cyborg/cyborg.conf",
            "[DEFAULT]\nhost = compute-1\n[agent]\nenabled_drivers = ext_nvidia_gpu_driver\n"
            "[ext_drivers]\nexclude = 0000:d8:*\n",
        )
        fake.write_file("/etc/cyborg/ext_catalog.d/mine.yaml", "products: []\n")
        from cyborg_ext_drivers.cli.app import main

        assert main(["snapshot", "save", str(path), "--host-root", str(fake.root)]) == 0
    return path.read_bytes()


class Mutations:
    """Files that somebody might send, each made from an intact one by a seed."""

    def __init__(self, intact: bytes):
        self._packed = intact
        self._plain = gzip.decompress(intact)
        with tarfile.open(fileobj=io.BytesIO(self._plain)) as tar:
            self._members = [
                (each, tar.extractfile(each).read() if each.isreg() else b"") for each in tar
            ]

    def make(self, seed: int) -> bytes:
        self._random = random.Random(seed)
        kinds = (
            self._flipped_packed,
            self._flipped_plain,
            self._cut,
            self._with_member,
            self._with_other_name,
            self._with_other_kind,
            self._with_other_document,
            self._shuffled,
        )
        return kinds[seed % len(kinds)]()

    def _flipped(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._random.choice((1, 1, 4, 64))):
            changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed)

    def _flipped_packed(self) -> bytes:
        return self._flipped(self._packed)

    def _flipped_plain(self) -> bytes:
        data = bytearray(self._plain)
        start = self._random.randrange(0, len(data), 512)
        data[start : start + 512] = self._flipped(bytes(data[start : start + 512]))
        return _packed(bytes(data))

    def _cut(self) -> bytes:
        data = self._random.choice((self._packed, self._plain))
        cut = data[: self._random.randrange(len(data))]
        return cut if data is self._packed else _packed(cut)

    def _with_member(self) -> bytes:
        member = tarfile.TarInfo(self._random.choice(_NAMES))
        member.type = self._random.choice(
            (
                *(tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE),
                *(tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE),
                *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, b"Z"),
            )
        )
        member.linkname = self._random.choice(("/etc/passwd", "../../x", "", "root"))
        return self._archive([*self._members, (member, b"")], self._random.random() < 0.5)

    def _with_other_name(self) -> bytes:
        members = self._copies()
        member, _ = self._random.choice(members)
        member.name = self._random.choice((*_NAMES, self._random.choice(members)[0].name))
        return self._archive(members)

    def _with_other_kind(self) -> bytes:
        members = self._copies()
        number = self._random.randrange(len(members))
        member, _ = members[number]
        member.type = self._random.choice(
            (tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.REGTYPE)
        )
        member.linkname, member.size = self._random.choice(("../" * 9, "/", ".", "a" * 4095)), 0
        members[number] = (member, b"")
        return self._archive(members)

    def _with_other_document(self) -> bytes:
        members = self._copies()
        number = self._random.randrange(4)
        member, data = members[number]
        document = self._changed(json.loads(data))
        members[number] = (member, json.dumps(document).encode())
        return self._archive(members)

    def _changed(self, value):
        if isinstance(value, dict) and value and self._random.random() < 0.9:
            key = self._random.choice(sorted(value))
            other = self._random.choice((key, key, key, "x", "", "host_root", "config_source"))
            return {**value, other: self._changed(value[key])}
        if isinstance(value, list) and value and self._random.random() < 0.9:
            number = self._random.randrange(len(value))
            return [*value[:number], self._changed(value[number]), *value[number + 1 :]]
        return self._random.choice(_WORDS)

    def _shuffled(self) -> bytes:
        members = self._copies()
        self._random.shuffle(members)
        return self._archive(members[: self._random.randrange(1, len(members) + 1)])

    def _copies(self):
        return [(_copy(member), data) for member, data in self._members]

    def _archive(self, members, pax: bool = False) -> bytes:
        stream = io.BytesIO()
        kind = tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT
        with tarfile.open(fileobj=stream, mode="w", format=kind) as tar:
            for member, data in members:
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return _packed(stream.getvalue())


def _copy(member: tarfile.TarInfo) -> tarfile.TarInfo:
    other = tarfile.TarInfo(member.name)
    other.type, other.linkname, other.mode = member.type, member.linkname, member.mode
    return other


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory in which all is seen that is made in it."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _everything(place):
    return sorted(str(each.relative_to(place)) for each in place.rglob("*"))


def test_a_changed_file_gives_an_answer_or_one_sentence(intact, place, diagnose):
    mutations = Mutations(intact)
    path = place / "host.tar.gz"
    path.write_bytes(intact)
    before = _everything(place)
    refused = answered = 0
    for seed in range(MANY):
        path.write_bytes(mutations.make(seed))
        try:
            archive.read(str(path))
        except archive.SnapshotError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 600, seed
            continue
        answered += 1
        if answered > _LOOKED_AT and MANY < 1000:
            continue
        code, _, err = diagnose("host", "--long", "--all", "-f", "json", "--snapshot", path)
        assert code in (0, 1, 2), seed
        assert "Traceback" not in err, seed
        assert (code == 2) <= (len(err.splitlines()) >= 1), seed
    assert refused and answered
    assert _everything(place) == before


@pytest.mark.parametrize("name", _NAMES[:4])
def test_a_name_that_leads_out_is_refused(name, intact, place, diagnose):
    mutations = Mutations(intact)
    path = place / "host.tar.gz"
    member = tarfile.TarInfo(name)
    path.write_bytes(mutations._archive([*mutations._members, (member, b"evil")]))
    code, out, err = diagnose("host", "--snapshot", path)
    assert (code, out) == (2, "")
    assert "is no name of a member" in err
    assert _everything(place) == ["host.tar.gz", "tmp"]


def test_a_bomb_is_refused_before_it_fills_the_memory(place, diagnose):
    path = place / "bomb.tar.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(200):
            file.write(bytes(1 << 20))
    code, _, err = diagnose("host", "--snapshot", path)
    assert code == 2 and "holds more than 64 MiB" in err


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "a directory"),
        (lambda path: os.mkfifo(path), "a FIFO"),
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: path.write_bytes(b"PK\3\4"), "no gzip file"),
        (lambda path: path.write_bytes(_packed(b"hello")), "manifest.json is missing"),
    ],
)
def test_what_is_no_snapshot_is_told_in_one_sentence(make, told, place, diagnose):
    path = place / "host"
    make(path)
    for command in (("host", "--snapshot", path), ("snapshot", "show", path)):
        code, out, err = diagnose(*command)
        assert (code, out) == (2, "")
        assert told in err and len(err.splitlines()) == 1


def test_the_documented_schema_is_the_one_that_is_checked(intact):
    root = pathlib.Path(__file__).parents[2]
    assert json.loads((root / "doc/source/schema/snapshot.json").read_text()) == schema.MANIFEST
    jsonschema.validate(json.loads(Mutations(intact)._members[0][1]), schema.MANIFEST)


def test_a_later_version_is_told(intact, place, diagnose):
    mutations = Mutations(intact)
    members = mutations._copies()
    manifest = json.loads(members[0][1]) | {"version": 2}
    members[0] = (members[0][0], json.dumps(manifest).encode())
    path = place / "host.tar.gz"
    path.write_bytes(mutations._archive(members))
    code, _, err = diagnose("host", "--snapshot", path)
    assert code == 2 and "it has version 2, and this release knows 1" in err


def test_an_option_of_a_stranger_reaches_no_other_file(intact, place, diagnose):
    mutations = Mutations(intact)
    members = mutations._copies()
    (place / "stolen.yaml").write_text("products: nothing\n")
    options = json.loads(members[1][1])
    options["cyborg"] = {
        "catalog_dir": [str(place)],
        "config_source": ["evil"],
        "state_dir": ["/../../.."],
        "host_root": [str(place)],
    }
    members[1] = (members[1][0], json.dumps(options).encode())
    path = place / "host.tar.gz"
    path.write_bytes(mutations._archive(members))
    code, _, err = diagnose("host", "--snapshot", path)
    assert code == 0 and "stolen" not in err


class TestTheFileThatIsWritten:
    """``snapshot save`` and the file it makes."""

    @pytest.fixture
    def fake(self):
        with FakeHost.named("two-t4") as fake:
            yield fake

    def test_it_is_its_owners_alone(self, fake, place, diagnose):
        diagnose("snapshot", "save", "host.tar.gz", "--host-root", fake.root)
        assert stat.S_IMODE((place / "host.tar.gz").stat().st_mode) == 0o600
        assert _everything(place) == ["host.tar.gz", "tmp"]

    def test_one_that_is_there_is_kept_unless_it_may_be_replaced(self, fake, place, diagnose):
        (place / "mine").write_text("mine")
        code, _, err = diagnose("snapshot", "save", "mine", "--host-root", fake.root)
        assert code == 2 and "--force" in err
        assert (place / "mine").read_text() == "mine"
        code, _, _ = diagnose("snapshot", "save", "mine", "--force", "--host-root", fake.root)
        assert code == 0 and diagnose("snapshot", "show", "mine")[0] == 0

    def test_where_it_cannot_be_written_one_sentence_says_so(self, fake, place, diagnose):
        code, _, err = diagnose("snapshot", "save", "no/where", "--host-root", fake.root)
        assert code == 2 and "no/where cannot be written: No such file or directory" in err

    def test_a_dash_is_the_standard_output(self, fake, place, capfdbinary):
        from cyborg_ext_drivers.cli.app import main

        assert main(["snapshot", "save", "-", "--host-root", str(fake.root)]) == 0
        out, _ = capfdbinary.readouterr()
        (place / "piped").write_bytes(out)
        with opening.opened(str(place / "piped")) as opened:
            assert len(opened.host.functions) == 4

    def test_a_raw_one_of_the_same_host_has_the_same_bytes(self, fake, place, diagnose):
        for name in ("one", "two"):
            diagnose("snapshot", "save", name, "--raw", "--host-root", fake.root)
        one, two = (archive.read(name) for name in ("one", "two"))
        assert dict(one.captured.nodes) == dict(two.captured.nodes)

    def test_a_host_whose_bus_cannot_be_listed_is_saved_as_well(self, fake, place, diagnose):
        fake.make_directory_unlistable()
        there = diagnose("host", "--host-root", fake.root)
        assert diagnose("snapshot", "save", "x", "--host-root", fake.root)[0] == 0
        assert diagnose("host", "--snapshot", "x") == there
        assert there[0] == 2

    @pytest.mark.parametrize(
        "command", [("watch",), ("snapshot", "save", "y"), ("host", "--host-root", "/")]
    )
    def test_what_makes_no_sense_of_a_snapshot_is_refused(self, command, fake, place, diagnose):
        diagnose("snapshot", "save", "x", "--host-root", fake.root)
        code, out, err = diagnose(*command, "--snapshot", "x")
        assert (code, out) == (2, "") and len(err.splitlines()) == 1

    def test_a_device_or_a_pipe_is_not_replaced(self, fake, place, diagnose):
        os.mkfifo("pipe")
        code, _, err = diagnose("snapshot", "save", "pipe", "--force", "--host-root", fake.root)
        assert code == 2 and "pipe cannot be written: it is no file" in err
        assert stat.S_ISFIFO(os.stat("pipe").st_mode)

    def test_a_file_system_without_links_takes_it_as_well(self, fake, place, diagnose, monkeypatch):
        def link(source, target):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)
        assert diagnose("snapshot", "save", "one", "--host-root", fake.root)[0] == 0
        assert diagnose("snapshot", "show", "one")[0] == 0
        (place / "mine").write_text("mine")
        code, _, err = diagnose("snapshot", "save", "mine", "--host-root", fake.root)
        assert code == 2 and "--force" in err
        assert (place / "mine").read_text() == "mine"
        assert _everything(place) == ["mine", "one", "tmp"]


def test_directories_without_end_are_refused(intact, place, diagnose, monkeypatch):
    monkeypatch.setattr(archive, "MOST_MEMBERS", 500)
    mutations = Mutations(intact)
    members = mutations._copies()
    for number in range(20):
        folder = tarfile.TarInfo(f"root/{number}/" + "d/" * 50)
        folder.type = tarfile.DIRTYPE
        members.append((folder, b""))
    path = place / "host.tar.gz"
    path.write_bytes(mutations._archive(members))
    code, _, err = diagnose("snapshot", "show", path)
    assert code == 2 and "more than 500 files and directories" in err


def test_a_document_without_end_is_refused(intact, place, diagnose, monkeypatch):
    monkeypatch.setattr(archive, "_MOST_OF_A_DOCUMENT", 100)
    (place / "host.tar.gz").write_bytes(intact)
    code, _, err = diagnose("snapshot", "show", place / "host.tar.gz")
    assert code == 2 and "manifest.json is larger than" in err


def test_a_name_does_nothing_to_the_terminal(intact, place, diagnose):
    mutations = Mutations(intact)
    members = mutations._copies()
    manifest = json.loads(members[0][1])
    manifest["host"] = {"name": "\x1b[2Jnode"}
    members[0] = (members[0][0], json.dumps(manifest).encode())
    (place / "host.tar.gz").write_bytes(mutations._archive(members))
    code, out, _ = diagnose("snapshot", "show", place / "host.tar.gz")
    assert code == 0 and r"\x1b[2Jnode" in out and "\x1b" not in out
