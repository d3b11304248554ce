"""Kubelet features that containers use, and the findings about features that an upgrade adds or removes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpgateway.node.versions import ALL, KubeletVersion
from dpgateway.preflight.values import Facts, Finding


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that only some versions have."""

    code: str
    of: Callable[[KubeletVersion], bool]
    used: Callable[[Facts], frozenset[str]]
    """The names of resources that use it."""
    lost: str
    comes: str


def _served(key: str) -> Callable[[Facts], frozenset[str]]:
    return lambda facts: frozenset(one.name for one in facts.served if getattr(one, key))


FEATURES = (
    Feature(
        "prepare",
        lambda one: one.prepare,
        _served("prepares"),
        "no PreStartContainer: its devices are prepared inside Allocate, and not before each start of a container",
        "PreStartContainer: its devices are prepared before each start of a container, no longer inside Allocate",
    ),
    Feature(
        "preference",
        lambda one: one.preference,
        _served("prefers"),
        "no GetPreferredAllocation: the kubelet takes any devices",
        "GetPreferredAllocation: the kubelet asks which devices to take",
    ),
    Feature(
        "topology",
        lambda one: one.topology,
        _served("numa"),
        "no topology: the kubelet doesn't heed the NUMA nodes of its devices",
        "topology: the kubelet's topology manager heeds the NUMA nodes of its devices",
    ),
    Feature(
        "annotations",
        lambda one: one.annotations,
        lambda facts: _served("annotates")(facts) | facts.held.annotated,
        "no annotations: containers don't get those that belong to its devices",
        "annotations: containers get those that belong to its devices",
    ),
    Feature(
        "cdi",
        lambda one: one.cdi,
        lambda facts: facts.held.named,
        "no CDI names: containers that got their devices by name lose them when they restart; drain the node first",
        "CDI names: they are passed on to the runtime",
    ),
)


def findings(facts: Facts) -> Iterator[Finding]:
    present, to = facts.present, facts.to
    for feature in FEATURES:
        since = next(one for one in ALL if feature.of(one))
        had = {feature.of(one) for one in present.versions}
        for name in sorted(feature.used(facts)):
            if True in had and not feature.of(to):
                text = f"kubelet {to} has {feature.lost} ({since} and later have it)"
                yield Finding("loss", f"{feature.code}-lost", text, resource=name)
            elif False in had and feature.of(to):
                unsure = f", if the kubelet is older than {since} now" if True in had else ""
                yield Finding("change", f"{feature.code}-comes", f"{feature.comes}{unsure}", resource=name)
