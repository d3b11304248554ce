"""Compares a stored answer with the present answer for the same ids. Pure.

A kubelet stores Allocate's answer, and repeats it at each start of the container
(pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions). The answer has only paths and names, which may
mean other hardware by then: an unplugged stick returns as ttyUSB1, and ttyUSB0 is another one. Three rules:

- Device nodes, mounts and CDI names identify hardware. A container path must have the same host path in both answers; a
  stored node at a container path that the present answer lacks must be among the present nodes.
- Environment and annotations identify it only if nothing else does, because drivers may put changing values there.
- The configuration's additions, and the values that they replace, aren't compared: they are no devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from dpgateway.deviceplugin.api import Answer
from dpgateway.model import Allocation

_WORD = re.compile(r"[^,;\s]+")


def answer(allocation: Allocation) -> Answer:
    """The allocation as a kubelet would store it."""
    return Answer(
        {str(node.container_path): node.host_path for node in allocation.device_nodes},
        {mount.container_path: mount.host_path for mount in allocation.mounts},
        allocation.cdi_devices,
        allocation.env,
        allocation.annotations,
    )


def together(allocations: Iterable[Allocation]) -> Allocation | None:
    """Merges the hardware of several devices into one allocation; None if their container paths conflict."""
    given = tuple(allocations)
    try:
        return Allocation(
            device_nodes=tuple(dict.fromkeys(node for one in given for node in one.device_nodes)),
            mounts=tuple(dict.fromkeys(mount for one in given for mount in one.mounts)),
            cdi_devices=tuple(name for one in given for name in one.cdi_devices),
        )
    except ValueError:  # their paths depend on the container's other devices
        return None


def outdated(given: Answer, now: Answer, complete: Answer) -> str:
    """The first difference between a stored answer and the present one; empty if there is none. ``now``: the driver's
    answer alone, ``complete``: with the configuration's additions.
    """
    away = [name for name in given.cdi_devices if name not in now.cdi_devices]
    if given.nodes or given.cdi_devices or now.nodes or now.mounts or now.cdi_devices:
        differences = (
            *_other_nodes(given.nodes, now.nodes),
            *_changed(given.mounts, now.mounts, complete.mounts),
            *((f"the CDI device {one}", _some(now.cdi_devices)) for one in away),
        )
    else:
        differences = (
            *_changed(given.env, now.env, complete.env, "env {}={}"),
            *_changed(given.annotations, now.annotations, complete.annotations, "annotation {}={}"),
        )
    return next((f"this container was given {was}, and it is {is_} now" for was, is_ in differences), "")


def same_hardware(given: Answer, now: Answer) -> bool:
    """Whether both have the same paths and words, perhaps in another order, since a driver may number devices."""
    return all(
        sorted(was.values()) == sorted(is_.values())
        for was, is_ in ((given.nodes, now.nodes), (given.mounts, now.mounts))
    ) and all(
        _words(was, is_) == _words(is_, was)
        for was, is_ in ((given.env, now.env), (given.annotations, now.annotations))
    )


def _words(texts: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """The words of those texts whose names both have."""
    return sorted(word for name, text in texts.items() if name in others for word in _WORD.findall(text))


_Differences = Iterator[tuple[str, str]]
"""Pairs of the stored and the present value."""


def _other_nodes(given: Mapping[str, str], now: Mapping[str, str]) -> _Differences:
    for where, path in given.items():
        if where in now and path != now[where]:
            yield path, now[where]
        elif where not in now and path not in now.values():
            yield path, _some(now.values())


def _changed(
    given: Mapping[str, str], now: Mapping[str, str], complete: Mapping[str, str], text: str = "{1}"
) -> _Differences:
    """Values that differ now, except where the configuration replaces them."""
    for name, value in given.items():
        if name in now and value != now[name] and complete.get(name) == now[name]:
            yield text.format(name, value), text.format(name, now[name])


def _some(found: Iterable[str]) -> str:
    return ", ".join(sorted(found)) or "nothing"
