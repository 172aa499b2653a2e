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

"""Programming an FPGA through Cyborg's own agent, and at the conductor's request.

The agent is ``cyborg.agent.manager.AgentManager`` itself, on whichever release; it finds our class
by the name in the request and hands it the file that it has downloaded.  Stood in for are the
makers' tools, by scripts on PATH, and Glance: its download (``image_api.download``) in the agent
and what the conductor asks of an image (``openstack.connection``).
"""

import os
import time
import types

import fixtures
import pytest

pytest.importorskip("cyborg", reason="Cyborg is not installed")
pytest.importorskip("placement", reason="Placement is not installed")

import oslo_messaging
from cyborg import context as cyborg_context
from cyborg.agent.manager import AgentManager
from cyborg.common import constants, exception, rpc
from cyborg.objects import base
from cyborg.objects.extarq import fpga_ext_arq

from cyborg_ext_drivers.drivers import IntelFpgaDriver, XilinxFpgaDriver
from cyborg_ext_drivers.report import privileged
from cyborg_ext_drivers.report.programming import ProgrammingError
from cyborg_ext_drivers.testing import FakeHost
from cyborg_ext_drivers.testing.stack import Stack
from tests.fpga_images import BITSTREAM, GBS, IP_LAYOUT, SECURE_UPDATE, Tools, container
from tests.stack.one_card import OneCard

# The agent removes the file that tempfile then cannot remove any more.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

# By these names the conductor asks for the classes.
INTEL, XILINX = IntelFpgaDriver.VENDOR, XilinxFpgaDriver.VENDOR
IMAGE = "0d1bd5b1-6bd5-4d4c-92ee-8b0ba6bdc3d5"
CONTROL_PATH = {
    "cpid_type": "PCI",
    "cpid_info": {"domain": "0000", "bus": "3b", "device": "00", "function": "0"},
}
OLD = "CUSTOM_FPGA_FUNCTION_ID_INTEL_D8424DC4A4A3C413F89E433683F9040B"
NEW = "CUSTOM_FPGA_FUNCTION_ID_INTEL_F7DF405CBD7ACF7222F144B0B93ACD18"
PROFILE = {
    "resources:FPGA": "1",
    "trait:CUSTOM_FPGA_INTEL": "required",
    "accel:bitstream_id": IMAGE,
}


class Glance:
    """Holds the bytes of one image."""

    def __init__(self):
        self.content = GBS
        self.downloaded = []

    def download(self, context, image, dest_path):
        with open(dest_path, "wb") as file:
            file.write(self.content)
        self.downloaded.append((image, dest_path))

    def connection(self, cloud):
        """Return what the conductor asks for an image's metadata."""
        metadata = {"id": IMAGE, "accel:function_id": NEW.rpartition("_")[2].lower()}

        class Response:
            def json(self):
                return metadata

        class Connection:
            class image:
                get = staticmethod(lambda path: Response())

        return Connection()


class Cloud(fixtures.Fixture):
    """A host with a programmable card, its agent and the conductor."""

    def __init__(self, directory):
        super().__init__()
        self.tools = Tools(directory / "bin")
        self.glance = Glance()

    def _setUp(self):
        for name in ("fpgaconf", "fpgasupdate", "xbmgmt"):
            self.tools.add(name)
        path = f"{self.tools.directory}:/usr/bin:/bin"
        self.useFixture(fixtures.EnvironmentVariable("PATH", path))
        card = OneCard(
            traits=("CUSTOM_FPGA_INTEL", OLD),
            kind="FPGA",
            resource_class="FPGA",
            driver_name=INTEL,
        )
        fake = self.useFixture(FakeHost())
        options = {
            # A bus in this process on which everything becomes text, errors too.
            "DEFAULT": {"transport_url": "kombu+memory:////", "rpc_response_timeout": 60},
            "ext_drivers": {"host_root": str(fake.root), "program_timeout": 2},
        }
        self.stack = self.useFixture(Stack(driver_objects=[card], options=options))
        # The tools run with the rights of the tests.
        privileged.context.set_client_mode(False)
        self.addCleanup(privileged.context.set_client_mode, True)
        self.agent = AgentManager(constants.AGENT_TOPIC, "compute-1")
        self.agent.image_api.download = self.glance.download
        self.context = cyborg_context.get_admin_context()

    def program(self, driver, control_path=CONTROL_PATH, image=IMAGE):
        """Ask the agent as the conductor does."""
        return self.agent.fpga_program(self.context, control_path, image, driver)

    def listen(self):
        """Let the agent answer on the message bus, as ``cyborg.service`` does."""
        serializer = rpc.RequestContextSerializer(base.CyborgObjectSerializer())
        target = oslo_messaging.Target(topic=constants.AGENT_TOPIC, server="compute-1")
        server = oslo_messaging.get_rpc_server(
            rpc.TRANSPORT, target, [self.agent], executor="threading", serializer=serializer
        )
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        connection = types.SimpleNamespace(Connection=self.glance.connection)
        self.useFixture(fixtures.MockPatchObject(fpga_ext_arq, "connection", connection))


