import pytest
from dpgateway_simulated import SimulatedDriver, SimulatedOptions

from dpgateway.testing import DriverContract


class TestContract(DriverContract):
    def make(self, context):
        return SimulatedDriver(SimulatedOptions(count=3, prepare=True, device_file_prefix="sim"), context)


class TestContractWithControlFile(DriverContract):
    @pytest.fixture(autouse=True)
    def _path(self, tmp_path):
        self.path = tmp_path / "faults.json"

    def make(self, context):
        return SimulatedDriver(SimulatedOptions(control_file=self.path), context)
