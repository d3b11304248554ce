import json

import pytest
from dpgateway_simulated import SimulatedDriver, SimulatedOptions
from dpgateway_simulated.faults import Fault

from dpgateway.testing import DriverContract


class TestContract(DriverContract):
    faults: tuple[Fault, ...] = ()

    def make(self, context):
        options = SimulatedOptions(count=3, prepare=True, device_file_prefix="sim", faults=self.faults)
        return SimulatedDriver(options, context)

    def remove(self, device):
        self.faults = (Fault(devices=(device.id,), absent=True),)


class TestContractWithControlFile(DriverContract):
    @pytest.fixture(autouse=True)
    def _path(self, tmp_path):
        self.path = tmp_path / "faults.json"

    def make(self, context):
        return SimulatedDriver(SimulatedOptions(control_file=self.path), context)

    def remove(self, device):
        self.path.write_text(json.dumps({"faults": [{"devices": [device.id], "absent": True}]}))
