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

"""A real Cyborg conductor and a real Placement service for tests, in this process, on SQLite.

Cyborg's agent asks the drivers, its conductor turns the answer into database rows and resource
providers, and Placement is asked as Nova asks it.  All three are the services' own code:
``cyborg.agent.resource_tracker.ResourceTracker``, ``cyborg.conductor.manager.ConductorManager``
and Placement's WSGI application.  Stood in for is one class,
``cyborg.common.nova_client.NovaAPI``, because no Nova runs.  No agent listens on the message
bus: what Cyborg asks of it at bind time (programming an FPGA, creating a mediated device) times
out after two seconds.

Cyborg before 16 runs its services under eventlet.  The stack does not ask for that; a program
that wants it imports ``cyborg.cmd`` first, as Cyborg's own commands do.

Next stop: :mod:`cyborg_ext_drivers.testing.demo`, which shows all of it at work.
"""

import logging
import os
import pathlib
import uuid
from collections.abc import Mapping, Sequence

import fixtures

try:
    from cyborg import context as cyborg_context
    from cyborg import objects
    from cyborg.agent import resource_tracker
    from cyborg.common import constants, nova_client
    from cyborg.conductor import manager
    from cyborg.conf import CONF
    from cyborg.db.sqlalchemy import api as cyborg_db
    from cyborg.db.sqlalchemy import models
    from cyborg.privsep import sys_admin_pctxt

    from cyborg_ext_drivers.testing import _cyborg, _database, _records
    from cyborg_ext_drivers.testing._nova import (
        BoundHandle,
        Instances,
        Notifications,
        NoValidHost,
    )
    from cyborg_ext_drivers.testing._placement import PlacementRefused, PlacementService
    from cyborg_ext_drivers.testing._records import AttachHandle, Deployable, Device, Provider
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("cyborg", "placement"):
        raise
    raise ImportError(
        "cyborg_ext_drivers.testing.stack runs the real Cyborg and Placement, and there is no "
        f"Python package {error.name}: install 'cyborg-ext-drivers[stack]'"
    ) from None

__all__ = (
    "AttachHandle",
    "BoundHandle",
    "Deployable",
    "Device",
    "NoValidHost",
    "PlacementRefused",
    "Provider",
    "Stack",
)


