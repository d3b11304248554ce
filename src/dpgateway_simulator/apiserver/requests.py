"""Requests and answers as values: parsing a request, and the JSON of an answer.

A request of a client is ``METHOD /apis/GROUP/VERSION/[namespaces/NAMESPACE/]PLURAL[/NAME[/status]]?OPTIONS``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import h11

from dpgateway_simulator.apiserver.admitting import ApiRefusal, Object
from dpgateway_simulator.apiserver.store import Key

KINDS = {
    "nodes": "Node",
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
    "deviceclasses": "DeviceClass",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "pods": "Pod",
    "events": "Event",
}
WITH_STATUS = {"nodes", "pods", "resourceclaims"}
"""Their status is written by itself, as a subresource."""
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class ApiRequest:
    """A request, parsed."""

    method: str
    plural: str
    namespace: str
    name: str
    part: str
    """The subresource: ``status``, or nothing."""
    options: Mapping[str, str]
    body: Object

    @property
    def key(self) -> Key:
        return self.plural, self.namespace, self.name

    @property
    def verb(self) -> str:
        """As in a rule of RBAC."""
        if self.method == "DELETE" and not self.name:
            return "deletecollection"
        reading = "watch" if "watch" in self.options else "get" if self.name else "list"
        return VERBS.get(self.method, reading)

    @property
    def fields(self) -> dict[str, str]:
        """The field selector."""
        return dict(one.split("=", 1) for one in self.options.get("fieldSelector", "").split(",") if one)


def parsed(head: h11.Request, body: bytes) -> ApiRequest:
    """``/api/v1/...`` or ``/apis/GROUP/VERSION/[namespaces/NAMESPACE/]PLURAL[/NAME[/status]]``."""
    url = urlsplit(head.target.decode())
    parts = url.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, part, *_ = (*parts, "", "", "")
    given = json.loads(body) if body else {}
    return ApiRequest(head.method.decode(), plural, namespace, name, part, dict(parse_qsl(url.query)), given)


def merged(before: Object, patch: Object) -> Object:
    """JSON merge patch (RFC 7386); a strategic merge patch is taken for one."""
    found = {key: value for key, value in before.items() if patch.get(key, "") is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            inner = before.get(key)
            found[key] = merged(inner if isinstance(inner, dict) else {}, value)
        elif value is not None:
            found[key] = value
    return found


def event(what: str, found: Object) -> bytes:
    return json.dumps({"type": what, "object": found}).encode() + b"\n"


def status_of(error: ApiRefusal) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        **({"details": {"name": error.name}} if error.name else {}),
        "code": error.code,
    }
