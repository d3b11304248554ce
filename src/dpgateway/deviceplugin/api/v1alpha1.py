"""Kubernetes 1.8: ``v1alpha1`` by its folder's name, ``0.1`` on the wire.

Same package, paths and messages as ``v1alpha2``, except Allocate's answer, which has a part for each device. The
kubelet merges the parts (containerManagerImpl.GetResources, 1.8), so the first one carries everything. This kubelet
allocates again at each container start, so preparing inside Allocate prepares before each start.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpgateway.deviceplugin.api import v1alpha2
from dpgateway.deviceplugin.api.table import Api, Call, Rpc, fill
from dpgateway.deviceplugin.values import Grant
from dpgateway.deviceplugin.wire import v0_1_pb2 as wire

to_register = partial(v1alpha2.to_register, version="0.1")


def to_allocations(grants: tuple[Grant, ...]) -> bytes:
    # Annotations are lost, as in v1alpha2. 1.8 sends one container per request.
    (grant,) = grants
    answer = wire.AllocateResponse(spec=[wire.DeviceRuntimeSpec(ID=id_) for id_ in grant.ids])
    first = answer.spec[0] if answer.spec else answer.spec.add()
    fill(first, grant.allocation)
    return answer.SerializeToString()


API: Api = replace(
    v1alpha2.API,
    name="v1alpha1",
    version="0.1",
    rpcs=(
        Rpc("ListAndWatch", Call.WATCH, v1alpha2.from_empty, v1alpha2.to_offer),
        Rpc("Allocate", Call.ALLOCATE, v1alpha2.from_allocate, to_allocations),
    ),
    to_register=to_register,
    writes=False,
    repeats=True,  # pkg/kubelet/cm/container_manager_linux.go of 1.8, GetResources: for each start
    forgetful=(),  # 1.8 keeps no health of an older endpoint, and each further list is a risk to it (v1alpha2.PAUSE)
)