@pytest.fixture
def cloud(tmp_path):
    with Cloud(tmp_path) as cloud:
        yield cloud


@pytest.mark.parametrize(
    ("driver", "content", "tool", "arguments"),
    [
        (INTEL, GBS, "fpgaconf", "--bus 0x3b --device 0x00 --function 0x0 IMAGE"),
        (INTEL, SECURE_UPDATE, "fpgasupdate", "IMAGE 0000:3b:00.0"),
        (
            XILINX,
            container(BITSTREAM, IP_LAYOUT),
            "xbmgmt",
            "program --device 0000:3b:00.0 --user IMAGE",
        ),
    ],
)
def test_the_agent_writes_an_image_with_the_tool_for_it(cloud, driver, content, tool, arguments):
    cloud.glance.content = content
    assert cloud.program(driver) is True
    ((image, path),) = cloud.glance.downloaded
    assert (image, os.path.exists(path)) == (IMAGE, False)
    assert cloud.tools.called(tool) == arguments.replace("IMAGE", path).split()
    assert cloud.tools.image(tool) == content


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Error: no suitable slots found.' >&2; exit 4", "exit status 4.*no suitable slots"),
        ("echo 10 %; sleep 300 & wait", "longer than program_timeout = 2 seconds.*10 %"),
        ("kill -ABRT $$", "ended by signal 6"),
    ],
)
def test_the_agent_raises_what_the_tool_said_when_it_fails(cloud, script, words):
    cloud.tools.add("fpgaconf", script)
    with pytest.raises(ProgrammingError, match=words):
        cloud.program(INTEL)
    ((_image, path),) = cloud.glance.downloaded
    assert not os.path.exists(path)


def test_the_agent_raises_where_a_tool_is_missing(cloud):
    (cloud.tools.directory / "xbmgmt").unlink()
    with pytest.raises(ProgrammingError, match="no xbmgmt in .*install AMD's Xilinx Runtime"):
        cloud.program(XILINX)


@pytest.mark.parametrize("bus", ["--help", "3b --force", "", None])
def test_the_agent_lets_no_option_through(cloud, bus):
    info = {**CONTROL_PATH["cpid_info"], "bus": bus}
    for driver in (INTEL, XILINX):
        with pytest.raises(ProgrammingError, match="is not a PCI address"):
            cloud.program(driver, {"cpid_type": "PCI", "cpid_info": info})
    with pytest.raises(exception.InvalidType):
        cloud.program(INTEL, {**CONTROL_PATH, "cpid_type": bus})
    assert cloud.tools.called("fpgaconf") is cloud.tools.called("xbmgmt") is None


def test_an_empty_image_reaches_no_tool(cloud):
    cloud.glance.content = b""
    with pytest.raises(ProgrammingError, match="it is empty"):
        cloud.program(INTEL)
    assert cloud.tools.called("fpgaconf") is None


def traits(cloud):
    (provider,) = cloud.stack.providers()
    return set(provider.traits)


def wait_for_the_job(cloud):
    """Return what Nova is told in the end; the conductor programs in a thread."""
    for _ in range(600):
        if cloud.stack.nova_events:
            return [status for *_which, status in cloud.stack.nova_events]
        time.sleep(0.1)
    raise AssertionError("Nova is told nothing")


def test_the_conductor_programs_and_exchanges_the_function_trait(cloud):
    cloud.listen()
    cloud.stack.report()
    assert traits(cloud) >= {OLD}
    cloud.stack.bind([PROFILE])
    assert wait_for_the_job(cloud) == ["completed"]
    assert cloud.tools.called("fpgaconf")[:2] == ["--bus", "0x3b"]
    assert traits(cloud) == {"CUSTOM_FPGA_INTEL", NEW}


def test_a_failed_programming_fails_the_request_and_keeps_the_trait(cloud):
    cloud.listen()
    cloud.tools.add("fpgaconf", "echo 'Error: AFU is in use'; exit 4")
    cloud.stack.report()
    cloud.stack.bind([PROFILE])
    assert wait_for_the_job(cloud) == ["failed"]
    assert traits(cloud) == {"CUSTOM_FPGA_INTEL", OLD}
    # The conductor's own line stumbles over the error of another process, which has no message
    # on any release; the traceback that follows holds it.
    said = [line for line in cloud.stack.logs if "cyborg.common.utils: Traceback" in line]
    assert any("exit status 4; its last lines: Error: AFU is in use" in line for line in said)
