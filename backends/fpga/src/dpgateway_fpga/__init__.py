"""A dpgateway driver for FPGA boards: one pool of boards, one bitstream, programmed just before a container starts."""

from dpgateway import hookimpl
from dpgateway_fpga.driver import FpgaDriver
from dpgateway_fpga.options import Bitstream, Board, FpgaManager, FpgaOptions, Overlay, Simulated
from dpgateway_fpga.tools import Command

__all__ = ["Bitstream", "Board", "Command", "FpgaDriver", "FpgaManager", "FpgaOptions", "Overlay", "Simulated"]


@hookimpl
def dpgateway_driver() -> type[FpgaDriver]:
    return FpgaDriver
