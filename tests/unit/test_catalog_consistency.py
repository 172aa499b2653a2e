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

"""What ``catalog check`` finds wrong with files that belong together, and with golden traits."""

import importlib.util
import pathlib
import subprocess

import pytest

from cyborg_ext_drivers.catalog import consistency

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "catalog_check.py"

# A card with virtual functions, a pair, and a card that the subsystem decides; all is well.
RIGHT = """\
vendors: {"1234": MAKER, "1235": MAKER}
devices:
- {id: "1234:0001", kind: GPU, model: ONE, name: One, vf_device: "0002"}
- {id: "1234:0002", kind: GPU, model: ONE, name: "One, virtual function", role: vf,
   pf_device: "0001"}
- {id: "1234:0003", kind: GPU, model: TWO, name: Two, vf_device: "0003"}
- {id: "1234:0004", kind: FPGA, model: PAIR, name: "Pair, user", role: user, pair_device: "0005"}
- {id: "1234:0005", kind: FPGA, model: PAIR, name: "Pair, mgmt", role: mgmt, pair_device: "0004"}
- {id: "1234:0006", subsystem: "1234:0001", kind: GPU, model: SIX-A, name: Six A,
   vf_device: "0007"}
- {id: "1234:0006", subsystem: "1234:0002", kind: GPU, model: SIX-B, name: Six B,
   vf_device: "0007"}
- {id: "1234:0007", subsystem: "1234:0001", kind: GPU, model: SIX-A, name: Six A (part), role: vf,
   pf_device: "0006"}
- {id: "1234:0007", subsystem: "1234:0002", kind: GPU, model: SIX-B, name: Six B (part), role: vf,
   pf_device: "0006"}
- {id: "1234:0008", kind: GPU, name: Eight or Nine, vf_device: "000a", revisions: {"00":
   {model: EIGHT, name: Eight}, "01": {model: NINE, name: Nine}}}
- {id: "1234:0009", kind: GPU, model: NINE, name: Nine, vf_device: "000a"}
- {id: "1234:000a", kind: GPU, name: "Eight or Nine, virtual function", role: vf,
   pf_device: ["0008", "0009"], revisions: {"00": {model: EIGHT, name: Eight}}}
never:
- {id: "1234:0006", subsystem: "1234:0003", code: not-an-accelerator, what: another board}
- {id: "1234:0001", address: "0000:3b:00.0", code: not-an-accelerator, what: mine}
"""


def found(*changes, other=""):
    """Return what is wrong when texts of the right file are replaced by others."""
    text = RIGHT
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return consistency.faults({"a.yaml": text, "b.yaml": other})


def devices(*entries, vendors=""):
    return f"vendors: {{{vendors}}}\ndevices:\n" + "".join(f"- {{{each}}}\n" for each in entries)


def test_files_that_agree_have_no_fault():
    assert found() == []


@pytest.mark.parametrize(
    ("change", "place", "sentence"),
    [
        (("kind: GPU, model: ONE, name: One,", "kind: GPU, model: One, name: One,"), 3, "'One' is"),
        (
            ("model: TWO, name: Two", "model: ONE, name: Two"),
            6,
            "1234:0003 has the model ONE and the name 'Two', but 1234:0001 in line 3 of a.yaml has "
            "that model and another name",
        ),
        (
            ("name: Two", "name: One"),
            6,
            "has the name 'One' and the model TWO, but 1234:0001 in line 3 of a.yaml has that name",
        ),
        (("model: TWO", 'model: "0005"'), 6, "the model 0005, which reads like a product id"),
        (('pf_device: "0001"', 'pf_device: "00ff"'), 4, "names 1234:00ff as its physical function"),
        ((', role: vf,\n   pf_device: "0001"', ", role: vf"), 4, "names no physical one"),
        ((', vf_device: "0002"', ""), 4, "1234:0001 as its physical function, which does not name"),
        (('vf_device: "0002"', 'vf_device: "00ff"'), 3, "names 1234:00ff as its virtual function"),
        (
            ('name: "One, virtual function", role: vf,\n   pf_device: "0001"', "name: One"),
            3,
            "names 1234:0002 as its virtual function, but no entry of it names 1234:0001",
        ),
        (
            ('model: ONE, name: "One, v', 'model: TWO, name: "Two, v'),
            4,
            "has the model TWO, but its physical function has ONE",
        ),
        (('model: ONE, name: "One, v', 'name: "One, v'), 4, "has the model none, but its"),
        (
            ('GPU, model: ONE, name: "One, v', 'NIC, model: ONE, name: "One, v'),
            4,
            "is not of the kind of 1234:0001",
        ),
        (
            ("model: SIX-A, name: Six A (part)", "model: SIX-B, name: Six B (part)"),
            13,
            "1234:0007 1234:0001 has the model SIX-B, but its physical function has SIX-A",
        ),
        (('"00": {model: EIGHT, name: Eight}}}', '"00": {model: TEN}}}'), 20, "has the model TEN"),
        (('["0008", "0009"]', '"0008"'), 19, "names 1234:000a as its virtual function"),
        (
            ('role: mgmt, pair_device: "0004"', 'role: mgmt, pair_device: "0001"'),
            7,
            "names 1234:0005 as its",
        ),
        (('role: mgmt, pair_device: "0004"', "role: mgmt"), 8, "the role mgmt and no pair_device"),
        (("role: mgmt", "role: user"), 8, "names 1234:0004 as its other function"),
        (
            ('PAIR, name: "Pair, mgmt"', 'PEAR, name: "Pear, mgmt"'),
            8,
            "has another model than 1234:0004",
        ),
        (("role: mgmt,", "role: golden,"), 8, "has a pair_device and is neither"),
        (("name: Two,", 'name: Two, pf_device: "0001",'), 6, "has a pf_device and is no virtual"),
        (("name: Two,", "name: Two, role: function,"), 6, "has a vf_device and is no physical"),
        (('"1234:0003", code', '"1234:0002", code'), 11, "is never reported, as line 23"),
        (('"1234:0006", subsystem: "1234:0003", code', '"1234:0003", code'), 6, "is never report"),
        (("0000:3b:00.0", "slot 3"), 24, "slot 3"),
        (('"1234": MAKER, ', ""), 3, "is of a vendor that has no name: add 1234"),
    ],
)
def test_a_fault_is_named_with_its_line(change, place, sentence):
    named = [fault for fault in found(change) if fault.startswith(f"a.yaml: line {place}: ")]
    assert any(sentence in fault for fault in named), found(change)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ('vendors: {"1234": TAKER}', "b.yaml: line 1: 1234 is called TAKER, and MAKER elsewhere"),
        (
            devices('id: "1234:0001", subsystem: "1234:0001", kind: GPU, name: X'),
            "b.yaml: line 3: 1234:0001 1234:0001 has entries in a.yaml as well",
        ),
        (devices('id: "1234:0001", kind: FPGA, name: X'), "is of kind FPGA, but of kind GPU in"),
        # Two ids of one maker: the trait has the name, not the id.
        (devices('id: "1235:0001", kind: GPU, model: ONE, name: Other'), "has the model ONE and"),
        (devices('id: "1235:0001", kind: GPU, model: "0003", name: X'), "reads like a product id"),
        (devices('id: "1236:0001", kind: GPU, name: X'), "add 1236 to vendors"),
        ("devices: {}\n", "b.yaml: line 1: devices: "),
        (
            'never:\n- {id: "1234:0009", code: not-an-accelerator, what: x}\n',
            "1234:0009 is never reported, as line 2 of b.yaml (never) forbids it",
        ),
    ],
)
def test_files_are_held_against_each_other(other, sentence):
    assert any(sentence in fault for fault in found(other=other)), found(other=other)


