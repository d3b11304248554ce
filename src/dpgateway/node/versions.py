"""Differences between the kubelets of Kubernetes 1.8 to 1.37 that matter in an upgrade: the gateway's only such table.

It has a row for each minor version that changed something, like a change log, valid for the newest patch. Other modules
read fields of a version, and never compare versions. Each cell was observed: docs/reference/kubelets.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpgateway.errors import ConfigurationError

OLDEST, NEWEST = 8, 37
"""Minor versions."""

_VERSION = re.compile(r"v?1\.(\d{1,4})(?:\.\d{1,4})?\Z", re.ASCII)


class Layout(enum.Enum):
    """Formats of the kubelet's checkpoint (``checkpoint`` shows them in full)."""

    PER_DEVICE = "per device"
    PER_CONTAINER = "per container"
    CHECKED = "per container, with a checksum"
    BY_NODE = "by NUMA node"


@dataclass(frozen=True, slots=True)
class KubeletVersion:
    """One minor version of the kubelet."""

    minor: int
    api: str
    """The device-plugin API that it accepts, by its name in the configuration."""
    writes: Layout
    reads: frozenset[Layout]
    """The layouts that it can read; from any other it starts as if no container held anything."""
    reads_lately: frozenset[Layout]
    """Those of ``reads`` that its first patches can't read."""
    gated: bool
    """Whether device plugins need the feature gate DevicePlugins, which is off by default."""
    prepare: bool
    """Whether it calls PreStartContainer."""
    annotations: bool
    topology: bool
    """Whether it heeds the NUMA nodes of devices."""
    preference: bool
    """Whether it calls GetPreferredAllocation."""
    cdi: bool
    """Whether it passes CDI names on to the runtime by default."""
    cdi_annotation: bool
    """Whether it passes CDI names in an annotation, besides the Container Runtime Interface."""
    pod_resources: str | None
    """The newest version of PodResources that it serves."""
    needs_healthy: bool
    """Whether it refuses to re-admit a pod without a running container if one of the pod's devices isn't Healthy."""
    unlisted_crashes: bool
    """Whether a list that lacks a held id can crash it."""
    cri_v1_only: bool
    """Whether it requires v1 of the Container Runtime Interface."""
    refuses_cgroup_v1: bool
    """Whether it doesn't start on a node with cgroup v1, unless ``failCgroupV1: false`` is in its configuration."""
    extended_claims: bool
    """Whether a pod that asks for an extended resource gets its devices by a claim."""

    def __str__(self) -> str:
        return f"1.{self.minor}"


_FIRST: dict[str, Any] = {
    "api": "v1alpha1",
    "writes": Layout.PER_DEVICE,
    "reads": frozenset({Layout.PER_DEVICE}),
    "reads_lately": frozenset(),
    "gated": True,
    "prepare": False,
    "annotations": False,
    "topology": False,
    "preference": False,
    "cdi": False,
    "cdi_annotation": False,
    "pod_resources": None,
    "needs_healthy": False,
    "unlisted_crashes": False,
    "cri_v1_only": False,
    "refuses_cgroup_v1": False,
    "extended_claims": False,
}

_CHANGES: dict[int, dict[str, Any]] = {
    9: {"api": "v1alpha2", "writes": Layout.PER_CONTAINER, "reads": frozenset({Layout.PER_CONTAINER})},
    10: {"api": "v1beta1", "gated": False, "prepare": True, "annotations": True},
    11: {"writes": Layout.CHECKED, "reads": frozenset({Layout.CHECKED})},
    13: {"pod_resources": "v1alpha1"},  # up to 1.14 only with the feature gate KubeletPodResources
    16: {"topology": True},
    19: {"preference": True},
    20: {
        "pod_resources": "v1",
        "writes": Layout.BY_NODE,
        "reads": frozenset({Layout.BY_NODE, Layout.CHECKED}),
        "reads_lately": frozenset({Layout.CHECKED}),  # kubernetes #102880
    },
    23: {"reads_lately": frozenset()},  # kubernetes #102882
    25: {"needs_healthy": True},  # from 1.25.10 on (kubernetes #116376)
    26: {"cri_v1_only": True},  # kubernetes #110618
    29: {"cdi": True, "cdi_annotation": True},  # 1.28 has the feature gate DevicePluginCDIDevices, but it is off
    31: {"reads": frozenset({Layout.BY_NODE})},  # kubernetes #123398
    32: {"cdi_annotation": False},  # kubernetes #126435
    34: {"unlisted_crashes": True},
    35: {"refuses_cgroup_v1": True},  # KEP-5573
    36: {"extended_claims": True},  # the gate DRAExtendedResource is on (KEP-5004)
}


def _all() -> tuple[KubeletVersion, ...]:
    known, found = dict(_FIRST), []
    for minor in range(OLDEST, NEWEST + 1):
        known |= _CHANGES.get(minor, {})
        found.append(KubeletVersion(minor=minor, **known))
    return tuple(found)


ALL = _all()
"""Oldest first."""


def kubelet_version(version: str) -> KubeletVersion:
    """Parses "1.37", "v1.37" or "1.37.1". Raises ConfigurationError for another text, or an unknown version."""
    found = _VERSION.match(version)
    minor = int(found[1]) if found else -1
    if OLDEST <= minor <= NEWEST:
        return ALL[minor - OLDEST]
    hint = f"; kubelets newer than 1.{NEWEST} are unknown to this dpgateway" if minor > NEWEST else ""
    raise ConfigurationError(f"found {version!r}, expected a kubelet's version from 1.{OLDEST} to 1.{NEWEST}{hint}")


class Span(NamedTuple):
    """A range of versions, both ends included."""

    oldest: KubeletVersion
    newest: KubeletVersion

    def __str__(self) -> str:
        if self.oldest == self.newest:
            return str(self.oldest)
        return f"{self.oldest} or later" if self.newest == ALL[-1] else f"{self.oldest} to {self.newest}"

    @property
    def versions(self) -> tuple[KubeletVersion, ...]:
        return ALL[self.oldest.minor - OLDEST : self.newest.minor - OLDEST + 1]

    def within(self, other: Span) -> Span | None:
        """The intersection; None if it is empty."""
        first, last = max(self.oldest.minor, other.oldest.minor), min(self.newest.minor, other.newest.minor)
        return Span(ALL[first - OLDEST], ALL[last - OLDEST]) if first <= last else None


ANY = Span(ALL[0], ALL[-1])


def span(fits: Callable[[KubeletVersion], bool]) -> Span:
    """The span from the oldest to the newest version that fits; at least one must."""
    found = [one for one in ALL if fits(one)]
    return Span(found[0], found[-1])
