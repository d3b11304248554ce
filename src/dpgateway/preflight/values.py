"""The facts about a node before its kubelet is upgraded, and the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dpgateway.node.holders import Note
from dpgateway.node.versions import KubeletVersion, Layout, Span

SCHEMA = 1
"""The version of the JSON: docs/reference/preflight.md."""

Level = Literal["loss", "waits", "unknown", "change"]
Verdict = Literal["loss", "waits", "unknown", "safe"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One effect that the upgrade has, or may have."""

    level: Level
    """``loss``: something stops working. ``waits``: a resource wouldn't be offered before this is mended. ``unknown``:
    something may. ``change``: no action is needed.
    """
    code: str
    """A stable name of the kind of finding."""
    text: str
    advice: str = ""
    resource: str = ""
    """The resource concerned; empty for the node."""
    ids: tuple[str, ...] = ()
    """The held ids concerned."""
    pods: tuple[str, ...] = ()
    """The uids of the pods that hold them."""


@dataclass(frozen=True, slots=True)
class Held:
    """The contents of the checkpoint."""

    notes: Mapping[str, Note] = field(default_factory=dict)
    layouts: frozenset[Layout] = frozenset()
    """Empty if there is no file."""
    annotated: frozenset[str] = frozenset()
    """Resources with held devices that came with annotations."""
    named: frozenset[str] = frozenset()
    """Resources with held devices that came as CDI names."""
    unread: str = ""
    """Why the checkpoint can't be read."""


@dataclass(frozen=True, slots=True)
class OfferedResource:
    """A resource of the configuration."""

    name: str
    driver: str
    failure: str | None = None
    """Why its devices aren't known."""
    offered: Mapping[str, str] = field(default_factory=dict)
    """The ids that would be offered, each with the reason why it is Unhealthy; empty for a Healthy id."""
    numa: bool = False
    prepares: bool = False
    prefers: bool = False
    annotates: bool = False
    joint: tuple[str, ...] = ()
    """The hardware, such as an IOMMU group's node, of which one container may have several devices together."""


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The container runtime, as it reports itself."""

    name: str
    version: str
    cdi: bool | None
    """Whether it resolves CDI device names for containers; None if unknown."""
    unread_cdi_dirs: tuple[str, ...] = ()
    """The gateway's CDI directories that the runtime doesn't read."""


@dataclass(frozen=True, slots=True)
class DevicesOfClaim:
    """The devices of a resource that a claim has."""

    claim: str
    """``claim namespace/name``."""
    resource: str
    ids: tuple[str, ...] = ()
    """Empty if it only monitors: then it holds none (adminAccess)."""
    pods: tuple[tuple[str, str], ...] = ()
    """The uid and the name of each of its pods."""
    ending: bool = False
    """Whether its containers have ended, and the devices are only being released."""


@dataclass(frozen=True, slots=True)
class Site:
    """The surroundings of a gateway that runs here, or would."""

    no_kubelet: str = ""
    """Why no kubelet serves in the device-plugins directory; empty if one may."""
    denied: tuple[str, ...] = ()
    """Sockets and directories to which this process has no access."""
    read_only: tuple[str, ...] = ()
    """Directories that the gateway writes, in file systems that are read-only."""
    selinux: str = ""
    """The type that SELinux gives to this process; empty without SELinux."""
    not_its_root: str = ""
    """The evidence of another ``--root-dir`` of the kubelet; empty without any."""
    roots: tuple[str, ...] = ()
    """Other directories in which a kubelet serves PodResources."""
    no_runtime: str = ""
    """The configured socket of the container runtime, if none answers there."""
    runtimes: tuple[str, ...] = ()
    """Sockets that answer in its place."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts."""

    present: Span
    """The possible versions of the present kubelet."""
    to: KubeletVersion
    held: Held = Held()
    served: tuple[OfferedResource, ...] = ()
    ours: frozenset[str] = frozenset()
    """Resources that a dpgateway is known to have granted on this node."""
    apis: tuple[str, ...] = ()
    """The device-plugin APIs that the configuration allows."""
    runtime: RuntimeFacts | None = None
    no_runtime: str = ""
    """Why the runtime is unknown."""
    cgroups: int | None = None
    """Version 1 or 2."""
    allows_cgroup_v1: bool = False
    """Whether the kubelet's configuration is known to have ``failCgroupV1: false``."""
    site: Site | None = None
    """None if the question is an upgrade, for which nothing has to run."""
    claimed: tuple[DevicesOfClaim, ...] = ()
    """By DRA, as the gateway's records have it."""
    unread_claims: str = ""
    """Why records couldn't be read."""
