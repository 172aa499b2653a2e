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

"""What ``cloud check`` can say: kinds of broken links, and one of them with its evidence.

As in :mod:`cyborg_ext_drivers.checks.findings`, codes are public and never renamed, and title,
explanation and remedy are written once.
"""

from typing import NamedTuple

from cyborg_ext_drivers.checks.findings import Evidence, Severity

#: Whose link is broken.
CYBORG, PLACEMENT, NOVA = "Cyborg", "Placement", "Nova"
PROFILE, FLAVOR = "the profile", "the flavor"


_OF_PLACEMENT = ("resource ", "trait ", "allocation ")


def _whole(command: str) -> str:
    """Return a command with Placement's version: osc-placement asks with 1.0, which knows little.

    1.29 is the newest that each osc-placement since Train has, and has all options used here.
    """
    words = command.removeprefix("openstack ")
    if words.startswith(_OF_PLACEMENT):
        return f"openstack --os-placement-api-version 1.29 {words}"
    return command


class CloudCode(NamedTuple):
    """One kind of broken link: ``trait-not-in-placement``."""

    name: str
    project: str
    severity: Severity
    title: str
    explanation: str
    remedy: str

    def finding(
        self,
        subject: str,
        message: str,
        *evidence: tuple[str, object],
        commands: tuple[str, ...],
        host: str | None = None,
        severity: Severity | None = None,
    ) -> "CloudFinding":
        """Return a finding of this kind; *commands* only look."""
        shown = tuple(Evidence(path, str(value)) for path, value in evidence)
        whole = tuple(_whole(command) for command in commands)
        return CloudFinding(self, severity or self.severity, subject, host, message, shown, whole)

    def __str__(self) -> str:
        return self.name


class CloudFinding(NamedTuple):
    """A broken link."""

    code: CloudCode
    severity: Severity
    #: The host, device, deployable, provider, profile or flavor, by name or UUID.
    subject: str
    host: str | None
    message: str
    evidence: tuple[Evidence, ...]
    #: Command lines that show the same to an operator.
    commands: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        """Whether it keeps something from being scheduled."""
        return self.severity is not Severity.INFO


_BLOCKER, _WARNING = Severity.BLOCKER, Severity.WARNING

