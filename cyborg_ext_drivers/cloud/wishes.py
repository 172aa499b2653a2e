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

"""What device profiles and flavors ask for, against what the cloud has."""

from __future__ import annotations

import difflib
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from cyborg_ext_drivers.checks.findings import Severity
from cyborg_ext_drivers.cloud import findings as codes
from cyborg_ext_drivers.cloud import picture as pictures
from cyborg_ext_drivers.cloud import reading
from cyborg_ext_drivers.cloud.asking import CYBORG
from cyborg_ext_drivers.cloud.findings import CloudFinding
from cyborg_ext_drivers.cloud.picture import Picture
from cyborg_ext_drivers.cloud.reading import Reader
from cyborg_ext_drivers.cloud.records import Deployable, Flavor, Profile, Unknown
from cyborg_ext_drivers.profiles import matching, rules
from cyborg_ext_drivers.profiles.rules import Group, Level, Problem

_FULL = Severity.INFO


def check(
    reader: Reader,
    picture: Picture,
    broken: set[str],
    name: str | None,
    host: str | None,
) -> Iterator[CloudFinding]:
    """Yield what is wrong with the profile *name* and its flavors, with all when ``None``.

    :param host: ask of this one alone, as Cyborg calls it.
    :param broken: the providers with findings of their own, which explain a missing candidate.
    """
    if picture.profiles is None:
        return
    wanted = [each for each in picture.profiles if name in (None, each.name)]
    known = [each.name for each in picture.profiles]
    if name is not None and not wanted:
        yield _unknown(name, known)
    for flavor in picture.flavors or ():
        if flavor.profile not in known and name in (None, flavor.profile):
            yield _of_flavor(flavor, known)
    if picture.providers is None or picture.deployables is None:
        return
    wishes = _Wishes(reader, picture, broken, host)
    for profile in wanted:
        yield from wishes.of(profile, is_named=name is not None)


def _of_flavor(flavor: Flavor, known: list[str]) -> CloudFinding:
    hint = _nearest(flavor.profile, known)
    if {each.strip() for each in flavor.profile.split(",")} <= set(known):
        hint = "; Nova takes the whole text for the name of one, and a flavor has one"
    return codes.FLAVOR_UNKNOWN_PROFILE.finding(
        flavor.name,
        f"The flavor {flavor.name} names the device profile {flavor.profile}, which does not "
        f"exist{hint}",
        (reading.FLAVOR_PROPERTY, flavor.profile),
        commands=(
            f"openstack flavor show {shlex.quote(flavor.name)} -c properties",
            "openstack accelerator device profile list",
        ),
    )


def _unknown(name: str, known: list[str]) -> CloudFinding:
    return codes.UNKNOWN_PROFILE.finding(
        name,
        f"There is no device profile {name}{_nearest(name, known)}",
        ("device profiles", len(known)),
        commands=("openstack accelerator device profile list",),
    )


def _nearest(name: str, known) -> str:
    near = difflib.get_close_matches(name, sorted(known), 1, 0.5)
    return f"; the nearest is {near[0]}" if near else ""


