"""Kubernetes 1.9: ``v1alpha2``.

It has no topology, preferred allocation, annotations or reason of an unhealthy device: these are lost. CDI names are
lost too, so the gateway expands them into device nodes, mounts and environment. Without PreStartContainer, the gateway
prepares inside Allocate: once per container, not once per start, because this kubelet doesn't allocate again when a
container restarts.
"""

from __future__ import annotations

from dpgateway.deviceplugin.api.table import Answer, Api, Call, Rpc, fill, stored
from dpgateway.deviceplugin.values import Grant, Registration
from dpgateway.deviceplugin.wire import v1alpha2_pb2 as wire
from dpgateway.resource.shares import Offer

LOSSES = ("annotations", "cdi_devices")
PAUSE = 0.01
"""Seconds. At each list, 1.9 writes its checkpoint in place and without a lock (genericDeviceUpdateCallback and
writeCheckpoint in pkg/kubelet/cm/deviceplugin/manager.go, 1.9), so two lists at once may leave a corrupt file. 1.8
keeps the lists of all resources in one map, without a lock (deviceManagerMonitorCallback in
pkg/kubelet/cm/device_plugin_handler.go, 1.8), and Go aborts on a map that is read while it is written."""


def to_register(registration: Registration, version: str = "v1alpha2") -> bytes:
    # The options are lost: this kubelet knows only ListAndWatch and Allocate.
    return wire.RegisterRequest(
        version=version, endpoint=registration.endpoint, resource_name=registration.resource
    ).SerializeToString()


def to_offer(offer: Offer) -> bytes:
    # The NUMA nodes are lost.
    device = wire.Device(ID=offer.id, health="Healthy" if offer.health.ok else "Unhealthy")
    return wire.ListAndWatchResponse(devices=[device]).SerializeToString()


def from_empty(raw: bytes) -> None:
    wire.Empty.FromString(raw)


def from_allocate(raw: bytes) -> tuple[tuple[str, ...], ...]:
    return (tuple(wire.AllocateRequest.FromString(raw).devicesIDs),)


def to_allocations(grants: tuple[Grant, ...]) -> bytes:
    # Annotations are lost; CDI names are expanded already. One container per request, so one grant.
    (grant,) = grants
    answer = wire.AllocateResponse()
    fill(answer, grant.allocation)
    return answer.SerializeToString()


def from_answer(raw: bytes) -> Answer:
    return stored(wire.AllocateResponse.FromString(raw))


API = Api(
    name="v1alpha2",
    version="v1alpha2",
    package="deviceplugin",
    rpcs=(
        Rpc("ListAndWatch", Call.WATCH, from_empty, to_offer),
        Rpc("Allocate", Call.ALLOCATE, from_allocate, to_allocations),
    ),
    to_register=to_register,
    to_offer=to_offer,
    from_answer=from_answer,
    forgetful=("grpc-go/1.3.0",),
    pause=PAUSE,
    writes=True,
    losses=LOSSES,
)
