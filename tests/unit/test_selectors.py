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

"""A selector selects the cards that it names, or is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.host.identity import Identity, PciClass, PciId
from cyborg_ext_drivers.options import InvalidSelector, Selector

T4 = PciAddress(0, 0x3B, 0, 0)
T4_IDENTITY = Identity(PciClass("030200"), PciId("10de", "1eb8"), PciId("10de", "12a2"))


@pytest.mark.parametrize(
    "text",
    [
        "0000:3b:00.0",
        "3b:00.0",
        "0000:3B:00.0",
        "0000:3b:*",
        "0000:*:00.0",
        "*:3b:00.?",
        "0000:3[a-c]:00.0",
        "10de:1eb8",
        "10DE:1EB8",
        "10de:*",
        "*:1eb8",
        " 10de:1eb? ",
    ],
)
def test_selectors_of_a_card(text):
    assert Selector.parse(text).matches(T4, T4_IDENTITY)


@pytest.mark.parametrize(
    "text", ["0000:3b:00.1", "0001:3b:00.0", "0000:5e:*", "10de:1eb9", "1002:*", "*:3b:00.[1-7]"]
)
def test_selectors_of_other_cards(text):
    assert not Selector.parse(text).matches(T4, T4_IDENTITY)


@pytest.mark.parametrize("text", ["00000000:3B:00.0", "0:3b:0.0", "pci_0000_3b_00_0"])
def test_an_address_in_another_tools_spelling_selects_the_card_or_is_refused(text):
    # Doing neither would offer a card that exclude names.
    try:
        selector = Selector.parse(text)
    except InvalidSelector:
        return
    assert selector.matches(T4, T4_IDENTITY)


@given(
    st.builds(
        PciAddress,
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, 0xFF),
        st.integers(0, 0x1F),
        st.integers(0, 7),
    )
)
def test_every_address_selects_itself_and_no_other(address):
    selector = Selector.parse(str(address))
    assert str(selector) == str(address)
    assert selector.matches(address, T4_IDENTITY)
    assert selector.matches(T4, T4_IDENTITY) == (address == T4)


@given(st.text() | st.text("0123abcdef:.*?[]!-", max_size=20))
def test_any_text_is_a_selector_or_invalid(text):
    try:
        selector = Selector.parse(text)
    except InvalidSelector as error:
        assert repr(text) in str(error)
    else:
        assert selector.matches(T4, T4_IDENTITY) in (True, False)


@given(st.from_regex(r"([0-9a-f]{1,5}:){0,3}[0-9a-f]{1,5}\.[0-9a-f]{1,2}", fullmatch=True))
def test_a_selector_without_globs_names_a_function_or_is_refused(text):
    try:
        selector = Selector.parse(text)
    except InvalidSelector:
        return
    assert selector.matches(PciAddress.parse(text), T4_IDENTITY)
