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

"""GET requests to a cloud, and what is said where one is not answered.

Credentials, endpoints, timeouts and retries are those of openstacksdk's own configuration
(clouds.yaml, ``OS_*``, ``--os-*``), read by the SDK itself.  Next stop:
:mod:`cyborg_ext_drivers.cloud.reading`.
"""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cyborg_ext_drivers.errors import ExtDriversError

CYBORG, PLACEMENT, NOVA = "Cyborg", "Placement", "Nova"
_TYPES = {CYBORG: "accelerator", PLACEMENT: "placement", NOVA: "compute"}
#: Cyborg 2.3 tells the status of a device; Placement 1.36 has suffixed in_tree and same_subtree;
#: Nova 2.61 tells a flavor's extra specs in the list, 2.53 the UUIDs of hypervisors.
MICROVERSIONS = {CYBORG: "2.3", PLACEMENT: "1.36", NOVA: "2.61"}
_VERSION = "OpenStack-API-Version"
_PAGE = 1000
_LONGEST = 300
_QUIET_SECONDS = 1.0
#: What the SDK raises for a clouds.yaml with a number where an object belongs.
_MISSHAPEN = (TypeError, AttributeError, KeyError)
#: How long a silent service is waited for where no ``api_timeout`` is configured: the SDK itself
#: would wait for ever.  Cyborg takes minutes for thousands of devices.
SILENT_SECONDS = 300


_REMEDY = (
    "Name one of clouds.yaml (in this directory, ~/.config/openstack or /etc/openstack) with "
    "--os-cloud, or set OS_CLOUD or the other OS_* variables"
)


_REACH = "see that this endpoint is right and can be reached from here"


