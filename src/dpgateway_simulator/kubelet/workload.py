"""Pods on one life of a kubelet, from the question to the reply."""

from typing import Any

from dpgateway_simulator.kubelet.admission import PodRefusedError
from dpgateway_simulator.kubelet.device_manager import Incarnation
from dpgateway_simulator.kubelet.errors import AllocationError, Crashed, NotRunningError
from dpgateway_simulator.kubelet.pods import Container, Pod
from dpgateway_simulator.kubelet.starting import RunOptions

Reply = dict[str, Any]


async def admit(life: Incarnation, pod: Pod, *, start: bool) -> Reply:
    """Admits a pod, one at a time, and starts its containers if told so; a refused pod is failed and gone."""
    async with life.admitting:
        life.pods.pop(pod.name, None)
        life.pods[pod.name] = pod
        try:
            await life.admission.admit(pod)
        except PodRefusedError as error:
            _still_there(life)
            life.pods.pop(pod.name, None)
            life.life.journal.emit("pod refused", pod=pod.name, reason=error.reason, message=str(error))
            return {"ok": False, "error": str(error), "stage": "admit", "reason": error.reason}
    _still_there(life)
    life.life.journal.emit("pod admitted", pod=pod.name)
    return await _start_all(life, pod) if start else {"ok": True}


async def _start_all(life: Incarnation, pod: Pod) -> Reply:
    started = [await start_container(life, pod, one) for one in pod.all]
    reply: Reply = {"ok": True}
    error = next((one["error"] for one in started if "error" in one), None)
    if error is not None:
        reply = {"ok": False, "error": error, "stage": "start"}
    return {**reply, "containers": started}


async def start_container(life: Incarnation, pod: Pod, container: Container) -> Reply:
    """One start of one container: {"name", "options", "error"}."""
    about = {"pod": pod.name, "container": container.name}
    try:
        options = await life.admission.start(pod, container)
    except AllocationError as error:
        _still_there(life)
        life.life.journal.emit("container refused", **about, reason=str(error))
        return {"name": container.name, "options": None, "error": str(error)}
    _still_there(life)
    if container not in pod.init or container.restartable:  # other init containers run to their end
        life.started.add((pod.name, container.name))
    life.life.journal.emit("container started", **about, **_gets(options))
    return {"name": container.name, "options": options}


def _gets(options: RunOptions | None) -> dict[str, tuple[str, ...]]:
    """What there is in the options, as `docker run` would have it."""
    if options is None:
        return {}
    gets = {
        "nodes": [f"{one['host_path']}:{one['container_path']}:{one['permissions']}" for one in options["devices"]],
        "mounts": [
            f"{one['host_path']}:{one['container_path']}:{'ro' if one['read_only'] else 'rw'}"
            for one in options["mounts"]
        ],
        "env": [f"{name}={value}" for name, value in options["envs"].items()],
        "annotations": [f"{name}={value}" for name, value in options["annotations"].items()],
        "cdi": options["cdi_devices"],
    }
    return {name: tuple(values) for name, values in gets.items() if values}


def _still_there(life: Incarnation) -> None:
    if life.crashed:
        raise Crashed(life.crashed)
    if life.ended:
        raise NotRunningError("the kubelet ended while it was asked")
