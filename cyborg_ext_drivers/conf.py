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

"""The options of ``[ext_drivers]`` in cyborg.conf; the only place that registers options.

The agent has read its cyborg.conf already (:func:`load`); the command reads the same files
itself (:func:`read`), whether Cyborg is installed or not.  What belongs to Cyborg is none of
our business, but for ``[agent] enabled_drivers``, ``[DEFAULT] host`` (with ``[api] host_ip``, to
which it may refer) and ``[pci] passthrough_whitelist``, which decide who reports a card, and
``[gpu_devices] enabled_vgpu_types`` with each ``[vgpu_<type>] device_addresses``, which decide
into what a card is divided.
"""

import dataclasses
import glob
import os
import re
import socket
from collections.abc import Iterable, Iterator, Sequence

from oslo_config import cfg, types

from cyborg_ext_drivers import traits
from cyborg_ext_drivers.address import InvalidAddress, PciAddress
from cyborg_ext_drivers.errors import ConfigurationError, ConfigurationFileError
from cyborg_ext_drivers.host.text import UnusableFile, read_text
from cyborg_ext_drivers.options import InvalidSelector, Options, Selector


class WholeNumber(types.Integer):
    """A number within limits; oslo.config's own error names neither it nor both limits."""

    def __call__(self, value: object) -> int:
        """Return the number.

        :raises ValueError: when it is none, or beyond the limits.
        """
        try:
            number = super().__call__(value)
        except ValueError:
            number = None
        if number is None:
            # Of an empty value oslo.config makes None.
            raise ValueError(f"{value!r} is none of the whole numbers {self.min} to {self.max}")
        return number


class Seconds(types.Float):
    """A time within limits; oslo.config takes NaN for one."""

    def __call__(self, value: object) -> float:
        """Return the seconds.

        :raises ValueError: when it is no number, or beyond the limits.
        """
        try:
            number = super().__call__(value)
        except ValueError:
            number = None
        if number is None or not self.min <= number <= self.max:
            raise ValueError(f"{value!r} is no number of seconds from {self.min} to {self.max}")
        return number


GROUP = cfg.OptGroup(
    "ext_drivers",
    title="Options of cyborg-ext-drivers",
    help="What the drivers of cyborg-ext-drivers report, and where they look.",
)

