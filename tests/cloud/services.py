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

"""A small cloud on the loopback: the real Cyborg API and Placement, and a stand-in for Nova.

Cyborg's API is ``cyborg.api.app`` behind an HTTP server, with the context that keystone's
middleware would give it; conductor and Placement are those of the stack.  Nova is not run: it
needs a message bus, two databases and forty more packages, and has no release for Python 3.10.
In its place a WSGI application answers the GET routes that are used, as Nova's API reference
says, and nothing else.
"""

import json
import threading
import uuid
from urllib import parse

import fixtures
import pecan
from cyborg.api import app

from cyborg_ext_drivers.cloud.asking import Cloud
from cyborg_ext_drivers.testing import _placement

PROJECT = "00000000-0000-4000-8000-00000000a11c"


class Served(fixtures.Fixture):
    """A WSGI application on a free port, with each request that it sees."""

    def __init__(self, application):
        super().__init__()
        self._application = application
        #: Method and path with query, oldest first.
        self.seen: list[tuple[str, str]] = []
        #: Path to an answer that is given in the service's place: status, content type and text.
        self.instead: dict[str, tuple[str, str, str]] = {}

    def _setUp(self):
        server = _placement._Server(("127.0.0.1", 0), _placement._Handler)
        self.addCleanup(server.server_close)
        server.set_app(self._answer)
        self.url = "http://{}:{}".format(*server.server_address)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)

    def _answer(self, environ, start_response):
        path = environ["PATH_INFO"]
        query = environ.get("QUERY_STRING")
        self.seen.append((environ["REQUEST_METHOD"], f"{path}?{query}" if query else path))
        if path in self.instead:
            status, kind, text = self.instead[path]
            start_response(status, [("Content-Type", kind)])
            return [text.encode()]
        return self._application(environ, start_response)


class CyborgApi(fixtures.Fixture):
    """Cyborg's API; the stack that it belongs to runs already."""

    def __init__(self, roles="admin"):
        super().__init__()
        self.roles = roles

    def _setUp(self):
        self.useFixture(fixtures.MonkeyPatch("cyborg.common.authorize_wsgi._ENFORCER", None))
        self.addCleanup(pecan.set_config, dict(pecan.configuration.DEFAULT), overwrite=True)
        application = app.setup_app()

        def with_context(environ, start_response):
            environ["HTTP_X_ROLES"] = self.roles
            environ["HTTP_X_PROJECT_ID"] = environ["HTTP_X_USER_ID"] = PROJECT
            return application(environ, start_response)

        self.served = self.useFixture(Served(with_context))


class Nova:
    """What Nova's API answers to the routes that are read, from lists that tests change."""

    def __init__(self, *hosts):
        self.services = []
        self.hypervisors = []
        self.flavors = []
        self.servers = {}
        for host in hosts:
            self.add_host(host)

    def add_host(self, host, hypervisor=None):
        service = {"host": host, "state": "up", "status": "enabled", "disabled_reason": None}
        self.services.append({"id": str(uuid.uuid4()), "binary": "nova-compute", **service})
        self.hypervisors.append(
            {
                "id": str(uuid.uuid4()),
                "hypervisor_hostname": hypervisor or host,
                "service": {"host": host},
            }
        )

    def __call__(self, environ, start_response):
        if environ["REQUEST_METHOD"] != "GET":
            start_response("405 Method Not Allowed", [])
            return [b""]
        asked = dict(parse.parse_qsl(environ.get("QUERY_STRING", "")))
        status, body = self._answer(environ["PATH_INFO"], asked)
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(body).encode()]

    def _answer(self, path, asked):
        if path == "/os-services":
            return "200 OK", {"services": self.services}
        if path == "/os-hypervisors/detail":
            return "200 OK", self._page("hypervisors", self.hypervisors, asked)
        if path == "/flavors/detail":
            return "200 OK", self._page("flavors", self.flavors, asked)
        if path == "/servers":
            servers = [{"id": each, "name": "vm"} for each in self.servers]
            return "200 OK", self._page("servers", servers, asked)
        name = path.removeprefix("/servers/")
        if name in self.servers:
            return "200 OK", {"server": {"id": name}}
        # In Nova's words (nova.exception.InstanceNotFound).
        message = f"Instance {name} could not be found."
        return "404 Not Found", {"itemNotFound": {"code": 404, "message": message}}

    @staticmethod
    def _page(key, rows, asked):
        ids = [row["id"] for row in rows]
        start = ids.index(asked["marker"]) + 1 if "marker" in asked else 0
        # Nova never gives more than its own limit.
        page = rows[start : start + min(int(asked.get("limit", 1000)), 1000)]
        more = start + len(page) < len(rows)
        return {key: page, **({f"{key}_links": [{"rel": "next"}]} if more else {})}


class SmallCloud(fixtures.Fixture):
    """The three services beside each other, and openstacksdk's configuration of them."""

    def __init__(self, stack, nova):
        super().__init__()
        self.stack = stack
        self.nova = nova

    def _setUp(self):
        self.api = self.useFixture(CyborgApi())
        self.cyborg = self.api.served
        self.compute = self.useFixture(Served(self.nova))
        self.file = self.stack.directory / "clouds.yaml"
        self.file.write_text(
            "clouds:\n  small:\n    auth_type: none\n    api_timeout: 20\n"
            f"    accelerator_endpoint_override: {self.cyborg.url}/v2\n"
            f"    placement_endpoint_override: {self.stack.placement_url}\n"
            f"    compute_endpoint_override: {self.compute.url}\n"
        )
        self.useFixture(fixtures.EnvironmentVariable("OS_CLIENT_CONFIG_FILE", str(self.file)))
        self.useFixture(fixtures.EnvironmentVariable("OS_CLOUD", "small"))
        self.forget()

    def open(self) -> Cloud:
        from cyborg_ext_drivers.cloud import asking

        return asking.open_cloud()

    def forget(self):
        """Forget what the services were asked so far: by the test itself, to make a fault."""
        self.cyborg.seen.clear()
        self.compute.seen.clear()
        self.stack.clear_writes()

    def methods(self):
        """Return the methods of all requests since :meth:`forget`."""
        seen = [*self.cyborg.seen, *self.compute.seen, *self.stack.writes()]
        return {method for method, _path in seen}
