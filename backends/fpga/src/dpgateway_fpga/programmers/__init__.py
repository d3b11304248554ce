"""How a board is programmed: one module for each way, all in one table.

programmer     what every way can do, says of itself, and raises
command        boards that a tool programs
fpga_manager   boards that fpga_manager programs from a file
overlay        boards that an overlay for the device tree programs
dfl            cards with the kernel's DFL drivers
simulated      boards that are files, for demos and tests
manager_state  what fpga_manager says of itself
processes      starts what may hang in a process of its own, and waits for it
child          that process
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
