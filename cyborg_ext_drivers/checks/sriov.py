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

"""What SR-IOV does to a card, and drivers that keep a function for themselves.

A card is one device whose control path is the physical function.  With virtual functions enabled
they are what instances get, each for itself, and the physical function is not.
"""

from collections.abc import Iterator

from cyborg_ext_drivers.address import PciAddress
from cyborg_ext_drivers.checks.base import Check, Code, Finding, Passed, Severity, Surroundings
from cyborg_ext_drivers.errors import ReadError
from cyborg_ext_drivers.families.base import Accelerator
from cyborg_ext_drivers.host.pci import DEVICES, PciFunction

VFS_ENABLED = Code(
    "vfs-enabled",
    Severity.BLOCKER,
    "Virtual functions are enabled on the card",
    "vfio-pci refuses a physical function that has virtual functions "
    "(drivers/vfio/pci/vfio_pci_core.c), so the card cannot be given away whole. Those of its "
    "virtual functions that can be attached are given away instead, if there are any.",
    "Disable the virtual functions (write 0 to sriov_numvfs, or NVIDIA's sriov-manage -d) to offer "
    "the whole card",
)
VF_COUNT_MISMATCH = Code(
    "vf-count-mismatch",
    Severity.BLOCKER,
    "The card and its virtual functions do not agree",
    "A physical function names its virtual functions (virtfnN) and each of them names it (physfn). "
    "Where only one side says so, or there are more than the card can have, they are being made "
    "or taken away, or something is wrong; what is not certain is not given away.",
    "Wait for the driver of the physical function to finish, then disable the virtual functions "
    "and enable them again",
)
VFS_EXPECTED = Code(
    "vfs-expected",
    Severity.BLOCKER,
    "The card should have virtual functions and has none",
    "vfs_expected in [ext_drivers] of cyborg.conf says that this card is to be divided, so it is "
    "not given away whole while there are no virtual functions, as after a boot.",
    "Enable its virtual functions, or take the card out of vfs_expected",
)
OWNED_BY_HOST_DRIVER = Code(
    "owned-by-host-driver",
    Severity.BLOCKER,
    "A virtualisation driver of the host owns the physical function",
    "A driver such as gim makes virtual functions of the card and serves them for as long as "
    "instances use them. It does not let go of the physical function, with virtual functions or "
    "without.",
    "Enable virtual functions through that driver to offer them, or unload it to offer the card "
    "whole",
)
SET_ASIDE = Code(
    "set-aside",
    Severity.BLOCKER,
    "The operator has set the function aside",
    "It is bound to a driver whose only purpose is to keep every other driver away.",
    "Unbind it from that driver to offer it",
)

_ASIDE_DRIVERS = frozenset(("pci-stub", "pci-pf-stub", "pciback"))
# amd/MxGPU-Virtualization, gim_drv.c.
_HOST_DRIVERS = frozenset(("gim",))
# In one sentence; a card can have hundreds of virtual functions.
_MOST_NAMED = 4


