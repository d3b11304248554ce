"""A dpgateway driver without hardware, for demos, rehearsals and tests.

driver    devices that exist on paper, and what the active faults do to them
faults    what can go wrong, and when
timeline  which faults are active now
control   the control file: faults on demand
simple    imports the configuration of simple-device-plugin
"""

from dpgateway import hookimpl
from dpgateway_simulated.driver import SimulatedDriver, SimulatedOptions
from dpgateway_simulated.faults import Fault

__all__ = ["Fault", "SimulatedDriver", "SimulatedOptions"]


@hookimpl
def dpgateway_driver() -> type[SimulatedDriver]:
    return SimulatedDriver
