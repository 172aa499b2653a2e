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

"""The options of ``[ext_drivers]`` in cyborg.conf; the only place that registers options."""

import os

from oslo_config import cfg

from cyborg_ext_drivers.errors import ConfigurationError
from cyborg_ext_drivers.options import Options

GROUP = cfg.OptGroup(
    "ext_drivers",
    title="Options of cyborg-ext-drivers",
    help="What the drivers of cyborg-ext-drivers report, and where they look.",
)

_DEFAULTS = Options()
OPTIONS = [
    cfg.StrOpt(
        "host_root",
        default=_DEFAULTS.host_root,
        help="The directory below which sys/, proc/, etc/ and dev/ of the host are found. "
        "Another value than / is for containers that see the host's files elsewhere and for "
        "looking at a copy of a host. It must be an absolute path of an existing directory.",
    ),
    cfg.StrOpt(
        "catalog_dir",
        default=_DEFAULTS.catalog_dir,
        help="The directory with catalogue files (*.yaml) of your own, below host_root. They "
        "say what PCI ids are that the package does not know, and win over what it knows. A "
        "file that breaks the schema is left out and named in the log.",
    ),
]


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator."""
    return [(GROUP, OPTIONS)]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options known to *conf*; doing it again changes nothing."""
    conf.register_group(GROUP)
    conf.register_opts(OPTIONS, group=GROUP)


def load(conf: cfg.ConfigOpts) -> Options:
    """Return the operator's decisions.

    :raises ConfigurationError: when a value cannot be used; names option and value.
    """
    register(conf)
    values = {option.dest: _value(conf, option) for option in OPTIONS}
    for name in ("host_root", "catalog_dir"):
        if not os.path.isabs(values[name]):
            raise ConfigurationError(name, values[name], "write an absolute path, such as /")
    if not os.path.isdir(values["host_root"]):
        raise ConfigurationError("host_root", values["host_root"], "there is no such directory")
    return Options(**values)


def _value(conf: cfg.ConfigOpts, option: cfg.Opt):
    try:
        return conf[GROUP.name][option.dest]
    except (cfg.ConfigFileValueError, ValueError) as error:
        # oslo.config's own text names the file and the value.
        raise ConfigurationError(option.dest, _raw(conf, option), str(error)) from None


def _raw(conf: cfg.ConfigOpts, option: cfg.Opt) -> str:
    """Return the text that the operator wrote, for the message."""
    try:
        namespace = conf._namespace
        return str(namespace._get_value([(GROUP.name, option.dest)], multi=False)[0])
    except (AttributeError, KeyError, TypeError):
        return "(not readable)"
