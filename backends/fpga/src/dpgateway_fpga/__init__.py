"""A dpgateway driver for FPGA boards: one pool of boards, one bitstream, programmed just before a container starts.

driver        one function, which is a bitstream, on boards that other resources may share
options       the boards, what is programmed onto them, and how
ways          the options of each way to program boards
tools         programs that program boards: how they are called
boards        a board and a bitstream, as the configuration has them
discovery     finds boards in sysfs, and names them by their places
places        where a board is in sysfs
known         the node's boards, as all sources know them
station       one board for all resources of this process
slot          one board as one resource offers it
retrying      attempts again after failures
ensuring      makes sure that one board runs one bitstream
journal       what was programmed onto each board, on disk
bitstream     reads a bitstream, and refuses the file at any doubt
gbs           the header of a GBS file
dtbo          overlays for the device tree
staging       files with the very bytes of an image
trusted       files that nobody but root can change
reader        reads what may hang in the kernel, on a thread of its own
programmers   how a board is programmed: one module for each way
command_line  `dpgateway-fpga`
"""

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
