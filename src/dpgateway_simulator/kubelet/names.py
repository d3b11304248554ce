"""Which resource names a release takes: IsExtendedResourceName in pkg/apis/core/v1/helper/helpers.go."""

import re

from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.errors import RefusedError

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = re.compile(rf"(?P<prefix>{_LABEL}(\.{_LABEL})*)/(?P<name>[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)")


def quoted(text: str) -> str:
    """Go's %q."""
    shown = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown) + '"'


def extended(name: str, *, qualified: bool) -> bool:
    """Whether it is an extended resource's; from 1.10 on it must still be a qualified name behind `requests.`."""
    if "/" not in name or "kubernetes.io/" in name:
        return False
    if not qualified:
        return True
    match = _QUALIFIED.fullmatch(f"requests.{name}")
    fits = match is not None and len(match["prefix"]) <= 253 and len(match["name"]) <= 63
    return fits and not name.startswith("requests.")


def check(behaviour: Behaviour, version: str, resource: str) -> None:
    """Register's two checks, in the kubelet's order; raises RefusedError."""
    if version != behaviour.api:
        raise RefusedError(behaviour.version_error.format(quoted(version)))
    if not resource and behaviour.api == "0.1":
        raise RefusedError("invalid Empty ResourceName")
    if not extended(resource, qualified=behaviour.qualified_names):
        raise RefusedError(behaviour.name_error.format(quoted(resource)))
