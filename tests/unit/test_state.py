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

"""The ledger as a file: what was saved is read again, and nothing else is believed."""

import dataclasses
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers.report.contract import DeployableReport, DeviceReport
from cyborg_ext_drivers.report.ledger import Entry
from cyborg_ext_drivers.report.state import StateError, StateFile

DRIVER = "ext_nvidia_gpu_driver"
ADDRESS = "0000:3b:00.0"
CPID = '{"bus": "3b", "device": "00", "domain": "0000", "function": "0"}'
REPORT = DeviceReport(
    type="GPU",
    vendor="10de",
    model="Tesla T4",
    std_board_info='{"product_id": "1eb8"}',
    vendor_board_info="{}",
    cpid_info=CPID,
    deployables=(
        DeployableReport(
            name=f"compute-1_{ADDRESS}",
            driver_name=DRIVER,
            attributes=(("rc", "PGPU"), ("trait_CUSTOM_NVIDIA_T4", "CUSTOM_NVIDIA_T4")),
            handles=(("PCI", CPID),),
        ),
    ),
)
ENTRIES = {ADDRESS: Entry(REPORT, 2, "unreadable", (31, 32), "5c8f1d0e")}


def renamed(report, hostname):
    """Return what an agent with another [DEFAULT] host would report."""
    (deployable,) = report.deployables
    name = deployable.name.replace("compute-1", hostname)
    return dataclasses.replace(report, deployables=(dataclasses.replace(deployable, name=name),))


@pytest.fixture
def state(tmp_path):
    return StateFile(str(tmp_path / "state"), DRIVER, "compute-1")


@pytest.fixture
def warnings(caplog):
    caplog.set_level("INFO")
    return lambda: [record.getMessage() for record in caplog.records]


def test_what_was_saved_is_read_again(state, warnings):
    assert state.load() == {}
    state.save(ENTRIES)
    assert state.load() == ENTRIES
    state.save({})
    assert state.load() == {}
    assert warnings() == []
    assert os.listdir(os.path.dirname(state.path)) == [f"{DRIVER}.compute-1.json"]


entries = st.builds(
    Entry,
    st.just(REPORT),
    st.integers(0, 10**6),
    st.none() | st.text(),
    st.lists(st.integers(0, 2**31)).map(tuple),
    st.none() | st.uuids().map(str),
)


def divided(report):
    """Return the report of a card before Ampere that has two vGPUs at one address."""
    (deployable,) = report.deployables
    text = CPID.replace("{", '{"asked_type": "nvidia-223", ')
    handles = tuple(
        ("MDEV", text.replace("}", f', "vgpu_mark": "nvidia-223_{number}"}}'))
        for number in range(2)
    )
    deployables = (dataclasses.replace(deployable, handles=handles),)
    return dataclasses.replace(report, deployables=deployables)


def test_a_card_that_is_given_away_by_other_functions_of_its_slot_is_read_again(state):
    (first,) = REPORT.deployables
    handle = ("PCI", CPID.replace('"function": "0"', '"function": "1"'))
    second = dataclasses.replace(first, name=f"compute-1_{ADDRESS[:-1]}1", handles=(handle,))
    report = dataclasses.replace(REPORT, deployables=(first, second))
    state.save({ADDRESS: Entry(report)})
    assert state.read() == {ADDRESS: Entry(report)}


def test_two_vgpus_of_one_address_are_two_handles(state):
    entries = {ADDRESS: Entry(divided(REPORT))}
    state.save(entries)
    assert StateFile(os.path.dirname(state.path), DRIVER, "compute-1").load() == entries


@given(entries)
def test_any_entry_survives(tmp_path_factory, entry):
    state = StateFile(str(tmp_path_factory.mktemp("state")), DRIVER, "compute-1")
    state.save({ADDRESS: entry})
    assert state.read() == {ADDRESS: entry}


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_two_hosts_never_share_a_file(one, other):
    paths = {StateFile("/state", DRIVER, name).path for name in (one, other)}
    assert len(paths) == len({one, other})
    assert all(os.path.dirname(path) == "/state" for path in paths)


