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

"""What the packaged catalogue promises: the traits of every card that it knows.

``traits.txt`` has a line for each: id, subsystem and revision where they decide, traits in
their order.  It is append-only, as device profiles in running clouds rely on it.
"""

import importlib
import inspect
import pathlib
import pkgutil
import tempfile
from collections.abc import Iterator

from cyborg_ext_drivers import catalog, families
from cyborg_ext_drivers.families.base import Family
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.host.pci import DEVICES
from cyborg_ext_drivers.survey import Surveyor

FILE = pathlib.Path(__file__).with_name("traits.txt")
#: Decides nothing: no entry of the catalogue has it.
_OTHER_SUBSYSTEM = "ffff:0000"


def packaged() -> catalog.Catalog:
    """Return the package's own catalogue, without the files of other packages."""
    return catalog.Catalog(catalog.packaged())


def lines() -> dict[str, str]:
    """Return the traits of each card, by what decides them, as the survey gives them now."""
    cards = dict(_cards())
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        names = {
            _lay(root, number, entry, revision): label
            for number, (label, (entry, revision)) in enumerate(cards.items())
        }
        surveyor = Surveyor(families=_families(), checks=(), catalog=packaged())
        found = {
            names[assessment.function.name]: " ".join(deployable.traits)
            for assessment in surveyor.survey(Host(root)).reported
            for deployable in assessment.deployables
        }
    return {label: found[label] for label in cards if label in found}


def kept() -> dict[str, str]:
    """Return the traits of each card, by what decides them, as they were promised."""
    promised = {}
    for line in FILE.read_text().splitlines():
        label, _, traits = line.partition(" OWNER_CYBORG")
        assert label not in promised, f"{label} stands twice in {FILE.name}"
        promised[label] = f"OWNER_CYBORG{traits}"
    return promised


def append() -> list[str]:
    """Add the cards that are new to the file and return their lines; the others stay."""
    promised = kept() if FILE.exists() else {}
    new = [f"{label} {traits}" for label, traits in lines().items() if label not in promised]
    with FILE.open("a") as file:
        file.writelines(f"{line}\n" for line in new)
    return new


def _cards() -> Iterator[tuple[str, tuple[dict, str | None]]]:
    """Yield each entry, once for each revision that decides, with its label in the file."""
    for entry in packaged().entries():
        label = " ".join(filter(None, (entry["id"], entry.get("subsystem"))))
        yield label, (entry, None)
        for revision in entry.get("revisions", ()):
            yield f"{label} {revision}", (entry, revision)


def _families() -> tuple[Family, ...]:
    """Return the package's own families, whether it is installed or not."""
    for module in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{families.__name__}.{module.name}")
    own = (each for each in _below(Family) if each.__module__.startswith(families.__name__))
    return tuple(family() for family in sorted(own, key=lambda family: family.name))


def _below(kind: type[Family]) -> Iterator[type[Family]]:
    """Yield the classes below one that can be made, at any depth."""
    for each in kind.__subclasses__():
        if not inspect.isabstract(each):
            yield each
        yield from _below(each)


def _lay(root: pathlib.Path, number: int, entry: dict, revision: str | None) -> str:
    """Lay the card out as the kernel shows it and return its address."""
    slot = f"{number >> 8:04x}:{number & 0xFF:02x}:00"
    if entry.get("role") == "mgmt":
        vendor = entry["id"].partition(":")[0]
        _lay_function(root, f"{slot}.1", {**entry, "id": f"{vendor}:{entry['pair_device']}"}, None)
    return _lay_function(root, f"{slot}.0", entry, revision)


def _lay_function(root: pathlib.Path, name: str, entry: dict, revision: str | None) -> str:
    vendor, device = entry["id"].upper().split(":")
    subsystem = entry.get("subsystem", _OTHER_SUBSYSTEM).upper()
    code = entry.get("class", "0302").ljust(6, "0").upper()
    directory = root / "sys/devices/pci0000:00" / name
    directory.mkdir(parents=True)
    (directory / "uevent").write_text(
        f"PCI_CLASS={code.lstrip('0')}\nPCI_ID={vendor}:{device}\nPCI_SUBSYS_ID={subsystem}\n"
    )
    if revision:
        (directory / "revision").write_text(f"0x{revision}\n")
    bus = root / DEVICES.lstrip("/")
    bus.mkdir(parents=True, exist_ok=True)
    (bus / name).symlink_to(f"../../../devices/pci0000:00/{name}")
    return name
