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

"""The real Placement service, on SQLite, behind a loopback HTTP server.

Placement keeps its database, its policy and the marks that its standard traits and resource
classes are written in module globals; all four are replaced for as long as the service runs
and put back after it.  Next stop: :mod:`cyborg_ext_drivers.testing.stack`.
"""

import http.client
import json
import pathlib
import socketserver
import threading
from wsgiref import simple_server

import fixtures
from oslo_config import cfg
from placement import conf as placement_conf
from placement import db_api, deploy, policy
from placement.db.sqlalchemy import migration
from placement.objects import resource_class, trait

from cyborg_ext_drivers import errors
from cyborg_ext_drivers.testing import _database

#: The newest microversion of every Placement since Yoga (2022).
_MICROVERSION = "1.39"
_READS = ("GET", "HEAD")


class PlacementRefused(errors.ExtDriversError):
    """Placement answered a request with an HTTP error."""

    def __init__(self, method: str, path: str, status: int, answer: str):
        self.method = method
        self.path = path
        self.status = status
        self.answer = answer
        super().__init__(method, path, status, answer)

    def __str__(self) -> str:
        return f"Placement answered {self.method} {self.path} with {self.status}: {self.answer}"


class PlacementService(fixtures.Fixture):
    """Placement on a free port of 127.0.0.1; every caller is its administrator."""

    #: ``http://127.0.0.1:PORT``
    url: str

    def __init__(self, directory: pathlib.Path):
        super().__init__()
        self._directory = directory
        self._writes: list[tuple[str, str]] = []

    def _setUp(self) -> None:
        self._replace_globals()
        self._serve(deploy.loadapp(self._configuration()))

    def _replace_globals(self) -> None:
        """Give the process a Placement that has never run; cf. placement.tests.fixtures."""
        database = _database.Database(
            db_api.placement_context_manager, self._directory / "placement.db"
        )
        migration.create_schema(self.useFixture(database).engine)
        for module, mark in ((trait, "_TRAITS"), (resource_class, "_RESOURCE_CLASSES")):
            self.useFixture(fixtures.MockPatchObject(module, f"{mark}_SYNCED", False))
        policy.reset()
        self.addCleanup(policy.reset)

    def _configuration(self) -> cfg.ConfigOpts:
        conf = cfg.ConfigOpts()
        placement_conf.register_opts(conf)
        conf.set_override("auth_strategy", "noauth2", group="api")
        # A required option, though the database is open already.
        conf.set_override("connection", "sqlite://", group="placement_database")
        conf([], project="placement", default_config_files=[], default_config_dirs=[])
        return conf

    def _serve(self, application) -> None:
        def recorded(environ, start_response):
            # noauth2 takes the role from the token; keystoneauth's auth_type none sends none.
            environ["HTTP_X_AUTH_TOKEN"] = "admin"
            if environ["REQUEST_METHOD"] not in _READS:
                self._writes.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
            return application(environ, start_response)

        server = _Server(("127.0.0.1", 0), _Handler)
        self.addCleanup(server.server_close)
        server.set_app(recorded)
        self._address = server.server_address
        self.url = "http://{}:{}".format(*self._address)
        # serve_forever looks for the end that often; its default is twice a second.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="placement")
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)

    def request(self, method: str, path: str, body: object = None) -> dict:
        """Return what Placement answers, ``{}`` for an empty answer.

        :raises PlacementRefused: when it answers with an error.
        """
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "OpenStack-API-Version": f"placement {_MICROVERSION}",
        }
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers)
            response = connection.getresponse()
            answer = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise PlacementRefused(method, path, response.status, answer)
        return json.loads(answer) if answer else {}

    def writes(self) -> list[tuple[str, str]]:
        """Return method and path of each request received but reads, oldest first."""
        return list(self._writes)

    def clear_writes(self) -> None:
        """Forget the requests received so far."""
        self._writes.clear()


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """A thread per request; closing the server waits for them."""

    daemon_threads = False
    request_queue_size = 64

    def server_bind(self) -> None:
        # http.server looks up the name of the address, which takes seconds without a resolver.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]
        self.setup_environ()


class _Handler(simple_server.WSGIRequestHandler):
    timeout = 60

    def log_message(self, *_message) -> None:
        """Say nothing: Placement has a log of its own."""
