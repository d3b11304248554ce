"""The programmers: one module each, all in one table.

programmer     the protocol of all programmers, their states and errors
command        boards programmed by a tool
fpga_manager   boards programmed by fpga_manager, from a file
overlay        boards programmed by a device-tree overlay
dfl            cards with the kernel's DFL drivers
simulated      boards that are files, for demos and tests
manager_state  the state of an fpga_manager
processes      child processes for operations that may hang
child          the program of these processes
"""

from collections.abc import Callable, Mapping

from dpgateway_fpga.options import FpgaOptions
from dpgateway_fpga.programmers.command import CommandProgrammer
from dpgateway_fpga.programmers.dfl import DflProgrammer
from dpgateway_fpga.programmers.fpga_manager import FpgaManagerProgrammer
from dpgateway_fpga.programmers.overlay import OverlayProgrammer
from dpgateway_fpga.programmers.programmer import (
    BoardState,
    Failed,
    Locks,
    Programmer,
    Progress,
    Verification,
    said,
    verify,
)
from dpgateway_fpga.programmers.simulated import SimulatedProgrammer

__all__ = ["PROGRAMMERS", "BoardState", "Failed", "Locks", "Programmer", "Progress", "Verification", "said", "verify"]

PROGRAMMERS: Mapping[str, Callable[[FpgaOptions], Programmer]] = {
    "command": CommandProgrammer,
    "dfl": DflProgrammer,
    "fpga-manager": FpgaManagerProgrammer,
    "overlay": OverlayProgrammer,
    "simulated": lambda options: SimulatedProgrammer(options.simulated),
}
