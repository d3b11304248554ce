"""A stand-in for the API server of a cluster: what dpgateway asks of one, on loopback, with faults on command.

admitting  limits, gates that drop fields, values that the server adds
store      objects, their versions, and the changes that watches tell
requests   requests and answers as values
http       the server, and its faults
"""

from dpgateway_simulator.apiserver.admitting import ApiRefusal, Object
from dpgateway_simulator.apiserver.http import SimulatedApiServer
from dpgateway_simulator.apiserver.store import Store

__all__ = ["ApiRefusal", "Object", "SimulatedApiServer", "Store"]
