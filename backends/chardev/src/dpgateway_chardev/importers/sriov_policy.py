"""sriov-network-operator's policies, from which the operator writes each node's file for the plugin.

A policy's functions are the virtual ones of the chosen cards, or the cards themselves without virtual functions. What
the operator sets up on the nodes (their number, MTU, drivers) isn't the plugin's, and the gateway changes none of it.

Source: k8snetworkplumbingwg/sriov-network-operator, api/v1/sriovnetworknodepolicy_types.go and helper.go,
controllers/sriovnetworknodepolicy_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dpgateway.importing import Entries, InvalidConfiguration, NotKept, Source, Written, text
from dpgateway_chardev.importers.sriov_selectors import KERNEL, FunctionSelector

KIND = "SriovNetworkNodePolicy"
PREFIX = "openshift.io"
_NO_PREFIX = (
    f"the prefix is the operator's default, {PREFIX}; NVIDIA's chart has nvidia.com: see what your pods ask for"
)
_SET_UP = (
    "as long as the policy is there the operator sets these functions up, and its own device plugin offers them: set "
    "them up by other means, and delete the policy, before the gateway offers them"
)
_CAPABLE = "feature.node.kubernetes.io/network-sriov.capable"
_NETWORKS = "only the operator knows the networks of cards: write their pfNames or rootDevices"
_IGNORED = "default"
"""The name of a policy that the operator ignores."""
_LISTS = ("vendors", "devices", "pfNames", "rootDevices", "linkTypes")
_LINKS = {"eth": "ether", "ib": "infiniband"}


@dataclass(frozen=True, slots=True)
class NicSelector:
    """Conditions on a card."""

    vendor: str = ""
    deviceID: str = ""
    rootDevices: tuple[str, ...] = ()
    pfNames: tuple[str, ...] = ()
    netFilter: str = ""

    def __post_init__(self) -> None:
        if not (self.vendor or self.deviceID or self.rootDevices or self.pfNames or self.netFilter):
            raise ValueError("expected at least one of vendor, deviceID, pfNames, rootDevices and netFilter")


@dataclass(frozen=True, slots=True)
class SriovPolicy:
    """The spec of a policy. ``priority`` and what follows concerns the set-up only."""

    resourceName: str
    nicSelector: NicSelector
    nodeSelector: Mapping[str, str] = field(default_factory=dict)
    numVfs: int = 0
    deviceType: Literal["netdevice", "vfio-pci"] = "netdevice"
    isRdma: bool = False
    needVhostNet: bool = False
    linkType: Literal["eth", "ETH", "ib", "IB", ""] = ""
    vdpaType: str = ""
    excludeTopology: bool = False
    priority: int = 0
    mtu: int = 0
    eSwitchMode: str = ""
    externallyManaged: bool = False
    bridge: Mapping[str, Any] = field(default_factory=dict)

    @property
    def selector(self) -> PolicySelector:
        nic = self.nicSelector
        # the plugin can't see the link of a function that vfio-pci has
        links = (_LINKS[self.linkType.lower()],) if self.linkType and self.deviceType != "vfio-pci" else ()
        return PolicySelector(
            vendors=(nic.vendor,) if nic.vendor else (),
            devices=(nic.deviceID,) if nic.deviceID else (),
            pfNames=nic.pfNames,
            rootDevices=nic.rootDevices,
            linkTypes=links,
            vdpaType=self.vdpaType,
            isRdma=self.isRdma,
            needVhostNet=self.needVhostNet,
            vfio=self.deviceType == "vfio-pci",
            virtual=self.numVfs > 0,
        )


@dataclass(frozen=True, slots=True)
class PolicySelector(FunctionSelector):
    """The selector of a policy's functions."""

    vfio: bool = False
    virtual: bool = False

    @property
    def by_driver(self) -> list[Any]:
        """The driver that the operator binds."""
        return [["vfio-pci"]] if self.vfio else [KERNEL]

    @property
    def ids(self) -> Iterator[tuple[str, list[str]]]:
        """Tests of vendor and device. The device of a policy is the card's."""
        for key, values in super(PolicySelector, self).ids:
            yield f"physfn/{key}" if self.virtual and key == "device" else key, values


@dataclass(frozen=True, slots=True)
class PolicyPool:
    """One resource by the policies for the same nodes."""

    written: Written
    name: str
    nodes: Mapping[str, str]
    """Their selector of nodes."""
    selector: PolicySelector
    excludeTopology: bool
    warnings: tuple[str, ...]


def pools(source: Source, *, prefixed: bool, not_kept: list[NotKept]) -> Sequence[PolicyPool]:
    """The resources of the policies in the file; none if there are no policies. ``prefixed``: whether the prefix is
    known. Raises InvalidConfiguration if none of them can be read.
    """
    found = [one for one in source.objects(KIND) if text(one.part("metadata", "name")) != _IGNORED]
    if not found:
        return ()
    specs = Entries.of([one.part("spec") for one in found], SriovPolicy, InvalidConfiguration([]))
    not_kept += specs.not_kept
    made: dict[tuple[str, str], PolicyPool] = {}
    for written, one in specs.read:
        if one.nicSelector.netFilter:
            at = written.at("nicSelector", "netFilter")
            not_kept.append(NotKept(at, f"the policy for {one.nicSelector.netFilter}", _NETWORKS, one.resourceName))
            continue
        warnings = (_SET_UP, *(() if prefixed else (_NO_PREFIX,)))
        nodes = {key: value for key, value in one.nodeSelector.items() if key != _CAPABLE}
        new = PolicyPool(written, one.resourceName, nodes, one.selector, one.excludeTopology, warnings)
        key = one.resourceName, str(sorted(nodes.items()))
        first = made.get(key)
        if first is not None:  # of two policies for one resource the operator makes one
            old = first.selector
            both: dict[str, Any] = {
                name: tuple(dict.fromkeys((*getattr(old, name), *getattr(new.selector, name)))) for name in _LISTS
            }
            new = replace(first, selector=replace(old, **both), excludeTopology=one.excludeTopology)
        made[key] = new
    return list(made.values())
