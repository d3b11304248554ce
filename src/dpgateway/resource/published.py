"""What a front that publishes devices to the cluster says of itself, as one frozen value for status and metrics.

Nothing of it exists on a node whose resources are offered by the device plugin alone. docs/reference/status.md
describes each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpgateway.kit.call_stats import Calls
from dpgateway.resource.standing import Failure, Standing


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The slices of one pool at the API server."""

    name: str
    generation: int | None
    slices: int
    devices: int
    refused: str | None
    """Why the pool can't be published."""
    left_out: tuple[str, ...]
    """A sentence for each device that isn't in the slices."""
    unsaid: tuple[str, ...]
    """A sentence for each attribute of a device that isn't."""


@dataclass(frozen=True, slots=True)
class SlicesStatus:
    """The slices of this node."""

    count: int
    devices: int
    right: bool
    """Whether the API server has what the resources offer."""
    written: str | None
    deleted: int
    """How often others deleted slices."""
    contested: bool
    """Whether somebody else keeps deleting them."""
    waits: str | None
    """What the next write waits for, if nothing is wrong."""
    failure: Failure | None
    code: int | None
    """The failure's status of HTTP."""
    pools: tuple[PoolStatus, ...]


@dataclass(frozen=True, slots=True)
class GivenStatus:
    """What a claim has of one resource, for one of its requests."""

    request: str
    resource: str
    ids: tuple[str, ...]
    devices: tuple[str, ...]
    """The names in the slices."""
    admin: bool


@dataclass(frozen=True, slots=True)
class ClaimStatus:
    """One claim that has devices."""

    namespace: str
    name: str
    uid: str
    phase: str
    since: str | None
    pods: tuple[str, ...]
    given: tuple[GivenStatus, ...]
    gone: bool = False
    """Whether its pods are gone for the scheduler, but may still have running containers."""


@dataclass(frozen=True, slots=True)
class ApiServerStatus:
    """The API server of the cluster."""

    url: str
    failure: Failure | None
    """Why it doesn't answer."""


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """One group of resources that change their front together."""

    group: str
    """The pool's name, or the resource's."""
    resources: tuple[str, ...]
    state: str
    since: str | None
    because: str
    waits_for: str | None
    """What the next state waits for."""
    obstacles: tuple[str, ...]
    """What keeps the group off DRA."""
    unknown: tuple[str, ...]
    """What isn't known of what DRA needs."""
    unable: str | None
    """Why containers get nothing by DRA on this node: one of a claim's pod that starts again runs without its devices.
    None if they do, or if that isn't known.
    """
    flaps: bool
    """Whether its front changed too often, so that it stays on the device plugin for a while."""


@dataclass(frozen=True, slots=True)
class DraStatus:
    """The front for DRA, which all of its resources share."""

    driver: str
    registration: Standing
    resources: tuple[str, ...]
    """The names of the resources that it offers, or is going to."""
    elsewhere: str | None
    """The other gateway that has the driver."""
    withdrawn: bool
    slices: SlicesStatus
    claims: tuple[ClaimStatus, ...]
    doubt: Failure | None
    """Why no claim gets devices."""
    refused: Failure | None
    """Why the last claim that wanted devices got none."""
    api_server: ApiServerStatus
    switches: tuple[SwitchStatus, ...] = ()
    """The resources with ``front: auto``, by group."""

    @property
    def at_risk(self) -> Mapping[str, str]:
        """Why containers of claims' pods would start without their devices, by resource."""
        return {name: one.unable for one in self.switches if one.unable for name in one.resources}

    @property
    def needed(self) -> bool:
        """Whether pods have devices by DRA here, or are to get some."""
        return bool(self.resources or self.claims)


@dataclass(frozen=True, slots=True)
class DraFigures:
    """Its counters."""

    status: DraStatus
    devices: Mapping[str, int] = field(default_factory=dict)
    """`devices` contains the number of devices in slices, keyed by resource."""
    writes: Mapping[str, int] = field(default_factory=dict)
    """`writes` contains the number of attempts to write slices, keyed by outcome."""
    calls: Mapping[str, Calls] = field(default_factory=dict)
    """`calls` contains the kubelet's calls, a claim each, keyed by method."""
