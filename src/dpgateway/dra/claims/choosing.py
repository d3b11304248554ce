"""The ids of a resource that an allocated claim gets: its devices are the scheduler's choice, their shares are ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from dpgateway.dra.claims.reading import Allocated, Result, parameters
from dpgateway.dra.claims.records import Given
from dpgateway.errors import RequestError
from dpgateway.kit.observable import Signal
from dpgateway.model import hardware
from dpgateway.resource.front import Unreleased, Usage
from dpgateway.resource.granting import Granting


class Offering(Protocol):
    """A resource as claims see it."""

    @property
    def granting(self) -> Granting: ...

    @property
    def usage(self) -> Usage: ...

    def id_of(self, pool: str, device: str) -> str | None:
        """The id of the device that a slice names so, published now or not; None if it isn't this resource's."""


class OfferedElsewhere(NamedTuple):
    """A resource that another front serves, as a claim sees it whose record is lost."""

    granting: Granting
    pool: str
    """The pool that its slices had."""
    name_of: Callable[[str], str]
    """The name that a device had in them, by its id."""

    @property
    def usage(self) -> Usage:
        return self.granting.inventory.usage

    def id_of(self, pool: str, device: str) -> str | None:
        devices = self.granting.inventory.ledger.devices if pool == self.pool else ()
        return next((id_ for id_ in devices if self.name_of(id_) == device), None)

    def recalled(self, ids: Iterable[str]) -> Mapping[str, Unreleased]:
        """What the journals had of these ids, as far as it is known now."""
        ledger, driver = self.granting.inventory.ledger, self.usage.value.driver
        found = {id_: device for id_ in ids if (device := ledger.device(id_)) is not None}
        return {
            id_: Unreleased("", hardware=hardware(device), device=device.id, driver=driver)
            for id_, device in found.items()
        }


Offerings = Mapping[str, Offering]
"""The resources that are served, by name."""


class NotYet(RequestError):
    """A claim can't have its devices, but may be able to soon."""

    def __init__(self, text: str, news: Signal) -> None:
        """``news``: notified when that may have changed."""
        super().__init__(text)
        self.news = news


def chosen(
    wanted: Allocated, offerings: Offerings, *, had: bool = False, before: tuple[Given, ...] = ()
) -> tuple[Given, ...]:
    """The ids for each request of the claim. ``had``: the claim has these devices already, so ids in use without a
    record are its own. ``before``: what it had by an earlier allocation. Raises RequestError; NotYet if some aren't
    free.
    """
    by_request: dict[tuple[str, str, str, bool], list[tuple[Result, str]]] = {}
    for one in wanted.results:
        for resource, offering in sorted(offerings.items()):  # as in slices: of one name the first has the device
            if (id_ := offering.id_of(one.pool, one.device)) is not None:
                by_request.setdefault((one.request, resource, one.pool, one.admin), []).append((one, id_))
                break
        else:
            raise RequestError(f"{wanted}: no resource here has a device {one.device} in pool {one.pool}")
    found, taken = [], dict[str, set[str]]()  # two resources may have the same ids
    for (request, resource, pool, admin), some in by_request.items():
        own, ids = {id_ for one in before if one.resource == resource for id_ in one.ids}, list[str]()
        offering, so_far = offerings[resource], taken.setdefault(resource, set())
        in_use, inventory = offering.usage.value, offering.granting.inventory
        for one, device in () if admin else some:
            if not in_use.remembers:
                raise NotYet(f"{wanted}: {resource} isn't served yet: its journal hasn't been read", offering.usage)
            # An id that awaits its release isn't free: the driver may still be at work on it for the claim before.
            used = ((in_use.held or frozenset()) if had else in_use.taken) - own
            all_ = inventory.ledger.ids(device)
            free = [id_ for id_ in all_ if id_ not in used and id_ not in so_far][: one.shares]
            if len(free) < one.shares:
                who = in_use.last_holder(next(iter(all_), ""))
                text = f"device {device} of {resource} has {len(free)} of {one.shares} shares free: {who}"
                raise NotYet(f"{wanted}: {text}", offering.usage)
            # Shares that aren't offered any more count, too: the scheduler takes a device without shares for free.
            if not had and (full := inventory.exclusion.no_share_left([*so_far, *free], own)) is not None:
                text = f"device {device} of {resource} has no share free: containers have all of them, as {full[1]}"
                raise NotYet(f"{wanted}: {text}", offering.usage)
            # Another resource of the pool may have its hardware: the scheduler gives it away before the claim of a pod
            # that was deleted by force has ended.
            if not had and (why := inventory.ledger.excluded(device)):
                raise NotYet(f"{wanted}: device {device} of {resource} isn't free: {why}", inventory.exclusion)
            so_far.update(free)
            ids += free
        devices = tuple([(one.device, one.share_id) for one, _ in some])
        asked = dict(parameters(wanted, some[0][0]))
        found.append(Given(request, resource, pool, devices, tuple(ids), parameters=asked, admin=admin))
    return tuple(found)


def same(given: tuple[Given, ...], wanted: Allocated) -> bool:
    """Whether these are still the devices of the claim."""
    had = {(one.request, one.pool, device, share) for one in given for device, share in one.devices}
    return had == {(one.request, one.pool, one.device, one.share_id) for one in wanted.results}
