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
"""What must be true of every host, asked after each change.

Next stop: :mod:`tests.properties.test_any_host`.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterable

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import ExtDriversError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.report import contract
from cyborg_ext_drivers.survey import Assessment, Survey, Surveyor
from cyborg_ext_drivers.testing import DescriptionError, FakeHost, Oddity, UnknownFunction
from tests.properties.strategies import Change
from tests.properties.watching import Watch

BUS = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"
CATALOG = catalog.load(None)
#: The canary's device id, which no host that is drawn has.
CANARY = "20b5"

#: Whose cards may have several physical functions in a slot.
SEVERAL_FUNCTIONS = ("10ee", "1c2c", "8086")

Token = tuple[str, object]
#: Of what may be on a board with NVSwitches.
SWITCHED: Token = ("switched", None)


@dataclasses.dataclass(frozen=True)
class Effect:
    """What a change changed: some functions, some groups, or all of the host."""

    functions: frozenset[PciAddress] = frozenset()
    groups: frozenset[int] = frozenset()
    is_everything: bool = False


NOTHING, EVERYTHING = Effect(), Effect(is_everything=True)


@dataclasses.dataclass(frozen=True)
class State:
    """How the functions of a host hang together at one moment, by its description and oddities.

    Each function has tokens; two that share one may see something of each other.
    """

    tokens: dict[PciAddress, frozenset[Token]]
    below: dict[PciAddress, frozenset[PciAddress]]
    groups: frozenset[int]
    switches: frozenset[PciAddress]

    @classmethod
    def of(cls, fake: FakeHost, oddities: Iterable[Oddity]) -> "State":
        """Return the state of a host with these oddities."""
        functions = {each.address: each for each in fake.description.functions}
        tokens = {}
        below: dict[PciAddress, set[PciAddress]] = {address: set() for address in functions}
        for address, function in functions.items():
            card = function.physfn or address
            if function.class_.startswith("12") and function.vendor in SEVERAL_FUNCTIONS:
                card = dataclasses.replace(card, function=0)
            mine: set[Token] = {
                slot_of(address),
                ("card", card),
                ("group", function.iommu_group),
                ("group", fake.group_of(address)),
                *([SWITCHED] if function.vendor == "10de" else ()),
            }
            for above in (function.parent, function.physfn):
                while above in functions:
                    below[above].add(address)
                    above = functions[above].parent or functions[above].physfn
            tokens[address] = mine
        for oddity in oddities:
            name, _, rest = oddity.path.removeprefix(f"{BUS}/").partition("/")
            if not oddity.path.startswith(f"{BUS}/") or PciAddress.parse(name) not in tokens:
                continue
            mine = tokens[PciAddress.parse(name)]
            if rest == "iommu_group":
                mine.add(("group", None))
            if oddity.kind == "link":
                # It is taken for a member of that group, or for the card of that function.
                last = str(oddity.value).rpartition("/")[2]
                if last.isdecimal():
                    mine.add(("group", int(last)))
                with contextlib.suppress(InvalidAddress):
                    mine.add(("card", PciAddress.parse(last)))
        return cls(
            {address: frozenset(mine) for address, mine in tokens.items()},
            {address: frozenset(found) for address, found in below.items()},
            frozenset(g for f in functions.values() if (g := fake.group_of(f.address)) is not None),
            frozenset(f.address for f in functions.values() if f.class_.startswith("0680")),
        )


def slot_of(address: PciAddress) -> Token:
    """Return the token of a slot, which is known of what is not there as well."""
    return "slot", (address.domain, address.bus, address.device)


def touched_by(effect: Effect, before: State, after: State) -> frozenset[Token]:
    """Return the tokens of what a change may concern; others keep their assessment.

    A change of a function concerns what is in its slot, in its IOMMU group, of its card (the
    physical function with its virtual ones), and all of these of what lies below it; before
    or after, by the description or by a link that says so.  A change of a group concerns its
    members, and the cards of which these are virtual functions.  What is in no group is
    concerned whenever a group comes, goes or changes: that it is in none is explained by the
    groups that there are.  A change of an NVSwitch concerns the GPUs that are connected by it.
    """
    tokens: set[Token] = {("group", number) for number in effect.groups}
    tokens.update(map(slot_of, effect.functions))
    for state in (before, after):
        for address in effect.functions:
            for each in (address, *state.below.get(address, ())):
                tokens |= state.tokens.get(each, frozenset())
    groups = {token for token in tokens if token[0] == "group" and token[1] is not None}
    for mine in (*before.tokens.values(), *after.tokens.values()):
        if groups & mine:
            tokens.update(token for token in mine if token[0] == "card")
    if not effect.functions & (before.switches | after.switches):
        tokens.discard(SWITCHED)
    if effect.groups or before.groups != after.groups:
        tokens.add(("group", None))
    return frozenset(tokens)


class Site:
    """A fake host that changes, and is surveyed after each change.

    :param fake: a host that is set up.
    """

    def __init__(self, fake: FakeHost):
        self.fake = fake
        #: How many hosts were surveyed.
        self.count = 0
        self._oddities: list[Oddity] = []
        self._removed: list[PciAddress] = []
        self._remembering = Surveyor(catalog=CATALOG)
        self._last: dict[str, Assessment] | None = None

    def play(self, changes: Iterable[Change], watch: Watch | None = None) -> None:
        """Let changes happen one after the other and check all that must be true."""
        self._last = None
        self._check(Host(self.fake.root), NOTHING, State.of(self.fake, ()))
        for change in changes:
            before = State.of(self.fake, self._oddities)
            host = Host(self.fake.root)
            if change.is_late:
                with contextlib.suppress(ExtDriversError):
                    _ = host.functions
            effect = self._apply(change)
            self._check(host, effect, before, change.is_late)
            assert watch is None or not watch.has_seen(), f"{change} led out of the root"

    def _check(self, host: Host, effect: Effect, before: State, is_late: bool = False) -> None:
        self.count += 1
        after = State.of(self.fake, self._oddities)
        try:
            survey = self._remembering.survey(host)
        except ExtDriversError:
            self._last = None
            return
        check_reports(survey)
        found = {str(each.address): each for each in survey.assessments}
        if self._last is not None and not effect.is_everything:
            check_untouched(self._last, found, touched_by(effect, before, after), before, after)
        if not is_late:
            # What is remembered from the last host must not show in this one.
            anew = Surveyor(catalog=CATALOG).survey(Host(self.fake.root)).assessments
            assert [said(each) for each in anew] == [said(each) for each in found.values()]
        self._last = None if is_late else found

    def _apply(self, change: Change) -> Effect:
        """Let a change happen; one that makes no sense now is nothing."""
        functions = self.fake.description.functions
        if not functions and change.what not in ("host", "iommu", "boot", "put back", "mend"):
            return NOTHING
        address = functions[change.which % len(functions)].address if functions else None
        try:
            return getattr(self, "_" + change.what.replace(" ", "_"))(address, change)
        except (ValueError, LookupError, DescriptionError, UnknownFunction):
            return NOTHING

    def _nothing(self, address: PciAddress, change: Change) -> Effect:
        return NOTHING

    def _attribute(self, address: PciAddress, change: Change) -> Effect:
        return self._inject(f"{BUS}/{address}/{change.detail[0]}", change)

    def _bus(self, address: PciAddress, change: Change) -> Effect:
        is_entry = change.detail[0] == "entry"
        path = f"{BUS}/{address}" if is_entry else self.fake.directory(address)
        return self._inject(path, change)

    def _group(self, address: PciAddress, change: Change) -> Effect:
        number = self.fake.group_of(address)
        if number is None:
            return NOTHING
        return self._inject(f"{GROUPS}/{number}{change.detail[0]}", change)

    def _host(self, address: PciAddress, change: Change) -> Effect:
        return self._inject(change.detail[0], change)

    def _inject(self, path: str, change: Change) -> Effect:
        _, (kind, value) = change.detail
        oddity = Oddity(kind, path, value)
        effect = self._effect_of(oddity)
        self.fake.inject(oddity)
        self._oddities = [each for each in self._oddities if each.path != path] + [oddity]
        return effect

    def _mend(self, address: PciAddress, change: Change) -> Effect:
        if not self._oddities:
            return NOTHING
        oddity = self._oddities.pop(change.which % len(self._oddities))
        effect = self._effect_of(oddity)
        self.fake.mend(oddity)
        return effect

    def _effect_of(self, oddity: Oddity) -> Effect:
        """Return what an oddity changes, by the path at which it lies."""
        directories = {self.fake.directory(f.address): f.address for f in self._functions}
        if oddity.path in directories:
            return Effect(frozenset((directories[oddity.path],)))
        if oddity.path.startswith(f"{BUS}/"):
            name = oddity.path.removeprefix(f"{BUS}/").partition("/")[0]
            return Effect(frozenset((PciAddress.parse(name),)))
        number = oddity.path.removeprefix(f"{GROUPS}/").partition("/")[0]
        return Effect(groups=frozenset((int(number),))) if number.isdecimal() else EVERYTHING

    @property
    def _functions(self):
        return self.fake.description.functions

    def _bind(self, address: PciAddress, change: Change) -> Effect:
        if change.detail is None:
            self.fake.unbind(address)
        else:
            self.fake.bind(address, change.detail)
        return Effect(frozenset((address,)))

    def _move(self, address: PciAddress, change: Change) -> Effect:
        self.fake.move_to_group(address, change.detail)
        return Effect(frozenset((address,)))

    def _iommu(self, address: PciAddress, change: Change) -> Effect:
        self.fake.set_iommu(change.detail)
        return EVERYTHING

    def _boot(self, address: PciAddress, change: Change) -> Effect:
        self.fake.set_command_line(change.detail)
        return EVERYTHING

    def _plug(self, address: PciAddress, change: Change) -> Effect:
        vendor, device, class_ = change.detail
        new = dataclasses.replace(address, function=(address.function + change.which) % 8)
        self.fake.add_function(
            new, vendor=vendor, device=device, class_=class_, iommu_group=change.which
        )
        return Effect(frozenset((new,)))

    def _remove(self, address: PciAddress, change: Change) -> Effect:
        before = {each.address for each in self._functions}
        directories = tuple(f"{self.fake.directory(each)}/" for each in before)
        self.fake.remove_function(address)
        gone = frozenset(before - {each.address for each in self._functions})
        # What was odd below them went with them.
        self._oddities = [
            each
            for each in self._oddities
            if not any(each.path.startswith(f"{BUS}/{name}/") for name in gone)
            and not each.path.startswith(directories)
        ]
        self._removed.append(address)
        return Effect(gone)

    def _put_back(self, address: PciAddress, change: Change) -> Effect:
        if not self._removed:
            return NOTHING
        before = {each.address for each in self._functions}
        self.fake.put_back(self._removed.pop())
        return Effect(frozenset({each.address for each in self._functions} - before))

    def _divide(self, address: PciAddress, change: Change) -> Effect:
        virtual = self.fake.enable_virtual_functions(address, change.detail)
        return Effect(frozenset((address, *virtual)))

    def _unite(self, address: PciAddress, change: Change) -> Effect:
        before = {each.address for each in self._functions}
        self.fake.disable_virtual_functions(address)
        gone = before - {each.address for each in self._functions}
        self._oddities = [
            each
            for each in self._oddities
            if not any(each.path.startswith(f"{BUS}/{name}/") for name in gone)
        ]
        return Effect(frozenset((address, *gone)))


def said(assessment: Assessment) -> tuple:
    """Return all that is said of one function."""
    return (
        str(assessment.address),
        assessment.verdict,
        assessment.deployables,
        assessment.findings,
    )


def check_reports(survey: Survey) -> None:
    """Check that Cyborg and Placement would take what is reported, and people what is said."""
    reports = [
        contract.to_report(each.accelerator, each.deployables, "host") for each in survey.reported
    ]
    assert [fault for report in reports for fault in contract.violations(report)] == []
    controls = [report.cpid_info for report in reports]
    assert len(set(controls)) == len(controls), "two devices have one cpid"
    handles = [h for report in reports for part in report.deployables for h in part.handles]
    assert len(set(handles)) == len(handles), "two devices have one attach handle"
    for assessment in survey.assessments:
        assert assessment.accelerator is None or assessment.accelerator.identity.id.device != CANARY
        for finding in assessment.findings:
            text = " ".join([str(finding), *map(str, finding.evidence)])
            assert text.isprintable() and "canary" not in text and CANARY not in text, text
            assert len(text) < 4000, text
            assert finding.message and finding.remedy and finding.evidence


def check_untouched(
    last: dict[str, Assessment],
    found: dict[str, Assessment],
    touched: frozenset[Token],
    before: State,
    after: State,
) -> None:
    """Check that what a change does not concern keeps its assessment."""
    for name in last.keys() | found.keys():
        address = PciAddress.parse(name)
        mine = before.tokens.get(address, frozenset()) | after.tokens.get(address, frozenset())
        if touched & {slot_of(address), *mine}:
            continue
        was, now = last.get(name), found.get(name)
        assert was is not None, f"{name} came from nowhere"
        assert now is not None, f"{name} was lost"
        assert said(was) == said(now)


def lay_canary(fake: FakeHost) -> None:
    """Let links out of the root lead to what looks like parts of a host."""
    outside = fake.outside
    outside.mkdir(exist_ok=True)
    names = [str(each.address) for each in fake.description.functions]
    functions = [outside / name for name in names]
    functions += [outside / "devices" / name for name in ("0000:3b:00.0", "0000:01:00.0")]
    for here in functions:
        here.mkdir(parents=True, exist_ok=True)
        (here / "uevent").write_text(
            f"DRIVER=canary\nPCI_CLASS=30200\nPCI_ID=10DE:{CANARY}\nPCI_SUBSYS_ID=10DE:1533\n"
        )
        for name, value in (("vendor", "10de"), ("device", CANARY), ("class", "030200")):
            (here / name).write_text(f"0x{value}\n")
        os.symlink("../canary", here / "driver")
    for group in ("0", "1", "27", "64", "iommu_groups/1"):
        (outside / group / "devices" / "canary").mkdir(parents=True, exist_ok=True)
        (outside / group / "reserved_regions").write_text("0x0 0xfff direct\n")
    for name in ("vendor", "cmdline", "numa_node", "config", "runtime_status", "resource"):
        (outside / name).write_text("canary iommu=off\n")
