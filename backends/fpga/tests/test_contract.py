import pytest
from dpgateway_fpga import FpgaDriver

from dpgateway.testing import DriverContract


class TestContract(DriverContract):
    @pytest.fixture(autouse=True)
    def _options(self, options):
        self.options = options

    def make(self, context):
        return FpgaDriver(self.options, context)
