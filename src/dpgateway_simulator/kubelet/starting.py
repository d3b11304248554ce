"""Allocate and PreStartContainer calls, and the plugins' merged answers (GetDeviceRunContainerOptions).

1.8 allocates here, at each start of a container and with the same ids (cm/device_plugin_handler.go).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.choice import Request
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.errors import AllocationError, PluginError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.kubelet.ledger import Holding
from dpgateway_simulator.kubelet.pods import Pod, PodContainer
from dpgateway_simulator.wire.dialects import Answer

RunOptions = dict[str, Any]
NOTHING: RunOptions = {"envs": {}, "mounts": [], "devices": [], "annotations": {}, "cdi_devices": []}
"""The options of a container without devices."""


async def pre_start(incarnation: Incarnation, connections: PluginConnections, request: Request) -> None:
    """callPreStartContainerIfNeeded. Raises AllocationError if the container can't start."""
    endpoint = connections.endpoints.get(request.resource)
    if endpoint is None:
        if incarnation.behaviour.options_stay:  # unknown options mean no PreStartContainer
            return
        raise AllocationError(f"endpoint not found in cache for a registered resource: {request.resource}")
    if endpoint.options is None or not endpoint.options.pre_start_required:
        return
    ids = incarnation.ledger.held(request.pod, request.container, request.resource)
    if ids is None:
        where = f"pod {request.pod}, container {request.container}, resource {request.resource}"
        raise AllocationError(f"no devices found allocated in local cache for {where}")
    incarnation.emit("prestart", **request.about, devices=tuple(sorted(ids)))
    try:
        await endpoint.reach().pre_start(sorted(ids))
    except (PluginError, AllocationError) as error:
        incarnation.emit("prestart failed", **request.about, reason=str(error))
        raise AllocationError(f"device plugin PreStartContainer rpc failed with err: {error}") from error


async def ask(
    incarnation: Incarnation, connections: PluginConnections, request: Request, ids: Iterable[str]
) -> Answer | None:
    """Calls Allocate and emits its events; None if the answer contains no container."""
    endpoint = connections.endpoints.get(request.resource)
    if endpoint is None:
        raise AllocationError(incarnation.behaviour.unknown_plugin_error.format(request.resource))
    devices = tuple(sorted(ids))
    incarnation.emit("allocate", **request.about, devices=devices)
    try:
        return await endpoint.reach().allocate(devices)
    except (PluginError, AllocationError) as error:
        incarnation.emit("allocate failed", **request.about, reason=str(error))
        raise AllocationError(str(error)) from error


async def allocate(
    incarnation: Incarnation, connections: PluginConnections, pod: Pod, container: PodContainer
) -> RunOptions:
    """Allocates the container's devices; returns the options that it runs with. Raises AllocationError."""
    answers = []
    for resource, number in container.resources.items():
        if resource not in incarnation.ledger.healthy or not number:
            continue

        # The ids that the container holds already are filled up to its request.
        ledger, request = incarnation.ledger, Request(pod.uid, container.name, resource, number, pod.name)
        ledger.recount()
        held = ledger.held(pod.uid, container.name, resource) or set()
        available, missing = ledger.available(resource), number - len(held)
        if len(available) < missing:
            text = f"requested number of devices unavailable for {resource}. Requested: {missing}"
            raise AllocationError(f"{text}, Available: {len(available)}")
        ids = [*sorted(held), *sorted(available)[:missing]]

        # The holding is stored before Allocate, so a failed start keeps its devices for the next one.
        ledger.hold(Holding(pod.uid, container.name, resource, {0: ids}, None))
        answers.append(await ask(incarnation, connections, request, ids) or Answer())
        incarnation.emit("allocated", **request.about, devices=tuple(sorted(ids)))
    incarnation.save()
    return merged(incarnation.behaviour, answers, f"{pod.name}-{container.name}")


def merged(behaviour: Behaviour, answers: Iterable[Answer], container_id: str) -> RunOptions:
    """Merges the plugins' answers; the first wins, per environment name, container path, annotation key, CDI name."""
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, Mapping[str, Any]] = {}
    devices: dict[str, Mapping[str, Any]] = {}
    cdi: dict[str, None] = {}
    for answer in answers:  # the kubelet only logs a later, different value
        envs = answer.envs | envs
        annotations = answer.annotations | annotations
        for one in answer.mounts:
            paths = {"container_path": one.container_path, "host_path": one.host_path}
            mounts.setdefault(one.container_path, {**paths, "read_only": one.read_only})
        for node in answer.devices:
            paths = {"container_path": node.container_path, "host_path": node.host_path}
            devices.setdefault(node.container_path, {**paths, "permissions": node.permissions})
        cdi |= dict.fromkeys(one.name for one in answer.cdi_devices)

    # Up to 1.31 a runtime may read the names in an annotation instead of CRI's field.
    if cdi and behaviour.cdi_annotation:
        annotations.setdefault(f"cdi.k8s.io/devicemanager_{container_id}", ",".join(sorted(cdi)))
    return {
        "envs": envs,
        "mounts": list(mounts.values()),
        "devices": list(devices.values()),
        "annotations": annotations,
        "cdi_devices": list(cdi),
    }