def test_every_fault_of_every_file_is_named():
    faults = consistency.faults({"a.yaml": "x: 1\n", "b.yaml": "devices: {}\nnever: {}\n"})
    assert [fault.partition(":")[0] for fault in faults] == ["a.yaml", "b.yaml", "b.yaml"]


def test_a_promise_may_be_added_but_not_changed():
    assert consistency.promises_broken("a 1\nb 2\n", "a 1\nc 3\nb 2\nd 4\n") == []
    assert consistency.promises_broken("a 1\nb 2\n", "a 1\nb 3\n") == ["b 2"]
    assert consistency.promises_broken("a 1\nb 2\n", "") == ["a 1", "b 2"]


# The tool


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("catalog_check", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path, tool):
    """A copy of what the tool looks at, in a repository with two commits."""
    for path, text in ((tool.CATALOG / "a.yaml", RIGHT), (tool.GOLDEN, "a 1\n")):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    _git(tmp_path, "init", "--quiet")
    _commit(tmp_path)
    (tmp_path / tool.GOLDEN).write_text("a 1\nb 2\n")
    _commit(tmp_path)
    return tmp_path


def _git(directory, *arguments):
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", *who, *arguments], cwd=directory, check=True)


def _commit(directory):
    _git(directory, "add", "--all")
    _git(directory, "commit", "--quiet", "--message=x")


def test_the_tool_says_nothing_when_all_is_well(tool, project, capsys):
    assert tool.main([], project) == 0
    assert capsys.readouterr().out == ""


def test_the_tool_names_file_and_line(tool, project, capsys):
    (project / tool.CATALOG / "b.yaml").write_text("devices: {}\n")
    assert tool.main([], project) == 1
    assert capsys.readouterr().out.startswith(f"{tool.CATALOG / 'b.yaml'}: line 1: ")


@pytest.mark.parametrize("golden", ["b 2\n", "a 2\nb 2\n"])
def test_the_tool_names_a_golden_line_that_was_changed(tool, project, capsys, golden):
    (project / tool.GOLDEN).write_text(golden)
    assert tool.main([], project) == 1
    assert "rely on it: a 1\n" in capsys.readouterr().out
    # A commit does not hide it.
    _commit(project)
    assert tool.main([], project) == 1
    assert "HEAD^" in capsys.readouterr().out


def test_the_tool_compares_with_the_commit_that_is_asked_for(tool, project):
    (project / tool.GOLDEN).write_text("a 1\n")
    _commit(project)
    _commit_other(project)
    assert tool.main([], project) == 0
    assert tool.main(["--since", "HEAD~2"], project) == 1


def _commit_other(directory):
    (directory / "other").write_text("x")
    _commit(directory)


def test_without_a_history_the_tool_says_that_it_did_not_compare(tool, tmp_path, capsys):
    (tmp_path / tool.CATALOG).mkdir(parents=True)
    assert tool.main([], tmp_path) == 0
    assert "is not compared" in capsys.readouterr().err


def test_the_package_passes(tool):
    assert tool.main([]) == 0
