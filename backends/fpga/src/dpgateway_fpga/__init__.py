"""A dpgateway driver for FPGA boards: one pool of boards, one bitstream, programmed just before a container starts.

driver        one function (a bitstream) on boards that other resources may share
options       boards, bitstreams, and the programmer
ways          the options of each programmer except `command`
tools         the options of the programmer `command`, and presets of tools
boards        a board and a bitstream in the configuration
discovery     boards found in sysfs, named by their places
places        the place of a board in sysfs
known         the node's boards, for the command line
station       one board, shared by all resources of this process
slot          one board as one resource offers it
retrying      retries with backoff
ensuring      the steps from any state of a board to a verified bitstream
journal       the record of what each board was programmed with, on disk
bitstream     reading and checking a bitstream
gbs           the header of a GBS file
dtbo          device-tree overlays
staging       image files for the kernel and for tools
trusted       file access that refuses files others can change
reader        reads that may hang in the kernel, with a timeout
programmers   the programmers, one module each
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
