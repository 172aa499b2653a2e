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


"""Write the table of what Cyborg's own drivers violate, or check that it is so (``--check``)."""

import contextlib
import io
import pathlib
import sys
from importlib import metadata

from cyborg_ext_drivers.testing.conformance import app

TABLE = pathlib.Path(__file__).parent.parent / "doc" / "source" / "conformance-table.rst"
DRIVERS = (
    "nvidia_gpu_driver",
    "intel_fpga_driver",
    "xilinx_fpga_driver",
    "inspur_fpga_driver",
    "inspur_nvme_ssd_driver",
    "intel_qat_driver",
    "intel_nic_driver",
    "huawei_ascend_driver",
    "pci_driver",
    "nvmf_spdk_driver",
    "fake_driver",
)
#: pci_driver reports nothing without it.
OPTIONS = ("-o", 'pci.passthrough_whitelist={"vendor_id":"10de"}')


def generated() -> str:
    """Return the table that the command makes with the Cyborg that is installed.

    :raises SystemExit: when the command cannot be run at all.
    """
    installed = {entry.name for entry in metadata.entry_points(group=app.NAMESPACE)}
    drivers = [name for name in DRIVERS if name in installed]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        app.main([*drivers, *OPTIONS, "-f", "rst"])
    if "list-table" not in output.getvalue():
        raise SystemExit(2)
    return f"{heading()}\n\n{output.getvalue()}"


def heading() -> str:
    """Return the line that says which Cyborg the table is about."""
    return f"With Cyborg {metadata.version('openstack-cyborg')}:"


def main() -> int:
    """Write or check; return 1 when the table is stale."""
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(generated())
        return 0
    if not TABLE.read_text().startswith(heading()):
        print(f"Not checked: {TABLE} is of another Cyborg than the one that is installed.")
        return 0
    if TABLE.read_text() == generated():
        return 0
    print(f"{TABLE} is not what the drivers do; write it anew with: tox -e conformance")
    return 1


if __name__ == "__main__":
    sys.exit(main())