class _Wishes:
    def __init__(self, reader: Reader, picture: Picture, broken: set[str], host: str | None):
        self._reader = reader
        self._picture = picture
        self._broken = broken
        self._host = host
        self._root = None
        self._present = [
            each for each in picture.deployables or () if each.provider in (picture.providers or {})
        ]
        if host is not None:
            self._present = [each for each in self._present if host == self._picture.host_of(each)]
            found = [(picture.providers or {})[each.provider or ""] for each in self._present]
            self._root = found[0].root if found else None

    def of(self, profile: Profile, is_named: bool) -> Iterator[CloudFinding]:
        """Yield why the scheduler finds nothing for a profile."""
        if self._host is not None and self._root is None:
            return
        if not profile.groups:
            part, reason = f"groups of {profile.name}", "the answer holds no groups of it"
            self._reader.unknown.append(Unknown(part, CYBORG, "GET /device_profiles", reason))
            return
        problems = rules.of_groups(list(profile.groups))
        faults = [each for each in problems if each.level is not Level.WARNING]
        if faults:
            yield self._unusable(profile, faults)
            return
        groups = [rules.read_group(number, each) for number, each in enumerate(profile.groups)]
        pictures.ask_who_has(
            self._reader, self._picture, {t for g in groups for t in (*g.required, *g.forbidden)}
        )
        wanted = {each for group in groups for each in group.resources.items()}
        reported = {each.resource_class for each in self._picture.deployables or ()}
        wanted |= {(name, 1) for name, _ in wanted if name not in reported}
        pictures.ask_who_is_free(self._reader, self._picture, wanted)
        nowhere = list(self._nowhere(profile, groups))
        if nowhere:
            yield from nowhere
            return
        if not self._is_known(groups):
            return
        found = self._reader.part(
            f"candidates of {profile.name}",
            reading.has_candidate,
            _parameters(groups, self._root),
        )
        if found is False:
            yield from self._why(profile, groups, is_named)

    def _is_known(self, groups: list[Group]) -> bool:
        """Return whether Placement knows the names; it answers others with HTTP 400."""
        traits, classes = self._picture.traits, self._picture.classes
        return all(
            (traits is None or traits.issuperset((*group.required, *group.forbidden)))
            and (classes is None or classes.issuperset(group.resources))
            for group in groups
        )

    def _unusable(self, profile: Profile, faults: list[Problem]) -> CloudFinding:
        first = faults[0]
        more = f"; {len(faults) - 1} more" if len(faults) > 1 else ""
        return self._finding(
            codes.PROFILE_UNUSABLE,
            profile,
            f"Nothing can serve group {first.group} of {profile.name}: {first.message}{more}",
            *((f"group {n}", _said(profile.groups[n])) for n in sorted({f.group for f in faults})),
            commands=(f"cyborg-ext-diagnose profile check {shlex.quote(profile.name)} --cloud",),
        )

    def _nowhere(self, profile: Profile, groups: list[Group]) -> Iterator[CloudFinding]:
        told = {trait for each in self._picture.deployables or () for trait in each.traits}
        has = {each.resource_class for each in self._picture.deployables or ()} - {None}
        for trait in sorted({t for group in groups for t in group.required}):
            if trait in told or self._picture.holders.get(trait, {"unknown"}):
                continue
            yield self._finding(
                codes.TRAIT_NOWHERE,
                profile,
                f"{profile.name} asks for {trait}, which no provider has{_nearest(trait, told)}",
                (f"trait:{trait}", "required"),
                commands=(
                    f"openstack resource provider list --required {shlex.quote(trait)}"
                    if trait in (self._picture.traits or ())
                    else "openstack trait list --associated",
                ),
            )
        known = self._picture.traits
        for trait in sorted({t for group in groups for t in group.forbidden}):
            if known is None or trait in known:
                continue
            yield self._finding(
                codes.TRAIT_NOWHERE,
                profile,
                f"{profile.name} forbids {trait}, which Placement has never heard of, so that it "
                f"refuses the whole query{_nearest(trait, told)}",
                (f"trait:{trait}", "forbidden"),
                commands=("openstack trait list --associated",),
            )
        for name in sorted({c for group in groups for c in group.resources}):
            if name in has or self._picture.free.get(f"{name}:1", {"unknown"}):
                continue
            listed = ", ".join(sorted(filter(None, has))) or "none"
            yield self._finding(
                codes.CLASS_NOWHERE,
                profile,
                f"{profile.name} asks for {name}, which no device has; reported: {listed}",
                (f"resources:{name}", "asked for"),
                commands=(f"openstack resource provider list --resource {shlex.quote(name)}=1",)
                if name in (self._picture.classes or ())
                else ("openstack resource class list",),
            )

    def _why(self, profile: Profile, groups: list[Group], is_named: bool) -> Iterator[CloudFinding]:
        severity = None if is_named else _FULL
        used_up = []
        for group in groups:
            able = [each for each in self._present if self._is_able(each, group)]
            if not able:
                yield self._finding(
                    codes.GROUP_NOWHERE,
                    profile,
                    f"No device has all that group {group.number} of {profile.name} asks for",
                    ("group", _said(profile.groups[group.number])),
                    commands=(_command([group]),),
                )
                return
            sound = [each for each in able if each.provider not in self._broken]
            if not sound:
                return  # The findings of these devices say why.
            if not any(self._is_free(each, group) for each in sound):
                used_up.append(self._used_up(profile, group, len(sound), len(able), severity))
        if used_up:
            yield used_up[0]
        elif len(groups) > 1:
            yield from self._not_together(profile, groups, severity)
        elif not any(each.provider in self._broken for each in self._present):
            yield self._no_candidate(profile, groups[0])

    def _used_up(
        self, profile: Profile, group: Group, sound: int, able: int, severity: Severity | None
    ) -> CloudFinding:
        besides = f"; {able - sound} more have findings of their own" if able > sound else ""
        which = f"group {group.number} of {profile.name}"
        what = f"All {sound} devices that satisfy {which} are"
        if sound == 1:
            what = f"The only device that satisfies {which} is"
        return self._finding(
            codes.INVENTORY_USED_UP,
            profile,
            f"{what} in use{besides}",
            ("free", 0),
            ("satisfy", sound),
            commands=(_command([group]), "openstack accelerator arq list"),
            severity=severity,
        )

    def _not_together(
        self, profile: Profile, groups: list[Group], severity: Severity | None
    ) -> Iterator[CloudFinding]:
        enough = self._hosts_with_enough(groups)
        # Broken devices on the only host that had enough are told already.
        if any(each.provider in self._broken for found in enough for each in found):
            return
        if enough:
            yield self._finding(
                codes.INVENTORY_USED_UP,
                profile,
                f"Hosts with enough for the {len(groups)} groups of {profile.name}: "
                f"{len(enough)}, and something of it is in use on each",
                ("hosts with enough", len(enough)),
                commands=(_command(groups), "openstack accelerator arq list"),
                severity=severity,
            )
            return
        yield self._finding(
            codes.GROUPS_NOT_ON_ONE_HOST,
            profile,
            f"Each of the {len(groups)} groups of {profile.name} can be had, but no host has "
            "enough for all",
            *((f"group {n}", _said(group)) for n, group in enumerate(profile.groups)),
            commands=(_command(groups),),
        )

    def _no_candidate(self, profile: Profile, group: Group) -> CloudFinding:
        return self._finding(
            codes.NO_CANDIDATE,
            profile,
            f"Placement offers nothing for {profile.name}, though devices that satisfy it "
            "have something free",
            ("group", _said(profile.groups[0])),
            commands=(_command([group]),),
        )

    def _hosts_with_enough(self, groups: list[Group]) -> list[list[Deployable]]:
        """Return what the hosts have that would have enough, were all of it free and sound."""
        by_host: dict[str, list[Deployable]] = defaultdict(list)
        for each in self._present:
            by_host[self._picture.host_of(each)].append(each)
        return [found for found in by_host.values() if self._suffices(found, groups)]

    def _suffices(self, found: Sequence[Deployable], groups: list[Group]) -> bool:
        demands = [
            (
                sum(group.resources.values()),
                frozenset(n for n, each in enumerate(found) if self._is_able(each, group)),
            )
            for group in groups
        ]
        return matching.fits(demands, [each.accelerators for each in found])

    def _is_able(self, each: Deployable, group: Group) -> bool:
        holders = self._picture.holders
        has = set(each.traits) | {t for t in group.required if each.provider in holders.get(t, ())}
        barred = any(each.provider in holders.get(trait, ()) for trait in group.forbidden)
        return (
            has.issuperset(group.required)
            and not barred
            and all(
                name == each.resource_class and amount <= each.accelerators
                for name, amount in group.resources.items()
            )
        )

    def _is_free(self, each: Deployable, group: Group) -> bool:
        free = self._picture.free
        return all(
            each.provider in free.get(f"{name}:{amount}", {each.provider})
            for name, amount in group.resources.items()
        )

    def _finding(self, code, profile: Profile, message, *evidence, commands, severity=None):
        commands = (f"openstack accelerator device profile show {profile.uuid}", *commands)
        return code.finding(
            profile.name,
            message,
            *evidence,
            commands=commands,
            severity=severity,
            host=self._host,
        )


