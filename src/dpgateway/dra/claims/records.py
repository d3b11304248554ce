"""What was given to a claim, and how far its preparation or its end has come.

The phases of a record, each on disk before the next step begins::

    preparing   the devices are chosen and reserved; the driver may have worked on them
    prepared    the kubelet has the answer, or may have it
    ending      the claim is over, or its preparation failed; what was given is being released
    (none)      released

A record survives the gateway, the kubelet and the node. One of another boot says which devices the claim has, but not
that they are prepared: a kubelet asks anew after a boot.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any

from dpgateway.kit.timestamp import LATEST, timestamp
from dpgateway.resource.published import ClaimStatus, GivenStatus

VERSION = 1
_OF_CLAIM = "claim "
"""The beginning of the id under which a claim's CDI spec is kept."""


class Phase(Enum):
    """How far a claim has come."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    ENDING = "ending"


@dataclass(frozen=True, slots=True)
class Given:
    """The devices of one request, from one resource."""

    request: str
    resource: str
    pool: str
    devices: tuple[tuple[str, str], ...]
    """The name in the slice, and the share id or an empty text, of each device."""
    ids: tuple[str, ...]
    """The resource's ids: of a device with shares, those of the shares."""
    cdi: tuple[str, ...] = ()
    """The CDI names of all that the driver gave, once it has."""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What class and claim ask of the driver: options by name, as plain values."""
    admin: bool = False
    """For monitoring (adminAccess): shown, but neither held, prepared nor released, so it has no ids."""
    extended: str = ""
    """The extended resource that the pod asked for; empty for the request of a hand-written claim, and if unknown."""

    def spec_ids(self, uid: str) -> tuple[str, ...]:
        """The ids under which its CDI spec is kept. ``uid``: of the claim, because another one may get the same devices
        while this one's spec is being removed, and several may watch a device.
        """
        return (f"{_OF_CLAIM}{uid} {self.request} {self.pool}",)


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim's record."""

    uid: str
    namespace: str
    name: str
    phase: Phase
    boot: str
    """The node's boot id when the phase began."""
    given: tuple[Given, ...] = ()
    pods: tuple[tuple[str, str], ...] = ()
    """The uid and the name of each pod that may use it, as far as known: further ones come, and some go."""
    since: int = 0
    """When it was prepared, in seconds since 1970."""
    driver: str = ""
    """The DRA driver that it was allocated to; empty if unknown."""

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"

    @property
    def resources(self) -> frozenset[str]:
        """The names of the resources that it has devices of."""
        return frozenset([one.resource for one in self.given])

    @property
    def status(self) -> ClaimStatus:
        given = tuple(
            GivenStatus(part.request, part.resource, part.ids, tuple(name for name, _ in part.devices), part.admin)
            for part in self.given
        )
        pods = tuple(name for _, name in self.pods)
        since = timestamp(self.since) if self.since else None
        return ClaimStatus(self.namespace, self.name, self.uid, self.phase.value, since, pods, given)

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields of the log about it."""
        resources = sorted(self.resources)
        devices = [name for given in self.given for name in given.ids or [name for name, _ in given.devices]]
        return {
            "resource": resources[0] if len(resources) == 1 else None,
            "resources": resources if len(resources) > 1 else None,
            "devices": devices,
            "holders": [f"{self.namespace}/{name}" for _, name in self.pods] or None,
            "claim": f"{self.namespace}/{self.name}",
            "count": len(devices),
        }

    def of(self, resource: str) -> tuple[str, ...]:
        """The ids that it has of a resource."""
        return tuple(id_ for given in self.given if given.resource == resource for id_ in given.ids)

    def asking(self, resources: Mapping[str, str]) -> ClaimRecord:
        """``resources``: the extended resource of each request, as far as known."""
        given = tuple([replace(one, extended=resources.get(one.request, one.extended)) for one in self.given])
        return replace(self, given=given)

    def counted(self, resource: str) -> Mapping[str, str]:
        """The extended resource by which the scheduler counts its pod, by id of a resource.

        The containers of a pod have a request each; for the init containers there is one if they need more than each
        container that begins later, and that doesn't add to the sum (createRequestsAndMappings in 1.36 and 1.37, both
        in pkg/scheduler/framework/plugins/dynamicresources). So requests of one size all count; of others, the largest
        may be that of init containers: it counts alone, or not at all.
        """
        by_name: dict[str, list[tuple[str, ...]]] = {}
        for one in self.given:
            if one.resource == resource and one.extended:
                by_name.setdefault(one.extended, []).append(one.ids)
        found: dict[str, str] = {}
        for name, requests in by_name.items():
            *others, largest = sorted(requests, key=len)
            count = tuple([id_ for ids in others for id_ in ids])
            if all(len(ids) == len(largest) for ids in others):
                count += largest
            found |= dict.fromkeys(count if len(count) > len(largest) else largest, name)
        return found

    def keeps(self, resource: str, ids: Collection[str]) -> bool:
        """Whether it needs the CDI spec of these ids: until it ends, because a container may start again."""
        if self.phase is Phase.ENDING:
            return False
        kept = {id_ for one in self.given if one.resource == resource for id_ in one.spec_ids(self.uid)}
        return kept.issuperset(ids)

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self), "phase": self.phase.value})


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that is no record: whatever it stood for isn't known to be free."""

    file: str
    why: str = field(compare=False)

    @property
    def uid(self) -> str:
        """Of the claim whose record it was."""
        return self.file.removesuffix(".json")


