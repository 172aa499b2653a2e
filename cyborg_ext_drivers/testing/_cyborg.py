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

"""The surroundings of Cyborg's conductor: its configuration, and the wire to it.

Cyborg reads its options from oslo.config's global object, so one Cyborg at a time has it.
Next stop: :mod:`cyborg_ext_drivers.testing.stack`.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence

import fixtures
from cyborg import objects
from cyborg.common import config, rpc
from cyborg.conductor import rpcapi
from cyborg.conf import CONF
from cyborg.objects import base
from oslo_log import log
from oslo_serialization import jsonutils

_CALL_ARGUMENTS = (
    "project",
    "prog",
    "version",
    "usage",
    "default_config_files",
    "default_config_dirs",
)


class Configuration(fixtures.Fixture):
    """The global configuration, empty until :meth:`load` and after that as it was before."""

    def _setUp(self) -> None:
        self.addCleanup(_remember(CONF))
        CONF.reset()

    def load(self, files: Sequence[pathlib.Path]) -> None:
        """Read *files*, the last one first in rank, and open the message bus that they name."""
        log.register_options(CONF)
        objects.register_all()
        arguments = ["cyborg"]
        for file in files:
            arguments += ["--config-file", str(file)]
        for transport in ("TRANSPORT", "NOTIFICATION_TRANSPORT", "NOTIFIER"):
            self.useFixture(fixtures.MockPatchObject(rpc, transport, None))
        config.parse_args(arguments, default_config_files=[])
        self.addCleanup(rpc.cleanup)


def _remember(conf) -> Callable[[], None]:
    """Return what brings *conf* back to what it holds now: overrides, defaults, files.

    oslo.config's own fixture forgets the overrides that others have set.
    """
    values = [
        (info, {key: info[key] for key in ("default", "override") if key in info})
        for info, _group in conf._all_opt_infos()
    ]
    called = {name: getattr(conf, name, None) for name in _CALL_ARGUMENTS}
    arguments, is_called = conf._args, conf._namespace is not None

    def restore() -> None:
        conf.reset()
        if is_called:
            conf(arguments, **called)
        for info, kept in values:
            info.update(kept)

    return restore


def write_configuration(file: pathlib.Path, options: Mapping[str, Mapping[str, object]]) -> None:
    """Write a configuration file; a list becomes the text of oslo.config's lists."""
    lines = []
    for group, values in options.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {_text(value)}" for name, value in values.items()]
    file.write_text("\n".join(lines) + "\n")


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def check_profile(fields: dict) -> None:
    """Check a device profile as Cyborg's API does before it asks the conductor.

    :raises cyborg.common.exception.CyborgException: when the API would refuse it.
    """
    # The API's modules name objects that are registered only when the conductor starts.
    from cyborg.api.controllers.v2 import device_profiles

    device_profiles.DeviceProfilesController()._validate_post_request(fields)


def conductor_api(conductor) -> rpcapi.ConductorAPI:
    """Return Cyborg's own client of the conductor, wired to *conductor*."""
    api = rpcapi.ConductorAPI()
    api.client = _Wire(conductor)
    return api


class _Wire:
    """An RPC client whose calls become JSON text and objects again, as on the message bus."""

    def __init__(self, conductor):
        self._conductor = conductor
        self._serializer = rpc.RequestContextSerializer(base.CyborgObjectSerializer())

    def prepare(self, **_target) -> "_Wire":
        return self

    def call(self, context, method: str, **arguments):
        received = _as_text_and_back(self._serializer.serialize_context(context))
        context = self._serializer.deserialize_context(received)
        arguments = {name: self._carry(context, value) for name, value in arguments.items()}
        return self._carry(context, getattr(self._conductor, method)(context, **arguments))

    def _carry(self, context, value):
        sent = self._serializer.serialize_entity(context, value)
        return self._serializer.deserialize_entity(context, _as_text_and_back(sent))


def _as_text_and_back(value):
    return jsonutils.loads(jsonutils.dumps(value))
