"""The Registration service on kubelet.sock, in the release's dialect only."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import betterproto
from grpclib.const import Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.metadata import Deadline
from grpclib.server import Stream

from dpgateway_simulator.kubelet import names
from dpgateway_simulator.kubelet.connections import Connections
from dpgateway_simulator.kubelet.endpoint import Registration
from dpgateway_simulator.kubelet.errors import RefusedError
from dpgateway_simulator.kubelet.incarnation import Life
from dpgateway_simulator.kubelet.misbehaviour import Misbehaviour
from dpgateway_simulator.kubelet.plugin import Options
from dpgateway_simulator.wire import deviceplugin as v1alpha2
from dpgateway_simulator.wire import v1beta1


class Registrar:
    """Checks a request and hands it to the connections."""

    def __init__(self, life: Life, connections: Connections, misbehaviour: Misbehaviour) -> None:
        self._life, self._connections, self._misbehaviour = life, connections, misbehaviour

    async def register(self, request: Registration) -> None:
        """Answers, or raises GRPCError as a Go server that returns a plain error does: code UNKNOWN."""
        about = {"resource": request.resource, "endpoint": request.endpoint, "version": request.version}
        self._life.journal.emit("register", **about)
        await self._misbehaviour.stall(request.resource)
        try:
            await self._accept(request)
        except RefusedError as error:
            self._life.journal.emit("refused", **about, code="UNKNOWN", reason=str(error))
            raise GRPCError(Status.UNKNOWN, str(error)) from error
        self._life.journal.emit("registered", **about)

    async def _accept(self, request: Registration) -> None:
        wish = self._misbehaviour.refusal(request.resource)
        if wish is not None:
            self._life.journal.emit("refused", resource=request.resource, code=wish[0].name, reason=wish[1])
            raise GRPCError(*wish)
        names.check(self._life.behaviour, request.version, request.resource)
        if self._life.behaviour.synchronous and not self._life.behaviour.register_context:
            # 1.25 to 1.34 dial in the background context: a caller that gives up changes nothing
            work = self._life.tasks.spawn(f"kubelet: Register {request.resource}", self._quietly(request))
            error = await asyncio.shield(work)
            if error is not None:
                raise error
        else:
            await self._connections.register(request)

    async def _quietly(self, request: Registration) -> RefusedError | None:
        try:
            await self._connections.register(request)
        except RefusedError as error:
            return error
        return None


_DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def _noting_deadline(method: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """The generated services pass the request on, but not the call's deadline."""

    async def call(stream: Stream[Any, Any]) -> None:
        _DEADLINE.set(stream.deadline)
        await method(stream)

    return call


class _Beta(v1beta1.RegistrationBase):
    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    async def register(self, register_request: v1beta1.RegisterRequest) -> v1beta1.Empty:
        one, options = register_request, None
        if betterproto.serialized_on_wire(one.options):
            options = Options(one.options.pre_start_required, one.options.get_preferred_allocation_available)
        given = Registration(one.version, one.endpoint, one.resource_name, options, _DEADLINE.get())
        await self._registrar.register(given)
        return v1beta1.Empty()

    def __mapping__(self) -> dict[str, Handler]:
        return {path: one._replace(func=_noting_deadline(one.func)) for path, one in super().__mapping__().items()}


class _Alpha(v1alpha2.RegistrationBase):
    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    async def register(self, register_request: v1alpha2.RegisterRequest) -> v1alpha2.Empty:
        one = register_request
        await self._registrar.register(Registration(one.version, one.endpoint, one.resource_name))
        return v1alpha2.Empty()


def service(registrar: Registrar, package: str) -> v1beta1.RegistrationBase | v1alpha2.RegistrationBase:
    """The service to put on the socket."""
    return _Beta(registrar) if package == "v1beta1" else _Alpha(registrar)
