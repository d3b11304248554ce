"""A dpgateway driver without hardware, for demos, rehearsals and tests.

driver    simulated devices, and the effects of active faults
faults    faults and their schedules
timeline  the faults active now
control   the control file: faults on demand
simple    converter for the configuration of simple-device-plugin
"""

from dpgateway import hookimpl
from dpgateway_simulated.driver import SimulatedDriver, SimulatedOptions
from dpgateway_simulated.faults import Fault

__all__ = ["Fault", "SimulatedDriver", "SimulatedOptions"]


@hookimpl
def dpgateway_driver() -> type[SimulatedDriver]:
    return SimulatedDriver
