"""Selectors of auxNetDevice: sub-functions of PCI functions, which are objects of the auxiliary bus.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, pkg/auxnetdevice, pkg/devices/gen_net.go, pkg/utils/utils.go
(ParseAuxDeviceType).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from dpgateway_chardev.importers.sriov_selectors import HAS_RDMA, LINKS, FunctionSelector, both, meant

_NAMES = r"[^.]+\.sf\.[0-9]+"


def unknown(selector: FunctionSelector) -> Iterator[tuple[str, str]]:
    """The keys that can't be converted, with reasons."""
    if set(selector.auxTypes) != {"sf"}:
        yield "auxTypes", "expected sf, because the plugin itself takes nothing else"
    yield from selector.wrong_values


def matches(selector: FunctionSelector) -> Iterator[dict[str, Any]]:
    """The alternatives of ``match``. Vendor, driver and interface are tested at the PCI function, the number at the
    sub-function.
    """
    function: dict[str, Any] = {"subsystems": "pci"} | ({"drivers": list(selector.drivers)} if selector.drivers else {})
    common: dict[str, Any] = {"class": "0x02*"} | dict(selector.ids)
    if selector.linkTypes:
        common["net/*/type"] = {"exact": [LINKS[one] for one in selector.linkTypes]}
    names = [({f"net/{name}": {"present": True}}, number) for name, number in meant(selector.pfNames)]
    roots = [({"kernels": name}, number) for name, number in meant(selector.rootDevices)]
    for (attrs, number), (root, other) in product(names or [({}, None)], roots or [({}, None)]):
        own: dict[str, Any] = {HAS_RDMA: {"present": True}} if selector.isRdma else {}
        if (wanted := both(number, other)) is not None:
            own["sfnum"] = wanted
        match = {"subsystem": "auxiliary", "kernel": {"regex": _NAMES}, **function, **root, "attrs": common | attrs}
        yield match | ({"attr": own} if own else {})
