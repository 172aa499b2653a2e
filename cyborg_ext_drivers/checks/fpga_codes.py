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

"""What is said of the FPGA on a card; none of it keeps the card from being attached.

Next stop: :mod:`cyborg_ext_drivers.checks.fpga`.
"""

from cyborg_ext_drivers.checks.base import Code, Severity

MANAGEMENT_FUNCTION = Code(
    "management-function",
    Severity.BLOCKER,
    "The function manages the card",
    "Through it the card is programmed and its flash is written, so whoever has it can change or "
    "break the card under the others who use it. It stays with the host; the card's other "
    "functions, or virtual functions, are given away.",
    "Nothing is to be done; leave it on the driver that programs the card",
)
FPGA_DRIVER_MISSING = Code(
    "fpga-driver-missing",
    Severity.WARNING,
    "No driver shows what is programmed into the card",
    "The card can be attached without it. But what is programmed into it cannot be told, so the "
    "traits of its function and region stay as they were, and Cyborg cannot program it.",
    "Load the card's driver on the host and bind the card to it",
)
FPGA_NO_AFU = Code(
    "fpga-no-afu",
    Severity.WARNING,
    "A port does not say which function is programmed into it",
    "A port that is empty, disabled, in reset or dead gives no id, or zeros, or ones. The card can "
    "be attached; it has the trait of the function that it last told, or none.",
    "Program the card, with Cyborg or fpgaconf, and look at the kernel log if that does not help",
)
FPGA_FUNCTIONS_DIFFER = Code(
    "fpga-functions-differ",
    Severity.WARNING,
    "The parts of the card have different functions",
    "Cyborg gives any of a provider's parts to whoever asks for it. Where they hold different "
    "functions, none of them can be promised by a trait.",
    "Program the same function into all of them to have its trait",
)
FPGA_REGION_UNKNOWN = Code(
    "fpga-region-unknown",
    Severity.WARNING,
    "The card does not say which images fit it",
    "The id of the interface for partial reconfiguration cannot be used. The card can be attached; "
    "it has the trait of the region that it last told, or none.",
    "Look at the path as the user of cyborg-agent, and at the kernel log for the card",
)