# A provider is named <host>_<PCI address> in at most 200 characters (Placement's API reference).
MOST_HOST_NAME = 200 - len("_0000:00:00.0")
# A week of the agent's minutes.
MOST_DISCOVERIES = 10080
# A week; fpgasupdate itself gives up after five hours.
MOST_SECONDS_TO_PROGRAM = 604800
_DEFAULTS = Options()
_SELECTORS = (
    "A selector is a PCI address (``0000:3b:00.0``, ``0000:3b:*``) or vendor:device "
    "(``10de:1eb8``, ``10de:*``), with globs."
)
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
        help="The directory with catalogue files (``*.yaml``) of your own, below host_root. They "
        "say what PCI ids are that the package does not know, and win over what it knows. A "
        "file that breaks the schema is left out and named in the log.",
    ),
    cfg.ListOpt(
        "include",
        default=[],
        help="Selectors of the accelerators to offer; empty offers all that can be attached. "
        + _SELECTORS,
    ),
    cfg.ListOpt(
        "exclude",
        default=[],
        help="Selectors of accelerators that are not offered, even if include names them. "
        + _SELECTORS,
    ),
    cfg.BoolOpt(
        "vfio_only",
        default=_DEFAULTS.vfio_only,
        help="Offer only accelerators that are bound to a vfio driver already, as set aside by "
        "the operator; others are left to the host. Cards that ``device_addresses`` of a vGPU type "
        "names stay with the host's driver and are offered nevertheless.",
    ),
    cfg.BoolOpt(
        "report_vendor_vfio",
        default=_DEFAULTS.report_vendor_vfio,
        help="Offer the virtual functions of NVIDIA's cards that have a type of vGPU in "
        "``nvidia/current_vgpu_type``. Nova attaches what Cyborg gives with managed='yes', and "
        "libvirt then tries to take such a function from the driver that serves it, so set this "
        "only where what attaches them does not do that.",
    ),
    cfg.ListOpt(
        "vfs_expected",
        default=[],
        help="Selectors of the cards that are to be divided by SR-IOV: while one has no virtual "
        "functions, as after a boot, it is not offered whole. " + _SELECTORS,
    ),
    cfg.MultiStrOpt(
        "resource_classes",
        default=[],
        help="Another resource class for some accelerators, as SELECTOR=CLASS: by default a whole "
        "GPU is PGPU and virtual functions of one are VGPU. FPGA, GPU, PGPU, VGPU and "
        "``CUSTOM_...`` can be named in a device profile. The option can be repeated; the first "
        "that matches counts. " + _SELECTORS,
    ),
    cfg.ListOpt(
        "ignore_findings",
        default=[],
        help="Codes of findings (cyborg-ext-diagnose codes) that you take upon yourself: they are "
        "still shown, but no longer keep an accelerator from being offered.",
    ),
    cfg.MultiStrOpt(
        "extra_traits",
        default=[],
        help="Traits of your own for some accelerators, as SELECTOR=TRAIT[,TRAIT...]. The option "
        "can be repeated. " + _SELECTORS,
    ),
    cfg.Opt(
        "withdraw_after",
        type=WholeNumber(min=1, max=MOST_DISCOVERIES),
        default=_DEFAULTS.withdraw_after,
        help="A card that stops qualifying is reported as it was for fewer than so many "
        "discoveries in a row (the agent makes one a minute) and then withdrawn; 1 withdraws it "
        "at once. One of which something cannot be read is not withdrawn for that.",
    ),
    cfg.StrOpt(
        "on_fault",
        default=_DEFAULTS.on_fault,
        choices=[
            ("withdraw", "withdraw it, as any other card"),
            ("keep", "go on reporting it, with the trait CUSTOM_ACCEL_FAULTY"),
        ],
        help="What is done after withdraw_after discoveries with a card that is on the bus and "
        "whose hardware is dead. Kept, it can be found by its trait, and a device profile can "
        "forbid that; withdrawn while an instance holds it, Cyborg cannot delete its provider "
        "and reports nothing of this host until the instance is gone.",
    ),
    cfg.BoolOpt(
        "report_serials",
        default=_DEFAULTS.report_serials,
        help="Tell Cyborg the serial numbers and UUIDs of cards, as far as the driver of a card "
        "tells them. Whoever may list devices through Cyborg's API sees them.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="$host_root/var/lib/cyborg/ext_drivers",
        sample_default=_DEFAULTS.state_dir,
        help="The directory in which each driver keeps what it has reported, so that a restart "
        "of the agent forgets nothing: /var/lib/cyborg/ext_drivers below host_root, unless it "
        "is set. The user of cyborg-agent must be able to write there; without that, what was "
        "reported is kept in memory only.",
    ),
    cfg.StrOpt(
        "nvml_library",
        default=_DEFAULTS.nvml_library,
        help="The path of NVIDIA's management library (libnvidia-ml.so.1) as the agent sees it; "
        "empty is what the dynamic loader finds. It is asked only while a card is bound to the "
        "driver nvidia, and of a host below host_root that is not the running machine only if "
        "this is set. What it says is shown by cyborg-ext-diagnose and completes the board "
        "information of a card; no card, attach handle or trait depends on it.",
    ),
    cfg.Opt(
        "nvml_timeout",
        type=Seconds(min=0.1, max=60),
        default=_DEFAULTS.nvml_timeout,
        help="For so many seconds an answer of NVIDIA's management library is waited for; it is "
        "asked in a process of its own, which is killed then.",
    ),
    cfg.Opt(
        "program_timeout",
        type=WholeNumber(min=1, max=MOST_SECONDS_TO_PROGRAM),
        default=_DEFAULTS.program_timeout,
        help="For so many seconds the tool of an FPGA's maker may write an image to a card; it is "
        "killed then, which leaves the card as far as it got. Cyborg's conductor waits for "
        "rpc_response_timeout seconds of its own.",
    ),
]
_CYBORG_OPTIONS = (
    (None, cfg.HostAddressOpt("host", default=socket.gethostname())),
    # The one option of Cyborg's that makes sense in another: host = ${api.host_ip}.
    ("api", cfg.HostAddressOpt("host_ip", default="127.0.0.1")),
    ("agent", cfg.ListOpt("enabled_drivers", default=["fake_driver"])),
    ("pci", cfg.MultiStrOpt("passthrough_whitelist", default=[])),
    ("gpu_devices", cfg.ListOpt("enabled_vgpu_types", default=[])),
)
# Equal to what cyborg.conf.devices registers in Cyborg 14 to 17, so that either may come first.
_DEVICE_ADDRESSES = cfg.ListOpt("device_addresses", default=[], item_type=types.String())
# <driver>-<number>; it becomes part of a path that the agent writes to as root.
_VGPU_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# As Nova declares it; nova/conf/pci.py.
_NOVA_DEVICE_SPEC = cfg.MultiStrOpt(
    "device_spec",
    default=[],
    deprecated_opts=[
        cfg.DeprecatedOpt("passthrough_whitelist", group="pci"),
        cfg.DeprecatedOpt("pci_passthrough_whitelist", group="DEFAULT"),
    ],
)
# What oslo.config reads for cyborg-agent and nova-compute.
_CYBORG_FILES = (
    "etc/cyborg/cyborg.conf",
    "etc/cyborg/cyborg-agent.conf",
    "etc/cyborg/cyborg.conf.d/*.conf",
    "etc/cyborg/cyborg-agent.conf.d/*.conf",
)
_NOVA_FILES = (
    "etc/nova/nova.conf",
    "etc/nova/nova-compute.conf",
    "etc/nova/nova.conf.d/*.conf",
    "etc/nova/nova-compute.conf.d/*.conf",
)
# nova.conf.sample, with all that may be set, has half a MiB.
_MOST_BYTES = 4 << 20


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator."""
    return [(GROUP, OPTIONS)]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options known to *conf*; doing it again changes nothing."""
    # A group object keeps what is overridden; a copy would share it.
    conf.register_group(cfg.OptGroup(GROUP.name, GROUP.title, GROUP.help))
    conf.register_opts(OPTIONS, group=GROUP.name)


