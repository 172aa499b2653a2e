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

"""Each card that the catalogue knows, alone on a host, is reported as it was promised.

The checks run as they do in a cloud, unlike for the golden traits; so an entry that another
rule excludes, or whose family gives it a wrong resource class, is found here.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from cyborg_ext_drivers import catalog
from cyborg_ext_drivers.host import Host
from cyborg_ext_drivers.survey import Assessment, Surveyor
from cyborg_ext_drivers.testing import FakeHost
from tests import golden

ADDRESS = "0000:3b:00.0"
#: Resource classes of a whole card and of a part of one, by kind.
CLASSES = {"GPU": ("PGPU", "VGPU"), "AICHIP": ("CUSTOM_AICHIP", "CUSTOM_AICHIP")}
PROMISED = golden.kept()
#: Decides nothing: no entry of the catalogue has it.
_OTHER_SUBSYSTEM = "ffff:0000"
_SAYS_WHAT_IT_IS = ("uevent", "vendor", "device", "class")


class Card(NamedTuple):
    """An entry, or one of the revisions that it tells apart."""

    entry: dict
    revision: str | None = None

    def __str__(self) -> str:
        given = (self.entry["id"], self.entry.get("subsystem"), self.revision)
        return " ".join(filter(None, given))

    @property
    def is_virtual(self) -> bool:
        return self.entry.get("role") == "vf"

    @property
    def is_of_nvidia(self) -> bool:
        return self.entry["id"].startswith("10de:")

    def plug_in(self, fake: FakeHost, **more) -> None:
        vendor, device = self.entry["id"].split(":")
        class_ = self.entry.get("class", "0302" if self.entry["kind"] == "GPU" else "1200")
        fake.add_function(
            ADDRESS,
            vendor=vendor,
            device=device,
            class_=class_.ljust(6, "0"),
            subsystem=self.entry.get("subsystem", _OTHER_SUBSYSTEM),
            # None of the revisions that decide.
            revision=self.revision or "fe",
            **more,
        )

    def plug_in_divided(self, fake: FakeHost) -> str:
        """Plug it in with one virtual function, and return the address of that."""
        self.plug_in(fake, driver="driver_of_maker", sriov_totalvfs=1)
        virtual = fake.enable_virtual_functions(ADDRESS, 1, device=self.entry["vf_device"])
        return str(virtual[0])


def _cards() -> Iterator[Card]:
    for entry in catalog.load().entries():
        if entry["kind"] in CLASSES:
            yield Card(entry)
            yield from (Card(entry, revision) for revision in entry.get("revisions", ()))


CARDS = [card for card in _cards() if str(card) in PROMISED]
DIVISIBLE = [card for card in CARDS if "vf_device" in card.entry]


@pytest.fixture(scope="module")
def surveyor():
    return Surveyor()


def only_one(surveyor: Surveyor, fake: FakeHost) -> Assessment:
    (assessment,) = surveyor.survey(Host(fake.root)).assessments
    assert str(assessment.address) == ADDRESS
    return assessment


def shown(assessment: Assessment) -> tuple[str, str, list[str]]:
    """Return resource class, traits and handles of a card that is reported."""
    assert assessment.reason is None, assessment.reason
    (deployable,) = assessment.deployables
    assert str(deployable.address) == ADDRESS
    handles = [str(handle.address) for handle in deployable.handles]
    return deployable.resource_class, " ".join(deployable.traits), handles


def test_the_cards_are_those_that_were_promised():
    of_these_kinds = {
        label
        for label in PROMISED
        if any(f" CUSTOM_{kind}_" in f" {PROMISED[label]}" for kind in CLASSES)
    }
    assert {str(card) for card in CARDS} == of_these_kinds
    assert {card.entry["kind"] for card in CARDS} == CLASSES.keys()


@pytest.mark.parametrize("card", CARDS, ids=str)
def test_a_card_alone_on_a_host_is_reported_as_promised(card, surveyor):
    with FakeHost() as fake:
        card.plug_in(fake)
        found = only_one(surveyor, fake)
    if card.entry.get("integrated"):
        assert str(found.reason.code) == "integrated-gpu"
    else:
        resource_class = CLASSES[card.entry["kind"]][card.is_virtual]
        assert shown(found) == (resource_class, PROMISED[str(card)], [ADDRESS])


def test_every_virtual_function_is_one_of_a_card_that_is_tried_with_it():
    virtual = {card.entry["id"] for card in CARDS if card.is_virtual}
    assert virtual
    assert virtual <= {f"{c.entry['id'][:5]}{c.entry['vf_device']}" for c in DIVISIBLE}


@pytest.mark.parametrize("card", DIVISIBLE, ids=str)
def test_the_virtual_function_of_a_card_is_a_handle_with_the_traits_of_the_card(card, surveyor):
    with FakeHost() as fake:
        virtual = card.plug_in_divided(fake)
        found = only_one(surveyor, fake)
    if card.is_of_nvidia:
        assert str(found.reason.code) == "vfs-enabled"
    else:
        _whole, resource_class = CLASSES[card.entry["kind"]]
        assert shown(found) == (resource_class, PROMISED[str(card)], [virtual])


@pytest.mark.parametrize("card", [card for card in DIVISIBLE if not card.is_of_nvidia], ids=str)
def test_it_tells_which_card_it_is_of_where_that_cannot_be_looked_at(card, surveyor):
    with FakeHost() as fake:
        virtual = card.plug_in_divided(fake)
        for name in (*_SAYS_WHAT_IT_IS, "virtfn0"):
            fake.remove_attribute(ADDRESS, name)
        found = only_one(surveyor, fake)
    like_it = [c.entry["id"] for c in DIVISIBLE if c.entry["vf_device"] == card.entry["vf_device"]]
    if len(set(like_it)) > 1:
        assert str(found.reason.code) == "unreadable"
    else:
        _whole, resource_class = CLASSES[card.entry["kind"]]
        assert shown(found) == (resource_class, PROMISED[str(card)], [virtual])