def is_of_claim(ids: Collection[str]) -> bool:
    """Whether a CDI spec that is kept under these ids is a claim's."""
    return all(id_.startswith(_OF_CLAIM) for id_ in ids)


def record(text: str, file: str) -> ClaimRecord:
    """The record in a file. Keys of a later version are ignored. Raises ValueError, TypeError."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"expected a record, found nested lists: {text[:60]!r}") from error
    if not isinstance(found, dict) or type(found.get("version")) is not int or found["version"] < 1:
        raise ValueError(f"expected a record with a version from 1 on, found {text[:60]!r}")
    given = tuple([_given(one) for one in _list(found.get("given"))])
    if type(since := found.get("since") or 0) is not int or not 0 <= since <= LATEST:
        raise ValueError(f"since: expected seconds since 1970, found {since!r:.60}")
    made = ClaimRecord(
        **{key: _text(found, key) for key in ("uid", "namespace", "name", "boot")},
        phase=Phase(found.get("phase")),
        given=given,
        pods=tuple([(str(uid), str(name)) for uid, name in _list(found.get("pods"))]),
        since=since,
        driver=str(found.get("driver") or ""),
    )
    if file != f"{made.uid}.json":
        raise ValueError(f"expected the record of claim {file.removesuffix('.json')}, found that of {made.uid}")
    return made


def _given(found: Any) -> Given:  # noqa: ANN401  as JSON has it
    if not isinstance(found, dict):
        raise TypeError(f"given: expected a mapping, found {found!r}")
    texts = {one.name: _text(found, one.name) for one in fields(Given) if one.type == "str" and one.default is MISSING}
    devices = tuple([(str(name), str(share)) for name, share in _list(found.get("devices"))])
    ids, cdi = (tuple(map(str, _list(found.get(key)))) for key in ("ids", "cdi"))
    if not isinstance(parameters := found.get("parameters", {}), dict):
        raise TypeError(f"parameters: expected a mapping, found {parameters!r}")
    admin, extended = found.get("admin") is True, str(found.get("extended") or "")  # files of earlier gateways lack it
    return Given(**texts, devices=devices, ids=ids, cdi=cdi, parameters=parameters, admin=admin, extended=extended)


def _text(found: Mapping[str, Any], key: str) -> str:
    if not isinstance(value := found.get(key), str):
        raise TypeError(f"{key}: expected a text, found {value!r}")
    return value


def _list(found: Any) -> list[Any]:  # noqa: ANN401  as JSON has it
    if not isinstance(found, list):
        raise TypeError(f"expected a list, found {found!r}")
    return found
