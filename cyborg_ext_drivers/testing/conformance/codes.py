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

"""The violations that can be found: each a stable code, what Cyborg does, what it costs.

Checked against ``cyborg.conductor.manager`` of Cyborg 14 to 17 and Placement's API reference.
"""

import dataclasses
from typing import NamedTuple


class Code(NamedTuple):
    """One kind of violation."""

    name: str
    #: What the conductor, Placement or Nova does; one sentence.
    rule: str
    #: What it means for the operator; one sentence.
    consequence: str


@dataclasses.dataclass(frozen=True)
class Violation:
    """One violation, by one driver on one host."""

    code: str
    driver: str
    host: str
    evidence: str

    def as_dict(self) -> dict[str, str]:
        """Return it with rule and consequence, as JSON and YAML show it."""
        code = CODES[self.code]
        return {
            **dataclasses.asdict(self),
            "rule": code.rule,
            "consequence": code.consequence,
        }


_EMPTY = "The conductor takes an empty or shorter list for the truth and deletes what is not in it"
_BY_TEXT = (
    "The conductor matches devices by the text of cpid_info and handles by that of attach_info: "
    'JSON, the keys sorted, separators ", " and ": ", lower-case digits without 0x'
)
_BY_KEY = "The conductor compares attributes by their key"
_STEADY = "The conductor deletes what a report leaves out and rewrites what it spells otherwise"
_LIMITS = "Cyborg's database and objects have limits that the conductor does not check beforehand"
_NAMED = "The conductor computes the provider's UUID from the deployable's name alone"
_PROFILE = (
    "Cyborg's API takes CUSTOM_ traits in a device profile, and as resource class FPGA, GPU, "
    "PGPU, VGPU or CUSTOM_ ones"
)
_LOST = "Its devices and providers go, though the cards are there"
_FAILED = "The device, or the whole host's report, is not taken"
_MOVED = "Providers and traits come and go under running instances"

CODES = {
    code.name: code
    for code in (
        Code("empty-when-unlistable", _EMPTY, _LOST),
        Code("shorter-when-unreadable", _EMPTY, _LOST),
        Code("cpid-spelling", _BY_TEXT, "A change of driver or release makes each card a new one"),
        Code("handle-spelling", _BY_TEXT, "A change of driver or release makes each handle new"),
        Code("cpid-repeated", "The conductor drops the second device of one cpid_info", _LOST),
        Code(
            "positional-trait-key",
            _BY_KEY,
            "When the order changes, Placement loses traits that Cyborg still shows",
        ),
        Code(
            "attribute-repeated", _BY_KEY, "All but the first of one key are overlooked ever after"
        ),
        Code(
            "attribute-becomes-trait",
            "The conductor sends an attribute that is neither rc nor trait... to Placement as a "
            "trait when it appears later",
            "Placement answers HTTP 400 and the whole host's report fails",
        ),
        Code("report-unsteady", _STEADY, _MOVED),
        Code("report-follows-driver", _STEADY, _MOVED),
        Code("report-follows-power", _STEADY, _MOVED),
        Code("report-follows-reading", _STEADY, _MOVED),
        Code(
            "held-device-stops-report",
            "The conductor deletes a device that is not reported, and Placement refuses with HTTP "
            "409 while an instance holds it",
            "The whole host's report fails, cycle after cycle, until the instance is gone",
        ),
        Code(
            "accelerators-unlike-handles",
            "Placement's inventory is num_accelerators, and each instance takes one attach handle",
            "Instances are scheduled that get no handle, or handles are never given away",
        ),
        Code("field-unset", "The conductor reads every field of every object", _FAILED),
        Code("text-too-long", _LIMITS, _FAILED),
        Code("device-type-unknown", _LIMITS, _FAILED),
        Code("attach-type-unknown", _LIMITS, _FAILED),
        Code(
            "trait-form", "Placement takes CUSTOM_[A-Z0-9_]+ and the traits of os-traits", _FAILED
        ),
        Code(
            "no-resource-class",
            "The conductor takes the first attribute rc as the resource class, and cleans up "
            "a device that has none",
            "The card is never offered: Cyborg adds and removes it in every cycle",
        ),
        Code("name-without-host", _NAMED, "Two hosts may fight for one provider"),
        Code("name-not-unique", _NAMED, "Two hosts fight for one provider, or one card is lost"),
        Code("resource-class-not-nameable", _PROFILE, "No instance can ask for the card"),
        Code("trait-not-nameable", _PROFILE, "No device profile can ask for what the trait says"),
        Code(
            "handle-repeated",
            "Cyborg gives every attach handle to an instance of its own",
            "Two instances get one PCI function, and the second fails to start",
        ),
        Code(
            "virtual-functions-beside-physical",
            "libvirt takes the physical function from its driver, and its virtual functions vanish",
            "The instance that gets the card takes away those of the others",
        ),
        Code("discovery-fails", "The agent reports nothing when one driver raises", _FAILED),
        Code("report-fails", "The agent logs what the conductor raises and starts anew", _FAILED),
        Code("report-not-taken", "The conductor drops what it cannot take, in its log", _FAILED),
        Code(
            "idle-report-writes",
            "The conductor writes only what differs from what it knows",
            "Load on Placement in every cycle, and providers that change generation",
        ),
        Code("traits-differ", "Nova schedules on Placement's traits, not Cyborg's", _MOVED),
    )
}