class CloudUnusable(ExtDriversError):
    """No cloud can be asked: openstacksdk is missing, or its configuration cannot be used."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return self.reason


class NotAnswered(ExtDriversError):
    """A service did not answer a request, or not in a form that can be used."""

    def __init__(self, service: str, request: str, reason: str, status: int | None = None):
        self.service = service
        self.request = request
        self.reason = reason
        #: The HTTP status, ``None`` when there was no answer at all.
        self.status = status
        super().__init__(service, request, reason, status)

    def __str__(self) -> str:
        return f"{self.service} was asked {self.request}: {self.reason}"


class Cloud:
    """One region of a cloud, to be asked."""

    def __init__(self, region, progress: Callable[[str], object] = lambda _text: None):
        """Take ``openstack.config.cloud_region.CloudRegion`` and where progress is told."""
        self._region = region
        self._progress = progress
        self._clients: dict[str, Any] = {}
        self._is_bare = False
        self._begun = time.monotonic()
        self._told = 0.0
        #: How many requests were made so far; retries and those of keystoneauth not counted.
        self.requests = 0

    def get(self, service: str, path: str, **parameters: object) -> dict[str, Any]:
        """Return what the service answers to ``GET path``: a JSON object.

        :raises NotAnswered: when there is no answer, an HTTP error, or something else than JSON.
        """
        request = f"GET {path}{_query(parameters)}"
        answer = self._send(service, path, request, parameters)
        told = answer.headers.get(_VERSION, MICROVERSIONS[service])
        if service == CYBORG and not self._is_bare and MICROVERSIONS[CYBORG] not in told:
            # Before 17 Cyborg takes the header without a service type only, and answers others
            # as the oldest version, without a word.
            self._is_bare = True
            answer = self._send(service, path, request, parameters)
        if answer.status_code >= 300:
            reason = _refusal(service, answer)
            raise NotAnswered(service, request, reason, answer.status_code)
        try:
            said = answer.json()
        except (ValueError, RecursionError):  # The latter for what is nested too deep.
            said = None
        if not isinstance(said, dict):
            raise NotAnswered(service, request, "the answer is no JSON object")
        return said

    def _send(self, service: str, path: str, request: str, parameters: Mapping[str, object]):
        self.requests += 1
        self._tell(f"{service}: {request}")
        headers = {"Accept": "application/json"}
        version: str | None = MICROVERSIONS[service]
        if service == CYBORG and self._is_bare:
            headers[_VERSION], version = MICROVERSIONS[CYBORG], None
        options = {} if self._region.config.get("api_timeout") else {"timeout": SILENT_SECONDS}
        try:
            with self._patience(f"{service}: {request}"):
                return self._client(service).get(
                    path + _query(parameters, encode=True),
                    microversion=version,
                    headers=headers,
                    raise_exc=False,
                    **options,
                )
        except _asking_errors() as error:
            raise NotAnswered(service, request, _unreached(error) or _short(error)) from None

    def rows(
        self, service: str, path: str, key: str, needs: str, **parameters: object
    ) -> list[dict]:
        """Return the list that the answer holds under *key*.

        :param needs: what each row has to tell, as text: without it nothing can be said of it.
        :raises NotAnswered: as :meth:`get`, and when there is no such list of such rows: half of
            a list would let what is missing from it look as if it were gone.
        """
        return _rows(service, path, key, needs, self.get(service, path, **parameters))

    def pages(
        self, service: str, path: str, key: str, needs: str, **parameters: object
    ) -> Iterator[dict]:
        """Yield the rows of each page; the next page is asked for when it is needed.

        :raises NotAnswered: as :meth:`rows`, and when the service gives the same page again.
        """
        markers: set[object] = set()
        while True:
            answer = self.get(service, path, limit=_PAGE, **parameters)
            rows = _rows(service, path, key, needs, answer)
            yield from rows
            if not rows or not answer.get(f"{key}_links"):
                return
            marker = rows[-1].get("id")
            if not isinstance(marker, str | int) or marker in markers:
                raise NotAnswered(service, f"GET {path}", "its pages do not come to an end")
            markers.add(marker)
            parameters["marker"] = marker

    def _client(self, service: str):
        if service not in self._clients:
            self._clients[service] = _adapter(self._region, _TYPES[service])
        return self._clients[service]

    @contextlib.contextmanager
    def _patience(self, text: str) -> Iterator[None]:
        """Tell of one request that takes long: Cyborg answers for thousands of devices at once."""
        timer = threading.Timer(_QUIET_SECONDS, self._progress, (f"waiting for {text}",))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _tell(self, text: str) -> None:
        now = time.monotonic()
        if now - self._begun > _QUIET_SECONDS and now - self._told > _QUIET_SECONDS:
            self._told = now
            self._progress(f"{self.requests} requests, now {text}")


def open_cloud(options=None, progress: Callable[[str], object] = lambda _text: None) -> Cloud:
    """Return the cloud that ``--os-*`` options, environment and clouds.yaml name.

    :param options: parsed arguments of :func:`add_options`, ``None`` for the environment.
    :raises CloudUnusable: when openstacksdk is missing or finds no usable configuration.
    """
    sdk = _sdk()
    try:
        region = sdk.OpenStackConfig().get_one(argparse=options)
    except (*_asking_errors(), *_MISSHAPEN) as error:
        reason = _short(error).rstrip(".")
        raise CloudUnusable(f"No cloud can be asked: {reason}. {_REMEDY}") from None
    return Cloud(region, progress)


def add_options(parser, argv: list[str]) -> None:
    """Give an argparse parser the SDK's own options: ``--os-cloud`` and those of the plugin.

    :raises CloudUnusable: when openstacksdk is missing.
    """
    sdk = _sdk()
    try:
        sdk.OpenStackConfig().register_argparse_arguments(parser, argv)
    except (*_asking_errors(), *_MISSHAPEN) as error:
        raise CloudUnusable(f"No cloud can be asked: {_short(error)}") from None


def _sdk():
    try:
        from openstack import config
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("openstack", "keystoneauth1"):
            raise
        raise CloudUnusable(
            "To ask a cloud needs openstacksdk, and there is no Python package "
            f"{error.name}: install 'cyborg-ext-drivers[cloud]'"
        ) from None
    return config


def _asking_errors() -> tuple[type[Exception], ...]:
    """Return what the SDK, keystoneauth and the wire below them raise."""
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    # OSError: requests' own errors and a clouds.yaml that cannot be read; ValueError: an URL.
    return ClientException, SDKException, OSError, ValueError


def _unreached(error: Exception) -> str | None:
    """Return a sentence for people in place of what all layers below say of a lost connection.

    :returns: ``None`` for what is no such error.
    """
    from keystoneauth1.exceptions import connection

    if not isinstance(error, connection.ConnectionError):
        return None
    found = re.search(r"(https?://)(?:[^\s/@]*@)?([^\s/?#]+)", str(error))
    where = (found[1] + found[2]).rstrip(":,") if found else "its endpoint"
    if isinstance(error, connection.ConnectTimeout):
        return f"{where} does not answer in time; {_REACH}"
    cause = _cause(error)
    why = f" ({cause})" if cause else ""
    if isinstance(error, connection.SSLError):
        return f"no TLS with {where}{why}; clouds.yaml names the file of an own CA as cacert"
    return f"nothing answers at {where}{why}; {_REACH}"


def _cause(error: BaseException) -> str:
    """Return what the operating system says, which is the innermost of the errors."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return (isinstance(error, OSError) and error.strerror) or ""


