"""k8s-rdma-shared-dev-plugin: resources that are all RDMA devices of the chosen functions at once, in shares.

Source: Mellanox/k8s-rdma-shared-dev-plugin, pkg/types/types.go, pkg/resources/{resources_manager,device_selectors,
rdma_device_spec}.go; Mellanox/network-operator, api/v1alpha1/nicclusterpolicy_types.go and its chart's values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dpgateway.importing import Entries, Imported, ImportedResource, NotKept, Source, Written, in_any_case, items
from dpgateway_chardev.importers import DRIVER, MOST_SHARES, TOO_MANY
from dpgateway_chardev.importers.sriov_selectors import HEXADECIMAL, LINKS

_PREFIX = "rdma"
_CHARTS_MOST = 63
"""The chart's rdmaHcaMax, if a resource has none."""
_NODES: list[Any] = [
    {"host_path": "/dev/infiniband/{each:infiniband_cm/*}", "optional": True},
    {"host_path": "/dev/infiniband/{each:infiniband_mad/issm*}", "optional": True},
    "/dev/infiniband/{each:infiniband_mad/umad*}",
    "/dev/infiniband/{each:infiniband_verbs/*}",
    "/dev/infiniband/rdma_cm",
]


@dataclass(frozen=True, slots=True)
class RdmaSelectors:
    """Conditions on a function: of each list that isn't empty, one entry has to match."""

    vendors: tuple[str, ...] = ()
    deviceIDs: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    ifNames: tuple[str, ...] = ()
    linkTypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RdmaPool:
    """A resource of its file."""

    resourceName: str
    resourcePrefix: str = ""
    rdmaHcaMax: int = 0
    devices: tuple[str, ...] = ()
    """Names of interfaces, in place of selectors."""
    selectors: RdmaSelectors = field(default_factory=RdmaSelectors)


@dataclass(frozen=True, slots=True)
class ChartsPool:
    """A resource of a chart's values, with the selectors beside its name."""

    name: str = ""
    resourceName: str = ""
    resourcePrefix: str = ""
    rdmaHcaMax: int = _CHARTS_MOST
    vendors: tuple[str, ...] = ()
    deviceIDs: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    ifNames: tuple[str, ...] = ()
    linkTypes: tuple[str, ...] = ()

    @property
    def pool(self) -> RdmaPool:
        selectors = RdmaSelectors(self.vendors, self.deviceIDs, self.drivers, self.ifNames, self.linkTypes)
        return RdmaPool(self.resourceName or self.name, self.resourcePrefix, self.rdmaHcaMax, selectors=selectors)


def k8s_rdma_shared_dev_plugin(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    nothing = source.nothing("a mapping with the key configList, or a chart's rdmaSharedDevicePlugin")
    # the values of the network operator's chart, and of Spiderpool's
    charts: list[Written] = []
    for part in deployed_by_charts(source, "rdmaSharedDevicePlugin"):
        charts += items(in_any_case(part, "resources"))
        config = in_any_case(part, "deviceConfig")
        if config and in_any_case(config, "configList") is None:
            charts.append(config)
    found = list(source.holding("configList"))
    listed = [one for file in found for one in ([file] if file.problems else items(in_any_case(file, "configList")))]
    pools: list[tuple[Written, RdmaPool]] = []
    not_kept: list[NotKept] = []
    if listed or not charts:
        entries = Entries.of(listed, RdmaPool, nothing)
        pools, not_kept = list(entries.read), list(entries.not_kept)
    if charts:
        of_charts = Entries.of(charts, ChartsPool, nothing)
        pools += [(written, one.pool) for written, one in of_charts.read]
        not_kept += of_charts.not_kept
    resources = []
    for written, pool in pools:
        name = f"{pool.resourcePrefix or _PREFIX}/{pool.resourceName}"
        lost = [NotKept(written.at(key), key, why, name) for key, why in _reasons(pool)]
        not_kept += lost
        if pool.rdmaHcaMax > 0 and not any(one.what in {"selectors", "linkTypes"} for one in lost):
            shares = {"count": min(pool.rdmaHcaMax, MOST_SHARES), "ids": "{share}"}
            resources.append(ImportedResource(name, written.place, DRIVER, _options(pool), {"shares": shares}))
    return Imported(tuple(resources), tuple(not_kept))


def deployed_by_charts(source: Source, plugin: str) -> Iterator[Written]:
    """The values of a plugin that the chart deploys."""
    for one in source.holding(plugin):
        part = in_any_case(one, plugin)
        if part is not None and not any(part.part(key).value is False for key in ("deploy", "install")):
            yield part


def _reasons(pool: RdmaPool) -> Iterator[tuple[str, str]]:
    if pool.rdmaHcaMax < 1:
        yield "rdmaHcaMax", "without it the plugin offers no device"
    elif pool.rdmaHcaMax > MOST_SHARES:
        yield "rdmaHcaMax", TOO_MANY
    if not pool.devices and pool.selectors == RdmaSelectors():
        yield "selectors", "the plugin ends if a resource has neither selectors nor devices"
    for text in (*pool.selectors.vendors, *pool.selectors.deviceIDs):
        if not HEXADECIMAL.fullmatch(text):
            yield "selectors", f"vendors and deviceIDs: expected hexadecimal digits, found {text or 'nothing'}"
    if set(pool.selectors.linkTypes) - LINKS.keys():
        yield "linkTypes", f"only {' and '.join(LINKS)} are known"


def _options(pool: RdmaPool) -> dict[str, Any]:
    selectors = pool.selectors
    attr: dict[str, Any] = {"class": "0x02*", "infiniband/*": {"present": True}}
    for key, values in (("vendor", selectors.vendors), ("device", selectors.deviceIDs)):
        if values:
            attr[key] = [f"0x{value.lower().removeprefix('0x')}" for value in values]
    if selectors.linkTypes:
        attr["net/*/type"] = {"exact": [LINKS[one] for one in selectors.linkTypes]}
    match: dict[str, Any] = {"subsystem": "pci"} | ({"driver": list(selectors.drivers)} if selectors.drivers else {})
    names = selectors.ifNames or pool.devices
    matches = [match | {"attr": attr | {f"net/{name}": {"present": True}}} for name in names] or [
        match | {"attr": attr}
    ]
    return {
        "match": matches[0] if len(matches) == 1 else matches,
        "group": "all",
        "permissions": "rwm",
        "nodes": _NODES,
    }
