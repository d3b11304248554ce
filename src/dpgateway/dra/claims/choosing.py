"""The ids of a resource that an allocated claim gets: its devices are the scheduler's choice, their shares are ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dpgateway.dra.claims.reading import Allocated, Result
from dpgateway.dra.claims.records import Given
from dpgateway.errors import RequestError
from dpgateway.resource.front import Usage
from dpgateway.resource.granting import Granting


class Offering(Protocol):
    """A resource as claims see it."""

    @property
    def granting(self) -> Granting: ...

    @property
    def usage(self) -> Usage: ...

    def id_of(self, pool: str, device: str) -> str | None:
        """The id of the device that a slice names so, published now or not; None if it isn't this resource's."""


Offerings = Mapping[str, Offering]
"""The resources that are served, by name."""


class Taken(RequestError):
    """A device isn't free, but may be soon."""

    def __init__(self, text: str, usage: Usage) -> None:
        super().__init__(text)
        self.usage = usage


def chosen(wanted: Allocated, driver: str, offerings: Offerings) -> tuple[Given, ...]:
    """The ids for each request of the claim. Raises RequestError; Taken if some aren't free."""
    by_request: dict[tuple[str, str, str], list[Result]] = {}
    for one in wanted.results:
        if one.admin:
            raise RequestError(f"{wanted}: request {one.request} asks for adminAccess, which {driver} can't give")
        by_request.setdefault((one.request, _resource_of(wanted, one, offerings), one.pool), []).append(one)
    found, taken = [], set[str]()
    for (request, resource, pool), some in by_request.items():
        ids = tuple([id_ for one in some for id_ in _free(wanted, one, resource, offerings[resource], taken)])
        devices = tuple([(one.device, one.share_id) for one in some])
        found.append(Given(request, resource, pool, devices, ids))
    return tuple(found)


def _resource_of(wanted: Allocated, one: Result, offerings: Offerings) -> str:
    for name, offering in offerings.items():
        if offering.id_of(one.pool, one.device) is not None:
            return name
    raise RequestError(f"{wanted}: no resource here has a device {one.device} in pool {one.pool}")


def _free(wanted: Allocated, one: Result, resource: str, offering: Offering, taken: set[str]) -> tuple[str, ...]:
    """As many free ids of the device as the claim gets shares of it; marks them as ``taken``."""
    # An id that awaits its release isn't free: the driver may still be at work on it for the claim before.
    device, used = offering.id_of(one.pool, one.device), offering.usage.value.taken
    all_ = offering.granting.inventory.ledger.ids(device or "")
    free = [id_ for id_ in all_ if id_ not in used and id_ not in taken][: one.shares]
    if len(free) < one.shares:
        who = offering.usage.value.last_holder(next(iter(all_), ""))
        text = f"device {device} of {resource} has {len(free)} of {one.shares} shares free: {who}"
        raise Taken(f"{wanted}: {text}", offering.usage)
    taken.update(free)
    return tuple(free)


def same(given: tuple[Given, ...], wanted: Allocated) -> bool:
    """Whether these are still the devices of the claim."""
    had = {(one.request, one.pool, device, share) for one in given for device, share in one.devices}
    return had == {(one.request, one.pool, one.device, one.share_id) for one in wanted.results}
