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

"""Fixtures for the tests of any Cyborg driver; pytest loads them with this package.

What they need is imported by the test that asks for them: where the extras ``testing`` and
``stack`` are not installed, such a test is skipped and all others run.

::

    @pytest.mark.fake_host("two-t4")
    def test_the_second_card_goes(fake_host, cyborg_stack):
        stack = cyborg_stack("my_driver")
        stack.report()
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import pathlib

    from cyborg_ext_drivers.testing import FakeHost
    from cyborg_ext_drivers.testing.stack import Stack


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "fake_host(name=None, **description): what the fixture fake_host is; a described host by "
        "its name or its file, or the keys of a description",
    )


def _testing(module: str = "cyborg_ext_drivers.testing"):
    """Return a module of the testing room; skip the test where that cannot be imported."""
    return pytest.importorskip(
        module,
        reason="install 'cyborg-ext-drivers[testing]', or [stack] for Cyborg and Placement",
        exc_type=ImportError,
    )


@pytest.fixture
def fake_host(request: pytest.FixtureRequest) -> Iterator[FakeHost]:
    """A host that is not there, set up: an empty one, or what the marker ``fake_host`` says.

    Parametrised indirectly it takes the name or the file of a described host.
    """
    testing = _testing()
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(_chosen(testing.FakeHost, request))


def _chosen(kind: type[FakeHost], request: pytest.FixtureRequest) -> FakeHost:
    name = getattr(request, "param", None)
    if name is not None:
        return kind.named(os.fspath(name))
    marker = request.node.get_closest_marker("fake_host")
    if marker is None:
        return kind()
    if marker.args:
        return kind.named(os.fspath(marker.args[0]))
    return kind.from_mapping({"name": "marked", "host": marker.kwargs})


@pytest.fixture
def described_host() -> Iterator[Callable[[str], FakeHost]]:
    """Return a function that sets up a described host, named or from a file.

    For tests of several hosts, or of a host that the test computes.
    """
    testing = _testing()
    with contextlib.ExitStack() as stack:
        yield lambda name: stack.enter_context(testing.FakeHost.named(os.fspath(name)))


@pytest.fixture
def nvml_stub(fake_host: FakeHost) -> pathlib.Path:
    """The library that stands for NVML on the fake host; without a compiler, skip.

    ``fake_host.set_nvml`` and ``set_nvml_of`` change what it says.
    """
    stub = _testing("cyborg_ext_drivers.testing.nvml_stub")
    try:
        return fake_host.nvml_library
    except stub.NoCompiler as error:
        pytest.skip(str(error))


@pytest.fixture
def cyborg_stack(request: pytest.FixtureRequest) -> Iterator[Callable[..., Stack]]:
    """Return a function that starts Cyborg's conductor and Placement with drivers.

    Its arguments are names of entry points and drivers themselves, and by keyword what
    ``cyborg_ext_drivers.testing.stack.Stack`` takes.  Drivers that look below ``[ext_drivers]
    host_root`` see the test's ``fake_host``, where it has one.  One stack runs at a time: the
    function stops the one before.
    """
    module = _testing("cyborg_ext_drivers.testing.stack")
    running = contextlib.ExitStack()

    def start(*drivers: Any, **more: Any) -> Stack:
        running.close()
        options = {group: dict(values) for group, values in more.pop("options", {}).items()}
        if "fake_host" in request.fixturenames:
            root = request.getfixturevalue("fake_host").root
            options.setdefault("ext_drivers", {}).setdefault("host_root", str(root))
        names = [each for each in drivers if isinstance(each, str)]
        objects = [each for each in drivers if not isinstance(each, str)]
        stack = module.Stack(drivers=names, driver_objects=objects, options=options, **more)
        return running.enter_context(stack)

    with running:
        yield start


@pytest.fixture
def run_on_fake_host(fake_host: FakeHost) -> Callable[..., subprocess.CompletedProcess]:
    """Return a function that runs a program to which the fake host is its own, by umockdev.

    For drivers and programs that read ``/sys``.  Its arguments are the command, or one text of
    several lines, which is Python; what ``answer`` is set to there comes back as ``.answer``.
    A program that fails raises ``subprocess.CalledProcessError``; without umockdev, skip.
    """
    testing = _testing()

    def run(*command: str, timeout: float = 120) -> subprocess.CompletedProcess:
        try:
            environment = {**os.environ, **fake_host.umockdev_environment()}
        except testing.UmockdevMissing as error:
            pytest.skip(str(error))
        is_code = len(command) == 1 and "\n" in command[0]
        done = subprocess.run(
            _python(command[0]) if is_code else command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode:
            raise _Failed(done.returncode, done.args, done.stdout, done.stderr)
        if is_code:
            done.answer = json.loads(done.stdout.splitlines()[-1])
        return done

    return run


class _Failed(subprocess.CalledProcessError):
    """Tells what the program said; the base class tells its exit code only."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.stderr}"


def _python(code: str) -> Sequence[str]:
    told = "\nimport json as _json\nprint(_json.dumps(globals().get('answer')))\n"
    return [sys.executable, "-c", textwrap.dedent(code) + told]
