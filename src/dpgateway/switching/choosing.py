"""Which front a group of resources is to have, decided over facts alone.

Theory of operation. The resources of a group may offer the same hardware, so all of them have one front.

- DRA needs everything to be known, and true. What is unknown changes nothing: the group keeps the front that it has.
- What is false takes a group off DRA: kubelet and runtime at once, because with an older one containers run without
  their devices; a class, a right or a field once that has lasted RIGHTS_LAST, because a class is replaced by deleting
  it, and an API server that starts refuses for a while; the registration after REGISTRATION_LASTS, because kubelets
  restart. What the configuration says counts at once.
- While all is true, a group on the device plugin goes to DRA after SETTLED.
- A change of front costs pods their start for some seconds. So there is one in BETWEEN at most, and after MOST within
  WITHIN the group stays on the device plugin, or goes there, for HOLD. Only kubelet and runtime don't wait for that,
  and what they force doesn't count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dpgateway.config import ResourceConfig
from dpgateway.switching.facts import UNKNOWN, DraFacts, Fact

ChosenFront = Literal["deviceplugin", "dra"]

SETTLED = 2.0
"""Seconds for which all has to be true before a group goes to DRA."""
RIGHTS_LAST, REGISTRATION_LASTS = 30.0, 60.0
"""Seconds for which something has to be false before a group leaves DRA."""
BETWEEN = 60.0
"""Seconds between two changes of front."""
MOST, WITHIN = 3, 600.0
"""Changes, and the seconds within which so many are too many."""
HOLD = 3600.0
"""Seconds on the device plugin, from the last of too many changes on."""


class Group(NamedTuple):
    """Resources that have the same front."""

    names: tuple[str, ...]
    obstacles: tuple[str, ...] = ()
    """What keeps them off DRA in the configuration: see :func:`obstacles`."""
    pool: str = ""
    """The name of their pool in slices."""


@dataclass(frozen=True, slots=True)
class FrontChoice:
    """The front that a group is to have now."""

    front: ChosenFront
    because: str
    """A sentence for people."""
    obstacles: tuple[str, ...] = ()
    """What is false."""
    unknown: tuple[str, ...] = ()
    """What isn't known."""
    again: float | None = None
    """When to choose again although no fact has changed, in seconds of the monotonic clock."""
    flaps: bool = False
    """Whether the front changed too often."""


class _Need(NamedTuple):
    """A fact that a group needs to be true."""

    fact: Fact
    what: str
    lasts: float = RIGHTS_LAST
    """Seconds for which it has to be false before the group leaves DRA."""
    read: bool = False
    """Whether it is read at the API server with the rights that are a fact by themselves."""

    @property
    def text(self) -> str:
        if self.fact.text:
            return self.fact.text
        return f"{self.what} is missing" if self.fact.value is False else f"whether there is {self.what} isn't known"


def obstacles(config: ResourceConfig) -> tuple[str, ...]:
    """The keys of a resource that rule out DRA, as sentences."""
    found = []
    if config.annotations:
        text = f"annotations of {config.name}: containers get none by DRA: remove them, or set front: deviceplugin"
        found.append(text)
    if config.cdi == "never":
        found.append(f"cdi: never of {config.name}: by DRA devices come by CDI only: expected cdi: auto or always")
    return tuple(found)


def choose(facts: DraFacts, group: Group, front: ChosenFront, now: float, changes: Sequence[float] = ()) -> FrontChoice:
    """``front``: the present one. ``now`` and ``changes``, the times of the group's earlier changes of front, are in
    seconds of the monotonic clock. The last four changes suffice; those after ``now`` are of an earlier boot, and don't
    count.
    """
    needs = tuple(_needs(facts, group))
    false = [one for one in needs if one.fact.value is False]
    texts = (*group.obstacles, *[one.text for one in false])
    # What may not be read isn't unknown: the right to it is missing.
    readable = facts.rights.value is not False
    unknown = tuple([one.text for one in needs if one.fact.value is None and (readable or not one.read)])

    earlier = sorted(at for at in changes if at <= now)
    allowed = earlier[-1] + BETWEEN if earlier else now
    # After too many changes the group is held on the device plugin.
    several = zip(earlier, earlier[MOST - 1 :], strict=False)
    held = max((last + HOLD for first, last in several if last - first <= WITHIN), default=0.0)
    flaps = now < held

    if front == "dra" and facts.node.value is False:  # containers would run without their devices
        decided = _Decided("deviceplugin", false[0].text)
    elif unknown:
        decided = _Decided(front, f"it stays on {_NAMES[front]}: {unknown[0]}")
    elif front == "dra":
        # Each reason with the time from which on it counts.
        reasons = [(now, _FLAPS)] if flaps else []
        reasons += [(now, text) for text in group.obstacles]
        reasons += [(one.fact.since + one.lasts, one.text) for one in false]
        since, why = min(reasons, key=lambda one: one[0], default=(now, ""))
        leaves = max(since, allowed)
        if not reasons:
            decided = _Decided("dra", _COMPLETE)
        elif now < leaves:
            decided = _Decided("dra", f"it stays on {_NAMES['dra']} for a moment: {why}", leaves)
        else:
            decided = _Decided("deviceplugin", why)
    elif texts:
        decided = _Decided(front, texts[0])
    elif flaps:
        decided = _Decided(front, _FLAPS, held)
    else:
        begins = max(allowed, *[one.fact.since + SETTLED for one in needs])
        last = f"{_COMPLETE}, and has to last for a moment"
        decided = _Decided("deviceplugin", last, begins) if now < begins else _Decided("dra", _COMPLETE)
    return FrontChoice(decided.front, decided.because, texts, unknown, decided.again, flaps)


class _Decided(NamedTuple):
    """The first fields of a choice."""

    front: ChosenFront
    because: str
    again: float | None = None


_NAMES = {"deviceplugin": "the device plugin", "dra": "DRA"}
_COMPLETE = "all that DRA needs is there"
_FLAPS = (
    f"its front changed {MOST} times within {WITHIN / 60:g} minutes, so the device plugin has it for "
    f"{HOLD / 60:g} minutes"
)


def _needs(facts: DraFacts, group: Group) -> Iterator[_Need]:
    """The needs of the group; the node's first."""
    yield _Need(facts.node, "a kubelet and a container runtime that can do DRA", read=True)
    yield _Need(facts.slices, "resource.k8s.io/v1 at the API server")
    yield _Need(facts.rights, "the right to read the Node and DeviceClasses")
    for name in group.names:
        known = UNKNOWN if facts.classes is None else facts.classes.get(name, UNKNOWN)
        yield _Need(known, f"a DeviceClass of {name}", read=True)
    if group.pool in facts.fields:
        yield _Need(facts.fields[group.pool], f"all that the slices of {group.pool} need at the API server")
    yield _Need(facts.registered, "the kubelet's registration of the DRA driver", REGISTRATION_LASTS)