def load(conf: cfg.ConfigOpts) -> Options:
    """Return the operator's decisions from a configuration that was read already.

    :raises ConfigurationError: when a value cannot be used; names option and value.
    """
    register(conf)
    values = {option.dest: _value(conf, option.dest) for option in OPTIONS}
    return Options(
        host_root=_directory(values["host_root"]),
        catalog_dir=_checked_path("catalog_dir", values["catalog_dir"]),
        include=_selectors("include", values["include"]),
        exclude=_selectors("exclude", values["exclude"]),
        vfio_only=values["vfio_only"],
        report_vendor_vfio=values["report_vendor_vfio"],
        vfs_expected=_selectors("vfs_expected", values["vfs_expected"]),
        resource_classes=tuple(map(_resource_class, values["resource_classes"])),
        ignore_findings=frozenset(values["ignore_findings"]),
        extra_traits=tuple(map(_extra_traits, values["extra_traits"])),
        withdraw_after=values["withdraw_after"],
        on_fault=values["on_fault"],
        report_serials=values["report_serials"],
        state_dir="/" + _checked_path("state_dir", values["state_dir"]).lstrip("/"),
        nvml_library=_library(values["nvml_library"]),
        nvml_timeout=values["nvml_timeout"],
        program_timeout=values["program_timeout"],
        enabled_drivers=_of_cyborg(conf, "agent", "enabled_drivers"),
        vgpu_types=_vgpu_types(conf),
        cyborg_device_specs=_of_cyborg(conf, "pci", "passthrough_whitelist") or (),
    )


