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

"""Accelerator requests (ARQs) that are left over, stuck, or bound to what is gone.

A request whose instance lives is never called an orphan: Nova has to list all instances without
it, and to answer once more, for this very one, that there is none.  Anything else is unknown.

A state that a request passes through is called stuck when it has been in it for ten minutes, or
when a second look finds it there still.  Cyborg's API lists no attach handles: that one is gone
is seen from Cyborg failing on it, or from its provider being none of Cyborg's.
"""

import datetime
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cyborg_ext_drivers.cloud import reading
from cyborg_ext_drivers.cloud.asking import CYBORG, NOVA, Cloud, CloudUnusable, NotAnswered
from cyborg_ext_drivers.cloud.reading import Reader
from cyborg_ext_drivers.cloud.records import Deployable, Request, Unknown

ORPHAN, STUCK, HANDLE_GONE, UNKNOWN, LIVE = "orphan", "stuck", "handle-gone", "unknown", "live"
_ENDED = ("BindFailed", "UnbindFailed")
_PASSING = ("Initial", "BindStarted", "Unbound", "Deleting")
#: Nova waits five minutes for a binding ([compute] arq_binding_timeout) before it gives up.
STUCK_SECONDS = 600


class Leftover(NamedTuple):
    """An accelerator request that somebody should look at."""

    uuid: str
    #: ``orphan``, ``stuck``, ``handle-gone`` or ``unknown``.
    verdict: str
    state: str
    message: str
    #: Seconds since the request was made; ``None`` where Cyborg does not tell.
    age: int | None
    host: str | None
    #: The name of the deployable, else the UUID of its provider.
    device: str | None
    instance: str | None
    profile: str
    #: The command that deletes it, empty for what may be in use; it is never run.
    command: str


class Looked(NamedTuple):
    """What the requests of a cloud look like."""

    leftovers: tuple[Leftover, ...]
    unknown: tuple[Unknown, ...]
    total: int
    requests: int


def look(
    cloud: Cloud,
    settle: float = 10.0,
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.timezone.utc),
) -> Looked:
    """Return the requests that are left over, stuck or bound to what is gone.

    :param settle: seconds between the two looks at a request in a passing state.
    :raises CloudUnusable: when Cyborg does not list the requests and does not say why.
    """
    reader = Reader(cloud)
    try:
        found = reading.requests(cloud)
    except NotAnswered as error:
        if error.status != 404 or "handle" not in error.reason.lower():
            raise CloudUnusable(f"{error}") from None
        return Looked((_unlistable(error),), tuple(reader.unknown), 1, cloud.requests)
    deployables = reader.part("deployables", reading.deployables) or ()
    by_provider: dict[str | None, Deployable] = {e.provider: e for e in deployables}
    gone = _gone(reader, {each.instance for each in found if each.instance})
    stuck = _stuck(reader, found, now(), settle, sleep)
    leftovers = []
    for each in found:
        verdict, message = _verdict(each, gone, stuck, by_provider)
        if verdict != LIVE:
            leftovers.append(
                Leftover(
                    each.uuid,
                    verdict,
                    each.state,
                    message,
                    _age(each.created_at, now()),
                    each.hostname,
                    _device(each, by_provider),
                    each.instance,
                    each.profile,
                    "" if verdict == UNKNOWN else f"openstack accelerator arq delete {each.uuid}",
                )
            )
    return Looked(tuple(leftovers), tuple(reader.unknown), len(found), cloud.requests)


def _unlistable(error: NotAnswered) -> Leftover:
    """Return what is known when one request keeps Cyborg from listing any."""
    return Leftover(
        "",
        HANDLE_GONE,
        "Bound",
        "Cyborg cannot list its accelerator requests, because one is bound to an attach handle "
        f"that no longer exists ({error.reason}). Its API cannot delete that one either: the row "
        "in extended_accelerator_requests with this attach_handle_id has to go by hand",
        None,
        None,
        None,
        None,
        "",
        "",
    )


