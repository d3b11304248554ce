from dataclasses import replace

import pytest
from dpgateway_fpga import FpgaDriver

from dpgateway.testing import DriverContract


class TestContract(DriverContract):
    @pytest.fixture(autouse=True)
    def _options(self, options):
        self.options = options

    def make(self, context):
        return FpgaDriver(self.options, context)

    def remove(self, device):
        boards = tuple(board for board in self.options.boards if board.id != device.id)
        self.options = replace(self.options, boards=boards)
