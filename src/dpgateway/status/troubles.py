"""The troubles that follow from the other status values, errors first, with advice where there is any."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dpgateway.deviceplugin.values import FRONT
from dpgateway.status.readiness import why_unready
from dpgateway.status.values import (
    DeviceStatus,
    KubeletStatus,
    PodResourcesStatus,
    Reloads,
    ResourceStatus,
    Time,
    Trouble,
)

MOST_NAMED = 3
"""The number of devices named in one trouble."""
ERROR, WARNING = "error", "warning"
LOOK_AT_KUBELET = "look at the kubelet: systemctl status kubelet, journalctl -u kubelet"
STOP_OTHER = "look for it among the node's DaemonSets and services; pods may have its devices until it is stopped"
UNTOLD = "no driver is told when that ends; configure the resource again, so that its driver is"
ONE_GATEWAY = (
    "during an upgrade that is over once the older gateway ends. Else two gateways are installed on this node: remove "
    "the one that you don't want, a release of the chart, a profile or a service"
)
CHECK = "`dpgateway check` names all that is wrong with the configuration"
REFUSED = "the text says why, and the log may say more; this is over once a container gets its devices"
STATE_DIR = "look at the disk of `state_dir`: is it full, is it writable? It is tried again every few seconds"
FIND_SOCKET = "if the kubelet has that socket elsewhere, say where: kubelet.pod_resources_socket in the configuration"
FIND_DRIVER = "`dpgateway drivers` says which drivers are installed, and what is wrong with those that can't be used"
TRY_DRIVER = "`dpgateway devices` shows what the driver finds, `dpgateway check` what is wrong with its configuration"


def troubles(
    directory: Path,
    reloads: Reloads,
    kubelet: KubeletStatus,
    asked: PodResourcesStatus,
    resources: Iterable[ResourceStatus],
) -> tuple[Trouble, ...]:
    """All troubles, errors first. ``directory``: the kubelet's device-plugins directory."""
    found = []
    if not kubelet.there:
        advice = f"{LOOK_AT_KUBELET}; are its sockets in {directory}?"
        text = f"there is no kubelet: {directory} has no kubelet.sock"
        found.append(Trouble(ERROR, "", text, kubelet.since, advice))
    elif asked.failure:  # a missing kubelet explains this one
        text = f"the kubelet doesn't say which pods have what: {asked.failure}"
        found.append(Trouble(WARNING, "", text, None, FIND_SOCKET))
    if (refusal := reloads.refusal) is not None:
        text = f"the configuration is refused, and {refusal.served}: {some(refusal.problems, 1)}"
        found.append(Trouble(WARNING, "", text, refusal.time, CHECK))
    for one in resources:
        found += _of_resource(one, kubelet=kubelet.there)
    return tuple(sorted(found, key=lambda trouble: trouble.level != ERROR))


def unserved(resource: str, reason: str) -> Trouble:
    """The trouble of a changed configuration that isn't served yet."""
    return Trouble(WARNING, resource, reason, None, TRY_DRIVER)


def lingering(until: Time) -> Trouble:
    """The trouble of a gateway that was told to end and serves on."""
    text = f"told to end, this gateway serves on until another one has taken over, but until {until} at most"
    return Trouble(WARNING, "", text, None, None)


def of_left(left: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[Trouble, ...]:
    """The troubles of removed resources. ``left``: their held ids, each with its holder, by resource."""
    gone = "the resource isn't configured any more"
    texts = {name: [f"{id_} is held by {holder}" for id_, holder in held] for name, held in left.items() if held}
    return tuple(
        Trouble(WARNING, name, f"{gone}, but {some(held, MOST_NAMED)}", None, UNTOLD) for name, held in texts.items()
    )


def _of_resource(one: ResourceStatus, *, kubelet: bool) -> Iterator[Trouble]:
    if one.failure is not None:  # its devices are Unhealthy for this same reason
        advice = TRY_DRIVER if one.driver.version is not None else FIND_DRIVER
        yield Trouble(ERROR, one.name, one.failure.reason, one.failure.since, advice)
        return
    if one.elsewhere is not None:  # the gateway that serves it reports the rest
        since = next((registration.since for registration in one.registrations), None)
        yield Trouble(WARNING, one.name, one.elsewhere, since, ONE_GATEWAY)
        return
    # A front that publishes to the cluster registers for all of its resources at once (dra_troubles).
    for registration in [own for own in one.registrations if own.front == FRONT] if kubelet else ():
        if (reason := why_unready(registration, None, kubelet=True)) is not None:
            advice = STOP_OTHER if registration.listed else LOOK_AT_KUBELET
            yield Trouble(ERROR, one.name, reason, registration.since, advice)
    if one.driver.failure is not None:
        text = f"the driver doesn't list its devices now: {one.driver.failure}"
        yield Trouble(WARNING, one.name, text, None, TRY_DRIVER)
    elif one.driver.finds == 0 and not one.devices:  # while its front changes, the list is empty for another reason
        yield Trouble(WARNING, one.name, "the driver finds no device", None, TRY_DRIVER)
    if one.refused is not None:
        text = f"the last container that wanted a device got none: {one.refused.reason}"
        yield Trouble(WARNING, one.name, text, one.refused.since, REFUSED)
    if one.unsaved is not None:
        text = f"after a restart of the gateway nobody will remember what is given away now: {one.unsaved}"
        yield Trouble(WARNING, one.name, text, None, STATE_DIR)
    yield from _of_devices(one)


def _of_devices(one: ResourceStatus) -> Iterator[Trouble]:
    reasons: dict[str, list[DeviceStatus]] = {}
    strange = any(registration.listed and registration.failure for registration in one.registrations)
    present = {device.device for device in one.devices if not device.lost}
    for device in one.devices:
        if device.lost and device.held:
            went = "isn't offered any more" if device.device in present else "is gone"
            text = f"{device.id} {went}, but {_holder(device)} holds it"
            advice = _end_of(device, *() if device.device in present else ("plug it in again",))
            yield Trouble(WARNING, one.name, text, device.since, STOP_OTHER if strange else advice)
        elif device.outdated is not None:
            text = f"{device.id}, held by {_holder(device)}: {device.outdated}"
            yield Trouble(WARNING, one.name, text, None, _end_of(device))
        elif not device.healthy and device.since is not None:  # None: another name of its hardware is held
            reasons.setdefault(device.reason or "no reason is given", []).append(device)
    for reason, devices in reasons.items():
        since = min(device.since or "" for device in devices)
        names = some([device.id for device in devices], MOST_NAMED)
        text = f"{len(devices)} of {len(one.devices)} devices Unhealthy ({names}): {reason}"
        yield Trouble(WARNING, one.name, text, since, None)


def some(texts: Iterable[str], most: int) -> str:
    """The first ``most`` texts, and the number of the others."""
    texts = tuple(texts)
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def _holder(device: DeviceStatus) -> str:
    names = [
        f"{one.namespace}/{one.pod}" if one.pod else f"the pod {one.pod_uid}" if one.pod_uid else str(one)
        for one in device.holders
    ]
    return ", ".join(names) or "a container"


def _end_of(device: DeviceStatus, advice: str = "") -> str:
    pods = [shlex.join(["--namespace", one.namespace, one.pod]) for one in device.holders if one.namespace and one.pod]
    delete = f"delete the pod: kubectl delete pod {pods[0]}" if pods else ""
    return f"{advice}, or {delete}" if advice and delete else delete or advice or "delete the pod"