def _parameters(groups: list[Group], root: str | None) -> dict[str, object]:
    """Return the query that Nova makes of a profile (nova.accelerator.cyborg)."""
    parameters: dict[str, object] = {}
    for number, group in enumerate(groups):
        suffix = f"_device_profile_{number}"
        resources = ",".join(f"{name}:{amount}" for name, amount in group.resources.items())
        parameters[f"resources{suffix}"] = resources
        traits = [*sorted(group.required), *(f"!{trait}" for trait in sorted(group.forbidden))]
        if traits:
            parameters[f"required{suffix}"] = ",".join(traits)
        if root is not None:
            parameters[f"in_tree{suffix}"] = root
    if len(groups) > 1:
        # Nova's default where the flavor names no policy.
        parameters["group_policy"] = "none"
    return parameters


def _command(groups: list[Group]) -> str:
    """Return osc-placement's command line that asks the same, of all hosts."""
    words = ["openstack allocation candidate list"]
    for number, group in enumerate(groups):
        if len(groups) > 1:
            words.append(f"--group {number}")
        words += [
            f"--resource {shlex.quote(name)}={amount}" for name, amount in group.resources.items()
        ]
        words += [f"--required {shlex.quote(trait)}" for trait in sorted(group.required)]
        words += [f"--forbidden {shlex.quote(trait)}" for trait in sorted(group.forbidden)]
    if len(groups) > 1:
        words.append("--group-policy none")
    return " ".join(words)


def _said(group: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in group.items())
