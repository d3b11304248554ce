"""Why a node can't give devices by DRA, as its Node and its container runtime say.

Kubelet and runtime drop in silence what they don't know: a pod would run without its device. So nothing is published on
such a node. The Node has the versions; whether CDI is switched on, by default not in containerd 1.7, only the runtime
itself says, if the gateway can ask it.
"""

from __future__ import annotations

import re

from dpgateway.cluster.server import Object
from dpgateway.node.runtime import knows_cdi

FIRST = 1, 36
"""The first Kubernetes version whose kubelets give pods what claims for extended resources have (KEP-5004)."""

_VERSION = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,3})\b")


def obstacle(node: Object, cdi: bool | None = None) -> str:
    """The first obstacle on this Node; empty if it has none, as far as it says. ``cdi``: whether the runtime gives
    devices by CDI names, if it was asked itself.
    """
    kubelet, kind, version = _software(node)
    name = node["metadata"]["name"]
    if (match := _VERSION.match(kubelet)) is not None and (int(match[1]), int(match[2])) < FIRST:
        return (
            f"kubelet {kubelet} of node {name} starts pods of an extended resource without their claims' devices: "
            f"expected {FIRST[0]}.{FIRST[1]} or later, or the resource with front: deviceplugin"
        )
    if knows_cdi(kind, version) is False:
        return (
            f"{kind} {version} of node {name} drops CDI names, so containers run without their devices: expected "
            "containerd 1.7.2 with enable_cdi = true, CRI-O 1.23, or later; or the resource with front: deviceplugin"
        )
    if cdi is False:
        return (
            f"{kind} {version} of node {name} has CDI switched off, so containers run without their devices: expected "
            "enable_cdi = true in its configuration, and a restart of it; or the resource with front: deviceplugin"
        )
    return ""


def suits(node: Object, cdi: bool | None = None) -> tuple[bool | None, str]:
    """Whether it can give devices by DRA, None if that isn't known, and why not. ``cdi``: as for :func:`obstacle`."""
    if text := obstacle(node, cdi):
        return False, text
    kubelet, kind, version = _software(node)
    name = node["metadata"]["name"]
    if _VERSION.match(kubelet) is None:
        return None, f"the version of the kubelet of node {name} isn't known: found {kubelet!r}, expected v1.36.0"
    if cdi is None and knows_cdi(kind, version) is None:
        return None, (
            f"whether {kind} {version} of node {name} handles CDI names isn't known: expected containerd 2, "
            "CRI-O 1.28, or a socket of the runtime that the gateway can ask (runtime.socket)"
        )
    return True, ""


def _software(node: Object) -> tuple[str, str, str]:
    """The kubelet's version, and the runtime's name and version; empty if the Node doesn't say them."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    kind, _, version = str(info.get("containerRuntimeVersion") or "").partition("://")
    return str(info.get("kubeletVersion") or ""), kind, version