AGENT_NEVER_REPORTED = CloudCode(
    "agent-never-reported",
    CYBORG,
    _BLOCKER,
    "Cyborg knows no device of the host",
    "Cyborg's API does not list its agents; that none has reported is seen from Cyborg having no "
    "device of a host that Nova knows. Without --host it is said only when Cyborg has no device "
    "at all, as most hosts have no accelerators",
    "On the host look at the log of cyborg-agent, and run cyborg-ext-diagnose host",
)
PROVIDER_NAME_DIFFERS = CloudCode(
    "provider-name-differs",
    CYBORG,
    _BLOCKER,
    "Cyborg's agent reports below another name than the hypervisor's",
    "Nova names a host's resource provider by hypervisor_hostname; Cyborg's agent looks for a "
    "provider by its own host name. Where they differ nothing can be reported, or what was "
    "reported hangs below a provider that Nova does not schedule on",
    "Set [agent] resource_provider_name in the host's cyborg.conf to the hypervisor's name, or, "
    "before Cyborg 16, [DEFAULT] host; then restart cyborg-agent",
)
PROVIDER_MISSING = CloudCode(
    "provider-missing",
    PLACEMENT,
    _BLOCKER,
    "A deployable has no resource provider",
    "Cyborg's database holds a deployable whose provider Placement does not have, so nothing can "
    "be scheduled on it; Cyborg makes a provider only when a deployable is new",
    "Free the device, have its driver report nothing once (leave it out of [agent] "
    "enabled_drivers and restart cyborg-agent), then everything again",
)
TRAIT_NOT_IN_PLACEMENT = CloudCode(
    "trait-not-in-placement",
    PLACEMENT,
    _BLOCKER,
    "Cyborg's database has a trait that Placement has not",
    "The scheduler asks Placement alone. Cyborg sends a trait when its attribute is new, and "
    "never looks again: one that was removed or lost later stays away",
    "Add the trait to the provider with openstack resource provider trait set, which replaces "
    "all traits and so has to name those it has as well",
)
INVENTORY_MISSING = CloudCode(
    "inventory-missing",
    PLACEMENT,
    _BLOCKER,
    "The provider of a deployable has no inventory",
    "Cyborg's database has accelerators of the deployable, and Placement nothing to give of its "
    "provider. Cyborg sends an inventory when the deployable is new, and not again",
    "Give the provider its inventory again with openstack resource provider inventory class set: "
    "as total what Cyborg tells as num_accelerators",
)
ALLOCATED_WITHOUT_REQUEST = CloudCode(
    "allocated-without-request",
    PLACEMENT,
    _WARNING,
    "Placement has something allocated that no accelerator request holds",
    "An instance whose flavor asks for the class by itself takes it without Cyborg; an allocation "
    "can outlive a request that was deleted; and for a moment each instance that is being built "
    "looks so",
    "Look once more in a minute; then see whose the allocation is, and where that instance does "
    "not exist any more, openstack resource provider allocation delete",
)
INVENTORY_USED_UP = CloudCode(
    "inventory-used-up",
    PLACEMENT,
    _BLOCKER,
    "All that could satisfy the profile is in use",
    "There are devices with the traits and the class that the profile asks for, and instances "
    "hold all of them. Said as information where no profile was asked about by name",
    "Add devices, or wait; where cloud arqs shows left-over requests, those hold devices too",
)
INVENTORY_RESERVED = CloudCode(
    "inventory-reserved",
    PLACEMENT,
    _BLOCKER,
    "The inventory of an enabled device is reserved",
    "Placement gives away total minus reserved. Cyborg reserves all when a device is disabled "
    "and nothing when it is enabled; Cyborg has this one enabled",
    "Enable the device again (openstack accelerator device enable), which sets reserved to 0",
)
DEVICE_MAINTAINING = CloudCode(
    "device-maintaining",
    CYBORG,
    _WARNING,
    "The device is disabled",
    "An administrator has disabled it (status maintaining), so its inventory is reserved",
    "When the work on it is done: openstack accelerator device enable",
)
PROFILE_UNUSABLE = CloudCode(
    "profile-unusable",
    PROFILE,
    _BLOCKER,
    "Cyborg keeps the profile and cannot serve it",
    "A group asks for less than one, for no resource class or for several, or names what Placement "
    "takes no name for: Cyborg's API does not look at that when the profile is created",
    "See what to write with profile check; a profile cannot be changed, only replaced",
)
TRAIT_NOWHERE = CloudCode(
    "profile-trait-nowhere",
    PROFILE,
    _BLOCKER,
    "The profile asks for a trait that no provider has",
    "Neither Cyborg's database nor Placement has the trait on any device; or the profile forbids "
    "one that Placement does not know, and then Placement refuses the whole query",
    "Make a profile with a trait that is reported; a profile cannot be changed, only replaced",
)
CLASS_NOWHERE = CloudCode(
    "profile-class-nowhere",
    PROFILE,
    _BLOCKER,
    "The profile asks for a resource class that no device has",
    "A whole GPU is PGPU, a part of one VGPU; Cyborg's drivers report GPU no more",
    "Make a profile with a class that is reported",
)
GROUP_NOWHERE = CloudCode(
    "profile-group-nowhere",
    PROFILE,
    _BLOCKER,
    "No one device has all that a group of the profile asks for",
    "All traits, the class and the amount of one group are sought on one resource provider, which "
    "is one device; what only another device has does not count",
    "Split the group, or ask for less",
)
GROUPS_NOT_ON_ONE_HOST = CloudCode(
    "profile-groups-not-on-one-host",
    PROFILE,
    _BLOCKER,
    "Each group can be satisfied, but not all on one host",
    "An instance gets all groups of its profile from one host, and no host has enough for all",
    "Make a profile that asks for less, or move cards together",
)
NO_CANDIDATE = CloudCode(
    "no-candidate",
    PLACEMENT,
    _BLOCKER,
    "Placement has no candidate, and the reason was not found",
    "Devices satisfy the profile and are free as far as could be asked, and still Placement "
    "offers none of them",
    "Ask Placement with one trait or group after the other left out",
)
UNKNOWN_PROFILE = CloudCode(
    "profile-unknown",
    PROFILE,
    _BLOCKER,
    "There is no such device profile",
    "The profile asked about by name does not exist; names are case-sensitive",
    "Create it, or ask for one that openstack accelerator device profile list shows",
)
FLAVOR_UNKNOWN_PROFILE = CloudCode(
    "flavor-profile-unknown",
    FLAVOR,
    _BLOCKER,
    "The flavor names a device profile that does not exist",
    "Nova asks Cyborg for the profile by name when an instance is created, and the request fails",
    "Create the profile, or set accel:device_profile of the flavor to one that exists",
)
OWNER_CONFLICT = CloudCode(
    "owner-conflict",
    NOVA,
    _BLOCKER,
    "The same card belongs to Nova's PCI tracker and to Cyborg",
    "Nova reports the devices of [pci] device_spec to Placement itself where [pci] "
    "report_in_placement is set (trait COMPUTE_MANAGED_PCI_DEVICE, in some clouds OWNER_NOVA), "
    "Cyborg with OWNER_CYBORG; the same card can then be given to two instances",
    "Take the card out of [pci] device_spec in the host's nova.conf, or exclude it from Cyborg",
)
PROVIDER_LEFT_BEHIND = CloudCode(
    "provider-left-behind",
    PLACEMENT,
    _WARNING,
    "Placement has a provider of accelerators whose host or device is gone",
    "It still counts as capacity, and an instance scheduled there fails",
    "When nothing is allocated from it: openstack resource provider delete",
)
HYPERVISOR_MISSING = CloudCode(
    "hypervisor-missing",
    NOVA,
    _BLOCKER,
    "nova-compute of a host with accelerators is up, and Nova lists no hypervisor of it",
    "nova-compute makes the record of its hypervisor, which the scheduler needs, when it starts; "
    "without it the host is passed over. The host is there, so what Placement has of it stays",
    "Restart nova-compute on the host and read its log",
)
COMPUTE_DOWN = CloudCode(
    "compute-service-down",
    NOVA,
    _BLOCKER,
    "nova-compute of a host with accelerators is down",
    "Nova's scheduler passes over a host whose nova-compute has not reported for a minute",
    "Start nova-compute on the host and read its log",
)
COMPUTE_DISABLED = CloudCode(
    "compute-service-disabled",
    NOVA,
    _WARNING,
    "nova-compute of a host with accelerators is disabled",
    "Nova's scheduler passes over a disabled host",
    "When the work on it is done: openstack compute service set --enable",
)

#: All of them, in the order of the chain.
CODES = (
    AGENT_NEVER_REPORTED,
    PROVIDER_NAME_DIFFERS,
    DEVICE_MAINTAINING,
    PROVIDER_MISSING,
    TRAIT_NOT_IN_PLACEMENT,
    INVENTORY_MISSING,
    INVENTORY_RESERVED,
    ALLOCATED_WITHOUT_REQUEST,
    INVENTORY_USED_UP,
    PROVIDER_LEFT_BEHIND,
    NO_CANDIDATE,
    OWNER_CONFLICT,
    COMPUTE_DOWN,
    COMPUTE_DISABLED,
    HYPERVISOR_MISSING,
    PROFILE_UNUSABLE,
    TRAIT_NOWHERE,
    CLASS_NOWHERE,
    GROUP_NOWHERE,
    GROUPS_NOT_ON_ONE_HOST,
    UNKNOWN_PROFILE,
    FLAVOR_UNKNOWN_PROFILE,
)
