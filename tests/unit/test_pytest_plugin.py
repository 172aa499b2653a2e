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

"""The pytest plugin: fixtures for the tests of others."""

import subprocess
import sys

import pytest

pytest_plugins = ("pytester",)
EXAMPLE = """
    import pytest

    def test_an_empty_host(fake_host):
        assert fake_host.description.functions == ()
        fake_host.add_function("0000:3b:00.0", vendor="acce", device="0a01", class_="120000")
        assert fake_host.path("/sys/bus/pci/devices/0000:3b:00.0/vendor").read_text() == "0xacce\\n"

    @pytest.mark.fake_host("two-t4")
    def test_a_marked_host(fake_host):
        devices = [f.device for f in fake_host.description.functions if f.vendor == "10de"]
        assert devices == ["1eb8", "1eb8"]

    @pytest.mark.fake_host(functions=[
        {"address": "0000:3b:00.0", "vendor": "acce", "device": "0a01", "class": "120000"}])
    def test_a_marker_that_describes(fake_host):
        assert [f.vendor for f in fake_host.description.functions] == ["acce"]

    @pytest.mark.parametrize("fake_host", ["two-t4", "no-accelerators"], indirect=True)
    def test_two_hosts(fake_host):
        assert fake_host.path("/sys/bus/pci/devices").is_dir()

    def test_two_at_once(described_host):
        assert described_host("two-t4").root != described_host("two-t4").root
"""


def run(pytester, *arguments):
    return pytester.runpytest_subprocess("-q", "--strict-markers", *arguments)


def test_the_fixtures_give_hosts(pytester):
    pytester.makepyfile(EXAMPLE)
    run(pytester).assert_outcomes(passed=6)


def test_they_give_hosts_under_xdist_as_well(pytester):
    pytest.importorskip("xdist")
    pytester.makepyfile(EXAMPLE)
    run(pytester, "-n", "1").assert_outcomes(passed=6)


def test_a_host_that_nobody_described_is_an_error_with_those_that_are(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.fake_host("two-t5")
        def test_it(fake_host):
            pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no described host is called 'two-t5'; there is two-t4*"])


def test_a_program_is_on_the_fake_host(pytester):
    pytester.makepyfile(
        """
        import pytest, subprocess

        @pytest.mark.fake_host("two-t4")
        def test_it(fake_host, run_on_fake_host):
            said = run_on_fake_host("cat", "/sys/bus/pci/devices/0000:3b:00.0/device").stdout
            assert said == "0x1eb8\\n"
            done = run_on_fake_host('''
                import os
                answer = sorted(os.listdir("/sys/bus/pci/devices"))
            ''')
            assert done.answer == sorted(str(f.address) for f in fake_host.description.functions)
            with pytest.raises(subprocess.CalledProcessError, match="No such file"):
                run_on_fake_host("cat", "/sys/bus/pci/devices/nothing")
        """
    )
    result = run(pytester, "-rs")
    if result.parseoutcomes().get("skipped"):
        pytest.skip("umockdev is not on this machine")
    result.assert_outcomes(passed=1)


def test_a_stack_is_started_with_the_tests_host(pytester):
    for name in ("cyborg", "placement"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.fake_host("two-t4")
        def test_it(fake_host, cyborg_stack):
            for host in ("a", "b"):
                stack = cyborg_stack("ext_nvidia_gpu_driver", host=host)
                stack.report()
                names = [provider.name for provider in stack.providers()]
                assert names == [f"{host}_0000:3b:00.0", f"{host}_0000:d8:00.0"]
        """
    )
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.fake_host("two-t4")
def test_the_stand_in_for_nvml_follows_the_host(fake_host, nvml_stub):
    assert nvml_stub.is_file() and nvml_stub.is_relative_to(fake_host.root)


@pytest.mark.parametrize("package", ["fixtures", "cyborg"])
def test_without_an_extra_the_tests_that_need_it_are_skipped(pytester, package):
    pytester.makepyfile(
        **{package: "raise ModuleNotFoundError('not installed', name=__name__)"},
        test_it="""
            def test_that_needs_it(fake_host, cyborg_stack):
                pass

            def test_of_others():
                pass
            """,
    )
    result = run(pytester, "-rs", "-p", "no:randomly")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*SKIPPED*cyborg-ext-drivers*"])


def test_it_imports_nothing_of_the_package_until_it_is_asked():
    code = (
        "import sys, cyborg_ext_drivers.pytest_plugin\n"
        "print([name for name in sys.modules if name.startswith(('cyborg', 'fixtures', 'yaml'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['cyborg_ext_drivers', 'cyborg_ext_drivers.pytest_plugin']"
