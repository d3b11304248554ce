"""Kubernetes 1.10 and later: ``v1beta1``.

Every change since 1.10 added a field or an RPC, and kubelets drop unknown fields, so the newest form suits all of them:
topology since 1.16, preferred allocation since 1.19, CDI names since 1.28.
"""

from __future__ import annotations

from dataclasses import replace

from dpgateway.deviceplugin.api.table import Answer, Api, Call, Rpc, fill, stored
from dpgateway.deviceplugin.values import Grant, Options, Preference, Registration
from dpgateway.deviceplugin.wire import v1beta1_pb2 as wire
from dpgateway.resource.shares import Offer

# Any word but this one counts as unhealthy (pkg/kubelet/cm/devicemanager/manager.go, every release).
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


def to_register(registration: Registration) -> bytes:
    # From 1.25 on kubelets ignore these options, and call GetDevicePluginOptions instead.
    return wire.RegisterRequest(
        version=API.version,
        endpoint=registration.endpoint,
        resource_name=registration.resource,
        options=_options(registration.options),
    ).SerializeToString()


def to_offer(offer: Offer) -> bytes:
    device = wire.Device(ID=offer.id, health=HEALTHY if offer.health.ok else UNHEALTHY)
    # Without nodes the message stays absent: an empty one means "near none of them" to kubelets 1.16 to 1.18.
    for node in offer.numa_nodes:
        device.topology.nodes.add(ID=node)
    return wire.ListAndWatchResponse(devices=[device]).SerializeToString()


def from_empty(raw: bytes) -> None:
    wire.Empty.FromString(raw)


def _options(options: Options) -> wire.DevicePluginOptions:
    return wire.DevicePluginOptions(
        pre_start_required=options.prepare, get_preferred_allocation_available=options.prefer
    )


def to_options(options: Options) -> bytes:
    return _options(options).SerializeToString()


def from_preference(raw: bytes) -> tuple[Preference, ...]:
    request = wire.PreferredAllocationRequest.FromString(raw)
    return tuple(
        Preference(tuple(r.available_deviceIDs), tuple(r.must_include_deviceIDs), r.allocation_size)
        for r in request.container_requests
    )


def to_preference(chosen: tuple[tuple[str, ...], ...]) -> bytes:
    answers = [wire.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen]
    return wire.PreferredAllocationResponse(container_responses=answers).SerializeToString()


def from_allocate(raw: bytes) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(r.devices_ids) for r in wire.AllocateRequest.FromString(raw).container_requests)


def to_allocations(grants: tuple[Grant, ...]) -> bytes:
    answer = wire.AllocateResponse()
    for grant in grants:
        container = answer.container_responses.add()
        fill(container, grant.allocation)
        container.annotations.update(grant.allocation.annotations)
        for name in grant.allocation.cdi_devices:
            container.cdi_devices.add(name=name)
    return answer.SerializeToString()


def from_answer(raw: bytes) -> Answer:
    # Also reads the answers in a checkpoint of 1.9, whose fields have the same numbers.
    answer = wire.ContainerAllocateResponse.FromString(raw)
    names = tuple(one.name for one in answer.cdi_devices)
    return replace(stored(answer), cdi_devices=names, annotations=dict(answer.annotations))


def from_prepare(raw: bytes) -> tuple[str, ...]:
    return tuple(wire.PreStartContainerRequest.FromString(raw).devices_ids)


def to_prepared(_: None) -> bytes:
    return wire.PreStartContainerResponse().SerializeToString()


API = Api(
    name="v1beta1",
    version="v1beta1",
    package="v1beta1",
    rpcs=(
        Rpc("GetDevicePluginOptions", Call.OPTIONS, from_empty, to_options),
        Rpc("ListAndWatch", Call.WATCH, from_empty, to_offer),
        Rpc("GetPreferredAllocation", Call.PREFER, from_preference, to_preference),
        Rpc("Allocate", Call.ALLOCATE, from_allocate, to_allocations),
        Rpc("PreStartContainer", Call.PREPARE, from_prepare, to_prepared),
    ),
    to_register=to_register,
    to_offer=to_offer,
    from_answer=from_answer,
    forgetful=("grpc-go/1.7.5",),
    # Kubernetes 1.29; 1.28, with grpc-go 1.54, has a feature gate for it that is off (DevicePluginCDIDevices)
    passes_cdi_from=(1, 58),
)