def read(files: Sequence[str] | None = None, root: str = "/") -> cfg.ConfigOpts:
    """Return the configuration that cyborg-agent would read.

    :param files: configuration files; ``None`` for those of cyborg-agent below *root*.
    :raises ConfigurationFileError: when a file cannot be read or is no configuration file.
    """
    found = _existing(_CYBORG_FILES, root) if files is None else list(files)
    conf = cfg.ConfigOpts()
    register(conf)
    if found:
        for group, option in _CYBORG_OPTIONS:
            conf.register_opt(option, group=group)
    _parse(conf, found)
    return conf


def nova_device_specs(root: str = "/") -> tuple[str, ...]:
    """Return the values of ``[pci] device_spec`` that nova-compute would read below *root*.

    :raises ConfigurationFileError: when a file cannot be read or is no configuration file.
    """
    conf = cfg.ConfigOpts()
    conf.register_opt(_NOVA_DEVICE_SPEC, group="pci")
    files = _existing(_NOVA_FILES, root)
    _parse(conf, files)
    try:
        return tuple(conf.pci.device_spec)
    except (cfg.Error, ValueError) as error:
        raise ConfigurationFileError(", ".join(files), f"[pci] device_spec: {error}") from None


def with_nova(options: Options) -> Options:
    """Return the options with what nova.conf of the same host claims.

    :raises ConfigurationFileError: when a file of Nova's cannot be read.
    """
    specs = nova_device_specs(options.host_root)
    return dataclasses.replace(options, nova_device_specs=specs)


def absolute(path: str) -> str:
    """Return a path of the command line as the options want it."""
    return os.path.abspath(path)


def of_copy(options: Options) -> Options:
    """Return the options of a host that is looked at below ``host_root``, by someone else.

    What its agent calls ``/srv/state`` is below the root then, as all of its files.  The library
    that it asks is not to tell of this machine instead.
    """
    root = options.host_root.rstrip("/")
    if not options.nvml_library.startswith(f"{root}/"):
        options = dataclasses.replace(options, nvml_library="")
    if options.state_dir.startswith(f"{root}/"):
        return options
    return dataclasses.replace(options, state_dir=root + options.state_dir)


def hostname(conf: cfg.ConfigOpts) -> str:
    """Return ``[DEFAULT] host``, by which deployables are named.

    :raises ConfigurationError: when it refers to an option that there is not, or when the
        providers' names would be longer than Placement takes.
    """
    name = _name_of_host(conf)
    if not 0 < len(name) <= MOST_HOST_NAME:
        reason = (
            f"it has {len(name)} characters; allowed are 1 to {MOST_HOST_NAME}, because "
            "Placement's limit for the name of a provider, <host>_<PCI address>, is 200"
        )
        raise ConfigurationError("host", name, reason, "DEFAULT")
    return name


def _name_of_host(conf: cfg.ConfigOpts) -> str:
    if "host" not in conf:
        return socket.gethostname()
    try:
        return conf.host
    except cfg.ConfigFileValueError as error:
        reason = f"{error}; write a host name or an IP address, as Cyborg wants it"
    except (cfg.Error, ValueError) as error:
        # Of an option that host refers to, oslo.config says that host does not exist.
        cause = error.__context__ if isinstance(error, cfg.NoSuchOptError) else error
        reason = f"it refers to what has no value ({cause}); write the name out"
    raise ConfigurationError("host", None, reason, "DEFAULT")


def _parse(conf: cfg.ConfigOpts, files: list[str]) -> None:
    for path in files:
        # oslo.config waits for a FIFO, and says "not found" for what it may not read as well.
        try:
            read_text(path, _MOST_BYTES)
        except UnusableFile as error:
            raise ConfigurationFileError(path, error.reason, error.is_denied) from None
    try:
        conf([], default_config_files=files, default_config_dirs=[])
    except cfg.ConfigFileParseError as error:
        raise ConfigurationFileError(error.config_file, str(error.msg)) from None
    except (ValueError, cfg.Error) as error:
        raise ConfigurationFileError(", ".join(files), str(error)) from None


def _existing(patterns: Iterable[str], root: str) -> list[str]:
    found = (sorted(glob.glob(os.path.join(root, pattern))) for pattern in patterns)
    return [path for paths in found for path in paths]


def _of_cyborg(conf: cfg.ConfigOpts, group: str, option: str) -> tuple[str, ...] | None:
    if group not in conf or option not in conf[group]:
        return None
    return tuple(_value(conf, option, group))