def document(**changes):
    raw = {
        "version": 1,
        "driver": DRIVER,
        "host": "compute-1",
        "cards": {},
    }
    return json.dumps(raw | changes).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        document(version=2),
        document(version="1"),
        document(driver="other_driver"),
        document(host="compute-2"),
        document(cards=[]),
        document(cards={ADDRESS: {}}),
        document(cards={ADDRESS: None}),
        b'{"version": 1}',
    ],
    ids=lambda content: repr(content[:40]),
)
def test_a_damaged_or_foreign_file_is_set_aside_with_one_warning(state, warnings, content):
    os.mkdir(os.path.dirname(state.path))
    with open(state.path, "wb") as file:
        file.write(content)
    assert state.load() == {}
    (warning,) = warnings()
    assert state.path in warning and "set aside as" in warning
    (aside,) = os.listdir(os.path.dirname(state.path))
    with open(os.path.join(os.path.dirname(state.path), aside), "rb") as file:
        assert file.read() == content
    state.save(ENTRIES)
    assert state.load() == ENTRIES


def name_it(card, name):
    card["report"]["deployables"][0]["name"] = name


SPOILED = {
    "negative count": lambda card: card.update(missed=-1),
    "count of truth": lambda card: card.update(missed=True),
    "count in words": lambda card: card.update(missed="two"),
    "no reason": lambda card: card.pop("reason"),
    "reason a list": lambda card: card.update(reason=[]),
    "group in words": lambda card: card.update(iommu_groups=["31"]),
    "type unknown": lambda card: card["report"].update(type="TOASTER"),
    "model a number": lambda card: card["report"].update(model=4),
    "another card": lambda card: card["report"].update(cpid_info=CPID.replace("3b", "3c")),
    "no deployable": lambda card: card["report"].update(deployables=[]),
    "no handle": lambda card: card["report"]["deployables"][0].update(handles=[]),
    "half a handle": lambda card: card["report"]["deployables"][0].update(handles=[["PCI"]]),
    "boot a number": lambda card: card.update(boot_id=4),
    "half a character": lambda card: card.update(reason="\ud800"),
    "name of another host": lambda card: name_it(card, f"compute-2_{ADDRESS}"),
    "name of another card": lambda card: name_it(card, "compute-1_0000:3c:00.0"),
    "information that is none": lambda card: card["report"].update(std_board_info="T4"),
    "information in a list": lambda card: card["report"].update(vendor_board_info="[]"),
    "bad trait": lambda card: card["report"]["deployables"][0]["attributes"].append(["a", "b"]),
}


@pytest.mark.parametrize("spoil", SPOILED)
def test_no_report_that_cyborg_would_refuse_is_believed(state, spoil):
    state.save(ENTRIES)
    with open(state.path) as file:
        raw = json.load(file)
    SPOILED[spoil](raw["cards"][ADDRESS])
    with open(state.path, "w") as file:
        json.dump(raw, file)
    with pytest.raises(StateError, match="damaged"):
        state.read()


@pytest.mark.parametrize("key", ["0000:3B:00.0", "3b:00.0", " 0000:3b:00.0", "", "0000:3c:00.0"])
def test_a_card_is_only_known_by_its_address_as_cyborg_has_it(state, key):
    state.save(ENTRIES)
    text = pathlib.Path(state.path).read_text()
    pathlib.Path(state.path).write_text(text.replace(f'"{ADDRESS}"', json.dumps(key)))
    with pytest.raises(StateError, match="damaged"):
        state.read()


def test_no_two_cards_are_believed_that_share_an_attach_handle(state):
    other = "0000:3c:00.0"
    report = dataclasses.replace(renamed(REPORT, "compute-1"), cpid_info=CPID.replace("3b", "3c"))
    (deployable,) = report.deployables
    deployable = dataclasses.replace(deployable, name=f"compute-1_{other}")
    report = dataclasses.replace(report, deployables=(deployable,))
    state.save({**ENTRIES, other: Entry(report)})
    with pytest.raises(StateError, match="same attach handle"):
        state.read()


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ESTALE])
def test_a_file_that_cannot_be_read_at_the_moment_is_left_for_the_next_discovery(
    state, warnings, monkeypatch, code
):
    state.save(ENTRIES)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", failing_with(code))
        with pytest.raises(StateError, match=re.escape(os.strerror(code))):
            state.load()
    assert warnings() == []
    assert state.load() == ENTRIES


def test_a_file_that_this_user_may_not_read_is_left_alone(state, warnings, monkeypatch):
    state.save(ENTRIES)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", failing_with(errno.EACCES))
        assert state.load() == {}
    (warning,) = warnings()
    assert state.path in warning and "state_dir" in warning
    state.save({})
    assert len(warnings()) == 1
    assert StateFile(os.path.dirname(state.path), DRIVER, "compute-1").load() == ENTRIES


def failing_with(code):
    def fail(path, *args, **more):
        raise OSError(code, os.strerror(code), path)

    return fail


