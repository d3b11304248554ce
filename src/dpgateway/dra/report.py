"""What the front says of itself to status and metrics, made on request from its parts.

Only beginnings are remembered here: the parts say what is wrong, not since when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dpgateway.cluster.server import ApiServer, Object
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.dra.preparing import NodeClaims
from dpgateway.dra.publishing import Publisher
from dpgateway.dra.slices.attributes import RESOURCE, resource_value
from dpgateway.kit.observable import Observable, Signal
from dpgateway.kit.timestamp import timestamp
from dpgateway.resource.ownership import Ownership
from dpgateway.resource.published import (
    ApiServerStatus,
    DraFigures,
    DraStatus,
    PoolStatus,
    SlicesStatus,
)
from dpgateway.resource.standing import Failure, Standing


class Unpublished(NamedTuple):
    """What the slices of a pool can't have, in sentences."""

    devices: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


NOTHING = Unpublished()


@dataclass(frozen=True, slots=True)
class FrontParts:
    """What a report is made of."""

    standing: Observable[Standing]
    ownership: Ownership
    claims: NodeClaims
    publisher: Publisher
    seen: WatchedObjects
    server: ApiServer
    left_out: Mapping[str, Unpublished]
    """What slices can't have, by pool; a live view of the front's own mapping."""


class Reporting:
    """Used from the event loop."""

    def __init__(self, parts: FrontParts) -> None:
        self._parts = parts
        self._since: dict[str, str] = {}
        """`_since` contains the beginning of each present failure, keyed by its part of the status."""
        for one in self.values:
            one.subscribe(self._note)

    @property
    def values(self) -> tuple[Signal, ...]:
        """Everything observable about the front, for subscribers to all changes."""
        parts = self._parts
        return (
            parts.standing,
            parts.ownership.other,
            parts.claims.store.doubts.why,
            parts.publisher.state,
            parts.seen.failure,
            parts.server.away,
            parts.claims.refused,
        )

    def _failures(self) -> Mapping[str, str]:
        """The present failures, by the part of the status that has them; empty texts are none."""
        parts = self._parts
        away, refused = parts.server.away.value, parts.claims.refused.value
        return {
            "slices": parts.publisher.state.value.failure or parts.seen.failure.value,
            "doubt": parts.claims.store.doubts.why.value,
            "refused": "" if refused is None else refused[0],
            "api_server": "" if away is None else away[0],
        }

    def _note(self) -> None:
        now, present = timestamp(), self._failures()
        self._since = {name: self._since.get(name, now) for name, text in present.items() if text}

    def status(self, resources: Collection[str], *, withdrawn: bool) -> DraStatus:
        """``resources``: the names of those that the front offers."""
        parts, texts = self._parts, self._failures()
        found = {name: Failure(text, self._since.get(name)) for name, text in texts.items() if text}
        return DraStatus(
            parts.claims.driver,
            parts.standing.value,
            tuple(sorted(resources)),
            parts.ownership.other.value or None,
            withdrawn,
            self._slices(found.get("slices")),
            tuple(
                [
                    replace(one.status, gone=one.uid in parts.claims.store.gone)
                    for one in sorted(parts.claims.store.records.values(), key=str)
                ]
            ),
            found.get("doubt"),
            found.get("refused"),
            ApiServerStatus(parts.server.url, found.get("api_server")),
        )

    def figures(self, status: DraStatus) -> DraFigures:
        """Its counters, beside ``status``."""
        parts = self._parts
        devices = Counter[str]()
        for one in (parts.seen.objects.value or {}).values():
            attributes = [device.get("attributes") or {} for device in one["spec"].get("devices") or ()]
            devices.update(str(some.get(RESOURCE, {}).get("string")) for some in attributes)
        published = {name: devices[resource_value(name)] for name in status.resources}
        return DraFigures(status, published, dict(parts.publisher.writer.writes), parts.claims.calls.read())

    def _slices(self, failure: Failure | None) -> SlicesStatus:
        parts, state, waits = self._parts, self._parts.publisher.state.value, None
        wanted, seen = parts.publisher.wanted.value or {}, parts.seen.objects.value
        pools = _pools((seen or {}).values(), wanted, state.refused or {}, parts.left_out)
        # Why they aren't right yet, if nothing has failed.
        if not state.right and failure is None:
            unknown = ", ".join(sorted(name for name, content in wanted.items() if content is None))
            if not parts.standing.value.registered:
                waits = "the kubelet has to register the driver first"
            elif seen is None:
                waits = "the API server hasn't said yet which slices it has"
            else:
                waits = f"the devices of {unknown} aren't known yet" if unknown else "they are being written"
        return SlicesStatus(
            len(seen or ()),
            sum(one.devices for one in pools),
            state.right,
            parts.publisher.writer.written_at,
            parts.publisher.writer.deleted,
            state.contested,
            waits,
            failure,
            state.code or None,
            pools,
        )


def _pools(
    seen: Iterable[Object],
    wanted: Collection[str],
    refused: Mapping[str, str],
    left_out: Mapping[str, Unpublished],
) -> tuple[PoolStatus, ...]:
    by_pool: dict[str, list[Any]] = {name: [] for name in wanted}
    for one in seen:
        by_pool.setdefault(str(one["spec"]["pool"]["name"]), []).append(one["spec"])
    return tuple(
        PoolStatus(
            name,
            max((int(spec["pool"].get("generation") or 0) for spec in specs), default=None),
            len(specs),
            sum(len(spec.get("devices") or ()) for spec in specs),
            refused.get(name),
            *left_out.get(name, NOTHING),
        )
        for name, specs in sorted(by_pool.items())
    )
