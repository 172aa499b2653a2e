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
"""A described host of any host: live, below a root directory, or in a snapshot.

What the description would make is laid out by the room that reads such descriptions, and compared
with the host, read by read; what differs and has no key of its own goes into ``attributes`` and
``files``.  Then both are looked at once more: what still makes a difference is told.

Next stop: :mod:`cyborg_ext_drivers.snapshot._keys` for the keys.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from cyborg_ext_drivers.address import is_sysfs_name
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host._reading import PAGE, Head, is_there, list_names, read_link
from cyborg_ext_drivers.host.directory import Directory
from cyborg_ext_drivers.host.iommu import FIRMWARE_TABLES, GROUPS
from cyborg_ext_drivers.host.kernel import BOOT_ID, COMMAND_LINE, MODULES
from cyborg_ext_drivers.host.nvml import MODULE_VERSION, NvmlAnswer, State
from cyborg_ext_drivers.host.pci import DEVICES, PciFunction
from cyborg_ext_drivers.host.topology import link_of, parents_of
from cyborg_ext_drivers.snapshot import _keys
from cyborg_ext_drivers.snapshot._keys import BRIDGE, readable
from cyborg_ext_drivers.snapshot._yaml import to_yaml
from cyborg_ext_drivers.survey import Assessment, Survey, Surveyor, Verdict

#: Lays out what a description makes and provides the directory that stands for ``/``.
Layer = Callable[[Mapping[str, Any]], contextlib.AbstractContextManager[str]]
# What keeps the place of a directory with nothing in it that was read.
_KEEP = ".keep"
_MOST_ROUNDS = 6
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# Entries of a function's directory that are told of by being there.
_TELLING = re.compile(rf"virtfn\d+|rom\.[mu]\.\d+|{_UUID.pattern}")
_TABLES = frozenset(("DMAR", "IVRS", "IORT"))
_KEYS_OF_FILES = {"power_state": "power_state", "power/runtime_status": "runtime_status"}
_FPGA_FOLDERS = ("fpga_region/", "fpga/")
_PARAMETERS = re.compile(rf"{MODULES}/(\w+)/parameters")
_STREAM = re.compile(r"/(tsm\d+)/")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Described(NamedTuple):
    """A described host, and what of the host it does not say."""

    mapping: dict[str, Any]
    #: A sentence each.
    missing: tuple[str, ...]

    @property
    def yaml(self) -> str:
        """The description as a file has it."""
        return to_yaml(self.mapping)


def describe(
    host: Host,
    surveyor: Surveyor,
    lay: Layer,
    name: str = "described-host",
    with_serials: bool = False,
    with_all: bool = False,
) -> Described:
    """Return a described host that gives the same assessments, with these as its expectation.

    :param lay: what makes a host of a description.
    :param name: what it is called, in kebab case.
    :param with_serials: whether to say serial numbers and UUIDs of GPUs.
    :param with_all: whether to describe functions that nothing depends on.
    :raises EnumerationError: when the host's functions cannot be listed.
    :raises ValueError: when the name is none.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a described host: write two-t4, for example")
    seen = _look(host, surveyor)
    answer = _nvml_of(host, surveyor)
    drafts = _Draft(host, host.again(), seen, surveyor, answer, with_serials)
    mapping = drafts.mapping(with_all)
    mapping = {"name": name, "title": _title(seen.survey)} | mapping
    mapping["expected"] = expectation(seen.survey, mapping["host"])
    missing, differing = _corrected(host, seen, surveyor, mapping, lay, answer)
    mapping["host"] = _in_order(mapping["host"])
    if differing and not with_all and len(drafts.chosen) < len(host.functions):
        return describe(host, surveyor, lay, name, with_serials, with_all=True)
    return Described(mapping, (*missing, *differing, *drafts.left_out))


