"""The result of a rehearsal, and the findings that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpgateway.preflight.values import Finding


@dataclass(frozen=True, slots=True)
class Again:
    """The readmission of a pod by the new kubelet."""

    pod: str
    """Its uid."""
    admitted: bool
    reason: str
    """Why it was refused; empty if it was admitted."""
    allocated: int
    """The number of devices allocated to it again, because the kubelet has forgotten its holdings."""


@dataclass(frozen=True, slots=True)
class Id:
    """The holders of an id before and after."""

    resource: str
    id: str
    before: tuple[str, ...]
    """Containers, each as its pod's uid, a slash and its name."""
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The result of a rehearsal."""

    kubelet: str
    """The simulated version."""
    pods: tuple[Again, ...] = ()
    ids: tuple[Id, ...] = ()
    """The ids held before or after."""
    crashed: str = ""
    """Why the kubelet crashed; empty if it didn't."""


def findings(rehearsal: Rehearsal) -> Iterator[Finding]:
    played = f"in the rehearsal kubelet {rehearsal.kubelet}"
    if rehearsal.crashed:
        yield Finding("loss", "rehearsal-crashed", f"{played} crashed: {rehearsal.crashed}", "drain the node first")
    for one in rehearsal.pods:
        if not one.admitted:
            text = f"{played} refused pod {one.pod}: {one.reason}"
            yield Finding("loss", "rehearsal-refused", text, "drain the node first", pods=(one.pod,))
        elif one.allocated:
            text = (
                f"{played} had forgotten what pod {one.pod} holds, and allocated {one.allocated} devices to it again; "
            )
            text += "a real kubelet takes any that it counts as free"
            yield Finding("loss", "rehearsal-allocated", text, "drain the node first", pods=(one.pod,))
    for resource in sorted({one.resource for one in rehearsal.ids}):
        other = [one for one in rehearsal.ids if one.resource == resource and one.before != one.after]
        if other:
            moves = "; ".join(f"{one.id}: {_who(one.before)} before, {_who(one.after)} after" for one in other)
            ids = tuple(one.id for one in other)
            pods = tuple(sorted({who.partition("/")[0] for one in other for who in one.before}))
            text = f"{played} counted other holders: {moves}"
            yield Finding("loss", "rehearsal-holders", text, "drain the node first", resource, ids, pods)


def _who(holders: tuple[str, ...]) -> str:
    return " and ".join(holders) or "nobody"
