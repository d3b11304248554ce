"""What one version of the kubelet's device-plugin API is: a value, with a row for each RPC that it has.

What a version can't do is a row it lacks; nobody else asks which version it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dpgateway.model import Offer, Registration


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
    forgetful: tuple[str, ...] = ()
    """How those kubelets name themselves that keep the health a device had when its plugin went away, and take the
    full list of the returned one for no change (#62773, Kubernetes 1.9 to 1.12); they get every id Unhealthy first."""
    pause: float = 0.0
    """Seconds from one list to the next, of whichever resource, without which the kubelet may crash."""
    losses: tuple[str, ...] = ()
    """What an allocation can't say here, for the operator who wonders."""

    @property
    def service(self) -> str:
        """The service that a plugin serves."""
        return f"{self.package}.DevicePlugin"

    @property
    def register_path(self) -> str:
        return f"/{self.package}.Registration/Register"

    def can(self, call: Call) -> bool:
        return any(rpc.call is call for rpc in self.rpcs)


class ListEncoder:
    """A resource's list in one version's bytes, built anew only where it changed."""

    def __init__(self, api: Api) -> None:
        self._to_offer = api.to_offer
        self._offers: tuple[Offer, ...] = ()
        self._pieces: list[bytes] = []

    def encode(self, offers: Iterable[Offer]) -> bytes:
        """The bytes of one whole list. Remembers the pieces of this list, and no others."""
        offers = tuple(offers)
        self._pieces = [
            piece if known is offer or known == offer else self._to_offer(offer)
            for offer, (known, piece) in zip(offers, self._kept(offers), strict=True)
        ]
        self._offers = offers
        return b"".join(self._pieces)

    def _kept(self, offers: tuple[Offer, ...]) -> Iterable[tuple[Offer | None, bytes]]:
        """For each of ``offers``, what stood there in the last list, or what it was there if the order is another."""
        kept = zip(self._offers, self._pieces, strict=True)
        if len(offers) == len(self._offers) and all(map(_same_id, offers, self._offers)):
            return kept
        by_id = {known.id: (known, piece) for known, piece in kept}
        return [by_id.get(offer.id, (None, b"")) for offer in offers]


def _same_id(one: Offer, other: Offer) -> bool:
    return one is other or one.id == other.id
