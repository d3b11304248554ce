import pytest
from dpgateway_chardev import CharDevices

from dpgateway import from_plain
from dpgateway.testing import DriverContract


class TestContract(DriverContract):
    @pytest.fixture(autouse=True)
    def nodes(self, dev):
        self.dev = dev
        for minor in range(3):
            dev.node(f"ttyUSB{minor}", minor)

    def make(self, context):
        driver = self.dev.drive("ttyUSB*", "absent")
        return type(driver)(driver._options, context)

    def remove(self, device):
        (self.dev.path / device.id).unlink()


class TestContractOfWhatIsMatched(DriverContract):
    """With files about devices, so that there is something to release."""

    @pytest.fixture(autouse=True)
    def functions(self, tree):
        self.tree = tree
        tree.write("/var/run/")
        for number in range(3):
            here = f"/sys/devices/pci0000:00/0000:3b:00.{number}"
            tree.write(f"""
                {here}/subsystem -> /sys/bus/pci
                {here}/driver -> /sys/bus/pci/drivers/vfio-pci
                {here}/iommu_group -> /sys/kernel/iommu_groups/{number}
                /sys/bus/pci/devices/0000:3b:00.{number} -> {here}
                c /dev/vfio/{number} 240:{number}
            """)

    def make(self, context):
        options = {
            "match": {"subsystem": "pci", "driver": "vfio-pci"},
            "nodes": "/dev/vfio/{attr:iommu_group}",
            "env": {"INFO": {"{kernel}": {"{id}": "{kernel}"}}},
            "device_info": {"type": "pci", "pci": {"pci-address": "{kernel}"}},
            "access": [{"host_path": "/dev/vfio/{attr:iommu_group}", "owner": 107}],
        }
        places = {"sysfs": "/sys", "dev": "/dev", "proc": "/proc", "udev": "/run/udev", "host": "/"}
        roots = {key: str(self.tree.at(path)).rstrip("/") for key, path in places.items()}
        return CharDevices(from_plain({**options, **roots}, CharDevices.Options), context)

    def remove(self, device):
        self.tree.remove(f"/sys/bus/pci/devices/{device.id}")
