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

"""The chain from Cyborg's agent to Nova's flavor, link by link: which one is broken.

A fault is told where it arises and not again further down: a device in maintenance is told as
that, not as a reserved inventory nor as a profile without candidates.
Next stop: :mod:`cyborg_ext_drivers.cloud.stock` for inventories, then
:mod:`cyborg_ext_drivers.cloud.wishes` for the profiles.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from cyborg_ext_drivers.cloud import findings as codes
from cyborg_ext_drivers.cloud import picture as pictures
from cyborg_ext_drivers.cloud import wishes
from cyborg_ext_drivers.cloud.asking import Cloud, CloudUnusable
from cyborg_ext_drivers.cloud.findings import CloudFinding
from cyborg_ext_drivers.cloud.picture import NOVAS_PCI, OWNER_CYBORG, OWNER_NOVA, Picture
from cyborg_ext_drivers.cloud.reading import Reader
from cyborg_ext_drivers.cloud.records import (
    Deployable,
    Provider,
    Service,
    Unknown,
)
from cyborg_ext_drivers.cloud.stock import Stock

_PARTS = 10


class Checked(NamedTuple):
    """What the chain of a cloud looks like."""

    findings: tuple[CloudFinding, ...]
    unknown: tuple[Unknown, ...]
    hosts: int
    devices: int
    profiles: int
    requests: int

    @property
    def is_broken(self) -> bool:
        """Whether a link is broken."""
        return any(finding.is_broken for finding in self.findings)


def check(cloud: Cloud, profile: str | None = None, host: str | None = None) -> Checked:
    """Walk the chain; with *profile* or *host* only what concerns these.

    :raises CloudUnusable: when none of the services answers anything.
    """
    reader = Reader(cloud)
    picture = pictures.take_whole(reader)
    if reader.is_dumb(_PARTS):
        first = reader.unknown[0]
        raise CloudUnusable(f"No service of the cloud answers; {first.service}: {first.reason}")
    chain = Chain(reader, picture, host)
    found = [*chain.hosts(), *chain.devices(), *chain.providers()]
    broken = chain.broken
    found += wishes.check(reader, picture, broken, profile, chain.host)
    order = {code.name: number for number, code in enumerate(codes.CODES)}
    found.sort(key=lambda each: (order[each.code.name], each.host or "", each.subject))
    return Checked(
        tuple(found),
        tuple(reader.unknown),
        len({device.hostname for device in picture.devices or ()}),
        len(picture.devices or ()),
        len(picture.profiles or ()),
        cloud.requests,
    )


class Chain:
    """The links of hosts, devices and providers."""

    def __init__(self, reader: Reader, picture: Picture, host: str | None):
        self._reader = reader
        self._picture = picture
        self._hypervisors: dict[str, set[str]] = defaultdict(set)
        for each in picture.hypervisors or ():
            self._hypervisors[each.host].add(each.name)
        #: The host whose a name is, for names of nova-compute, hypervisors and root providers.
        self._called = self._names()
        #: The host asked about as Cyborg calls it, whichever name was given.
        self.host = self._called.get(host or "", host)
        self._providers_of: dict[str, set[str]] = defaultdict(set)
        for each in picture.deployables or ():
            if each.provider:
                self._providers_of[picture.host_of(each)].add(each.provider)
        self._misnamed: set[str] = set()
        #: Providers of deployables with a finding of their own.
        self.broken: set[str] = set()

    def _names(self) -> dict[str, str]:
        """Return for each name that a host goes by what Cyborg calls it."""
        picture = self._picture
        reporting = {picture.host_of(each): each for each in picture.deployables or ()}
        called: dict[str, str] = {}
        for host, each in reporting.items():
            root = picture.root_name(each.provider)
            if root is not None:
                called[root] = host
        for service, hypervisors in self._hypervisors.items():
            names = sorted(hypervisors)
            host = next(
                (name for name in (service, *names) if name in reporting), service or names[0]
            )
            called |= dict.fromkeys(filter(None, (service, *names)), host)
        return called | {host: host for host in reporting}

    def _concerns(self, *hosts: str | None) -> bool:
        return self.host is None or self.host in hosts

    # Hosts

    def hosts(self) -> Iterator[CloudFinding]:
        """Yield what is wrong with whole hosts."""
        picture = self._picture
        if picture.devices is not None:
            yield from self._silent_hosts({each.hostname for each in picture.devices})
        reported = {picture.host_of(each): each for each in picture.deployables or ()}
        if picture.providers is not None and picture.hypervisors is not None:
            for host, deployable in sorted(reported.items()):
                yield from self._root_of(host, deployable)
        for service in picture.services or ():
            host = self._called.get(service.host, service.host)
            if host not in reported or not self._concerns(host):
                continue
            finding = self._of_service(service, host)
            if finding is not None:
                self.broken |= self._providers_of[host]
                yield finding

    def _of_service(self, service: Service, host: str) -> CloudFinding | None:
        list_services = "openstack compute service list --service nova-compute --host"
        command = f"{list_services} {shlex.quote(service.host)}"
        evidence = ("state", service.state), ("status", service.status)
        if service.state == "down":
            message = f"nova-compute on {service.host} is down"
            return codes.COMPUTE_DOWN.finding(
                host, message, *evidence, commands=(command,), host=host
            )
        if service.status == "disabled":
            why = f": {service.reason}" if service.reason else ""
            message = f"nova-compute on {service.host} is disabled{why}"
            return codes.COMPUTE_DISABLED.finding(
                host, message, *evidence, commands=(command,), host=host
            )
        hypervisors = self._picture.hypervisors
        if hypervisors is None or self._hypervisors.get(service.host):
            return None
        if {service.host, host} & {each.name for each in hypervisors}:
            return None
        return codes.HYPERVISOR_MISSING.finding(
            host,
            f"nova-compute on {service.host} is up, and Nova lists no hypervisor of it",
            *evidence,
            commands=(command, "openstack hypervisor list --long"),
            host=host,
        )

    def _silent_hosts(self, reporting: set[str]) -> Iterator[CloudFinding]:
        """Yield the hosts that should have devices: the one asked about, all when none has any."""
        picture = self._picture
        names = {each.name for each in picture.hypervisors or ()}
        if self.host is not None:
            wanted = {self.host} - reporting
        else:
            wanted = {each.host for each in picture.services or ()} if not reporting else set()
        known = {each.name for each in (picture.providers or {}).values()}
        for host in sorted(wanted):
            differs = self._hypervisors.get(host, set()) - {host}
            list_devices = "openstack accelerator device list --long"
            if differs and picture.providers is not None and host not in known:
                self._misnamed.add(host)
                yield self._differs(host, sorted(differs)[0], None)
                continue
            is_known = host in names or any(each.host == host for each in picture.services or ())
            knows = "Nova knows the host" if is_known else "Nova does not know the host either"
            if picture.services is None and picture.hypervisors is None:
                knows = "Nova was not asked"
            yield codes.AGENT_NEVER_REPORTED.finding(
                host,
                f"Cyborg has no device of {host}; {knows}",
                (f"devices of {host} in Cyborg", 0),
                commands=(list_devices,),
                host=host,
            )

    def _root_of(self, host: str, deployable: Deployable) -> Iterator[CloudFinding]:
        root = self._picture.root_name(deployable.provider)
        named = self._hypervisors.get(host, set())
        if root is None or not named or root in named:
            return
        self._misnamed.add(host)
        if not self._concerns(host):
            return
        self.broken |= self._providers_of[host]
        yield self._differs(host, sorted(named)[0], root)

    def _differs(self, host: str, hypervisor: str, root: str | None) -> CloudFinding:
        below = f"below the provider {root}" if root else "nothing: no provider has its name"
        return codes.PROVIDER_NAME_DIFFERS.finding(
            host,
            f"The hypervisor of {host} is {hypervisor}, and Cyborg's agent reports {below}",
            ("hypervisor_hostname", hypervisor),
            ("resource provider", root or f"none named {host}"),
            commands=(
                "openstack hypervisor list --long",
                f"openstack resource provider list --name {shlex.quote(root or host)}",
            ),
            host=host,
        )

    # Devices

    def devices(self) -> Iterator[CloudFinding]:
        """Yield what is wrong with single devices and deployables."""
        picture = self._picture
        deployables = [
            each for each in picture.deployables or () if self._concerns(picture.host_of(each))
        ]
        yield from self._maintained()
        if picture.providers is None:
            return
        present = []
        for each in deployables:
            if each.provider in picture.providers:
                present.append(each)
            elif picture.host_of(each) not in self._misnamed:
                yield self._no_provider(each)
        yield from self._lost_traits(present)
        yield from Stock(self._reader, picture, self.broken).not_free(present)

    def _maintained(self) -> Iterator[CloudFinding]:
        parts: dict[str, list[str]] = defaultdict(list)
        for uuid, device in self._picture.device_of.items():
            parts[device.uuid].append(uuid)
        providers = {each.uuid: each.provider for each in self._picture.deployables or ()}
        for device in self._picture.devices or ():
            if device.status != "maintaining" or not self._concerns(device.hostname):
                continue
            self.broken |= {p for uuid in parts[device.uuid] if (p := providers.get(uuid))}
            yield codes.DEVICE_MAINTAINING.finding(
                device.uuid,
                f"The {device.type} {device.uuid} of {device.hostname} is disabled",
                ("status", device.status),
                commands=(f"openstack accelerator device show {device.uuid}",),
                host=device.hostname,
            )

    def _no_provider(self, each: Deployable) -> CloudFinding:
        return codes.PROVIDER_MISSING.finding(
            each.name,
            f"Placement has no resource provider of {each.name}",
            ("rp_uuid", each.provider),
            commands=(
                f"openstack accelerator deployable show {each.uuid}",
                f"openstack resource provider show {each.provider}"
                if each.provider
                else f"openstack resource provider list --name {shlex.quote(each.name)}",
            ),
            host=self._picture.host_of(each),
        )

    def _lost_traits(self, present: list[Deployable]) -> Iterator[CloudFinding]:
        picture = self._picture
        pictures.ask_who_has(
            self._reader, picture, {trait for each in present for trait in each.traits}
        )
        for each in present:
            lost = [
                trait
                for trait in each.traits
                if trait in picture.holders and each.provider not in picture.holders[trait]
            ]
            if not lost or each.provider is None:
                continue
            self.broken.add(each.provider)
            yield codes.TRAIT_NOT_IN_PLACEMENT.finding(
                each.name,
                f"Placement does not have {', '.join(lost)} on {each.name}; Cyborg's database has",
                ("lost", " ".join(lost)),
                ("provider", each.provider),
                commands=(
                    f"openstack resource provider trait list {each.provider}",
                    f"openstack accelerator deployable show {each.uuid}",
                ),
                host=picture.host_of(each),
            )

    # Providers

    def providers(self) -> Iterator[CloudFinding]:
        """Yield what is wrong with providers, seen from Placement."""
        picture = self._picture
        if picture.providers is None or picture.deployables is None:
            return
        pictures.ask_who_has(self._reader, picture, (OWNER_CYBORG, OWNER_NOVA, NOVAS_PCI))
        ours = {each.provider: each for each in picture.deployables if each.provider}
        yield from self._conflicts(ours)
        yield from self._left_behind(ours)

    def _conflicts(self, ours: dict[str, Deployable]) -> Iterator[CloudFinding]:
        picture = self._picture
        # Both are Nova's: it has given the second to its PCI devices since it reports them.
        of_nova = picture.holders.get(OWNER_NOVA, set()) | picture.holders.get(NOVAS_PCI, set())
        by_place: dict[tuple[str | None, object], Provider] = {}
        for uuid in of_nova:
            provider = (picture.providers or {}).get(uuid)
            address = pictures.pci_address(provider.name) if provider else None
            if provider and address:
                by_place[provider.root, address] = provider
        for uuid, each in ours.items():
            provider = (picture.providers or {}).get(uuid)
            if provider is None or not self._concerns(picture.host_of(each)):
                continue
            address = pictures.pci_address(provider.name)
            other = provider if uuid in of_nova else by_place.get((provider.root, address))
            if other is None or address is None:
                continue
            self.broken.add(uuid)
            yield codes.OWNER_CONFLICT.finding(
                each.name,
                f"The card {address} of {picture.host_of(each)} is Nova's PCI device and Cyborg's",
                (OWNER_CYBORG, f"{provider.name} ({uuid})"),
                (
                    OWNER_NOVA if other.uuid in picture.holders.get(OWNER_NOVA, ()) else NOVAS_PCI,
                    f"{other.name} ({other.uuid})",
                ),
                commands=tuple(
                    f"openstack resource provider trait list {each_uuid}"
                    for each_uuid in dict.fromkeys((uuid, other.uuid))
                ),
                host=picture.host_of(each),
            )

    def _left_behind(self, ours: dict[str, Deployable]) -> Iterator[CloudFinding]:
        picture = self._picture
        providers = picture.providers or {}
        reported = picture.holders.get(OWNER_CYBORG, set()) | ours.keys()
        known = self._known_to_nova()
        left: dict[tuple[str, bool], list[Provider]] = defaultdict(list)
        for uuid in sorted(reported & providers.keys()):
            provider, root = providers[uuid], picture.root_name(uuid)
            if root is None:
                continue
            host = picture.host_of(ours[uuid]) if uuid in ours else provider.host
            if host in self._misnamed or not self._concerns(host, self._called.get(root, root)):
                continue
            is_gone = known is not None and root not in known and host not in known
            # With no deployable at all it is Cyborg that lost them, which the hosts' findings say.
            if is_gone or (ours and uuid not in ours):
                left[root, is_gone].append(provider)
        for (root, is_gone), found in sorted(left.items()):
            self.broken |= {each.uuid for each in found}
            yield self._is_left(root, is_gone, found)

    def _known_to_nova(self) -> set[str] | None:
        """Return the names of hypervisors and hosts of nova-compute, ``None`` for half of them."""
        picture = self._picture
        if picture.hypervisors is None or picture.services is None:
            return None
        return {each.name for each in picture.hypervisors} | {e.host for e in picture.services}

    def _is_left(self, root: str, is_gone: bool, left: list[Provider]) -> CloudFinding:
        first = left[0]
        why = "Cyborg has no deployable of it"
        if is_gone:
            why = f"Nova has neither hypervisor nor nova-compute of {root}"
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return codes.PROVIDER_LEFT_BEHIND.finding(
            root if is_gone else first.name,
            f"Placement still has {first.name}{more}; {why}",
            ("root provider", root),
            ("providers", " ".join(each.uuid for each in left[:10])),
            commands=(
                f"openstack resource provider list --in-tree {first.root}",
                f"openstack resource provider show --allocations {first.uuid}",
                "openstack hypervisor list",
            ),
            host=root,
        )
