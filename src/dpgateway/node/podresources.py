"""A client of the kubelet's PodResources API, whose List names the container of each device, and its ResourceClaims.

v1 is served since 1.20, v1alpha1 since 1.13 (pkg/kubelet/apis/podresources). From 1.27 on a kubelet limits the rate to
100 calls a second with bursts of 10.

List frees the devices of deleted pods, and for that the kubelet recounts its allocated devices: without those of an
Allocate in flight, which it would then give to the next pod, too (UpdateAllocatedDevices in
pkg/kubelet/cm/devicemanager/manager.go, 1.37; nothing adds them again once Allocate was answered). So whoever asks
waits for Allocates first (:func:`between_allocates`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dpgateway.errors import KubeletError, cut, encodable
from dpgateway.kit.channel import Channel
from dpgateway.kit.threads import Threads
from dpgateway.node.holders import Holder
from dpgateway.node.wire import podresources_pb2 as wire

APIS = "v1", "v1alpha1"
DEADLINE = 5.0
"""Timeout of a call in seconds."""
LARGEST = 16 * 1024 * 1024
"""Most bytes of an answer: the limit of the kubelet's own clients (pkg/kubelet/apis/podresources/client.go)."""

LONGEST = 30.0
"""The most seconds that a question waits for Allocates in flight."""
_LOOK = 0.02
"""Seconds between two checks for Allocates in flight."""

LONGEST_NAME = 253
"""Most characters of a name in Kubernetes (validation.DNS1123Subdomain of apimachinery)."""

Listing = Mapping[str, Mapping[str, Holder]]
"""The holder of each id, by resource."""


class ListedDevice(NamedTuple):
    """A device of a claim, as the kubelet got it from a driver."""

    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...]
    share_id: str
    """Empty before 1.37, and for a device that one claim has alone."""


class ListedClaim(NamedTuple):
    """A ResourceClaim that containers use."""

    namespace: str
    name: str
    pods: frozenset[str]
    """The names of the pods, in the claim's namespace."""
    devices: tuple[ListedDevice, ...]
    """Of all drivers."""


class ListedClaims(NamedTuple):
    """The claims of a kubelet's pods."""

    claims: tuple[ListedClaim, ...]
    pods: frozenset[tuple[str, str]]
    """The namespace and the name of each pod, with and without claims: a kubelet that has just started lists none."""


async def between_allocates(in_flight: Callable[[], bool], longest: float = LONGEST) -> bool:
    """Returns True once no Allocate is in flight, False after ``longest`` seconds."""
    try:
        async with asyncio.timeout(longest):
            while in_flight():  # noqa: ASYNC110  their ends have no event in common
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        return False
    return True


class PodResources:
    """The API of one kubelet at a time. Used from the event loop."""

    def __init__(self, socket: Path, threads: Threads, deadline: float = DEADLINE) -> None:
        self._socket, self._threads, self._deadline = socket, threads, deadline
        self._apis: tuple[str, ...] = APIS
        self.api: str | None = None
        """The version in which this kubelet answered; None before."""

    @property
    def exists(self) -> bool:
        """Whether its socket is there: some kubelet has served it, at least."""
        return self._socket.exists()

    def new_kubelet(self) -> None:
        """Starts over with the newest version."""
        self._apis, self.api = APIS, None

    async def list(self, resources: Collection[str]) -> Listing:
        """The holders of ``resources``. Raises KubeletError or OSError if the kubelet doesn't answer.

        The answer is parsed on a thread, because 10,000 devices take 20 ms.
        """
        raw = await self._answer()
        return await self._threads.call("read the answer to List", partial(holders, raw, tuple(resources)))

    async def claims(self) -> ListedClaims:
        """The claims of all pods that the kubelet lists: those with a container that isn't an ordinary init container.
        Kubelets before 1.36 list none. Raises KubeletError or OSError if the kubelet doesn't answer.
        """
        raw = await self._answer()
        return await self._threads.call("read the claims in the answer to List", partial(claims, raw))

    async def _answer(self) -> bytes:
        """List's answer, in the newest version that the kubelet serves."""
        async with Channel(self._socket, LARGEST) as channel:  # a new one, because the next question is seconds away
            while self._apis:
                call = channel.unary_unary(f"/{self._apis[0]}.PodResourcesLister/List")
                try:
                    answer: bytes = await call(b"", timeout=self._deadline)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                        why = (error.details() or "").rpartition(" error: ")[2]  # behind gRPC's own words
                        raise KubeletError(f"{self._socket}: {error.code().name}: {why}") from error
                    self._apis = self._apis[1:]  # until the next kubelet
                else:
                    self.api = self._apis[0]
                    return answer
        raise KubeletError(f"{self._socket}: the kubelet serves none of {', '.join(APIS)}")


def holders(raw: bytes, resources: Collection[str]) -> Listing:
    """Parses a ListPodResourcesResponse of either version. Raises KubeletError.

    A container lists the same resource several times, once per NUMA node or device.
    """
    answer = _decoded(raw)
    found: dict[str, dict[str, Holder]] = {resource: {} for resource in resources}
    for pod in answer.pod_resources:
        for container in pod.containers:
            holder = Holder(*(cut(name, LONGEST_NAME) for name in (pod.namespace, pod.name, container.name)))
            for devices in container.devices:
                if devices.resource_name in found:
                    found[devices.resource_name].update(dict.fromkeys(devices.device_ids, holder))
    return found


def claims(raw: bytes) -> ListedClaims:
    """Parses a ListPodResourcesResponse. Raises KubeletError.

    A claim is listed for each container that uses it, each time with the devices of the container's requests.
    """
    answer = _decoded(raw)
    pods: dict[tuple[str, str], set[str]] = {}
    devices: dict[tuple[str, str], dict[ListedDevice, None]] = {}
    for pod in answer.pod_resources:
        for one in (one for container in pod.containers for one in container.dynamic_resources):
            key = cut(one.claim_namespace, LONGEST_NAME), cut(one.claim_name, LONGEST_NAME)
            pods.setdefault(key, set()).add(cut(pod.name, LONGEST_NAME))
            known = devices.setdefault(key, {})
            for part in one.claim_resources:
                cdi = tuple([device.name for device in part.cdi_devices])
                known[ListedDevice(part.driver_name, part.pool_name, part.device_name, cdi, part.share_id)] = None
    found = tuple([ListedClaim(*key, frozenset(names), tuple(devices[key])) for key, names in pods.items()])
    names = ((cut(pod.namespace, LONGEST_NAME), cut(pod.name, LONGEST_NAME)) for pod in answer.pod_resources)
    return ListedClaims(found, frozenset(names))


def _decoded(raw: bytes) -> wire.ListPodResourcesResponse:
    try:
        return wire.ListPodResourcesResponse.FromString(raw)
    except DecodeError as error:
        raise KubeletError(f"PodResources List: not a ListPodResourcesResponse: {encodable(str(error))}") from error
