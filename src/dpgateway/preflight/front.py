"""The findings about a change of the resources' front: its conditions, and its effects.

Nothing that one front gave is lost: its devices are withheld by the other one until their containers end. But a kubelet
that doesn't know claims of extended resources starts such containers again without their devices, whatever the front.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dpgateway.node.runtime import knows_cdi
from dpgateway.preflight.values import DevicesOfClaim, Facts, Finding, OfferedResource

FrontName = Literal["dra", "deviceplugin"]
FrontVerdict = Literal["ready", "changes", "unknown", "waits", "loss"]
"""From good to bad."""
MOST_IN_A_CLAIM = 32
"""Devices (AllocationResultsMaxSize, resource/v1/types.go). Of an extended resource a pod has one claim."""

_VERDICTS: Mapping[str, FrontVerdict] = {
    "change": "changes",
    "unknown": "unknown",
    "waits": "waits",
    "loss": "loss",
}


@dataclass(frozen=True, slots=True)
class FrontFacts:
    """The facts about the resources' next front."""

    front: FrontName
    driver: str | None = None
    """The DRA driver of the configuration."""
    kubelet: str = ""
    """The version of the kubelet, as its Node says; empty if unknown."""
    classes: Mapping[str, str] | None = None
    """`classes` contains why the DeviceClass that counts may give other devices, keyed by extended resource; an empty
    text if it gives ours. None if unknown.
    """
    served: bool | None = None
    """Whether the API server has resource.k8s.io/v1; None if unknown."""
    denied: tuple[str, ...] = ()
    """Requests that the account may not make, as in ``create resourceslices``."""
    unasked: tuple[str, ...] = ()
    """Why the API server couldn't be asked."""
    runtime: str = ""
    """The container runtime, as the Node says: ``containerd://2.0.1``; empty if unknown."""


def findings(facts: Facts, front: FrontFacts) -> Iterator[Finding]:
    """The findings of all resources, and of the node."""
    if front.front == "deviceplugin":
        for name, some in _by_resource([one for one in facts.claimed if one.ids]).items():
            have = "has" if len(some) == 1 else "have"
            text = f"{_named(some)} {have} devices of it, which no other pod gets until they end"
            advice = "leave dra.driver in the configuration until then: without it their pods can't end"
            yield Finding("change", "claims-held", text, advice, name, *_of_claims(some))
        return
    yield from _of_node(facts, front)
    for one in facts.served:
        yield from _of_resource(facts, one, front)


def rollback(facts: Facts) -> Iterator[Finding]:
    """What containers that have devices by DRA lose under a kubelet before 1.36: it starts them again without asking
    the driver, and without an event (seen on 1.34.9).
    """
    to = facts.to
    if to.extended_claims:
        return
    if facts.unread_claims:
        text = f"which claims have devices isn't known: {facts.unread_claims}; kubelet {to} knows no such claims"
        yield Finding("unknown", "claims-unread", text, "drain the node first")
    upgrade = facts.site is None
    for name, some in _by_resource([one for one in facts.claimed if not one.ending]).items():
        advice = "drain the node first, while it has its present kubelet" if upgrade else "delete these pods"
        # The first on a Node that has had the resource by a device plugin: its number 0 stays, and counts before 1.36
        # (removeMissingExtendedResources, pkg/kubelet/lifecycle/predicate.go; seen on 1.34.9).
        text = (
            f"kubelet {to} rejects these pods when it starts, or starts their containers again without devices by DRA"
        )
        text = f"{text}: {_named(some)}"
        yield Finding("loss", "claims-lost", text, advice, name, *_of_claims(some))


def verdicts(facts: Facts, front: FrontFacts) -> Mapping[str, FrontVerdict]:
    """The verdict on each resource: the worst of its own findings and of the node's."""
    levels, some = list(_VERDICTS), (*findings(facts, front), *rollback(facts))
    worst: dict[str, FrontVerdict] = {}
    for name in (one.name for one in facts.served):
        own = [levels.index(one.level) for one in some if one.resource in ("", name)]
        worst[name] = _VERDICTS[levels[max(own)]] if own else "ready"
    return worst


def _by_resource(claimed: Sequence[DevicesOfClaim]) -> Mapping[str, Sequence[DevicesOfClaim]]:
    names = sorted({one.resource for one in claimed})
    return {name: [one for one in claimed if one.resource == name] for name in names}


def _named(claimed: Sequence[DevicesOfClaim]) -> str:
    pods = {one: f" (pod {', '.join(name for _, name in one.pods)})" if one.pods else "" for one in claimed}
    return ", ".join(f"{one.claim}{pods[one]}" for one in claimed)


