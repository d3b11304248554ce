"""Simulated kubelets of every version from 1.8 to 1.37, for tests, demonstrations and rehearsals of upgrades.

A `Kubelet` simulates the device manager, its registration service, checkpoint and pods, without containers. To share no
mistake with dpgateway, this package imports nothing of it and uses other implementations of gRPC and protobuf.

kubelet    the simulated kubelet itself
apiserver  a stand-in for the API server
cluster    a scheduler and the kubelets of a cluster's nodes: the door for scenarios with DRA
prompt     `dpgateway simulate`: scripts, and a prompt
wire       gRPC, messages and sockets
"""

from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.clock import KubeletClock, ManualClock, RealClock
from dpgateway_simulator.kubelet.errors import Crashed, NotRunningError, PluginError
from dpgateway_simulator.kubelet.events import KubeletEvent
from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.kubelet.releases import UnknownVersionError, behaviour, versions

__all__ = [
    "Behaviour",
    "Crashed",
    "Kubelet",
    "KubeletClock",
    "KubeletEvent",
    "ManualClock",
    "NotRunningError",
    "PluginError",
    "RealClock",
    "UnknownVersionError",
    "behaviour",
    "versions",
]
