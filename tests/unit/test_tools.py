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

"""Which tool of a maker writes an image, how it is called, and what is said when it fails."""

import pytest

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.report import images, tools
from tests.fpga_images import (
    BITSTREAM,
    GBS,
    IP_LAYOUT,
    MCS,
    PARTITION_METADATA,
    SECURE_UPDATE,
    Tools,
    container,
)

D5005 = PciAddress.parse("0000:3b:00.0")
BEHIND_A_SWITCH = PciAddress.parse("0001:a8:1f.7")
U250 = PciAddress.parse("0000:d8:00.0")


@pytest.fixture
def makers(tmp_path, monkeypatch):
    """All tools, first on PATH."""
    makers = Tools(tmp_path / "bin")
    for name in ("fpgaconf", "fpgasupdate", "xbmgmt"):
        makers.add(name)
    monkeypatch.setenv("PATH", f"{makers.directory}:/usr/bin:/bin")
    return makers


@pytest.fixture
def write(tmp_path):
    """Let the tools of a maker write a file."""
    path = tmp_path / "0d1bd5b1-6bd5-4d4c-92ee-8b0ba6bdc3d5k2v9.gbs"

    def write(call_for, address, content, seconds=60):
        path.write_bytes(content)
        image = images.read(str(path))
        tools.run(call_for(address, image), image, seconds)
        return str(path)

    return write


@pytest.mark.parametrize("content", [GBS, b"something else"])
def test_fpgaconf_writes_what_is_no_secure_update(makers, write, content):
    path = write(tools.of_intel, D5005, content)
    expected = ["--bus", "0x3b", "--device", "0x00", "--function", "0x0", path]
    assert makers.called("fpgaconf") == expected
    assert makers.image("fpgaconf") == content
    assert makers.called("fpgasupdate") is None


def test_fpgaconf_is_told_the_domain_only_where_it_is_not_0(makers, write):
    write(tools.of_intel, BEHIND_A_SWITCH, GBS)
    assert makers.called("fpgaconf")[:-1] == (
        ["--segment", "0x0001", "--bus", "0xa8", "--device", "0x1f", "--function", "0x7"]
    )


def test_fpgasupdate_writes_a_secure_update(makers, write):
    path = write(tools.of_intel, BEHIND_A_SWITCH, SECURE_UPDATE)
    assert makers.called("fpgasupdate") == [path, "0001:a8:1f.7"]
    assert makers.called("fpgaconf") is None


def test_xbmgmt_writes_an_xclbin_to_the_user_partition(makers, write):
    path = write(tools.of_xilinx, U250, container(BITSTREAM, IP_LAYOUT))
    assert makers.called("xbmgmt") == ["program", "--device", "0000:d8:00.0", "--user", path]


@pytest.mark.parametrize(
    ("kinds", "options"),
    [
        ((BITSTREAM, PARTITION_METADATA), ["--shell"]),
        ((MCS, PARTITION_METADATA), ["--base", "--image"]),
    ],
)
def test_xbmgmt_is_given_the_name_that_it_wants_for_shells_and_bases(makers, write, kinds, options):
    content = container(*kinds)
    write(tools.of_xilinx, U250, content)
    *before, name = makers.called("xbmgmt")
    assert before == ["program", "--device", "0000:d8:00.0", *options]
    assert name.endswith("/image.xsabin") and name.count("xsabin") == 1
    assert makers.image("xbmgmt") == content
    with pytest.raises(images.UnusableImage):
        images.read(name)


def test_xbmgmt_refuses_by_its_name_what_is_no_container(makers, write):
    path = write(tools.of_xilinx, U250, container(BITSTREAM, IP_LAYOUT)[:-1])
    assert makers.called("xbmgmt") == [
        *("program", "--device", "0000:d8:00.0", "--base", "--image"),
        path,
    ]


def test_a_tool_that_is_not_installed_is_named_with_its_package(tmp_path, monkeypatch, write):
    monkeypatch.setenv("PATH", f"{tmp_path}:relative")
    with pytest.raises(tools.ToolMissing) as error:
        write(tools.of_intel, D5005, GBS)
    assert str(error.value) == (
        f"There is no fpgaconf in {tmp_path}, /usr/bin, /usr/local/bin, /opt/xilinx/xrt/bin: "
        "install Intel's OPAE SDK (package opae or opae-tools)"
    )


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (
            "echo Looking; echo 'Error: PR interface uuid mismatch' >&2; exit 7",
            "fpgaconf ended with exit status 7; its last lines: "
            "Looking | Error: PR interface uuid mismatch",
        ),
        ("exit 1", "fpgaconf ended with exit status 1; it said nothing"),
        ("kill -SEGV $$", "fpgaconf was ended by signal 11 (Segmentation fault); it said nothing"),
        (
            "echo 40 %; sleep 300",
            "fpgaconf was stopped, as it took longer than program_timeout = 1 seconds; "
            "its last lines: 40 %",
        ),
    ],
)
def test_a_failure_is_one_sentence_with_the_last_lines(makers, write, script, sentence):
    makers.add("fpgaconf", script)
    with pytest.raises(tools.ToolFailed) as error:
        write(tools.of_intel, D5005, GBS, seconds=1)
    assert str(error.value) == sentence
    # privsep makes it anew from these on the agent's side.
    assert str(type(error.value)(*error.value.args)) == sentence


def test_a_tool_that_cannot_be_started_is_a_failure(makers, write):
    makers.add("fpgaconf").write_text("#!/there/is/no/such/shell\n")
    with pytest.raises(tools.ToolFailed, match="cannot be started: No such file"):
        write(tools.of_intel, D5005, GBS)
