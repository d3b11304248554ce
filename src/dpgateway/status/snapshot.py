"""Snapshots of the gateway's parts as status values. Nothing here waits or changes the gateway."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from dpgateway.config import ResourceConfig
from dpgateway.kit.timestamp import timestamp
from dpgateway.node import versions
from dpgateway.resource.front import InUse
from dpgateway.resource.fronted import OnFront
from dpgateway.resource.shares import Offers, device_id
from dpgateway.status.figures import counts
from dpgateway.status.values import (
    Counts,
    DeviceStatus,
    DriverStatus,
    Failure,
    ResourceStatus,
    stamped,
    unserved,
)

LONGEST_START = 60.0
"""Seconds after which the start counts as over, ready or not: systemd waits 90 by default (TimeoutStartSec=)."""
KNOWN_AFTER = 1.0
"""Seconds from a driver's ``list`` deadline until the driver's failure is certainly recorded."""

_NO_ATTRIBUTES: Mapping[str, str | int | float | bool] = MappingProxyType({})


def resource(config: ResourceConfig, plugin: OnFront | None, age: float, *, directory: bool) -> ResourceStatus:
    """One resource without its devices. ``plugin``: None until it is made; ``age``: seconds since the start;
    ``directory``: whether the kubelet's directory exists.
    """
    # A hanging driver must not keep systemd waiting for the whole gateway: its resource counts as started in time.
    overdue = age >= min(config.timeouts.list.total_seconds() + KNOWN_AFTER, LONGEST_START)
    name, version = config.driver, config.driver_version or None
    if plugin is None:
        driver = DriverStatus(name, version, None, config.failure or None, None)
        return ResourceStatus(config.name, overdue, (unserved(config.on),), None, driver)
    one, refused, elsewhere = plugin.resource, plugin.refused.value, plugin.resource.elsewhere.value
    said = one.driver.state.value
    error = Failure(said.error, stamped(said.erred)) if said.error else None
    finds = None if said.devices is None else len(said.devices)
    failure = Failure(one.failure, stamped(one.failed_since)) if one.failure else None
    listed = plugin.resource.inventory.list.value is not None
    # The registrar doesn't know of another gateway, nor of another plugin with the resource's name.
    standing, besides = plugin.standing.value, elsewhere or plugin.rival.value
    if besides and standing.failure is None:
        standing = replace(standing, failure=besides)
    return ResourceStatus(
        config.name,
        failure is not None or ((plugin.resource.served or not directory) and listed) or overdue,
        (standing,),
        failure,
        DriverStatus(name, version, stamped(said.listed_at), said.failure or None, error, finds),
        unsaved=plugin.resource.unsaved or None,
        refused=Failure(refused[0], stamped(refused[1])) if refused is not None else None,
        elsewhere=elsewhere or None,
    )


class Devices:
    """A cached snapshot of one resource's devices, renewed only if its list or its holders have changed: a change of
    one resource among many costs the time of one.

    Lists and holdings are frozen values: the same object means no change.
    """

    def __init__(self) -> None:
        self.all: tuple[DeviceStatus, ...] = ()
        self.counts = Counts()
        self._offers: Offers | None = None
        self._outdated: Mapping[str, str] = {}
        self._holdings: tuple[InUse, ...] = ()
        self._shown: tuple[object, ...] = ()

    def look(self, plugin: OnFront, *holdings: InUse) -> None:
        """``holdings``: of the resource's front, then of the other one, if a change of the front left any there."""
        offers, outdated = plugin.resource.inventory.list.value, plugin.outdated.value
        same = len(holdings) == len(self._holdings) and all(map(operator.is_, holdings, self._holdings))
        if offers is self._offers and same and outdated is self._outdated:
            return
        shown = tuple([one.shown for one in holdings])
        if offers is not self._offers or shown != self._shown or outdated is not self._outdated:
            holder = {id_: one for one in reversed(holdings) for id_ in one.last_known}
            ledger, found = plugin.resource.inventory.ledger, list[DeviceStatus]()
            for id_, offer in (offers or {}).items():
                device, withheld = ledger.device(id_), ledger.withheld(id_)
                in_use = holder.get(id_)  # None for a free one
                entry = in_use.unreleased.get(id_) if in_use is not None else None
                one = DeviceStatus(
                    id_,
                    device_id(id_) if device is None else device.id,
                    offer.health.ok,
                    offer.health.reason or (f"withheld: {withheld}" if withheld else None),
                    None if offer.health.ok else stamped(ledger.unhealthy_since(id_)),
                    id_ in ledger.lost,
                    in_use is not None,
                    None if entry is None or entry.since is None else timestamp(entry.since),
                    in_use.holders(id_) if in_use is not None else (),
                    offer.numa_nodes,
                    _NO_ATTRIBUTES if device is None else device.attributes,
                    outdated.get(id_),
                )
                found.append(one)
            self.all = tuple(found)
            self.counts = counts(offers or {}, frozenset(holder), ledger.lost)
        self._offers, self._holdings, self._shown, self._outdated = offers, holdings, shown, outdated


def release(api: str | None, pod_resources: str | None) -> str | None:
    """The kubelet's possible versions, by its APIs: no kubelet reports its version on a socket."""
    if api is None and pod_resources is None:
        return None
    by_api = versions.span(lambda one: api in {None, one.api})
    by_pods = versions.span(lambda one: pod_resources in {None, one.pod_resources})
    return str(by_api.within(by_pods) or by_api)