def _gone(reader: Reader, wanted: set[str]) -> Mapping[str, bool | None]:
    """Return for each instance whether it is gone, ``None`` where Nova does not say."""
    if not wanted:
        return {}
    present = reader.part("instances", reading.instances, wanted)
    if present is None:
        return dict.fromkeys(wanted)
    gone: dict[str, bool | None] = dict.fromkeys(present, False)
    for uuid in sorted(wanted - present):
        there = reader.part(f"instance {uuid}", reading.is_instance, uuid)
        gone[uuid] = None if there is None else not there
    return gone


def _stuck(
    reader: Reader,
    found: list[Request],
    now: datetime.datetime,
    settle: float,
    sleep: Callable[[float], object],
) -> Mapping[str, bool | None]:
    stuck: dict[str, bool | None] = {e.uuid: True for e in found if e.state in _ENDED}
    passing = {each.uuid: each for each in found if each.state in _PASSING}
    old = {uuid for uuid, each in passing.items() if _is_old(each, now)}
    stuck |= dict.fromkeys(old, True)
    young = {uuid: each.state for uuid, each in passing.items() if uuid not in old}
    if young:
        sleep(settle)
        again = reader.part("accelerator requests, once more", reading.requests)
        if again is None:
            return stuck | dict.fromkeys(young)
        states = {each.uuid: each.state for each in again}
        stuck |= {uuid: states.get(uuid) == state for uuid, state in young.items()}
    return stuck


def _is_old(each: Request, now: datetime.datetime) -> bool:
    age = _age(each.changed_at or each.created_at, now)
    return age is not None and age >= STUCK_SECONDS


def _verdict(
    each: Request,
    gone: Mapping[str, bool | None],
    stuck: Mapping[str, bool | None],
    by_provider: Mapping[str | None, Deployable],
) -> tuple[str, str]:
    if each.instance:
        is_gone = gone.get(each.instance)
        if is_gone:
            return ORPHAN, f"Its instance {each.instance} does not exist"
        if is_gone is None:
            return UNKNOWN, f"{NOVA} does not say whether its instance {each.instance} exists"
    if each.state == "Bound":
        return _of_bound(each, by_provider)
    if each.uuid in stuck:
        if stuck[each.uuid]:
            return STUCK, f"It stays in the state {each.state}"
        if stuck[each.uuid] is None:
            return UNKNOWN, f"{CYBORG} does not say whether it stays in the state {each.state}"
    return LIVE, ""


def _of_bound(each: Request, by_provider: Mapping[str | None, Deployable]) -> tuple[str, str]:
    """Return what is said of a request that no missing instance makes an orphan.

    Cyborg keeps the deployable of a bound request, whatever the drivers report, and lists nothing
    at all when one handle is missing.  So a list without any deployable, or half a row, is no sign
    that something is gone, but an answer to be doubted.
    """
    if each.provider in by_provider and each.handle:
        return LIVE, ""
    lives = f"; its instance {each.instance} exists" if each.instance else ""
    if not each.provider or not each.handle:
        return UNKNOWN, f"It is bound, and {CYBORG} does not tell to what{lives}"
    if not by_provider:
        return UNKNOWN, f"It is bound, and {CYBORG} lists no deployable at all{lives}"
    if None in by_provider:
        return UNKNOWN, f"It is bound, and {CYBORG} tells not all deployables' providers{lives}"
    message = f"{CYBORG} has no deployable with the provider {each.provider}"
    return HANDLE_GONE, message + lives


def _device(each: Request, by_provider: Mapping[str | None, Deployable]) -> str | None:
    found = by_provider.get(each.provider) if each.provider else None
    return found.name if found else each.provider


def _age(told: str | None, now: datetime.datetime) -> int | None:
    if told is None:
        return None
    try:
        time_told = datetime.datetime.fromisoformat(told.replace("Z", "+00:00"))
    except ValueError:
        return None
    if time_told.tzinfo is None:
        time_told = time_told.replace(tzinfo=datetime.timezone.utc)
    return max(0, int((now - time_told).total_seconds()))


def counted(leftovers: tuple[Leftover, ...]) -> dict[str, int]:
    """Return how many there are of each verdict."""
    numbers: dict[str, int] = defaultdict(int)
    for each in leftovers:
        numbers[each.verdict] += 1
    return dict(numbers)