def _vgpu_types(conf: cfg.ConfigOpts) -> tuple[tuple[PciAddress, str], ...]:
    """Return the type of vGPU that is to be at each address, in the order of the options."""
    names = _of_cyborg(conf, "gpu_devices", "enabled_vgpu_types") or ()
    found: dict[PciAddress, str] = {}
    for name in dict.fromkeys(filter(None, names)):
        for address in _device_addresses(conf, name):
            other = found.setdefault(address, name)
            if other != name:
                reason = f"[vgpu_{other}] names it as well; a card has vGPUs of one type"
                raise ConfigurationError("device_addresses", address, reason, group=f"vgpu_{name}")
    return tuple(found.items())


def _device_addresses(conf: cfg.ConfigOpts, name: str) -> Iterator[PciAddress]:
    if not _VGPU_TYPE.fullmatch(name):
        reason = (
            f"{name!r} is no type of vGPU; write what is in mdev_supported_types of the card, "
            "for example nvidia-223"
        )
        raise ConfigurationError("enabled_vgpu_types", None, reason, "gpu_devices")
    group = f"vgpu_{name}"
    if group not in conf or _DEVICE_ADDRESSES.dest not in conf[group]:
        conf.register_opt(_DEVICE_ADDRESSES, group=group)
    texts = [text for text in _value(conf, _DEVICE_ADDRESSES.dest, group) if text.strip()]
    if not texts:
        reason = (
            f"it is missing, and [gpu_devices] enabled_vgpu_types names {name}; write the PCI "
            "addresses of the cards that are to have vGPUs of this type"
        )
        raise ConfigurationError("device_addresses", None, reason, group)
    found = set()
    for text in texts:
        try:
            address = PciAddress.parse(text)
        except InvalidAddress as error:
            raise ConfigurationError("device_addresses", text, str(error), group) from None
        if address in found:
            reason = f"it names {address} twice; write each address once"
            raise ConfigurationError("device_addresses", text, reason, group)
        found.add(address)
        yield address


def _value(conf: cfg.ConfigOpts, option: str, group: str = GROUP.name):
    try:
        return conf[group][option]
    except (cfg.Error, ValueError) as error:
        # oslo.config's own text names the file and the value.
        raise ConfigurationError(option, None, str(error), group) from None


def _checked_path(option: str, path: str) -> str:
    if not os.path.isabs(path):
        raise ConfigurationError(option, path, "write an absolute path")
    return path


def _library(path: str) -> str:
    return _checked_path("nvml_library", path) if path else path


def _directory(path: str) -> str:
    if not os.path.isdir(_checked_path("host_root", path)):
        raise ConfigurationError("host_root", path, "there is no such directory")
    return path


def _selectors(option: str, texts: Iterable[str]) -> tuple[Selector, ...]:
    try:
        return tuple(map(Selector.parse, texts))
    except InvalidSelector as error:
        raise ConfigurationError(option, ",".join(texts), str(error)) from None


def _resource_class(text: str) -> tuple[Selector, str]:
    selector, _, name = map(str.strip, text.partition("="))
    if not traits.is_resource_class(name):
        reason = "write SELECTOR=CLASS; a class is FPGA, GPU, PGPU, VGPU or CUSTOM_..."
        raise ConfigurationError("resource_classes", text, reason)
    try:
        return Selector.parse(selector), name
    except InvalidSelector as error:
        raise ConfigurationError("resource_classes", text, str(error)) from None


def _extra_traits(text: str) -> tuple[Selector, tuple[str, ...]]:
    selector, equals, names = text.partition("=")
    wanted = tuple(name.strip() for name in names.split(",") if name.strip())
    if not equals or not wanted:
        raise ConfigurationError("extra_traits", text, "write SELECTOR=TRAIT[,TRAIT...]")
    try:
        return Selector.parse(selector), tuple(map(traits.check, wanted))
    except (InvalidSelector, traits.InvalidTrait) as error:
        raise ConfigurationError("extra_traits", text, str(error)) from None
