"""Which generation of connections a release has."""

from collections.abc import Callable

from dpgateway_simulator.kubelet.clients import ManyConnections, SingleConnections
from dpgateway_simulator.kubelet.connections import Connections
from dpgateway_simulator.kubelet.incarnation import Life
from dpgateway_simulator.kubelet.older_connections import FirstListConnections, NewestConnections, ReplacingConnections

_GENERATIONS: dict[str, Callable[[Life], Connections]] = {
    "first list": FirstListConnections,
    "replaced": ReplacingConnections,
    "newest": NewestConnections,
    "one": SingleConnections,
    "many": ManyConnections,
}


def connections(life: Life) -> Connections:
    """The connections of a new life."""
    return _GENERATIONS[life.behaviour.clients](life)
