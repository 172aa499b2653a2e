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

"""What an image for an FPGA is, and what is none."""

import os

import pytest

from cyborg_ext_drivers.report import images
from tests.fpga_images import (
    ASK_FLASH,
    BITSTREAM,
    BMC,
    CONNECTIVITY,
    GBS,
    IP_LAYOUT,
    MCS,
    MEM_TOPOLOGY,
    PARTITION_METADATA,
    PDI,
    SECURE_UPDATE,
    container,
)

USER = container(BITSTREAM, MEM_TOPOLOGY, IP_LAYOUT, CONNECTIVITY, PARTITION_METADATA)


@pytest.fixture
def read(tmp_path):
    """Return what an image is; all are named as Cyborg's agent names them."""

    def read(content):
        path = tmp_path / "0d1bd5b1-6bd5-4d4c-92ee-8b0ba6bdc3d5k2v9.gbs"
        path.write_bytes(content)
        return images.read(str(path))

    return read


@pytest.mark.parametrize(
    ("content", "is_secure_update"),
    [(SECURE_UPDATE, True), (GBS, False), (SECURE_UPDATE[:4], True), (SECURE_UPDATE[:3], False)],
)
def test_a_secure_update_begins_with_the_magic_of_block_0(read, content, is_secure_update):
    image = read(content)
    assert image.is_secure_update is is_secure_update
    assert (image.size, image.sections) == (len(content), None)


@pytest.mark.parametrize(
    ("kinds", "is_user", "is_shell"),
    [
        ((BITSTREAM, IP_LAYOUT), True, False),
        ((PDI, MEM_TOPOLOGY, PARTITION_METADATA), True, False),
        ((BITSTREAM, PARTITION_METADATA), False, True),
        ((PDI, PARTITION_METADATA), False, True),
        ((PARTITION_METADATA,), False, False),
        ((BITSTREAM,), False, False),
        ((MCS, PARTITION_METADATA, BITSTREAM, IP_LAYOUT), False, False),
        ((ASK_FLASH, PARTITION_METADATA, PDI), False, False),
        ((BMC, PARTITION_METADATA, BITSTREAM), False, False),
    ],
)
def test_a_container_is_told_by_its_sections(read, kinds, is_user, is_shell):
    image = read(container(*kinds))
    assert image.sections == frozenset(kinds)
    assert (image.is_user_partition, image.is_shell_partition) == (is_user, is_shell)


@pytest.mark.parametrize(
    "content",
    [
        b"xclbin2\0",
        USER[:455],
        USER[:500],
        USER[:-1],
        USER[:448] + bytes(4) + USER[452:],
        USER[:448] + b"\xff" * 4 + USER[452:],
        b"xclbin1" + USER[7:],
    ],
)
def test_a_damaged_container_is_none(read, content):
    image = read(content)
    assert image.sections is None
    assert not image.is_user_partition and not image.is_shell_partition


def test_what_is_no_image_is_refused_and_never_waited_for(tmp_path):
    file = tmp_path / "image"
    file.write_bytes(GBS)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "fifo")
    os.symlink(file, tmp_path / "link")
    for path, reason in (
        (str(tmp_path / "gone"), "No such file"),
        (str(tmp_path / "empty"), "it is empty"),
        (str(tmp_path / "fifo"), "no regular file"),
        (str(tmp_path), "no regular file|Is a directory"),
        (str(tmp_path / "link"), "symbolic links"),
        (f"{file}\0", "null"),
        ("image", "no absolute path"),
        ("--force", "no absolute path"),
        (b"/etc/hostname", "no absolute path"),
        (None, "no absolute path"),
    ):
        with pytest.raises(images.UnusableImage, match=reason):
            images.read(path)
