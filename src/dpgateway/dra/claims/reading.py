"""A claim's allocation, as far as it concerns this driver (ResourceClaim, resource.k8s.io/v1).

The parameters of a class and of a claim (``devices.config``) are one document for each class or claim::

    opaque:
      driver: dra.example.com
      parameters: {apiVersion: dpgateway/v1alpha1, kind: Parameters, options: {function: net}}

An administrator's class is binding: a claim may choose what its class leaves open, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dpgateway.dra.slices.offered import SHARES
from dpgateway.errors import RequestError, cut

EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that the scheduler made for a pod's extended resources (ExtendedResourceClaimAnnotation,
resource/v1/types.go)."""

API_VERSION, KIND = "dpgateway/v1alpha1", "Parameters"
FROM_CLASS = "FromClass"
LONGEST_QUOTE = 60

Parameters = Mapping[str, Any]
"""Options of the driver, as plain values, by name."""
NO_PARAMETERS: Parameters = MappingProxyType({})
NO_CLASSES: Mapping[str, str] = MappingProxyType({})


class Asked(NamedTuple):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


class Result(NamedTuple):
    """One device that the scheduler allocated."""

    request: str
    """The request's name; of an alternative that was chosen, that of the request that it is an alternative of."""
    pool: str
    device: str
    """The device's name in the slice."""
    share_id: str = ""
    """Of a device that may be in several claims."""
    shares: int = 1
    admin: bool = False
    """For monitoring (adminAccess): others may have the device, too, so it is neither prepared nor held."""
    alternative: str = ""
    """The name of the alternative that was chosen; empty if the request has none."""


class Allocated(NamedTuple):
    """A claim that is allocated."""

    uid: str
    namespace: str
    name: str
    results: tuple[Result, ...]
    """Of this driver alone: other drivers prepare their own."""
    pods: tuple[tuple[str, str], ...]
    """The uid and the name of each pod that may use it."""
    configs: tuple[Mapping[str, Any], ...] = ()
    """The parameters of class and claim for this driver, as the API server has them."""
    classes: Mapping[str, str] = NO_CLASSES
    """The class of each request, by its name, if the scheduler made the claim for a pod's extended resources."""

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


def allocated(claim: Mapping[str, Any] | None, driver: str, asked: Asked) -> Allocated:
    """The claim's allocation. Raises RequestError."""
    namespace, name, uid = asked
    if claim is None:
        raise RequestError(f"claim {namespace}/{name} isn't there any more")
    found = str(claim["metadata"]["uid"])
    if found != uid:
        raise RequestError(f"claim {namespace}/{name} was replaced: expected uid {uid}, found {found}")
    status = claim.get("status") or {}
    if not (allocation := status.get("allocation")):
        raise RequestError(f"claim {namespace}/{name} isn't allocated")
    devices = allocation.get("devices") or {}
    results = [_result(one) for one in devices.get("results") or () if one["driver"] == driver]
    configs = [one for one in devices.get("config") or () if (one.get("opaque") or {}).get("driver") == driver]
    users = status.get("reservedFor") or ()
    pods = [(str(one["uid"]), str(one["name"])) for one in users if one.get("resource") == "pods"]
    classes = NO_CLASSES
    if (claim["metadata"].get("annotations") or {}).get(EXTENDED) == "true":
        requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
        # such a claim has no alternatives
        by_request = ((one, (one.get("exactly") or {}).get("deviceClassName")) for one in requests)
        classes = {str(one["name"]): str(class_) for one, class_ in by_request if class_}
    return Allocated(uid, namespace, name, tuple(results), tuple(pods), tuple(configs), classes)


def _result(one: Mapping[str, Any]) -> Result:
    """Raises RequestError for a number of shares that the scheduler doesn't round to."""
    request, _, alternative = str(one["request"]).partition("/")
    said = str((one.get("consumedCapacity") or {}).get(SHARES, "1"))
    shares = said.removesuffix("k") + "000" * said.endswith("k")  # the API server writes 1000 as 1k
    if not (shares.isascii() and shares.isdigit()):
        raise RequestError(f"device {one['device']}: expected a whole number of shares below a million, found {said}")
    return Result(
        request,
        str(one["pool"]),
        str(one["device"]),
        str(one.get("shareID") or ""),
        int(shares),
        bool(one.get("adminAccess")),
        alternative,
    )


def parameters(wanted: Allocated, one: Result) -> Parameters:
    """What class and claim ask of the driver for this result. Raises RequestError."""
    if not wanted.configs:
        return NO_PARAMETERS
    request = f"{one.request}/{one.alternative}" if one.alternative else one.request
    names = {request, one.request}
    concerned = [it for it in wanted.configs if not it.get("requests") or names.intersection(it["requests"])]
    fixed, found = dict[str, Any](), dict[str, Any]()
    # Whatever the order of the list, the class comes first.
    for config in sorted(concerned, key=lambda it: it.get("source") != FROM_CLASS):
        by_class = config.get("source") == FROM_CLASS
        whose = f"{wanted}: parameters of {'the class' if by_class else 'the claim'} for request {request}"
        for key, value in _options(config["opaque"].get("parameters"), whose).items():
            if not by_class and fixed.get(key, value) != value:
                raise RequestError(
                    f"{whose}: {key}: found {_quoted(value)}, expected {_quoted(fixed[key])}, as the class says"
                )
            found[key] = value
            if by_class:
                fixed[key] = value
    return found or NO_PARAMETERS


def _options(document: Any, whose: str) -> Mapping[str, Any]:  # noqa: ANN401  as JSON has it
    """The options in one document. Raises RequestError."""
    if not isinstance(document, dict):
        raise RequestError(f"{whose}: found {_quoted(document)}, expected a mapping with apiVersion, kind and options")
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != expected:
            raise RequestError(f"{whose}: {key}: found {_quoted(document.get(key))}, expected {expected}")
    if unknown := sorted(document.keys() - {"apiVersion", "kind", "options"}):
        raise RequestError(f"{whose}: {unknown[0]}: found an unknown key, expected apiVersion, kind and options")
    options = document.get("options") or {}
    if not isinstance(options, dict):
        raise RequestError(f"{whose}: options: found {_quoted(options)}, expected a mapping")
    return options


def _quoted(value: Any) -> str:  # noqa: ANN401  as JSON has it
    return "nothing" if value is None else cut(repr(value), LONGEST_QUOTE)