class Stack(fixtures.Fixture):
    """One compute host of a small cloud, from the drivers to the scheduler.

    ::

        with Stack(drivers=["ext_nvidia_gpu_driver"], options={"ext_drivers": {...}}) as stack:
            stack.report()
            (device,) = stack.devices()
            (handle,) = stack.bind([{"resources:PGPU": "1", "trait:CUSTOM_GPU_NVIDIA": "required"}])

    Each has its own databases, configuration and directory, and leaves nothing behind; one at a
    time can be in use, as Cyborg and Placement keep theirs in module globals.
    """

    #: Where the databases and cyborg.conf are; gone after clean-up.
    directory: pathlib.Path
    #: The warnings and errors logged since the start, one line each: ``LEVEL logger: message``.
    logs: list[str]
    #: What Cyborg would have told Nova: instance, accelerator request, status.
    nova_events: list[tuple[str, str, str]]

    def __init__(
        self,
        host: str = "compute-1",
        drivers: Sequence[str] = (),
        *,
        driver_objects: Sequence[object] = (),
        options: Mapping[str, Mapping[str, object]] | None = None,
        config_files: Sequence[str | pathlib.Path] = (),
        state_dir: str | pathlib.Path | None = None,
        in_process_privileges: bool = False,
    ):
        """Describe the stack; ``setUp`` or ``with`` starts it.

        :param host: name of the compute host, in Cyborg and of its resource provider.
        :param drivers: entry points in ``cyborg.accelerator.driver``; without any,
            ``[agent] enabled_drivers`` of *config_files* counts.
        :param driver_objects: drivers that need no entry point; they report after *drivers*.
        :param options: further content of cyborg.conf, group to option to value or list.
        :param config_files: configuration files that rank below what the stack writes.
        :param state_dir: directory for ``[DEFAULT] state_path``, where drivers may keep a
            memory; without it a temporary one.
        :param in_process_privileges: run what in-tree drivers run as root (lspci) in this
            process and with its rights, rather than through sudo and a privsep daemon.
        """
        super().__init__()
        self.host = host
        self._drivers = drivers
        self._driver_objects = list(driver_objects)
        self._options = options or {}
        self._config_files = config_files
        self._state_dir = state_dir
        self._in_process_privileges = in_process_privileges

    def _setUp(self) -> None:
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.logs = self._capture_logs()
        # requests would hand the calls on the loopback to a proxy of the environment.
        for name in ("no_proxy", "NO_PROXY"):
            value = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        configuration = self.useFixture(_cyborg.Configuration())
        self._placement = self.useFixture(PlacementService(self.directory))
        configuration.load([*map(pathlib.Path, self._config_files), self._configuration_file()])
        self._start_cyborg()
        # nova-compute makes this one; its UUID is the same in each stack, to compare records.
        self._root = str(uuid.uuid5(uuid.NAMESPACE_DNS, self.host))
        root = {"name": self.host, "uuid": self._root}
        self.placement("POST", "/resource_providers", root)
        self.clear_writes()

    def _capture_logs(self) -> list[str]:
        # Older releases of Cyborg cannot format what they tell there of a new resource class,
        # and under pytest that is an error in the middle of a report.
        client = logging.getLogger("cyborg.common.placement_client")
        self.addCleanup(client.setLevel, client.level)
        client.setLevel(logging.WARNING)
        handler = _Lines(logging.WARNING)
        logging.getLogger().addHandler(handler)
        self.addCleanup(logging.getLogger().removeHandler, handler)
        return handler.lines

    def _configuration_file(self) -> pathlib.Path:
        state = pathlib.Path(self._state_dir or self.directory / "state")
        state.mkdir(parents=True, exist_ok=True)
        options: dict[str, dict[str, object]] = {
            "DEFAULT": {
                "host": self.host,
                "transport_url": "fake://",
                "rpc_response_timeout": 2,
                "state_path": state,
            },
            "placement": {"auth_type": "none", "endpoint_override": self._placement.url},
            # The second is from Cyborg 16 on; before, the agent reports for DEFAULT.host.
            "agent": {"resource_provider_name": self.host},
        }
        if self._drivers or not self._config_files:
            options["agent"]["enabled_drivers"] = list(self._drivers)
        for group, values in self._options.items():
            options[group] = {**options.get(group, {}), **values}
        file = self.directory / "cyborg.conf"
        _cyborg.write_configuration(file, options)
        return file

    def _start_cyborg(self) -> None:
        database = _database.Database(cyborg_db.main_context_manager, self.directory / "cyborg.db")
        # Cyborg's migrations are for MySQL and PostgreSQL; on SQLite its models make the tables.
        models.Base.metadata.create_all(self.useFixture(database).engine)
        notifications = Notifications()
        self.nova_events = notifications.events
        self.useFixture(fixtures.MockPatchObject(nova_client, "NovaAPI", lambda: notifications))
        if self._in_process_privileges:
            self.addCleanup(sys_admin_pctxt.set_client_mode, sys_admin_pctxt.client_mode)
            sys_admin_pctxt.set_client_mode(False)
        self._context = cyborg_context.get_admin_context()
        conductor = manager.ConductorManager(constants.CONDUCTOR_TOPIC, self.host)
        self._conductor = _cyborg.conductor_api(conductor)
        self._instances = Instances(self.host, self._context, self._conductor, self.placement)
        self._tracker: resource_tracker.ResourceTracker | None = None

    def new_tracker(
        self, drivers: Sequence[str] | None = None, driver_objects: Sequence[object] | None = None
    ) -> resource_tracker.ResourceTracker:
        """Restart the agent, with other drivers where these are given.

        :raises cyborg.common.exception.InvalidDriver: when a name is no entry point.
        """
        if drivers is not None:
            CONF.set_override("enabled_drivers", list(drivers), group="agent")
        if driver_objects is not None:
            self._driver_objects = list(driver_objects)
        tracker = resource_tracker.ResourceTracker(self.host, self._conductor)
        tracker.acc_drivers = [*tracker.acc_drivers, *self._driver_objects]
        self._tracker = tracker
        return tracker

    def report(self) -> None:
        """Run one cycle of the agent: discover, and report to the conductor.

        What a driver or the conductor raises comes through; the agent logs it and tries again
        a minute later.
        """
        tracker = self._tracker or self.new_tracker()
        tracker.update_usage(self._context)

    def devices(self) -> list[Device]:
        """Return what Cyborg's database holds."""
        return _records.read_devices(self._context)

    def providers(self) -> list[Provider]:
        """Return what Placement holds below the compute host's own provider."""
        return _records.read_providers(self.placement, self._root)

    def placement(self, method: str, path: str, body: object = None) -> dict:
        """Ask Placement as its administrator, and return the answer.

        :raises PlacementRefused: when the answer is an HTTP error; it has the status.
        """
        return self._placement.request(method, path, body)

    @property
    def placement_url(self) -> str:
        """Return where Placement answers, on the loopback and without credentials."""
        return self._placement.url

    def writes(self) -> list[tuple[str, str]]:
        """Return method and path of each request to Placement but reads, oldest first."""
        return self._placement.writes()

    def clear_writes(self) -> None:
        """Forget the requests that :meth:`writes` has returned."""
        self._placement.clear_writes()

    def create_profile(self, name: str, groups: Sequence[Mapping[str, str]]) -> str:
        """Create a device profile with the checks of Cyborg's API, and return its name.

        :raises cyborg.common.exception.InvalidParameterValue: when the API would refuse it.
        """
        fields = {"name": name, "groups": [dict(group) for group in groups], "description": ""}
        _cyborg.check_profile(fields)
        profile = objects.DeviceProfile(self._context, **fields)
        self._conductor.device_profile_create(self._context, profile)
        return name

    def bind(self, profile: str | Sequence[Mapping[str, str]]) -> list[BoundHandle]:
        """Give a new instance what a device profile, named or given as groups, asks for.

        :raises NoValidHost: when no resource provider has it.
        """
        if not isinstance(profile, str):
            profile = self.create_profile(f"profile-{uuid.uuid4()}", profile)
        return self._instances.boot(profile)

    def unbind(self, bound: Sequence[BoundHandle]) -> None:
        """Delete the instances that hold *bound*, as :meth:`bind` returned it."""
        for instance in dict.fromkeys(handle.instance for handle in bound):
            self._instances.delete(instance)


class _Lines(logging.Handler):
    def __init__(self, level: int):
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")
