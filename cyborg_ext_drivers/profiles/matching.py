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

"""Whether what is reported has what a profile asks for, and what comes nearest where not.

As Placement answers Nova (``nova.accelerator.cyborg``): each group of a profile is a numbered
request group, which one provider satisfies as a whole; all groups of a profile are satisfied by
one host, and several of them by one provider while it has units left (``group_policy=none``).
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from cyborg_ext_drivers.profiles import inventory, rules
from cyborg_ext_drivers.profiles.inventory import Inventory, Offer
from cyborg_ext_drivers.profiles.rules import Group, Level, Problem
from cyborg_ext_drivers.traits import OWNER_CYBORG

#: Words that many traits have, so that they say little.
_COMMON = frozenset(
    (
        *("GPU", "PGPU", "VGPU", "FPGA", "AICHIP", "NIC", "PRODUCT", "ID", "FUNCTION", "REGION"),
        *("ACCELERATOR", "ACCEL", "DEVICE", "CARD"),
    )
)
_MOST_STEPS = 20_000


class GroupAnswer(NamedTuple):
    """What one group can be satisfied by."""

    group: Group
    offers: tuple[Offer, ...]
    #: Why nothing satisfies it.
    problems: tuple[Problem, ...]


class Answer(NamedTuple):
    """What a profile can be satisfied by."""

    groups: tuple[GroupAnswer, ...]
    #: The hosts that have enough for all groups at once.
    hosts: tuple[str, ...]
    #: Why no host has, although each group alone can be satisfied.
    problems: tuple[Problem, ...]


def match(groups: Any, found: Inventory) -> Answer:
    """Return what satisfies each group, and which hosts all of them."""
    given = groups if isinstance(groups, list) else []
    read = [rules.read_group(number, group) for number, group in enumerate(given)]
    answers = _answers(read, found)
    if not answers or not all(each.offers for each in answers):
        return Answer(answers, (), ())
    common = set.intersection(*({offer.host for offer in each.offers} for each in answers))
    by_host = [_by_host(each.offers) for each in answers]
    counts = [next(iter(group.resources.values())) for group in read]
    hosts = tuple(
        host for host in sorted(common) if _has_enough(counts, [each[host] for each in by_host])
    )
    if hosts:
        return Answer(answers, hosts, ())
    return Answer(answers, (), (_not_together(answers, sorted(common)),))


def satisfies(offer: Offer, group: Group) -> bool:
    """Return whether one provider has all that a group asks for."""
    return (
        all(
            offer.resource_class == name and offer.units >= count
            for name, count in group.resources.items()
        )
        and bool(group.resources)
        and _has_traits(offer, group)
    )


def nearest(trait: str, found: Inventory) -> list[str]:
    """Return reported traits that are most like one that nothing reports, best first."""
    scored = sorted(
        ((_likeness(trait, other), other) for other in found.traits), key=lambda x: (-x[0], x[1])
    )
    return [other for score, other in scored if score >= 0.3][:3]


def _has_traits(offer: Offer, group: Group) -> bool:
    has = offer.traits
    return all(each in has for each in group.required) and not any(
        each in has for each in group.forbidden
    )


def _likeness(one: str, other: str) -> float:
    ours, theirs = _tokens(one), _tokens(other)
    spelling = difflib.SequenceMatcher(None, "".join(sorted(ours)), "".join(sorted(theirs)))
    shared = _weight(ours & theirs)
    # Most of all counts how much of what was asked for is there.
    of_tokens = 0.7 * shared / (_weight(ours) or 1) + 0.2 * shared / (_weight(ours | theirs) or 1)
    ratio = spelling.ratio()
    return max(of_tokens + 0.1 * ratio, ratio if ratio > 0.8 else 0.0)


def _weight(tokens: Iterable[str]) -> float:
    return sum(0.3 if token in _COMMON else 1.0 for token in tokens)


def _tokens(trait: str) -> set[str]:
    return set(trait.upper().removeprefix("CUSTOM_").split("_")) - {""}


def _answers(groups: Iterable[Group], found: Inventory) -> tuple[GroupAnswer, ...]:
    """Return what satisfies each group; of those that ask for the same it is found once."""
    known: dict[object, GroupAnswer] = {}
    answers = []
    for group in groups:
        asked = (tuple(group.resources.items()), group.required, group.forbidden)
        if asked not in known:
            known[asked] = _answer(group, found)
        problems = tuple(each._replace(group=group.number) for each in known[asked].problems)
        answers.append(known[asked]._replace(group=group, problems=problems))
    return tuple(answers)


def _answer(group: Group, found: Inventory) -> GroupAnswer:
    offers = tuple(offer for offer in found.offers if satisfies(offer, group))
    problems = tuple(_unknown_traits(group, found))
    is_told = any(each.level is Level.FAILS for each in problems)
    if not offers and group.resources and not is_told:
        problems = (*problems, _why_not(group, found))
    elif is_told and found.offers and not group.resources.keys() & set(found.resource_classes):
        # Told at once with the traits: else it comes up when these are mended.
        problems = (*problems, _why_not(_meant(group, found), found))
    return GroupAnswer(group, offers, problems)


def _meant(group: Group, found: Inventory) -> Group:
    """Return a group with the nearest reported traits in place of those that it asks for."""
    near = [each for trait in group.required for each in nearest(trait, found)[:1]]
    together = group._replace(required=tuple(dict.fromkeys(near)), forbidden=())
    is_one = any(_has_traits(each, together) for each in found.offers)
    return together if is_one else together._replace(required=())


def _unknown_traits(group: Group, found: Inventory) -> Iterable[Problem]:
    # Cyborg reports it of every card, and refuses it in every profile, which the rules say.
    known = {*found.traits, OWNER_CYBORG}
    for trait in group.required:
        if trait not in known:
            message = f"{trait}: no host reports it"
            yield Problem(
                "trait-not-reported", Level.FAILS, group.number, *_instead(message, trait, found)
            )
    for trait in group.forbidden:
        if trait not in known:
            message = (
                f"{trait}: no host reports it, so forbidding it does nothing; where Placement "
                "has never heard of it, it refuses the whole query"
            )
            remedy = f"Leave it out, or let Placement know it: openstack trait create {trait}"
            yield Problem("forbidden-not-reported", Level.WARNING, group.number, message, remedy)


def _instead(message: str, trait: str, found: Inventory) -> tuple[str, str]:
    """Return the sentence with what is reported in its place, and what to do."""
    near = nearest(trait, found)
    if near:
        counts = inventory.counted(found.with_trait(near[0]))
        others = f" (or {', '.join(near[1:])})" if near[1:] else ""
        return (
            f"{message}; {near[0]} is reported by {counts}",
            f"Write trait:{near[0]} in its place{others}",
        )
    if not found.offers:
        return f"{message}, and no accelerator at all", _LOOK
    return message, f"Name one of those that are reported: {', '.join(found.traits[:6])}"


_WAIT = "Wait for some, or see who holds them, with cyborg-ext-diagnose cloud arqs"
_LOOK = "See why, with cyborg-ext-diagnose host on a host that has such cards"


def _why_not(group: Group, found: Inventory) -> Problem:
    number = group.number
    with_traits = [each for each in found.offers if _has_traits(each, group)]
    wanted = " and ".join(f"resources:{name}={count}" for name, count in group.resources.items())
    if not found.offers:
        message = f"{wanted}: no host reports any accelerator"
        return Problem("nothing-reported", Level.FAILS, number, message, _LOOK)
    if not with_traits:
        message = f"No device has all of {_traits(group)} at once"
        if not group.required:
            message = f"Each device has a trait that is forbidden: {', '.join(group.forbidden)}"
        parts = "; ".join(
            f"{trait}: {inventory.counted(found.with_trait(trait))}" for trait in group.required
        )
        message = f"{message} ({parts})" if parts else message
        remedy = "Ask for fewer traits, or write one group for each device"
        if not group.required:
            remedy = "Forbid less"
        return Problem("traits-not-together", Level.FAILS, number, message, remedy)
    of_class = [each for each in with_traits if each.resource_class in group.resources]
    if not of_class:
        classes = sorted({each.resource_class for each in with_traits})
        traits = f"with {_traits(group)} " if group.required or group.forbidden else ""
        message = (
            f"{wanted}: what is reported {traits}is {', '.join(classes)}, "
            f"of {inventory.counted(with_traits)}"
        )
        remedy = f"Write resources:{classes[0]} in its place"
        return Problem("class-not-reported", Level.FAILS, number, message, remedy)
    most = max(each.units for each in of_class)
    if not most:
        message = f"{wanted}: nothing is free of {inventory.counted(of_class)} that have all else"
        return Problem("none-free", Level.FAILS, number, message, _WAIT)
    name, count = next(iter(group.resources.items()))
    message = f"{wanted} in one group must come from one device, and none has more than {most}"
    remedy = f"Write {count} groups with resources:{name}=1 each"
    return Problem("too-many-of-one-device", Level.FAILS, number, message, remedy)


def _traits(group: Group) -> str:
    return ", ".join([*group.required, *(f"not {trait}" for trait in group.forbidden)])


def _not_together(answers: Sequence[GroupAnswer], common: Sequence[str]) -> Problem:
    if common:
        message = (
            f"No host has enough for all {len(answers)} groups at once, although "
            f"{len(common)} have something for each"
        )
    else:
        message = f"No host has something for each of the {len(answers)} groups"
    parts = "; ".join(
        f"group {each.group.number}: {inventory.counted(each.offers)}" for each in answers[:6]
    )
    remedy = "Ask for fewer in one profile; all groups of a profile come from one host"
    return Problem("not-on-one-host", Level.FAILS, None, f"{message} ({parts})", remedy)


def _by_host(offers: Iterable[Offer]) -> dict[str, list[Offer]]:
    found: dict[str, list[Offer]] = {}
    for offer in offers:
        found.setdefault(offer.host, []).append(offer)
    return found


def _has_enough(counts: Sequence[int], usable: Sequence[Sequence[Offer]]) -> bool:
    """Return whether the offers of one host satisfy all groups at the same time."""
    # By identity: two parts of a card may be equal in all that is told of them.
    offers = list({id(each): each for of_group in usable for each in of_group}.values())
    numbers = {id(each): number for number, each in enumerate(offers)}
    units = [offer.units for offer in offers]
    demands = [
        (count, frozenset(numbers[id(each)] for each in of_group))
        for count, of_group in zip(counts, usable)
    ]
    return fits(demands, units)


def fits(demands: Sequence[tuple[int, frozenset[int]]], units: Sequence[int]) -> bool:
    """Return whether all demands are satisfied at the same time, each by one provider.

    :param demands: how many units each wants, and the numbers of the providers that may give them.
    :param units: how many each provider has.
    """
    if sum(count for count, _ in demands) > sum(units):
        return False
    if all(count == 1 for count, _ in demands):
        return _flows([usable for _, usable in demands], units)
    return _packs(sorted(demands, key=lambda each: (-each[0], len(each[1]))), list(units))


def _flows(demands: Sequence[frozenset[int]], units: Sequence[int]) -> bool:
    """Return whether each demand gets a unit of its own: a matching, by augmenting paths."""
    holders: list[list[int]] = [[] for _ in units]

    def place(demand: int, seen: set[int]) -> bool:
        for offer in demands[demand] - seen:
            seen.add(offer)
            if len(holders[offer]) < units[offer]:
                holders[offer].append(demand)
                return True
            for position, other in enumerate(holders[offer]):
                if place(other, seen):
                    holders[offer][position] = demand
                    return True
        return False

    return all(place(demand, set()) for demand in range(len(demands)))


def _packs(demands: Sequence[tuple[int, frozenset[int]]], left: list[int]) -> bool:
    """Return whether all demands fit, each into one provider, the largest first.

    What cannot be settled in 20,000 steps is taken to fit: Placement has the last word.
    """
    failed: set[tuple[int, tuple[int, ...]]] = set()

    def fit(position: int) -> bool:
        if position == len(demands) or len(failed) > _MOST_STEPS:
            return True
        state = (position, tuple(left))
        if state in failed:
            return False
        count, usable = demands[position]
        for offer in sorted(usable, key=lambda each: (left[each], each)):
            if left[offer] >= count:
                left[offer] -= count
                if fit(position + 1):
                    return True
                left[offer] += count
        failed.add(state)
        return False

    return fit(0)
