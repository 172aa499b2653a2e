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

"""Measure discovery as ratios, all in one run: ``tox -e bench``.

Against a floor (list the bus, read one file per function, then eight files and two links per
accelerator, with plain os calls) and, where umockdev and lspci are installed, against Cyborg's
in-tree NVIDIA driver on the same host under umockdev's preload.  Prints a table, and exits with
1 when a target is missed.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from cyborg.conf import CONF

from cyborg_ext_drivers import conf, drivers
from cyborg_ext_drivers.drivers import NvidiaGpuDriver
from cyborg_ext_drivers.report.driver import ExtDriver
from cyborg_ext_drivers.testing import FakeHost, UmockdevMissing

SIZES = (32, 256, 1024, 4096)
ONE_GPU_IN = 16
MOST_TIMES_THE_FLOOR = 2.0
LEAST_TIMES_FASTER_THAN_IN_TREE = 8.0
MOST_GROWTH_FROM_1024_TO_4096 = 4.5
MOST_TIMES_THE_IMPORTS = 1.5
MOST_TIMES_ONE_DRIVER = 3.0
LEAK_ROUNDS = 1000

_COMMAND = "import sys; from cyborg_ext_drivers.cli.command import main; sys.exit(main())"
_DEVICES = "sys/bus/pci/devices"
_ACCELERATOR_FILES = (
    "vendor",
    "device",
    "class",
    "revision",
    "subsystem_vendor",
    "subsystem_device",
    "numa_node",
    "power_state",
)


def host_of(size: int) -> FakeHost:
    """Return a host of *size* PCI functions, one in sixteen of them a GPU."""
    functions = []
    for number in range(size):
        bus, device = divmod(number, 32)
        is_gpu = number % ONE_GPU_IN == 0
        functions.append(
            {
                "address": f"{bus // 256:04x}:{bus % 256:02x}:{device:02x}.0",
                "vendor": "10de" if is_gpu else "8086",
                "device": "1eb8" if is_gpu else "1563",
                "class": "030200" if is_gpu else "020000",
                "subsystem": "10de:12a2" if is_gpu else "8086:0001",
                "driver": "nvidia" if is_gpu else "ixgbe",
                "iommu_group": number,
                "numa_node": 0,
            }
        )
    return FakeHost.from_mapping({"host": {"functions": functions}})


def floor(root: str) -> int:
    """Do the least that finds the accelerators of a host; return how many there are."""
    bus = os.path.join(root, _DEVICES)
    found = 0
    for name in os.listdir(bus):
        if b"\nPCI_ID=10DE:" not in _read(f"{bus}/{name}/uevent"):
            continue
        found += 1
        for file in _ACCELERATOR_FILES:
            _read(f"{bus}/{name}/{file}")
        os.readlink(f"{bus}/{name}/iommu_group")
        os.readlink(f"{bus}/{name}/driver")
    return found


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def best_of(rounds: int, *subjects: Callable[[], object]) -> list[float]:
    """Return the least processor time in seconds of each, taken in turns."""
    best = [float("inf")] * len(subjects)
    for _ in range(rounds):
        for number, subject in enumerate(subjects):
            started = time.process_time()
            subject()
            best[number] = min(best[number], time.process_time() - started)
    return best


def driver_for(root: str) -> NvidiaGpuDriver:
    """Return our driver, looking at a root."""
    conf.register(CONF)
    CONF.set_override("host_root", root, group=conf.GROUP.name)
    return NvidiaGpuDriver()


def against_the_floor(size: int) -> dict[str, float]:
    """Return the seconds of our discovery and of the floor on a host of *size* functions."""
    with host_of(size) as fake:
        driver = driver_for(str(fake.root))
        expected = floor(str(fake.root))
        if len(driver.discover()) != expected:
            raise SystemExit(f"the driver does not report all {expected} GPUs of the host")
        rounds = max(20, 20000 // size)
        ours, least = best_of(rounds, driver.discover, lambda: floor(str(fake.root)))
        return {"size": size, "ours": ours, "floor": least, "ratio": ours / least}


def against_in_tree(size: int) -> dict[str, float] | None:
    """Return the seconds of both drivers under umockdev, ``None`` where it is missing."""
    with host_of(size) as fake:
        try:
            environment = os.environ | fake.umockdev_environment()
        except UmockdevMissing as error:
            print(f"not measured against the in-tree driver: {error}", file=sys.stderr)
            return None
        done = subprocess.run(
            [sys.executable, __file__, "--under-umockdev"],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        return {"size": size, **json.loads(done.stdout)}


def under_umockdev() -> dict[str, float]:
    """Return the wall-clock seconds of both drivers on the host that umockdev shows.

    Wall clock, because the in-tree driver waits for lspci.
    """
    from cyborg.accelerator.drivers.gpu.nvidia.driver import NVIDIAGPUDriver
    from cyborg.privsep import sys_admin_pctxt

    sys_admin_pctxt.set_client_mode(False)
    CONF([], project="cyborg", default_config_files=[])
    in_tree, ours = NVIDIAGPUDriver(), driver_for("/")
    addresses = [
        {device.controlpath_id.cpid_info for device in driver.discover()}
        for driver in (in_tree, ours)
    ]
    if addresses[0] != addresses[1]:
        raise SystemExit("the two drivers do not report the same GPUs")
    best = []
    for driver in (in_tree, ours):
        spans = []
        for _ in range(5):
            started = time.perf_counter()
            driver.discover()
            spans.append(time.perf_counter() - started)
        best.append(min(spans))
    return {"in_tree": best[0], "ours": best[1], "ratio": best[0] / best[1]}


def against_the_imports(size: int) -> dict[str, float]:
    """Return the seconds of the command and of a process that imports what it is built on."""
    imports = [sys.executable, "-c", "import cliff.app, oslo_config.cfg, oslo_log.log, stevedore"]
    with host_of(size) as fake:
        command = [sys.executable, "-c", _COMMAND, "host", "--host-root", str(fake.root)]
        command += ["-f", "json"]
        best = [float("inf"), float("inf")]
        for _ in range(7):
            for number, argv in enumerate((command, imports)):
                started = time.perf_counter()
                subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
                best[number] = min(best[number], time.perf_counter() - started)
    return {"ours": best[0], "imports": best[1], "ratio": best[0] / best[1]}


def all_against_one(size: int) -> float:
    """Return how many times one driver's discovery all drivers cost on a host of *size*."""
    with host_of(size) as fake:
        one = driver_for(str(fake.root))
        kinds = [
            each
            for each in vars(drivers).values()
            if isinstance(each, type) and issubclass(each, ExtDriver) and each is not ExtDriver
        ]
        together = [kind() for kind in kinds]
        for driver in (one, *together):
            driver.discover()

        def round_of(*asked: ExtDriver) -> None:
            # Drivers that are asked in a row share what they see; rounds do not.
            time.sleep(0.01)
            for driver in asked:
                driver.discover()

        alone, all_of_them = best_of(20, lambda: round_of(one), lambda: round_of(*together))
        return all_of_them / alone


