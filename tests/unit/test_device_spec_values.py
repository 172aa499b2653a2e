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

"""A value of [pci] device_spec is parsed, or refused as Nova would refuse it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.checks.device_spec import InvalidDeviceSpec, parse
from cyborg_ext_drivers.host.identity import PciId

T4 = PciId("10de", "1eb8")
CARD = PciAddress.parse("0000:3b:00.0")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no JSON"),
        ("10de:1eb8", "no JSON"),
        ("{'vendor_id': '10de'}", "no JSON"),
        ('"0000:3b:00.0"', "neither an object nor a list"),
        ("null", "neither an object nor a list"),
        ('["0000:3b:00.0"]', "neither an object nor a list"),
        ("[[{}]]", "neither an object nor a list"),
        ('{"vendor_id": "nvidia"}', "nvidia"),
        ('{"vendor_id": 4318}', "4318"),
        ('{"vendor_id": null}', "None"),
        ('{"vendor_id": ""}', "hexadecimal"),
        ('{"product_id": "110de"}', "110de"),
        ('{"product_id": "-1"}', "-1"),
        ('{"address": "0000:3b:00.8"}', "'8'"),
        ('{"address": "0000:3b:20.0"}', "'20'"),
        ('{"address": "0000:100:00.0"}', "'100'"),
        ('{"address": "10000:3b:00.0"}', "'10000'"),
        ('{"address": "0:0000:3b:00.0"}', "no PCI address"),
        ('{"address": "gpu0"}', "gpu0"),
        ('{"address": "3b:00.0.0"}', "0.0"),
        ('{"address": ["0000:3b:00.0"]}', "neither a text nor an object"),
        ('{"address": 3}', "neither a text nor an object"),
        ('{"address": {"bus": "3[b"}}', "3[b"),
        ('{"address": {"bus": 3}}', "3"),
        ('{"address": {"bus": "a{4294967296}"}}', "a{4294967296}"),
    ],
)
def test_what_nova_would_refuse_is_named(text, named):
    with pytest.raises(InvalidDeviceSpec) as caught:
        parse(text)
    assert named in str(caught.value)
    assert repr(text) in str(caught.value)


def test_one_wrong_object_of_a_list_refuses_the_value():
    with pytest.raises(InvalidDeviceSpec, match="nvidia"):
        parse('[{"vendor_id": "10de"}, {"vendor_id": "nvidia"}]')


@pytest.mark.parametrize("text", ["[" * 100_000, '{"address": {"bus": "%s"}}' % ("(" * 20_000)])
def test_a_value_nested_too_deeply_is_refused(text):
    with pytest.raises(InvalidDeviceSpec):
        parse(text)


KEYS = st.sampled_from(
    ["address", "vendor_id", "product_id", "devname", "domain", "bus", "slot", "function"]
)
WORDS = st.one_of(
    st.text(max_size=12),
    st.text("0123456789abcdefx:.* ", max_size=14),
    st.text("0123456789abcdef.*+?|()[]{}^$\\-", max_size=10),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | WORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@given(JSON.map(json.dumps) | st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text):
    try:
        specs = parse(text)
    except InvalidDeviceSpec as error:
        assert repr(text) in str(error)
    else:
        assert all(spec.matches(CARD, T4) in (True, False) for spec in specs)
