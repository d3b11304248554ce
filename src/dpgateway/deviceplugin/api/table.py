"""What one version of the kubelet's device-plugin API is: a value, with a row for each RPC that it has.

What a version can't do is a row it lacks; no other code asks which version it is.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpgateway.deviceplugin.values import Grant, Registration
from dpgateway.model import Health, changed
from dpgateway.resource.offers import Offer, Offers

LARGEST = 4 * 1024 * 1024
"""Bytes of a list, or of an answer. A kubelet from 1.10 on ends a stream that sends it more, and fails the pod of an
Allocate (grpc-go's default). Kubelets 1.8 and 1.9 would take more, but their node is upgraded one day."""

_GRPC_GO = re.compile(r"grpc-go/(\d+)\.(\d+)")
"""How a kubelet names itself."""
_SICK = Health.unhealthy("so that the list is as long as it can be")


class Call(enum.Enum):
    """What a kubelet can ask of a resource, in no version's words, with the values that go in and out."""

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
    """What one container was given, as its kubelet keeps it, and repeats it at each start of the container."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Paths of device nodes on the host, by their paths in the container."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Mounted paths of the host, by their paths in the container."""
    cdi_devices: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rpc:
    """One RPC of one version: its name on the wire, the call it is, and the pure functions between the two."""

    name: str
    call: Call
    decode: Callable[[bytes], Any]
    """Raises google.protobuf.message.DecodeError on bytes that aren't the message."""
    encode: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Api:
    """One version of the API."""

    name: str
    """As configuration and logs call it."""
    version: str
    """What Register must say; the kubelet compares it exactly."""
    package: str
    """The protobuf package of both services on the wire. Two versions may share one."""
    rpcs: tuple[Rpc, ...]
    to_register: Callable[[Registration], bytes]
    to_offer: Callable[[Offer], bytes]
    """One offered id as a list of one.

    Lists are repeated fields, so the bytes of a list are those of its parts, joined.
    """
    from_answer: Callable[[bytes], Answer]
    """What one container was given, as a kubelet that speaks this version keeps it in its checkpoint. Raises
    google.protobuf.message.DecodeError."""
    forgetful: tuple[str, ...] = ()
    """User agents of kubelets that keep the health a device had when its plugin went away, and take the full list of
    the plugin that returned for no change (#62773, Kubernetes 1.9 to 1.12). They get every id Unhealthy first."""
    pause: float = 0.0
    """Seconds from one list to the next, of whichever resource; with less the kubelet may crash, or spoil its
    checkpoint."""
    writes: bool = False
    """Whether the kubelet writes its checkpoint at each list, in place, so that the next list has to wait for that."""
    repeats: bool = False
    """Whether the kubelet allocates again, with the same ids, whenever a container starts again."""
    losses: tuple[str, ...] = ()
    """Fields of an allocation that this version can't say; the log names those that are lost."""
    passes_cdi_from: tuple[int, ...] | None = None
    """The version of grpc-go in the first kubelets that pass CDI names on, unless they are told not to. None: no
    kubelet that speaks this version does."""

    by_call: Mapping[Call, Rpc] = field(init=False, compare=False, repr=False)
    """The rows that it has."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_call", {rpc.call: rpc for rpc in self.rpcs})

    @property
    def service(self) -> str:
        """The service that a plugin serves."""
        return f"{self.package}.DevicePlugin"

    @property
    def register_path(self) -> str:
        return f"/{self.package}.Registration/Register"

    def largest(self, offers: Iterable[Offer]) -> int:
        """Bytes of the list of ``offers`` if each of them were Unhealthy."""
        return sum(len(self.to_offer(Offer(one.id, _SICK, one.numa_nodes))) for one in offers)

    def too_large(self, grants: tuple[Grant, ...]) -> str:
        """Why no kubelet takes the answer to an Allocate that has these grants; empty if it does."""
        size = len(self.by_call[Call.ALLOCATE].encode(grants))
        return "" if size <= LARGEST else f"the answer takes {size} bytes, and the kubelet accepts {LARGEST}"

    def passes_cdi(self, agent: str) -> bool | None:
        """Whether the kubelet with this user agent passes CDI names on to the runtime; None if that isn't known."""
        if self.passes_cdi_from is None:
            return False
        version = _GRPC_GO.match(agent)
        return None if version is None else tuple(map(int, version.groups())) >= self.passes_cdi_from


class ListEncoder:
    """A resource's list in one version's bytes. It encodes only what changed since the last list."""

    def __init__(self, api: Api) -> None:
        self._to_offer = api.to_offer
        self._offers: Offers = {}
        self._pieces: dict[str, bytes] = {}

    def encode(self, offers: Offers) -> bytes:
        """The bytes of one whole list. The pieces of this list are kept for the next, and no others.

        The same ids stay in the order in which they were listed first.
        """
        new = changed(self._offers, offers)
        kept = self._pieces
        if list(kept) != list(offers) and kept.keys() != offers.keys():
            kept = {id_: kept.get(id_, b"") for id_ in offers}
        for id_ in new:
            kept[id_] = self._to_offer(offers[id_])
        self._offers, self._pieces = offers, kept
        return b"".join(kept.values())