def leaks() -> list[str]:
    """Return what 1,000 discoveries leak, each as one sentence."""
    with host_of(256) as fake:
        driver = driver_for(str(fake.root))
        for _ in range(50):
            driver.discover()
        before = _resources()
        for _ in range(LEAK_ROUNDS):
            driver.discover()
        descriptors, memory = (now - then for now, then in zip(_resources(), before))
    found = []
    if descriptors:
        found.append(f"{descriptors} file descriptors")
    if memory > 1 << 20:
        found.append(f"{memory >> 10} KiB of memory")
    return found


def _resources() -> tuple[int, int]:
    """Return the open descriptors and the resident bytes of this process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Measure, print, and return 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--under-umockdev", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().under_umockdev:
        print(json.dumps(under_umockdev()))
        return 0
    CONF([], project="cyborg", default_config_files=[])
    missed = [
        *show_the_floor(),
        *show_several_drivers(),
        *show_in_tree(),
        *show_the_imports(),
        *show_leaks(),
    ]
    for miss in missed:
        print(f"MISSED: {miss}")
    return 1 if missed else 0


# Each prints what it measured and yields the targets that were missed.


def show_the_floor() -> Iterator[str]:
    """Compare with the floor on hosts of every size, and the sizes with each other."""
    print(f"{'functions':>9}  {'floor ms':>9}  {'ours ms':>9}  {'times the floor':>15}")
    spent = {}
    for size in SIZES:
        row = against_the_floor(size)
        spent[size] = row["ours"]
        print(
            f"{size:>9}  {row['floor'] * 1e3:>9.2f}  {row['ours'] * 1e3:>9.2f}"
            f"  {row['ratio']:>15.2f}"
        )
        if row["ratio"] > MOST_TIMES_THE_FLOOR:
            yield f"{size} functions: {row['ratio']:.2f} times the floor"
    growth = spent[4096] / spent[1024]
    sentence = f"4,096 functions cost {growth:.2f} times as much as 1,024"
    print(sentence)
    if growth > MOST_GROWTH_FROM_1024_TO_4096:
        yield sentence


def show_several_drivers() -> Iterator[str]:
    """Compare all drivers in one agent with one of them."""
    times = all_against_one(4096)
    sentence = f"all drivers cost {times:.2f} times one of them"
    print(f"4,096 functions: {sentence}")
    if times > MOST_TIMES_ONE_DRIVER:
        yield sentence


def show_in_tree() -> Iterator[str]:
    """Compare with Cyborg's own driver, where umockdev lets it see a host."""
    row = against_in_tree(1024)
    if row is None:
        return
    print(
        f"under umockdev, 1,024 functions: in-tree {row['in_tree'] * 1e3:.0f} ms, "
        f"ours {row['ours'] * 1e3:.0f} ms, {row['ratio']:.1f} times faster"
    )
    if row["ratio"] < LEAST_TIMES_FASTER_THAN_IN_TREE:
        yield f"only {row['ratio']:.1f} times faster than in-tree"


def show_the_imports() -> Iterator[str]:
    """Compare the command with a process that only imports what it is built on."""
    row = against_the_imports(1024)
    print(
        f"cyborg-ext-diagnose on 1,024 functions: {row['ours'] * 1e3:.0f} ms, "
        f"{row['ratio']:.2f} times its imports"
    )
    if row["ratio"] > MOST_TIMES_THE_IMPORTS:
        yield f"the command takes {row['ratio']:.2f} times its imports"


def show_leaks() -> Iterator[str]:
    """Look for what many discoveries leave behind."""
    leaked = leaks()
    print(f"{LEAK_ROUNDS} discoveries leak {' and '.join(leaked) or 'nothing'}")
    yield from (f"leaked {what}" for what in leaked)


if __name__ == "__main__":
    sys.exit(main())
