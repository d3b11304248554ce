"""The records of claims as the holdings of one resource: exact, because a claim's end is told.

An id is in use as long as a claim that is preparing or prepared has it, and freed once the claim is ending, until its
release to the driver.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from dpgateway.dra.claims.records import ClaimRecord, Phase
from dpgateway.resource.front import Behind, Held, HolderStatus, InUse, Unreleased


@dataclass(frozen=True)
class ClaimHoldings(InUse):
    """Immutable; each event returns a new value."""

    resource: str = ""
    claims: Mapping[str, ClaimRecord] | None = None
    """The claims that have devices of this resource, by uid; None before the records were read."""
    doubt: str = ""
    """Why claims without a record here may have devices; empty if none can. In doubt an id that only the journal knows
    is in use, and nothing is known to the pool."""
    gone: frozenset[str] = frozenset()
    """The claims, by uid, whose pods are gone for the scheduler, but may still have running containers."""

    @cached_property
    def by_id(self) -> Mapping[str, tuple[ClaimRecord, ...]]:
        """The claims of each id."""
        found: dict[str, tuple[ClaimRecord, ...]] = {}
        for one in (self.claims or {}).values():
            for id_ in one.of(self.resource):
                found[id_] = (*found.get(id_, ()), one)
        return found

    @property
    def held(self) -> Held:
        return None if self.claims is None else frozenset(self.by_id).union(self.granted, *self.in_flight)

    @cached_property
    def living(self) -> tuple[str, ...]:
        living: dict[str, None] = {}
        for one in (self.claims or {}).values():
            if one.phase is not Phase.ENDING:
                living |= dict.fromkeys(one.of(self.resource))
        return tuple(living)

    @cached_property
    def freed(self) -> frozenset[str]:
        if self.claims is None:
            return frozenset()
        freed = frozenset(self.unreleased).difference(self.living, self.granted, *self.in_flight)
        return freed.intersection(self.by_id) if self.doubt else freed

    @property
    def named(self) -> Mapping[str, tuple[str, ...]]:
        return {id_: tuple(map(_holder, claims)) for id_, claims in self.by_id.items()}

    def holder(self, id_: str) -> str:
        pods = set()
        for one in self.by_id.get(id_, ()):
            if one.uid in self.gone:
                return f"{one}, whose pod is gone"
            pods.update([f"{one.namespace}/{name}" for _, name in one.pods])
        return pods.pop() if len(pods) == 1 else ""

    def last_holder(self, id_: str) -> str:
        return ", ".join(map(_holder, self.by_id.get(id_, ()))) or "a container"

    def holders(self, id_: str) -> tuple[HolderStatus, ...]:
        return tuple(
            HolderStatus(one.namespace, pod, uid, claim=one.name)
            for one in self.by_id.get(id_, ())
            for uid, pod in one.pods or ((None, None),)
        )

    @cached_property
    def counted(self) -> Mapping[str, str]:
        if self.doubt:
            return {}
        asked: dict[str, set[str]] = {}
        for one in (self.claims or {}).values():
            counted = {} if one.uid in self.gone else one.counted(self.resource)
            for id_ in one.of(self.resource):
                asked.setdefault(id_, set()).add(counted.get(id_, ""))
        return {id_: name for id_, (name, *others) in asked.items() if name and not others}

    def numa_nodes(self, id_: str) -> tuple[int, ...]:
        return ()

    def one_has(self, ids: Collection[str]) -> bool:
        claims = self.claims
        return claims is None or any(one.keeps(self.resource, ids) for one in claims.values())

    def given_up(self, ids: Collection[str]) -> frozenset[str]:
        return frozenset()

    def is_news_after(self, before: Self) -> bool:
        return self.fewer_calls_than(before) or bool(self.freed) or _TOLD(self) != _TOLD(before)

    # events

    def told(
        self,
        claims: Iterable[ClaimRecord],
        doubt: str = "",
        gone: frozenset[str] = frozenset(),
        *,
        recalled: bool = False,
    ) -> Self:
        """The records as they are now, of all resources. ``recalled``: some may be of an earlier gateway."""
        # A record comes before its grant and leaves after it, so it says all that `granted` could add.
        own = {one.uid: one for one in claims if self.resource in one.resources}
        # Also after an attempt that failed: its claim has its earlier record again.
        old = frozenset({id_ for one in own.values() if one.boot != self.boot for id_ in one.of(self.resource)})
        new = replace(self, claims=own, doubt=doubt, gone=gone & own.keys(), looked=not doubt, granted={})
        new = replace(new, before_boot=old) if old or self.before_boot else new
        if not recalled:
            return new
        # The driver of an earlier gateway may have worked on these; the journal may be gone.
        missing = {}
        for id_, (one, *_) in new.by_id.items():
            if id_ not in self.unreleased:
                pods = frozenset(uid for uid, _ in one.pods)
                missing[id_] = Unreleased(self.kubelet, pods, since=one.since or None, driver=None, boot=one.boot)
        return replace(new, unreleased={**self.unreleased, **missing})

    def known_behind(self, hardware: Behind, devices: Mapping[str, str] | None = None) -> Self:
        # A boot has ended all containers: until they are granted again, ids of before are what they mean now.
        old = self.before_boot & hardware.keys() & self.unreleased.keys() if self.remembers else ()
        anew = {id_: self.unreleased[id_]._replace(hardware=hardware[id_]) for id_ in old}
        known = replace(self, unreleased={**self.unreleased, **anew}, before_boot=frozenset()) if anew else self
        new = replace(InUse.known_behind(known, hardware, devices), before_boot=self.before_boot)
        return self if new == self else new

    @cached_property
    def unsettled(self) -> bool:
        return bool(self.before_boot or self.freed) or not all(one.hardware for one in self.unreleased.values())

    def prepared(self, hardware: Behind) -> Self:
        new = {
            id_: self.unreleased[id_]._replace(hardware=names)
            for id_, names in hardware.items()
            if id_ in self.unreleased and names and self.unreleased[id_].hardware not in (frozenset(), names)
        }
        return replace(self, unreleased={**self.unreleased, **new}) if new else self

    def remembered(self, unreleased: Mapping[str, Unreleased], granted: Mapping[str, float] | None = None) -> Self:
        ours = {
            id_: unreleased[id_] if id_ in unreleased and not entry.hardware else entry
            for id_, entry in self.unreleased.items()
        }
        return replace(self, unreleased={**unreleased, **ours}, remembers=True)


def debts(resource: str, in_use: InUse, claims: Iterable[ClaimRecord]) -> frozenset[str]:
    """The ids that await their release without one of these claims."""
    return in_use.freed.difference(*[one.of(resource) for one in claims])


def _holder(one: ClaimRecord) -> str:
    pods = ", ".join(name for _, name in one.pods)
    return f"{one} (pod {pods})" if pods else str(one)


_TOLD = operator.attrgetter("claims", "doubt", "gone", "looked", "remembers", "granted", "unreleased")
