"""A dpgateway driver for FPGA boards: one pool of boards, one bitstream, programmed just before a container starts."""

from dpgateway import hookimpl
from dpgateway_fpga.boards import Bitstream, Board
from dpgateway_fpga.driver import FpgaDriver
from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.tools import Command
from dpgateway_fpga.ways import FpgaManager, Overlay, Simulated

__all__ = ["Bitstream", "Board", "Command", "FpgaDriver", "FpgaManager", "FpgaOptions", "Overlay", "Simulated"]


@hookimpl
def dpgateway_driver() -> type[FpgaDriver]:
    return FpgaDriver
