"""Register: the kubelet's checks and their messages, and the hand-over of a request that passes.

IsExtendedResourceName is in pkg/apis/core/v1/helper/helpers.go.
"""

import asyncio
import re

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from dpgateway_simulator.kubelet.behaviour import Behaviour
from dpgateway_simulator.kubelet.connections import PluginConnections
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.kubelet.incarnation import Incarnation
from dpgateway_simulator.wire.dialects import Registration

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = re.compile(rf"(?P<prefix>{_LABEL}(\.{_LABEL})*)/(?P<name>[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)")


def quoted(text: str) -> str:
    """Go's %q."""
    shown = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown) + '"'


def extended(name: str, *, qualified: bool) -> bool:
    """Whether this is an extended resource name. From 1.10 on `requests.<name>` must be a qualified name, too."""
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
    if not resource and behaviour.empty_name_error is not None:
        raise RefusedError(behaviour.empty_name_error)
    if not extended(resource, qualified=behaviour.qualified_names):
        raise RefusedError(behaviour.name_error.format(quoted(resource)))


async def register(incarnation: Incarnation, connections: PluginConnections, request: Registration) -> None:
    """Registers a plugin. A refusal raises GRPCError with UNKNOWN, grpc-go's code for a plain error."""
    behaviour, misbehaviour = incarnation.behaviour, incarnation.node.misbehaviour
    about = {"resource": request.resource, "endpoint": request.endpoint, "version": request.version}
    incarnation.emit("register", **about)
    await misbehaviour.stall(request.resource)
    if misbehaviour.register_delay:
        await incarnation.sleep(misbehaviour.register_delay)
    injected = misbehaviour.refusal(request.resource)
    if injected is not None:
        incarnation.emit("refused", resource=request.resource, code=injected[0].name, reason=injected[1])
        raise GRPCError(*injected)
    try:
        check(behaviour, request.version, request.resource)
        if behaviour.synchronous and not behaviour.register_context:
            # 1.25 to 1.34 dial with context.Background(): the registration completes even if its caller cancels.
            registration = connections.register(request)
            await asyncio.shield(incarnation.tasks.spawn(f"kubelet: Register {request.resource}", registration))
        else:
            await connections.register(request)
    except RefusedError as error:
        incarnation.emit("refused", **about, code="UNKNOWN", reason=str(error))
        raise GRPCError(Status.UNKNOWN, str(error)) from error
    incarnation.emit("registered", **about)
