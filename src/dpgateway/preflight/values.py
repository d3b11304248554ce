"""What is known of a node before its kubelet is upgraded, and what is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dpgateway.node.holders import Note
from dpgateway.node.versions import Layout, Release, Span

SCHEMA = 1
"""The version of the JSON: docs/reference/preflight.md."""

Level = Literal["loss", "unknown", "change"]
Verdict = Literal["loss", "unknown", "safe"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the upgrade does, or may do."""

    level: Level
    """``loss``: something that works now won't. ``unknown``: nobody can tell whether it will. ``change``: nobody has to
    act.
    """
    code: str
    """What it is, in a word that stays the same."""
    text: str
    advice: str = ""
    resource: str = ""
    """The resource that it is about; empty if it is about the node."""
    ids: tuple[str, ...] = ()
    """The held ids that it is about."""
    pods: tuple[str, ...] = ()
    """The uids of the pods that hold them."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the checkpoint says."""

    notes: Mapping[str, Note] = field(default_factory=dict)
    layouts: frozenset[Layout] = frozenset()
    """Empty if there is no file."""
    annotated: frozenset[str] = frozenset()
    """The resources of which containers hold devices that came with annotations."""
    named: frozenset[str] = frozenset()
    """Those of which containers hold devices that came by their CDI names."""
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
    """The ids that it would be offered as; why each is Unhealthy, or nothing if it is Healthy."""
    numa: bool = False
    prepares: bool = False
    prefers: bool = False
    annotates: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The container runtime, as it says itself."""

    name: str
    version: str
    cdi: bool | None
    """Whether it passes CDI devices to containers by their names; None if that can't be told."""
    unread_cdi_dirs: tuple[str, ...] = ()
    """Those of the gateway's directories of CDI specs that it doesn't read."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the verdicts come from."""

    present: Span
    """The releases that the kubelet may be of now."""
    to: Release
    held: Held = Held()
    served: tuple[OfferedResource, ...] = ()
    ours: frozenset[str] = frozenset()
    """Resources that a dpgateway gave away on this node, as far as that is known."""
    apis: tuple[str, ...] = ()
    """The device-plugin APIs that the configuration allows."""
    runtime: RuntimeFacts | None = None
    no_runtime: str = ""
    """Why the runtime isn't known."""
    cgroups: int | None = None
    """Version 1 or 2."""
    allows_cgroup_v1: bool = False
    """Whether the kubelet's configuration is known to have ``failCgroupV1: false``."""