def _of_claims(claimed: Sequence[DevicesOfClaim]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids, and the uids of the pods."""
    ids, pods = {id_ for one in claimed for id_ in one.ids}, {uid for one in claimed for uid, _ in one.pods}
    return tuple(sorted(ids)), tuple(sorted(pods))


def _of_node(facts: Facts, front: FrontFacts) -> Iterator[Finding]:
    if front.driver is None:
        advice = "choose a name for the whole cluster, and keep it: dra: {driver: dra.example.com}"
        yield Finding("waits", "dra-no-driver", "the configuration has no dra.driver", advice)

    # The Node says the version exactly, but of an upgrade that is to come the answer is in the table.
    known = {one.extended_claims for one in facts.present.versions} if facts.site is not None else {None}
    able = facts.to.extended_claims if facts.site is None else known.pop() if len(known) == 1 else None
    which = str(facts.to) if facts.site is None else front.kubelet or str(facts.present)
    if able is False:
        text = f"kubelet {which} starts pods of an extended resource without their claims' devices"
        yield Finding("waits", "dra-kubelet", text, "upgrade it to 1.36 or later first")
    elif able is None:
        text = "whether the kubelet is 1.36 or later isn't known"
        yield Finding("unknown", "dra-kubelet-unknown", text, "say which it is: --from 1.37")

    # A runtime that can't be asked, as from a pod without its socket, is known by its version alone.
    name, _, version = front.runtime.partition("://")
    runtime, knows = facts.runtime, knows_cdi(name, version)
    if runtime is not None:
        name, version, knows = runtime.name, runtime.version, runtime.cdi
    if knows is False:
        text = f"{name} {version} drops CDI names in silence: containers would run without devices"
        advice = "upgrade it to containerd 2, or 1.7.2 with enable_cdi = true"
        yield Finding("waits", "dra-runtime", text, advice)
    elif knows is None:
        text = f"whether the container runtime knows CDI isn't known{f': {facts.no_runtime}' if not runtime else ''}"
        advice = "containerd 2 does, and 1.7.2 with enable_cdi = true"
        yield Finding("unknown", "dra-runtime-unknown", text, advice)

    for text in front.unasked:
        advice = "run it where the gateway runs, with its account"
        yield Finding("unknown", "dra-unasked", f"the API server doesn't say what DRA needs: {text}", advice)
    if front.served is False:
        text = "the API server has no resource.k8s.io/v1, which it has from 1.34 on"
        yield Finding("waits", "dra-api", text, "upgrade the control plane first")
    if front.denied:
        text = f"this account may not {', '.join(front.denied)}"
        yield Finding("waits", "dra-rights", text, "give it these rights: the chart's ClusterRole has them")


def _of_resource(facts: Facts, one: OfferedResource, front: FrontFacts) -> Iterator[Finding]:
    name = one.name
    if front.classes is not None and name not in front.classes:
        text = "no DeviceClass has its name as extendedResourceName: pods that ask for it would stay Pending"
        yield Finding("waits", "dra-class", text, "make one, as the chart does (docs/how-to/use-dra.md)", name)
    if text := (front.classes or {}).get(name, ""):
        advice = "delete that class, or change its selector; `front: dra` takes it as it is, `front: auto` doesn't"
        yield Finding("unknown", "dra-class-unsure", text, advice, name)
    note = facts.held.notes.get(name, {})
    pods = Counter(uid for noted in note.values() for uid in noted.pods)
    if large := sorted(uid for uid, count in pods.items() if count > MOST_IN_A_CLAIM):
        text = f"a pod has more than {MOST_IN_A_CLAIM} of its devices, which no claim can have: it would stay Pending"
        yield Finding("loss", "dra-many", text, "leave it on the device plugin", name, pods=tuple(large))
    if note:
        text = f"containers hold {len(note)} of its devices: these aren't in the slices until the containers end"
        yield Finding("change", "dra-held", text, "", name, tuple(sorted(note)), tuple(sorted(pods)))

    # Features of the device plugin that containers use and DRA lacks.
    if one.prepares:
        text = "its devices are prepared once for each claim, and not before each start of a container"
        yield Finding("change", "dra-prepare", text, "", name)
    if one.prefers:
        text = "no preference: the scheduler takes the first devices that fit"
        yield Finding("change", "dra-preference", text, "", name)
    if one.numa:
        text = "the kubelet's topology manager doesn't heed its NUMA nodes; they are an attribute, for claims"
        yield Finding("change", "dra-topology", text, "", name)
    if one.annotates:
        yield Finding("change", "dra-annotations", "containers don't get its annotations", "", name)
    if one.joint:
        text = f"several devices have {one.joint[0]} in common: no claim gets two of them"
        yield Finding("change", "dra-joint", text, "let them be one device, or leave it on the device plugin", name)