def test_what_was_not_saved_is_saved_as_soon_as_that_can_be_done(state, tmp_path):
    (tmp_path / "state").write_text("a file where a directory should be")
    state.save(ENTRIES)
    os.remove(tmp_path / "state")
    state.save(ENTRIES)
    assert state.read() == ENTRIES
    shutil.rmtree(tmp_path / "state")
    state.save(ENTRIES)
    assert state.read() == ENTRIES
    written = os.stat(state.path).st_ino
    state.save(ENTRIES)
    assert os.stat(state.path).st_ino == written


@pytest.mark.parametrize("kind", ["file", "fifo", "link"])
def test_what_a_crash_left_behind_is_in_nobodys_way(state, tmp_path, kind):
    state.save({})
    left = f"{state.path}.new"
    if kind == "file":
        pathlib.Path(left).write_text("half of a fi")
    elif kind == "fifo":
        os.mkfifo(left)
    else:
        os.symlink(tmp_path / "elsewhere", left)
    state.save(ENTRIES)
    assert state.read() == ENTRIES
    assert not os.path.lexists(left) and not os.path.lexists(tmp_path / "elsewhere")


@pytest.mark.parametrize("place", ["fifo", "directory", "loop", "large"])
def test_what_is_no_file_of_ours_neither_blocks_nor_stops_the_agent(state, warnings, place):
    os.mkdir(os.path.dirname(state.path))
    if place == "fifo":
        os.mkfifo(state.path)
    elif place == "directory":
        os.mkdir(state.path)
    elif place == "loop":
        os.symlink(os.path.basename(state.path), state.path)
    else:
        with open(state.path, "wb") as file:
            file.truncate(1 << 40)
    assert state.load() == {}
    assert len(warnings()) == 1
    state.save(ENTRIES)
    assert state.load() == ENTRIES


def test_a_directory_that_cannot_be_written_costs_one_warning(tmp_path, warnings):
    (tmp_path / "state").write_text("a file where a directory should be")
    state = StateFile(str(tmp_path / "state"), DRIVER, "compute-1")
    for _ in range(3):
        state.save(ENTRIES)
    (warning,) = warnings()
    assert state.path in warning and "state_dir" in warning
    os.remove(tmp_path / "state")
    state.save(ENTRIES)
    assert state.read() == ENTRIES


def test_what_an_agent_with_another_host_name_reported_is_known(state, tmp_path):
    other = StateFile(str(tmp_path / "state"), DRIVER, "compute-2")
    theirs = {ADDRESS: Entry(renamed(REPORT, "compute-2"))}
    state.save(ENTRIES)
    other.save(theirs)
    assert state.others() == {other.path: {ADDRESS}}
    assert state.read() == ENTRIES and other.read() == theirs


def test_an_agent_with_another_host_name_that_reported_nothing_is_none(state, tmp_path):
    StateFile(str(tmp_path / "state"), DRIVER, "compute-2").save({ADDRESS: Entry(REPORT)})
    StateFile(str(tmp_path / "state"), DRIVER, "compute-3").save({})
    assert state.others() == {}


def test_a_directory_may_be_written_with_a_stroke_at_its_end(tmp_path):
    theirs = {ADDRESS: Entry(renamed(REPORT, "compute-2"))}
    StateFile(f"{tmp_path}/state/", DRIVER, "compute-2").save(theirs)
    (path,) = StateFile(f"{tmp_path}/state/", DRIVER, "compute-1").others()
    assert path.endswith("/ext_nvidia_gpu_driver.compute-2.json")


def test_a_kill_while_it_is_written_leaves_the_old_or_the_new_file(state):
    """A process writes two files by turns and is killed, again and again."""
    state.save({})
    small = pathlib.Path(state.path).read_text()
    state.save(ENTRIES)
    large = pathlib.Path(state.path).read_text()
    program = textwrap.dedent(
        f"""
        import sys
        from tests.unit.test_state import ENTRIES, StateFile
        state = StateFile({os.path.dirname(state.path)!r}, {DRIVER!r}, "compute-1")
        print("ready", flush=True)
        while True:
            state.save(ENTRIES)
            state.save({{}})
        """
    )
    for number in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        for _ in range(20 + number):
            with open(state.path) as file:
                assert file.read() in (small, large)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with open(state.path) as file:
            assert file.read() in (small, large)
        assert StateFile(os.path.dirname(state.path), DRIVER, "compute-1").load() in ({}, ENTRIES)
