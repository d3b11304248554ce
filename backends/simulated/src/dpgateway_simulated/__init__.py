"""A dpgateway driver without hardware, for demos, rehearsals and tests."""

from dpgateway import hookimpl
from dpgateway_simulated.driver import SimulatedDriver, SimulatedOptions
from dpgateway_simulated.faults import Fault

__all__ = ["Fault", "SimulatedDriver", "SimulatedOptions"]


@hookimpl
def dpgateway_driver() -> type[SimulatedDriver]:
    return SimulatedDriver