def _in_order(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the host in the order of the shipped descriptions."""
    found = dict(host)
    modules = found.get("modules")
    if modules:
        named = {name: modules[name] or None for name in sorted(modules)}
        found["modules"] = named if any(named.values()) else list(named)
    functions = {key: found.pop(key) for key in ("bridges", "functions") if key in found}
    return found | functions


class _Seen(NamedTuple):
    """What is said of a host and of each of its candidates."""

    survey: Survey
    #: What is said of each address, in plain values.
    answers: dict[str, Any]


def _look(host: Host, surveyor: Surveyor) -> _Seen:
    """Look at a host as all subcommands together do."""
    survey = Surveyor(surveyor.options, surveyor.families, surveyor.checks, surveyor.catalog)
    found = survey.survey(host)
    return _Seen(
        found, {each.function.name: _answer(each, host, survey) for each in found.assessments}
    )


def _answer(assessment: Assessment, host: Host, surveyor: Surveyor) -> dict[str, Any]:
    closer = surveyor.look_closer(assessment, host)
    function = assessment.function
    group = readable(lambda: function.iommu_group)
    said = [
        (str(each.code), str(getattr(each, "severity", "fine")), [tuple(e) for e in each.evidence])
        for each in (*closer.findings, *closer.passed)
    ]
    return {
        "verdict": str(closer.verdict),
        "identity": str(function.identity),
        "subsystem": str(function.identity.subsystem) if function.identity else None,
        "revision": readable(lambda: function.revision),
        "driver": readable(lambda: function.driver),
        "numa_node": readable(lambda: function.numa_node),
        "group": group,
        "members": readable(lambda: _members(host, group)) if group is not None else None,
        "parents": readable(lambda: parents_of(function)),
        "link": str(readable(lambda: link_of(function))),
        "regions": [tuple(each) for each in readable(lambda: function.regions) or ()],
        "said": said,
        "deployables": [
            (
                str(each.address),
                each.resource_class,
                [str(handle.address) for handle in each.handles],
                list(each.traits),
            )
            for each in closer.deployables
        ],
    }


def _members(host: Host, group: int) -> list[tuple[str, str, str | None]]:
    members = host.iommu.group(group).members
    if members is None:
        members = host.functions.by_group.get(group, ())
    found = []
    for name in members:
        function = host.functions.get(name)
        driver = readable(lambda f=function: f.driver) if function else None
        found.append((name, str(function.identity) if function else "", driver))
    return found


def _nvml_of(host: Host, surveyor: Surveyor) -> NvmlAnswer:
    options = surveyor.options
    return host.nvml.ask(host.functions, options.nvml_library, options.nvml_timeout)


def _title(survey: Survey) -> str:
    reported, skipped = len(survey.reported), len(survey.skipped)
    codes = dict.fromkeys(str(each.reason.code) for each in survey.skipped if each.reason)
    why = f" ({', '.join(codes)})" if codes else ""
    are = "is" if reported == 1 else "are"
    return (
        f"{reported} accelerator{'s' * (reported != 1)} {are} reported and "
        f"{skipped} {'is' if skipped == 1 else 'are'} skipped{why}."
    )


def expectation(survey: Survey, host: Mapping[str, Any]) -> dict[str, Any]:
    """Return today's verdicts as what a described host expects."""
    known = {each["address"] for key in ("functions", "bridges") for each in host.get(key, ())}
    reported = []
    for assessment in survey.reported:
        for each in assessment.deployables:
            row: dict[str, Any] = {"address": str(each.address)}
            row["resource_class"] = each.resource_class
            handles = [str(handle.address) for handle in each.handles]
            if handles != [str(each.address)]:
                row["handles"] = handles
            row["traits"] = list(each.traits)
            reported.append(row)
    skipped = {
        each.function.name: str(each.reason.code)
        for each in survey.skipped
        if each.reason and each.verdict is Verdict.SKIPPED and each.function.name in known
    }
    return {"reported": reported} | ({"skipped": skipped} if skipped else {})


class _Draft:
    """A description by the keys alone."""

    def __init__(
        self,
        looked_at: Host,
        host: Host,
        seen: _Seen,
        surveyor: Surveyor,
        answer: NvmlAnswer,
        with_serials: bool,
    ):
        #: What was read of it, others asked for; what is read for the keys is read of another look.
        self._looked_at = looked_at
        self._host = host
        self._seen = seen
        self._surveyor = surveyor
        self._answer = answer
        self._with_serials = with_serials
        self.chosen: list[PciFunction] = []
        self.left_out: tuple[str, ...] = ()

    def mapping(self, with_all: bool) -> dict[str, Any]:
        """Return the description, and remember of which functions."""
        host = self._host
        everything = list(host.functions)
        wanted = {each.name for each in everything} if with_all else self._wanted()
        self.chosen = [each for each in everything if each.name in wanted]
        others = len(everything) - len(self.chosen)
        if others:
            self.left_out = (f"{others} other PCI functions are left out; nothing depends on them",)
        functions, bridges = [], []
        for each in self.chosen:
            keys = self._of_function(each)
            is_bridge = keys["class"].startswith(BRIDGE)
            (bridges if is_bridge else functions).append(
                _keys.without_usual(keys) if is_bridge else keys
            )
        found = _keys.kernel(host)
        found |= _keys.nvml(self._answer, found.get("nvidia_driver"))
        if self._answer.state is State.ANSWERED:
            found |= self._listed(functions)
        if files := _keys.files_of_options(self._surveyor.options):
            found["files"] = files
        if bridges:
            found["bridges"] = bridges
        return {"host": found | {"functions": functions}}

    def _of_function(self, each: PciFunction) -> dict[str, Any]:
        keys = _keys.function(self._host, each)
        said = self._answer.gpu(each.address) if self._answer.gpus else None
        if said is not None and each.name.endswith(".0"):
            keys["nvml"] = _keys.gpu(said, self._with_serials)
        for path, function in readable(lambda: list(self._host.tsm.streams())) or ():
            match = _STREAM.search(path)
            if function == each.name and match:
                keys["tsm"] = match[1]
        return keys

    def _listed(self, functions: list[dict[str, Any]]) -> dict[str, Any]:
        """Return which GPUs NVML lists, where these are not all that are bound to nvidia."""
        bound = {
            each["address"]
            for each in functions
            if each["vendor"] == "10de"
            and each.get("driver") == "nvidia"
            and "physfn" not in each
            and each["class"].startswith(("0300", "0302"))
        }
        listed = {str(each.address) for each in self._answer.gpus}
        return {} if listed == bound else {"nvml_lists": sorted(listed)}

    def _wanted(self) -> set[str]:
        """Return the functions on which anything depends that is said of a candidate."""
        host = self._host
        names = {each.function.name for each in self._seen.survey.assessments}
        for path, directory in _directories(self._looked_at).items():
            name = path.removeprefix(f"{DEVICES}/").partition("/")[0]
            # A walk of the bus reads the uevent of each.
            is_asked = directory._answers or directory._files.keys() - {"uevent"}
            if path.startswith(f"{DEVICES}/") and is_sysfs_name(name) and is_asked:
                names.add(name)
        for name in tuple(names):
            function = host.functions.get(name)
            if function is None:
                continue
            names |= {each.name for each in host.functions.in_slot_of(function)}
            names |= {*map(str, readable(lambda f=function: f.virtual_functions) or ())}
            physical = readable(lambda f=function: f.physical_function)
            names |= {str(physical)} if physical is not None else set()
        for name in tuple(names):
            function = host.functions.get(name)
            names |= {*(readable(lambda f=function: parents_of(f)) or ())} if function else set()
        return {name for name in names if host.functions.get(name) is not None}


def _directories(host: Host) -> dict[str, Directory]:
    """Return all directories of a host that were read, in a steady order."""
    return dict(sorted(host.tree._directories.items()))


def _corrected(
    host: Host,
    seen: _Seen,
    surveyor: Surveyor,
    mapping: dict[str, Any],
    lay: Layer,
    answer: NvmlAnswer,
) -> tuple[list[str], list[str]]:
    """Put into a description what else it has to say.

    Return what it cannot say, and whose assessment differs for all that.
    """
    for _round in range(_MOST_ROUNDS):
        with lay(mapping) as root:
            fake = Host(root)
            # What is said through NVML has keys of its own.
            fake.tree.nvml_answer = answer
            found = _look(fake, surveyor)
            compared = _Comparison(host, fake, root, mapping["host"])
            compared.run()
        if not compared.is_changed:
            break
    return compared.missing, _differing(seen, found)


def _differing(seen: _Seen, found: _Seen) -> list[str]:
    said = []
    for name in sorted({*seen.answers, *found.answers}):
        one, other = seen.answers.get(name), found.answers.get(name)
        if one is None or other is None:
            said.append(f"{name}: nothing is said of it {'on the host' if one is None else 'now'}")
        elif one != other:
            keys = [key for key in one if one[key] != other[key]]
            said.append(f"{name}: not the same as on the host: {', '.join(keys)}")
    return said


class _Comparison:
    """Compares a host with what its description makes, and says what is missing."""

    def __init__(self, host: Host, fake: Host, root: str, described: dict[str, Any]):
        self._host = host
        # What was not asked of a host is not compared, so questions of its own go elsewhere.
        self._apart = host.again()
        self._fake = fake
        self._root = root
        self._described = described
        self._functions = {
            each["address"]: each
            for key in ("functions", "bridges")
            for each in described.get(key, ())
        }
        self.is_changed = False
        self.missing: list[str] = []

    def run(self) -> None:
        """Compare all that was read of the host."""
        for name in self._functions:
            self._uevent(name)
        for path, directory in _directories(self._host).items():
            if self._is_apart(path):
                continue
            other = readable(lambda p=path: self._fake.tree.directory(p))
            if other is None:
                self._miss(path, "it cannot be reached there")
                continue
            for name in sorted(directory._files):
                if f"{path}/{name}" not in (COMMAND_LINE, BOOT_ID, MODULE_VERSION):
                    self._file(path, name, directory, other)
            for (ask, name), answer in sorted(directory._answers.items(), key=_by_name):
                self._answer(ask, path, name, answer, other)
        self._command_line()

    def _is_apart(self, path: str) -> bool:
        """Return whether a directory is of a function that is left out, or told of by keys."""
        name = path.removeprefix(f"{DEVICES}/").partition("/")[0]
        if path.startswith(f"{DEVICES}/"):
            return name not in self._functions
        return path.startswith("/sys/class/tsm") or path == "/sys/bus/pci/devices"

    def _uevent(self, name: str) -> None:
        one = self._host.functions.uevents.get(name)
        other = self._fake.functions.uevents.get(name)
        if isinstance(one, ReadError) or _same(one, other):
            return
        self._lay(f"{DEVICES}/{name}", "uevent", one)

    def _command_line(self) -> None:
        """Say the command line where it is not the usual one of such a host."""
        mine, theirs = (
            _keys.command_line(readable(lambda t=tree: t.text(COMMAND_LINE)) or "")
            for tree in (self._host.tree, self._fake.tree)
        )
        if mine != theirs:
            self._change(self._described, "cmdline", mine)

    def _file(self, path: str, name: str, directory: Directory, other: Directory) -> None:
        one = directory._files[name]
        if isinstance(one, ReadError):
            self._miss(f"{path}/{name}", str(one))
            return
        try:
            theirs = other.data(name)
        except ReadError:
            theirs = b"\0unreadable"
        if not _same(one, theirs):
            self._lay(path, name, one)

    def _answer(self, ask: Any, path: str, name: str, answer: Any, other: Directory) -> None:
        try:
            theirs = other._ask(ask, name)
        except ReadError:
            theirs = None
        if isinstance(ask, Head):
            if name == "config":
                self._config(path, answer, theirs)
            elif answer != theirs:
                self._lay(path, name, answer)
        elif ask is read_link:
            self._link(path, name, answer, theirs)
        elif ask is is_there and bool(answer) != bool(theirs):
            self._entry(path, name) if answer else self._remove(path, name)
        elif ask is list_names:
            self._names(path, name, answer, theirs)

    def _config(self, path: str, one: bytes | None, other: bytes | None) -> None:
        """Compare what is asked of a configuration space: whose it is, and whether it answers."""
        if one is None or other is None:
            if one != other:
                self._remove(path, "config") if one is None else self._set(
                    path, "config", one.hex()
                )
            return
        if (one[:4], _is_dead(one), len(one)) != (other[:4], _is_dead(other), len(other)):
            self._set(path, "config", "dead" if _is_dead(one) else one.hex())

    def _link(self, path: str, name: str, one: str | None, other: str | None) -> None:
        def last(target: str | None) -> str:
            return (target or "").rstrip("/").rpartition("/")[2]

        if one is None and other is not None:
            self._remove(path, name)
        elif last(one) != last(other):
            self._miss(f"{path}/{name}", f"it is a link to {last(one)}")

    def _names(self, path: str, name: str, one: Any, other: Any) -> None:
        here = f"{path}/{name}" if name else path
        if here.startswith("/sys/bus/pci/drivers"):
            return
        if (one is None) != (other is None):
            if one is None:
                self._remove(path, name)
            else:
                self._entry(path, name)
            return
        mine, theirs = self._telling(here, one or ()), self._telling(here, other or ())
        if here == GROUPS and mine and theirs:
            return
        for each in sorted(mine - theirs):
            self._entry(here, each)
        for each in sorted(theirs - mine):
            self._remove(here, each)

    def _telling(self, path: str, names: Iterable[str]) -> set[str]:
        """Return the names of a directory that anybody asks for."""
        found = {name for name in names if name != _KEEP}
        if path.startswith(f"{DEVICES}/") and path.count("/") == DEVICES.count("/") + 1:
            return set(filter(_TELLING.fullmatch, found))
        if path == FIRMWARE_TABLES:
            return found & _TABLES
        if path == MODULES:
            return set(filter(_keys.MODULES_THAT_MATTER.fullmatch, found))
        if path.startswith(f"{GROUPS}/"):
            return {each for each in found if not is_sysfs_name(each) or each in self._functions}
        return found

    def _lay(self, path: str, name: str, data: bytes | None) -> None:
        """Let a file hold something, or be absent."""
        if data is None:
            self._remove(path, name)
            return
        text = _text(data)
        if text is None:
            self._miss(f"{path}/{name}", "what it holds is no text")
        else:
            self._put(path, name, text)

    def _entry(self, path: str, name: str) -> None:
        """Let an entry be there, whatever it is."""
        here = f"{path}/{name}".rstrip("/")
        if not name:
            path, _, name = path.rpartition("/")
        is_directory = readable(lambda: self._apart.tree.directory(here).names()) is not None
        self._put(path, f"{name}/{_KEEP}" if is_directory else name, "")

    def _remove(self, path: str, name: str) -> None:
        """Let an entry be absent, and all that is below it."""
        if not name:
            path, _, name = path.rpartition("/")
        directory = readable(lambda: self._fake.tree.directory(path))
        real = f"{directory.real}/{name}" if directory is not None else ""
        self._put(path, name, None)
        if os.path.isdir(real) and not os.path.islink(real):
            for above, folders, files in sorted(os.walk(real)):
                for each in sorted((*folders, *files)):
                    self._put(path, os.path.relpath(f"{above}/{each}", directory.real), None)

    def _put(self, path: str, name: str, text: str | None) -> None:
        """Say what one file holds, by its key where it has one."""
        address, _, rest = path.removeprefix(f"{DEVICES}/").partition("/")
        if path == MODULES and name.endswith(f"/{_KEEP}"):
            self._change(self._modules, name.partition("/")[0], {})
            return
        if (module := _PARAMETERS.fullmatch(path)) and text is not None and "\n" not in text:
            self._change(self._modules.setdefault(module[1], {}), name, text)
            return
        if not path.startswith(f"{DEVICES}/"):
            self._change(self._described.setdefault("files", {}), f"{path}/{name}", text)
            return
        file = f"{rest}/{name}" if rest else name
        function = self._functions[address]
        if text is not None and file in _KEYS_OF_FILES and not function.get(_KEYS_OF_FILES[file]):
            function[_KEYS_OF_FILES[file]] = text
            self.is_changed = True
        elif file == "reset" and text is None and function.get("reset_method", "") is not None:
            self._change(function, "reset_method", None)
        elif file == "resource" and "bars" not in function and (bars := self._bars(address)):
            self._change(function, "bars", bars)
        else:
            if file == "resource":
                function.pop("bars", None)
            if file.startswith(_FPGA_FOLDERS):
                # Numbered otherwise than the keys would; said file by file.
                function.pop("fpga", None)
            self._change(function.setdefault("attributes", {}), file, text)

    def _bars(self, address: str) -> list[dict[str, Any]]:
        """Return a function's registers as a description says them; nothing where it cannot."""
        function = self._apart.functions.get(address)
        regions = readable(lambda: function.regions) if function else ()
        found = []
        for region in regions or ():
            if region.size <= 0:
                return []
            bar: dict[str, Any] = {"index": region.number, "size": _size(region.size)}
            found.append(bar | ({"unassigned": True} if region.is_unassigned else {}))
        return found

    @property
    def _modules(self) -> dict[str, Any]:
        return self._described.setdefault("modules", {})

    def _set(self, path: str, key: str, value: Any) -> None:
        self._change(self._functions[path.removeprefix(f"{DEVICES}/")], key, value)

    def _change(self, where: dict[str, Any], key: str, value: Any) -> None:
        if key not in where or where[key] != value:
            where[key] = value
            self.is_changed = True

    def _miss(self, path: str, why: str) -> None:
        self.missing.append(f"{path} is not described: {why}")


def _by_name(item: tuple[tuple[Any, str], Any]) -> tuple[str, str]:
    (ask, name), _answer = item
    return name, str(getattr(ask, "size", ask))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bytes) and isinstance(other, bytes):
        return one.rstrip(b"\n") == other.rstrip(b"\n")
    return one is other or (one is None and other is None)


def _is_dead(data: bytes) -> bool:
    return bool(data) and not data.strip(b"\xff")


def _text(data: bytes) -> str | None:
    """Return what a file holds as a description says it, ``None`` where it cannot."""
    if len(data) > PAGE:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text.removesuffix("\n") if text.count("\n") == 1 else text


def _size(size: int) -> str:
    for unit, shift in (("T", 40), ("G", 30), ("M", 20), ("K", 10)):
        if not size % (1 << shift):
            return f"{size >> shift}{unit}"
    return str(size)
