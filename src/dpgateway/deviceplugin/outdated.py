"""Whether the answer that a kubelet repeats still means the devices that it meant when it was given. Pure.

A kubelet keeps the answer of Allocate, and uses it again at each start of the container
(pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions). Paths and names are all that it keeps, and
hardware may have others by then: a stick that was unplugged comes back as ttyUSB1, and ttyUSB0 is another one. So what
a container was given is compared with what its ids give now. Three rules:

- Device nodes, mounts and CDI names say which hardware it is. A path of the container must have the same path of the
  host as now; a node of the host at another path of the container must be among those of now.
- Environment and annotations say it only where nothing else does: drivers may put there what differs each time.
- What the configuration adds, or has in place of the driver's, isn't compared: it is no device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from dpgateway.deviceplugin.api import Answer
from dpgateway.model import Allocation

_WORD = re.compile(r"[^,;\s]+")


def answer(allocation: Allocation) -> Answer:
    """An allocation, as a kubelet would keep it."""
    return Answer(
        {str(node.container_path): node.host_path for node in allocation.device_nodes},
        {mount.container_path: mount.host_path for mount in allocation.mounts},
        allocation.cdi_devices,
        allocation.env,
        allocation.annotations,
    )


def together(allocations: Iterable[Allocation]) -> Allocation | None:
    """The hardware of several devices as one container gets it; None if that can't be told from what each gives."""
    given = tuple(allocations)
    try:
        return Allocation(
            device_nodes=tuple(dict.fromkeys(node for one in given for node in one.device_nodes)),
            mounts=tuple(dict.fromkeys(mount for one in given for mount in one.mounts)),
            cdi_devices=tuple(name for one in given for name in one.cdi_devices),
        )
    except ValueError:  # their paths depend on what else the container gets
        return None


def outdated(given: Answer, now: Answer, complete: Answer) -> str:
    """How what was given differs from what the same ids give now; empty if it means the same. ``now``: the driver's
    answer alone, ``complete``: with what the configuration adds.
    """
    if given.nodes or given.cdi_devices or now.nodes or now.mounts or now.cdi_devices:
        differences = (
            *_other_nodes(given.nodes, now.nodes),
            *_changed(given.mounts, now.mounts, complete.mounts),
            *_other_names(given.cdi_devices, now.cdi_devices),
        )
    else:
        differences = (
            *_changed(given.env, now.env, complete.env, "env {}={}"),
            *_changed(given.annotations, now.annotations, complete.annotations, "annotation {}={}"),
        )
    return next((f"this container was given {was}, and it is {is_} now" for was, is_ in differences), "")


def same_hardware(given: Answer, now: Answer) -> bool:
    """Whether both say the same of several devices, although perhaps in another order: their paths at other places, and
    what is listed in a text in another way.
    """
    return all(
        sorted(was.values()) == sorted(is_.values())
        for was, is_ in ((given.nodes, now.nodes), (given.mounts, now.mounts))
    ) and all(
        _words(was, is_) == _words(is_, was)
        for was, is_ in ((given.env, now.env), (given.annotations, now.annotations))
    )


def _words(texts: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """What the texts list, of names that the others have, too."""
    return sorted(word for name, text in texts.items() if name in others for word in _WORD.findall(text))


_Differences = Iterator[tuple[str, str]]
"""What was given, and what is in its place now."""


def _other_nodes(given: Mapping[str, str], now: Mapping[str, str]) -> _Differences:
    for where, path in given.items():
        if where in now and path != now[where]:
            yield path, now[where]
        elif where not in now and path not in now.values():
            yield path, _some(now.values())


def _changed(
    given: Mapping[str, str], now: Mapping[str, str], complete: Mapping[str, str], text: str = "{1}"
) -> _Differences:
    """What the driver says in another way now, but for what the configuration has in its place."""
    for name, value in given.items():
        if name in now and value != now[name] and complete.get(name) == now[name]:
            yield text.format(name, value), text.format(name, now[name])


def _other_names(given: Iterable[str], now: Iterable[str]) -> _Differences:
    for name in given:
        if name not in now:
            yield f"the CDI device {name}", _some(now)


def _some(found: Iterable[str]) -> str:
    return ", ".join(sorted(found)) or "nothing"
