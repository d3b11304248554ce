"""What must hold of every container, whatever the gateways, the kubelet and the hardware went through. Pure.

Three rules, each about containers that live:

- *Never two.* No major:minor is in two living containers at once, unless shares allow that many.
- *Its own, or nothing.* A container that starts, for the first time or again, gets exactly what Allocate gave to it.
- *Untouched.* What Allocate made for a container, and `release` removes, is there as long as its pod lives.

A *thing* is a piece of hardware, whatever its node is called and numbered now. A container lives from its start to its
end; while a start is refused it has nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Nodes = Mapping[str, str]
"""What a container gets: the thing behind each major:minor, at the time."""


class Violation(AssertionError):
    """A container has what it must not have. ``pods``: those concerned, the latest one last."""

    def __init__(self, rule: str, text: str, pods: Iterable[str]) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule, self.pods = rule, tuple(pods)


class GivenTwice(Violation):
    """The kubelet gave one id to two pods that live, and no plugin can know: a call of Allocate names no pod, and the
    containers of one pod may share an id. It does so if anybody asks for PodResources while an Allocate is in flight,
    and a pod was deleted just before (UpdateAllocatedDevices in pkg/kubelet/cm/devicemanager/manager.go, 1.37).
    """


@dataclass
class Grant:
    """What Allocate gave to a pod's container."""

    resource: str
    ids: frozenset[str]
    things: frozenset[str]
    files: frozenset[str]
    """Those that are the container's as long as its pod lives."""
    allowed: int
    """How many containers may have each of its things, as far as shares said so while it was given."""
    has: Nodes | None = None
    """None while it doesn't run."""
    starts: int = 0

    def __str__(self) -> str:
        has = "doesn't run" if self.has is None else "has " + ", ".join(f"{k}={v}" for k, v in self.has.items())
        return f"{self.resource} {'+'.join(sorted(self.ids))}, given {'+'.join(sorted(self.things))}, {has}"


@dataclass
class Oracle:
    """Used from one thread. `grants`: by pod."""

    grants: dict[str, Grant] = field(default_factory=dict)

    def given(self, pod: str, grant: Grant) -> None:
        same = [name for name, one in self.grants.items() if one.resource == grant.resource and one.ids & grant.ids]
        self.grants[pod] = grant
        if same:
            text = f"the kubelet gave {'+'.join(grant.ids)} of {grant.resource} to {', '.join(same)} and {pod}"
            raise GivenTwice("one pod for an id", text, [*same, pod])
        if not grant.things:
            raise Violation("its own, or nothing", f"{pod} was given no device: {grant}", [pod])

    def ended(self, pod: str) -> None:
        """The pod has ended; its container, too."""
        self.grants.pop(pod, None)

    def down(self, pod: str) -> None:
        """The container's process has ended; the pod lives on."""
        if pod in self.grants:
            self.grants[pod].has = None

    def started(self, pod: str, nodes: Nodes) -> None:
        """Raises Violation; the container has started nevertheless."""
        grant = self.grants[pod]
        grant.has = dict(nodes)
        grant.starts += 1
        again = "again " if grant.starts > 1 else ""
        if frozenset(nodes.values()) != grant.things:
            raise Violation("its own, or nothing", f"{pod} was started {again}and is {grant}", [pod])
        for number in nodes:
            having = [name for name, one in self.grants.items() if one.has and number in one.has and name != pod]
            # who has its share already keeps it, also when there are fewer shares by now
            holders = [grant, *(self.grants[name] for name in having)] if grant.starts > 1 else [grant]
            if len(having) + 1 > (allowed := max(one.allowed for one in holders)):
                both = "; ".join(f"{name}: {self.grants[name]}" for name in [*having, pod])
                what = f"{number} is in {len(having) + 1} containers, {allowed} allowed"
                raise Violation("never two", f"{what}, {pod} started {again}last: {both}", [*having, pod])

    def files(self, there: Iterable[str]) -> None:
        """``there``: the files that exist. Raises Violation."""
        found = frozenset(there)
        for pod, grant in self.grants.items():
            if missing := grant.files - found:
                what = ", ".join(sorted(missing))
                raise Violation("untouched", f"{what} is gone, while {pod} lives: {grant}", [pod])
