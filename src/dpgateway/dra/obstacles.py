"""Why a node can't give devices by DRA, as its Node says.

Kubelet and runtime drop in silence what they don't know: a pod would run without its device. So nothing is published on
such a node.
"""

from __future__ import annotations

import re

from dpgateway.cluster.server import Object
from dpgateway.node.runtime import knows_cdi

FIRST = 1, 36
"""The first Kubernetes version whose kubelets give pods what claims for extended resources have (KEP-5004)."""

_VERSION = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,3})\b")


def obstacle(node: Object) -> str:
    """The first obstacle on this Node; empty if it has none, as far as it says."""
    info, name = (node.get("status") or {}).get("nodeInfo") or {}, node["metadata"]["name"]
    kubelet, runtime = (str(info.get(key) or "") for key in ("kubeletVersion", "containerRuntimeVersion"))
    if (match := _VERSION.match(kubelet)) is not None and (int(match[1]), int(match[2])) < FIRST:
        return (
            f"kubelet {kubelet} of node {name} starts pods of an extended resource without their claims' devices: "
            f"expected {FIRST[0]}.{FIRST[1]} or later, or the resource with front: deviceplugin"
        )
    kind, _, version = runtime.partition("://")
    if knows_cdi(kind, version) is False:
        return (
            f"{kind} {version} of node {name} drops CDI names, so containers run without their devices: expected "
            "containerd 1.7.2 with enable_cdi = true, CRI-O 1.23, or later; or the resource with front: deviceplugin"
        )
    return ""