class SriovCheck(Check):
    """No virtual functions on what is given away whole; nobody's but the instance's."""

    codes = (VFS_ENABLED, VF_COUNT_MISMATCH, VFS_EXPECTED, OWNED_BY_HOST_DRIVER, SET_ASIDE)
    precedence = 40

    def examine(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield what keeps the function from being given away."""
        function = accelerator.function
        yield _undivided(accelerator, surroundings)
        if function.driver in _HOST_DRIVERS:
            yield OWNED_BY_HOST_DRIVER.finding(
                function.address,
                f"The host's virtualisation driver {function.driver} owns it",
                (function.path_of("driver"), function.driver),
            )
        if function.driver in _ASIDE_DRIVERS:
            yield SET_ASIDE.finding(
                function.address,
                f"It is bound to {function.driver}, which keeps it from being used",
                (function.path_of("driver"), function.driver),
            )

    def examine_divided(
        self, accelerator: Accelerator, surroundings: Surroundings
    ) -> Iterator[Finding | Passed]:
        """Yield whether there are more virtual functions than the card can have."""
        if accelerator.inferred:
            return
        function = accelerator.function
        most, enabled = function.total_virtual_functions, function.virtual_functions
        path = function.path_of("sriov_totalvfs")
        if most is not None and len(enabled) > most:
            yield VF_COUNT_MISMATCH.finding(
                function.address,
                f"It has {len(enabled)} virtual functions, of {most}",
                (path, most),
            )
        else:
            yield Passed(VF_COUNT_MISMATCH, ((path, "absent" if most is None else most),))


def enabled_on(function: PciFunction, addresses: tuple[PciAddress, ...]) -> Finding:
    """Return the finding for a physical function that cannot be given away itself."""
    are = "s are" if len(addresses) > 1 else " is"
    return VFS_ENABLED.finding(
        function.address,
        f"{len(addresses)} virtual function{are} enabled on it",
        (function.path_of("virtfn0"), addresses[0]),
        remedy=_without_them(function),
    )


def as_meant(finding: Finding) -> Finding:
    """Return the same finding of a card of which the parts are given away, as they should be."""
    return finding._replace(
        lowered=Severity.INFO,
        remedy=f"Nothing is to be done while its parts are given away; {finding.remedy}",
    )


def _without_them(function: PciFunction) -> str:
    """Return how to disable virtual functions; gim makes its own and knows no sriov_numvfs."""
    try:
        driver = function.driver
    except ReadError:
        driver = None
    if driver in _HOST_DRIVERS:
        how = f"Unload {driver}, which takes them along"
    elif driver == "nvidia":
        # It has no sriov_configure (nv-pci.c of NVIDIA's driver).
        how = f"/usr/lib/nvidia/sriov-manage -d {function} disables them"
    else:
        how = f"echo 0 > {function.path_of('sriov_numvfs')} disables them"
    return f"{how}, if nothing uses them; the card is then offered whole, unless more is against it"


def disagreement(
    function: PciFunction, address: PciAddress, virtual: PciFunction | None
) -> Finding | None:
    """Return what is wrong with a virtual function that a physical one names.

    :raises ReadError: when it cannot be told.
    """
    path = f"{DEVICES}/{address}"
    if virtual is None:
        says, evidence = "is not on the bus", (path, "absent")
    elif virtual.physical_function != function.address:
        named = virtual.physical_function or "absent"
        says, evidence = "does not say so itself", (f"{path}/physfn", named)
    elif virtual.identity and virtual.identity.id.vendor != function.identity.id.vendor:
        says, evidence = "is of another vendor", (f"{path}/vendor", virtual.identity.id.vendor)
    else:
        return None
    return VF_COUNT_MISMATCH.finding(
        address, f"{function} names it as its virtual function, and it {says}", evidence
    )


def unnamed(function: PciFunction, names: tuple[str, ...]) -> Finding:
    """Return the finding for virtual functions that name a card which does not name them."""
    shown = ", ".join(names[:_MOST_NAMED]) + (" and others" if len(names) > _MOST_NAMED else "")
    verb = "names" if len(names) == 1 else "name"
    return VF_COUNT_MISMATCH.finding(
        function.address,
        f"{shown} {verb} it as the physical function, and not the other way round",
        (function.path_of("virtfn*"), "absent"),
    )


def _undivided(accelerator: Accelerator, surroundings: Surroundings) -> Finding | Passed:
    function = accelerator.function
    enabled = function.virtual_functions
    if enabled:
        return enabled_on(function, enabled)
    path = function.path_of("virtfn0")
    expected = surroundings.options.vfs_expected
    if accelerator.manager and not function.total_virtual_functions:
        # A virtual function, or a function of a card of several that cannot be divided itself.
        expected = ()
    for selector in expected:
        if selector.matches(function.address, accelerator.identity):
            return VFS_EXPECTED.finding(
                function.address,
                "It is to be divided, and has no virtual functions",
                ("[ext_drivers] vfs_expected", selector),
                (path, "absent"),
            )
    return Passed(VFS_ENABLED, ((path, "absent"),))
