"""sriov-network-device-plugin: pools of PCI functions, by its resourceList.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, pkg/types/types.go, pkg/accelerator,
pkg/resources/pool_stub.go, pkg/infoprovider/extraInfoProvider.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dpgateway.importing import (
    Imported,
    ImportedResource,
    InvalidConfiguration,
    NotKept,
    Problem,
    Source,
    Written,
    flags,
    typed,
)
from dpgateway_chardev.importers import DRIVER, sriov_auxiliary
from dpgateway_chardev.importers.sriov_selectors import ID, FunctionSelector

_PREFIX = "intel.com"
_EXPECTED = "a mapping with the key resourceList"
_PROC = (
    "In a container of its own, say where it sees the host's /proc: the interface with the default route isn't given."
)


@dataclass(frozen=True, slots=True)
class SriovPool:
    """A pool, which is one resource."""

    resourceName: str
    resourcePrefix: str = ""
    deviceType: Literal["netDevice", "accelerator", "auxNetDevice"] = "netDevice"
    excludeTopology: bool = False
    selectors: tuple[FunctionSelector, ...] = field(default=(), metadata={"single": True})
    additionalInfo: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SriovFile:
    """Its configuration file."""

    resourceList: tuple[SriovPool, ...]


def sriov_network_device_plugin(source: Source) -> Imported:
    """Converts its configuration. Raises InvalidConfiguration."""
    files = [one for one in source.configs("resourceList") if one.below("resourceList")]
    if not files:
        raise source.nothing(_EXPECTED)
    problems: list[Problem] = []
    pools = [(file, whole) for file in files if (whole := typed(file, SriovFile, problems)) is not None]
    if problems:
        raise InvalidConfiguration(problems)
    given = [value.value for words in source.commands() for name, value in flags(words) if name == "resource-prefix"]
    prefix = given[0] if given else _PREFIX
    converted = [
        _SriovResource(pool, file.part("resourceList", number), prefix)
        for file, whole in pools
        for number, pool in enumerate(whole.resourceList)
    ]
    resources = tuple(
        resource for one in converted if (resource := one.resource(alone=len(converted) == 1)) is not None
    )
    return Imported(resources, tuple(not_kept for one in converted for not_kept in one.not_kept))


class _SriovResource:
    """A pool, and what of it is ``not_kept``."""

    def __init__(self, pool: SriovPool, written: Written, prefix: str) -> None:
        self.pool, self.written = pool, written
        self.not_kept: list[NotKept] = []
        self._prefix = pool.resourcePrefix or prefix
        self._name = f"{self._prefix}/{pool.resourceName}"

    def resource(self, *, alone: bool) -> ImportedResource | None:
        """The resource; None without a selector that can be kept. Several pools may match one function, so unless this
        one is ``alone``, their resources exclude each other.
        """
        pool = self.pool
        selectors = list(self._selectors())
        if not selectors:
            return None
        kinds = list(self._kinds(selectors))
        # nodes that all alternatives have in common are written once
        nodes = [kind["nodes"] for kind in kinds]
        if all(one == nodes[0] for one in nodes):
            kinds = [{key: value for key, value in kind.items() if key != "nodes"} for kind in kinds]
        options: dict[str, Any] = {"match": kinds, "id": ID, "nodes": nodes[0]}
        options["env"] = {self._variable: ID} | self._info(selectors)
        if pool.deviceType == "netDevice":
            options["device_info"] = self._file(selectors)
        if pool.excludeTopology:
            options["numa"] = ""
        comments = (_PROC,) if pool.deviceType == "netDevice" else ()
        more = {} if alone else {"pool": "sriov"}
        return ImportedResource(self._name, self.written.place, DRIVER, options, more, comments)

    def _kinds(self, selectors: Sequence[FunctionSelector]) -> Iterator[dict[str, Any]]:
        for one in selectors:
            if self._auxiliary:
                yield from (match | {"nodes": one.nodes(())} for match in sriov_auxiliary.matches(one))
            else:
                yield from (
                    match | {"nodes": one.nodes(match["driver"])} for match in one.matches(self.pool.deviceType)
                )

    def _info(self, selectors: Sequence[FunctionSelector]) -> dict[str, Any]:
        """The variable with JSON: one template for all functions, so it is lost if their values differ."""
        told = [one.info(drivers) for one in selectors for drivers in ([()] if self._auxiliary else one.by_driver)]
        if any(one != told[0] for one in told):
            self._lose(
                "selectors", "it holds for all functions, and these need different ones", f"{self._variable}_INFO"
            )
            return {}
        more = dict(self.pool.additionalInfo)
        extra = {"extra": dict(more.pop("*"))} if "*" in more else {}
        if more:
            why = "only what it says of all functions (*) is kept, because the template is the same for all of them"
            self._lose("additionalInfo", why)
        return {f"{self._variable}_INFO": {ID: told[0] | extra}}

    def _file(self, selectors: Sequence[FunctionSelector]) -> dict[str, Any]:
        if any(one.file != selectors[0].file for one in selectors):
            self._lose("selectors", "they hold for all functions, and these need different ones", "device-info files")
            return {}
        return selectors[0].file

    def _selectors(self) -> Iterator[FunctionSelector]:
        for one in self.pool.selectors or (FunctionSelector(),):
            if reasons := list(sriov_auxiliary.unknown(one) if self._auxiliary else one.unknown):
                for key, why in reasons:
                    self._lose("selectors", f"{why}; what it selects is left out", key)
            elif not one.drivers and not self._auxiliary:
                why = "the nodes depend on the driver, and here it may be any; what it selects is left out"
                self._lose("selectors", why, "drivers")
            else:
                yield one

    @property
    def _auxiliary(self) -> bool:
        return self.pool.deviceType == "auxNetDevice"

    @property
    def _variable(self) -> str:
        return f"PCIDEVICE_{self._prefix}_{self.pool.resourceName}".upper().replace(".", "_")

    def _lose(self, key: str, why: str, what: str = "") -> None:
        self.not_kept.append(NotKept(self.written.at(key), what or key, why, self._name))
