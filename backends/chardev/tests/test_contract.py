import pytest

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
