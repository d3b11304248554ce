"""A stand-in for the API server of a cluster: what dpgateway asks of one, on loopback, with faults on command.

store  objects, their versions, and the changes that watches tell
http   requests and answers
"""

from dpgateway_simulator.apiserver.http import SimulatedApiServer
from dpgateway_simulator.apiserver.store import ApiRefusal, Store

__all__ = ["ApiRefusal", "SimulatedApiServer", "Store"]
