"""Each configuration of the page is one that the gateway takes, and whose resources share what they say."""

import json
import subprocess

import pytest

from dpgateway.testing import FakeTree
from tests.docs.pages import Page
from tests.support.gateway import COMMAND

PAGE = Page("how-to/share-hardware.md")
CONFIGURATIONS = sorted(name for name in PAGE.files if name.endswith(".yaml"))
FUNCTION = "/sys/devices/pci0000:00/0000:3b:00.1"


def ask(command, config):
    words = [*COMMAND, command, "--config", config, "--node-name", "node", "--output", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_without_warnings(name, tmp_path):
    """But of hardware and bitstreams, which the tests' machine needn't have, and of the programmer of the example."""
    PAGE.write_files(tmp_path)
    told = [warning["hint"] for warning in ask("check", tmp_path / name)["warnings"]]
    absent = "there is no /etc/dpgateway/bitstreams/"
    expected = ("nothing on this node matches it", "programmer: found simulated", absent)
    assert [text for text in told if not text.startswith(expected)] == []


@pytest.fixture
def tree(tmp_path):
    """A virtual function, bound to nothing, with the nodes of either driver."""
    tree = FakeTree(tmp_path)
    tree.write(f"""
        {FUNCTION}/subsystem -> /sys/bus/pci
        {FUNCTION}/physfn -> /sys/devices/pci0000:00/0000:3b:00.0
        {FUNCTION}/iommu_group -> /sys/kernel/iommu_groups/12
        {FUNCTION}/drm/renderD129/
        /sys/devices/pci0000:00/0000:3b:00.0/driver -> /sys/bus/pci/drivers/xe
        /sys/bus/pci/devices/0000:3b:00.1 -> {FUNCTION}
        c /dev/dri/renderD129 226:129
        c /dev/vfio/12 511:0
        c /dev/vfio/vfio 10:196
    """)
    return tree


def test_same_hardware_with_either_driver(tree, tmp_path):
    config, here = tmp_path / "functions.yaml", f"      dev: {tmp_path}/dev\n      sysfs: {tmp_path}/sys\n"
    config.write_text(PAGE.files["functions.yaml"].replace("options:\n", f"options:\n{here}"))
    found = {}
    for driver in ("xe", "vfio-pci"):
        tree.write(f"{FUNCTION}/driver -> /sys/bus/pci/drivers/{driver}")
        for resource in ask("devices", config):
            for device in resource["devices"]:
                found[resource["resource"]] = device["health"], device["hardware"]
    assert found == {
        "example.com/vf": ("Healthy", ["char 226:129", "pci 0000:3b:00.1"]),
        "example.com/vf-vfio": ("Healthy", ["char 511:0", "pci 0000:3b:00.1"]),
    }
