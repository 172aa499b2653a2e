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

"""What device profiles can ask of a cloud: the one module that other rooms take it from.

``offers`` yields a mapping for each deployable, with the fields of an offer of this host, so
that what suggests and checks profiles need not know where it came from.
"""

from collections.abc import Iterator
from typing import Any

from cyborg_ext_drivers.cloud import picture as pictures
from cyborg_ext_drivers.cloud import reading
from cyborg_ext_drivers.cloud.asking import Cloud, CloudUnusable
from cyborg_ext_drivers.cloud.reading import Reader
from cyborg_ext_drivers.cloud.records import Profile

#: The keys of each offer.
FIELDS = (
    "host",
    "device_address",
    "device_name",
    "kind",
    "vendor",
    "model",
    "resource_class",
    "traits",
    "units",
)


def offers(cloud: Cloud) -> Iterator[dict[str, Any]]:
    """Yield what each deployable offers: the traits are those that Placement has.

    :raises CloudUnusable: when Cyborg or Placement does not answer what this needs.
    """
    reader = Reader(cloud)
    picture = pictures.Picture(
        devices=reader.part("devices", reading.devices),
        deployables=reader.part("deployables", reading.deployables),
        profiles=None,
        requests=None,
        providers=None,
        traits=None,
        classes=None,
        services=None,
        hypervisors=None,
        flavors=None,
    )
    known = reader.part("traits", reading.names, "traits")
    picture.traits = None if known is None else frozenset(known)
    picture.device_of = pictures._join(picture.devices or (), picture.deployables or ())
    found = picture.deployables or []
    pictures.ask_who_has(reader, picture, {trait for each in found for trait in each.traits})
    if reader.unknown:
        raise CloudUnusable(f"What the cloud has is not known. {reader.unknown[0]}")
    for each in found:
        device = picture.device_of.get(each.uuid)
        traits = [t for t in each.traits if each.provider in picture.holders.get(t, ())]
        values = (
            picture.host_of(each),
            each.address,
            each.name,
            device.type if device else "",
            device.vendor if device else "",
            device.model if device else None,
            each.resource_class or "",
            tuple(traits),
            each.accelerators,
        )
        yield dict(zip(FIELDS, values))


def profile(cloud: Cloud, name: str) -> Profile | None:
    """Return a device profile of the cloud by its name, ``None`` when there is none.

    :raises NotAnswered: when Cyborg does not answer.
    """
    return next((each for each in reading.profiles(cloud) if each.name == name), None)
