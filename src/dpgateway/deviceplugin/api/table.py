"""One version of the kubelet's device-plugin API, as a value with a row for each of its RPCs.

A call that a version lacks is a missing row; all other differences are fields of :class:`Api`. No other code branches
on the version, but ``remainder`` speaks v1beta1 alone: only kubelets with DRA see it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpgateway.deviceplugin.values import Grant, Registration
from dpgateway.model import Allocation, Health
from dpgateway.resource.shares import Offer

LARGEST = 4 * 1024 * 1024
"""Most bytes of a list, or of an answer. Beyond this a kubelet from 1.10 on ends the stream, or fails the pod of the
Allocate (grpc-go's default). Kubelets 1.8 and 1.9 have no such limit, but their nodes will be upgraded."""

_GRPC_GO = re.compile(r"grpc-go/(\d+)\.(\d+)")
"""A kubelet's user agent."""
_SICK = Health.unhealthy("so that the list is as long as it can be")


class Call(enum.Enum):
    """The calls of a kubelet, independent of the version, with their arguments and results."""

    OPTIONS = "options"
    """None -> Options"""
    WATCH = "watch"
    """None -> a stream of lists, each built from ``Api.to_offer``"""
    PREFER = "prefer"
    """tuple[Preference, ...] -> tuple[tuple[str, ...], ...]"""
    ALLOCATE = "allocate"
    """tuple[tuple[str, ...], ...] -> tuple[Grant, ...]"""
    PREPARE = "prepare"
    """tuple[str, ...] -> None"""


@dataclass(frozen=True, slots=True)
class Answer:
    """Allocate's answer for one container, which the kubelet stores and repeats at each start of the container."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Host paths of device nodes, by container path."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Mounted host paths, by container path."""
    cdi_devices: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rpc:
    """One RPC of one version: its name on the wire, its call, and the pure codecs between the two."""

    name: str
    call: Call
    decode: Callable[[bytes], Any]
    """Raises google.protobuf.message.DecodeError on bytes that aren't the message."""
    encode: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Api:
    """One version of the API."""

    name: str
    """The name in configuration and logs."""
    version: str
    """The version that Register sends; the kubelet compares it exactly."""
    package: str
    """The protobuf package of both services on the wire. Two versions may share one."""
    rpcs: tuple[Rpc, ...]
    to_register: Callable[[Registration], bytes]
    to_offer: Callable[[Offer], bytes]
    """Encodes one offered id, as a list of one.

    Lists are repeated fields, so the bytes of a list are its parts' bytes, concatenated.
    """
    from_answer: Callable[[bytes], Answer]
    """Decodes the answer that a kubelet of this version stores in its checkpoint for one container. Raises
    google.protobuf.message.DecodeError."""
    forgetful: tuple[str, ...] = ()
    """User agents of kubelets that keep a device's health from before its plugin disconnected, and take the returning
    plugin's full list for no change (#62773, Kubernetes 1.9 to 1.12). They get every id Unhealthy first."""
    pause: float = 0.0
    """Seconds between two lists, across resources; with less the kubelet may crash, or corrupt its checkpoint."""
    writes: bool = False
    """Whether the kubelet writes its checkpoint at each list, in place, so that the next list has to wait for it."""
    repeats: bool = False
    """Whether the kubelet allocates again, with the same ids, at each restart of a container."""
    losses: tuple[str, ...] = ()
    """Fields of an allocation that this version lacks; the log names those that a container loses."""
    passes_cdi_from: tuple[int, ...] | None = None
    """The grpc-go version of the first kubelets that pass CDI names on by default. None: no kubelet of this version
    does."""

    by_call: Mapping[Call, Rpc] = field(init=False, compare=False, repr=False)
    """Its rows, by call."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_call", {rpc.call: rpc for rpc in self.rpcs})

    @property
    def service(self) -> str:
        """Full name of the service on the plugin's socket."""
        return f"{self.package}.DevicePlugin"

    @property
    def register_path(self) -> str:
        return f"/{self.package}.Registration/Register"

    def largest(self, offers: Iterable[Offer]) -> int:
        """Bytes of the list of ``offers`` with every id Unhealthy, its longest form."""
        return sum(len(self.to_offer(Offer(one.id, _SICK, one.numa_nodes))) for one in offers)

    def too_large(self, grants: tuple[Grant, ...]) -> str:
        """Why a kubelet would reject an Allocate's answer with these grants; empty if it fits."""
        size = len(self.by_call[Call.ALLOCATE].encode(grants))
        return "" if size <= LARGEST else f"the answer takes {size} bytes, and the kubelet accepts {LARGEST}"

    def passes_cdi(self, agent: str) -> bool | None:
        """Whether a kubelet with this user agent passes CDI names on to the runtime; None if unknown."""
        if self.passes_cdi_from is None:
            return False
        version = _GRPC_GO.match(agent)
        return None if version is None else tuple(map(int, version.groups())) >= self.passes_cdi_from


AnswerMessage = Any
"""A container's answer, as the message of any version."""


def fill(answer: AnswerMessage, allocation: Allocation) -> None:
    """Fills in the fields that a container's answer has in every version."""
    answer.envs.update(allocation.env)
    for m in allocation.mounts:
        answer.mounts.add(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
    for n in allocation.device_nodes:
        answer.devices.add(container_path=n.container_path, host_path=n.host_path, permissions=n.permissions)


def stored(answer: AnswerMessage) -> Answer:
    """The same fields of a stored answer."""
    return Answer(
        nodes={one.container_path: one.host_path for one in answer.devices},
        mounts={one.container_path: one.host_path for one in answer.mounts},
        env=dict(answer.envs),
    )