def _rows(
    service: str, path: str, key: str, needs: str, answer: Mapping[str, object]
) -> list[dict]:
    rows = answer.get(key)
    if not isinstance(rows, list):
        raise NotAnswered(service, f"GET {path}", f"the answer holds no list {key!r}")
    for row in rows:
        if not isinstance(row, dict) or not row.get(needs) or not isinstance(row[needs], str):
            reason = f"something in the list {key!r} is no object with a {needs!r}"
            raise NotAnswered(service, f"GET {path}", reason)
    return rows


def _query(parameters: Mapping[str, object], encode: bool = False) -> str:
    if not parameters:
        return ""
    from urllib import parse

    text = parse.urlencode(parameters)
    return "?" + (text if encode else parse.unquote(text))


def _refusal(service: str, answer) -> str:
    """Return, for people, what an HTTP error means and what the service said with it."""
    said = _message(answer)
    status = answer.status_code
    meaning = {
        401: "the credentials are refused",
        403: "its policy does not allow this to these credentials (an administrator's are needed)",
        404: "there is no such thing",
        406: f"it does not know microversion {MICROVERSIONS[service]}",
    }.get(status, "it failed" if status >= 500 else "it refused")
    return f"HTTP {status}, {meaning}" + (f": {said}" if said else "")


def _message(answer) -> str:
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return ""
    return _short(_innermost(body)) if body else ""


def _innermost(body: object) -> object:
    """Return the sentence within an error: the three projects wrap theirs in different ways."""
    if isinstance(body, str) and body.startswith("{"):
        try:
            return _innermost(json.loads(body))
        except (ValueError, RecursionError):
            return body
    if isinstance(body, list) and body:
        return _innermost(body[0])
    if isinstance(body, dict):
        for key in ("error_message", "faultstring", "detail", "message", "errors"):
            if body.get(key):
                return _innermost(body[key])
        for value in body.values():
            if isinstance(value, dict):
                return _innermost(value)
        return ""
    return body


def _short(what: object) -> str:
    text = " ".join(str(what).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _adapter(region, kind: str):
    """Return what sends requests to a service: keystoneauth's adapter, set up as the SDK's own.

    The SDK's proxies would look at the service's versions first, and need a whole connection.
    """
    from keystoneauth1.adapter import Adapter

    return Adapter(
        session=region.get_session(),
        service_type=region.get_service_type(kind),
        service_name=region.get_service_name(kind),
        interface=region.get_interface(kind),
        region_name=region.get_region_name(kind),
        endpoint_override=region.get_endpoint(kind),
        connect_retries=region.get_connect_retries(kind),
        status_code_retries=region.get_status_code_retries(kind),
    )
