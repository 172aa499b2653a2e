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

"""What Nova does with accelerators: ask Placement, claim, let Cyborg bind, release.

Nova itself does not run.  The requests follow ``nova.accelerator.cyborg`` and Nova's report
client, the number of accelerator requests follows Cyborg's
``cyborg.api.controllers.v2.arqs.ARQsController.post``.
Next stop: :mod:`cyborg_ext_drivers.testing.stack`.
"""

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from urllib import parse

from cyborg import objects

from cyborg_ext_drivers import errors

_PROJECT = "00000000-0000-4000-8000-00000000a11c"


class NoValidHost(errors.ExtDriversError):
    """Placement has no allocation candidate for a device profile."""

    def __init__(self, profile: str, query: str):
        self.profile = profile
        self.query = query
        super().__init__(profile, query)

    def __str__(self) -> str:
        return (
            f"no resource provider has what the device profile {self.profile!r} asks for; "
            f"Placement was asked for {self.query}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class BoundHandle:
    """One accelerator request that Cyborg has bound: what libvirt attaches to the instance."""

    #: The UUID of the instance.
    instance: str
    #: The UUID of the accelerator request (ARQ).
    request: str
    #: Cyborg's state of the request, ``Bound`` when all went well.
    state: str
    #: ``PCI``, ``MDEV`` or, from Cyborg's fake driver, ``TEST_PCI``.
    type: str
    #: The address, as Nova reads it: ``{"domain": "0000", "bus": "3b", ...}``.
    info: dict[str, str]
    #: The UUID of the resource provider.
    provider: str


class Notifications:
    """In the place of ``cyborg.common.nova_client.NovaAPI``: keeps what Nova would be told."""

    def __init__(self) -> None:
        #: Instance, accelerator request, ``completed`` or ``failed``.
        self.events: list[tuple[str, str, str]] = []

    def notify_binding(self, instance: str, statuses: Sequence[tuple[str, str]]) -> None:
        """Take what ``NovaAPI.notify_binding`` would send."""
        self.events += [(instance, request, status) for request, status in statuses]


class Instances:
    """The instances of one compute host that hold accelerators."""

    def __init__(self, host: str, context, conductor, placement: Callable[..., dict]):
        self._host = host
        self._context = context
        self._conductor = conductor
        self._placement = placement

    def boot(self, profile: str) -> list[BoundHandle]:
        """Claim and bind what *profile* asks for; what is claimed is freed when binding fails.

        :raises NoValidHost: when Placement offers nothing.
        """
        found = objects.DeviceProfile.get_by_name(self._context, profile)
        candidate = self._candidate(found)
        instance = str(uuid.uuid4())
        self._placement("PUT", f"/allocations/{instance}", _claim(candidate))
        with contextlib.ExitStack() as undo:
            undo.callback(self._give_up, instance)
            providers = candidate["mappings"]
            requests = {
                request: providers[_suffix(group)][0]
                for group in range(len(found.groups))
                for request in self._create_requests(found, group)
            }
            self._bind(instance, requests)
            handles = [self._handle(request) for request in requests]
            undo.pop_all()
        return handles

    def delete(self, instance: str) -> None:
        """Free what *instance* holds, in Cyborg and then in Placement, as Nova does."""
        try:
            self._conductor.arq_delete_by_instance_uuid(self._context, instance)
        finally:
            self._placement("DELETE", f"/allocations/{instance}")

    def _give_up(self, instance: str) -> None:
        """Free what was begun; the failure that led here is the one to show."""
        with contextlib.suppress(Exception):
            self.delete(instance)

    def _candidate(self, profile) -> dict:
        query = _query(profile.groups)
        answer = self._placement("GET", f"/allocation_candidates?{query}")
        if not answer["allocation_requests"]:
            raise NoValidHost(profile.name, parse.unquote(query))
        return answer["allocation_requests"][0]

    def _create_requests(self, profile, group: int) -> list[str]:
        created = []
        for _unit in range(_count(profile.groups[group])):
            request = objects.ARQ(
                self._context,
                device_profile_name=profile.name,
                device_profile_group_id=group,
                project_id=_PROJECT,
            )
            extended = objects.ExtARQ(self._context, arq=request)
            answer = self._conductor.arq_create(self._context, extended, profile.id)
            created.append(answer.arq.uuid)
        return created

    def _bind(self, instance: str, requests: Mapping[str, str]) -> None:
        fields = {
            request: {
                "hostname": self._host,
                "device_rp_uuid": provider,
                "instance_uuid": instance,
                "project_id": _PROJECT,
            }
            for request, provider in requests.items()
        }
        patches = {
            request: [
                {"op": "add", "path": f"/{name}", "value": value} for name, value in values.items()
            ]
            for request, values in fields.items()
        }
        self._conductor.arq_apply_patch(self._context, patches, fields)

    def _handle(self, request: str) -> BoundHandle:
        arq = objects.ExtARQ.get(self._context, request).arq
        return BoundHandle(
            instance=arq.instance_uuid,
            request=arq.uuid,
            state=arq.state,
            type=arq.attach_handle_type,
            info=dict(arq.attach_handle_info),
            provider=arq.device_rp_uuid,
        )


def _count(group: Mapping[str, str]) -> int:
    """Return how many accelerator requests Cyborg's API makes of a profile's group."""
    if group.get("trait:CUSTOM_FPGA_XILINX") == "required":
        # The management and the user function of the card.
        return 2 * int(group["resources:FPGA"])
    return sum(int(value) for key, value in group.items() if key.startswith("resources"))


def _suffix(group: int) -> str:
    """Return the name that Nova gives to the request group of a profile's group."""
    return f"device_profile_{group}"


def _query(groups: Sequence[Mapping[str, str]]) -> str:
    wanted: list[tuple[str, str]] = []
    for number, group in enumerate(groups):
        keys = [(key.partition(":"), value) for key, value in group.items()]
        resources = [f"{name}:{value}" for (kind, _, name), value in keys if kind == "resources"]
        traits = [
            name if value == "required" else f"!{name}"
            for (kind, _, name), value in keys
            if kind == "trait"
        ]
        wanted.append((f"resources{_suffix(number)}", ",".join(resources)))
        if traits:
            wanted.append((f"required{_suffix(number)}", ",".join(traits)))
    if len(groups) > 1:
        # Nova's default where the flavor names no policy.
        wanted.append(("group_policy", "none"))
    return parse.urlencode(wanted)


def _claim(candidate: Mapping[str, object]) -> dict:
    return {
        "allocations": candidate["allocations"],
        "mappings": candidate["mappings"],
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
        "project_id": _PROJECT,
        "user_id": _PROJECT,
    }
