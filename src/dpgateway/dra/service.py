"""The DRA service: a driver's socket that the kubelet calls for the claims of its pods.

v1 (since 1.34) and v1beta1 (1.32 to 1.37) have the same messages, but for the share id, so one implementation serves
both. Every claim that was asked for is in the answer, with devices or with an error: the kubelet takes a missing one
for an error without a text.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dpgateway.dra.claims.reading import Asked
from dpgateway.dra.health import HEALTH_SERVICES, HealthStreams
from dpgateway.dra.preparing import NodeClaims, Prepared
from dpgateway.dra.wire import dra_pb2 as wire
from dpgateway.errors import KubeletError, encodable
from dpgateway.kit import unix
from dpgateway.kit.channel import Channel
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import uncancelled

PLUGINS = "plugins"
"""Below the kubelet's root directory."""
SERVICES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
"""The gRPC service of each version, newest first, by the name under which it is registered."""
VERSIONS = (*SERVICES, *HEALTH_SERVICES)
"""What the registration names."""
HERE, NOBODY = Path("here"), Path("nobody")
"""Who answers calls: this gateway, or nobody yet, so they wait. Any other path is another gateway's socket."""
LONGEST_TEXT = 2000
"""Characters of an error: it reaches the pod's events."""


def folder_of(root: Path, driver: str) -> Path:
    """The folder of a driver's sockets and lock. ``root``: the kubelet's root directory."""
    return root / PLUGINS / driver


class Service:
    """The socket of one driver. Used from the event loop."""

    def __init__(
        self,
        root: Path,
        driver: str,
        claims: NodeClaims,
        health: HealthStreams,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """``root``: the kubelet's root directory, at the same path for the kubelet and for us."""
        self._claims, self._health, self._log = claims, health, log
        self.socket = folder_of(root, driver) / f"dra-{secrets.token_hex(4)}.sock"
        """A name of its own for each instance: a kubelet refuses an endpoint that it knows already."""
        self.answering = Observable(HERE)
        self._calls = Observable(0)
        """The number of calls under way."""
        self._server: grpc.aio.Server | None = None
        self._address: unix.Address | None = None

    async def open(self) -> None:
        """Serves. Raises KubeletError, OSError."""
        for path in self.socket.parent.glob("dra-*.sock"):
            if unix.is_dead(path):  # of a gateway that was killed
                path.unlink(missing_ok=True)
        self._address = unix.Address(self.socket)
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        method = grpc.unary_unary_rpc_method_handler
        for service in SERVICES.values():
            prepare = method(
                partial(self._counted, self._prepare, f"/{service}/NodePrepareResources"),
                wire.NodePrepareResourcesRequest.FromString,
                wire.NodePrepareResourcesResponse.SerializeToString,
            )
            unprepare = method(
                partial(self._counted, self._unprepare, f"/{service}/NodeUnprepareResources"),
                wire.NodeUnprepareResourcesRequest.FromString,
                wire.NodeUnprepareResourcesResponse.SerializeToString,
            )
            rows = {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, rows),))
        self._server.add_generic_rpc_handlers(tuple(map(self._health.handlers, HEALTH_SERVICES.values())))
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self.close, 0)
            try:
                self._server.add_insecure_port(str(self._address))
            except RuntimeError as error:
                raise KubeletError(f"can't serve on {self.socket}: {error}") from error
            await uncancelled(self._server.start())  # as deviceplugin.server.serving
            self.socket.chmod(0o600)
            undo.pop_all()

    async def close(self, grace: float) -> None:
        """``grace``: seconds for calls under way."""
        self._health.end()  # a stream would last for all of the grace
        if self._server is not None:
            await self._server.stop(grace)
        if self._address is not None:
            self._address.close()
        with contextlib.suppress(OSError):
            self.socket.unlink()

    async def quiet(self, seconds: float) -> None:
        """Returns once no call has been under way for so long."""
        while True:
            await self._calls.wait_for(lambda calls: not calls)
            version = self._calls.version
            try:
                async with asyncio.timeout(seconds):
                    await self._calls.wait(version)
            except TimeoutError:
                return

    async def _counted(self, answer: Callable[[str, Any], Awaitable[Any]], path: str, request: Any, _: object) -> Any:  # noqa: ANN401  untyped
        self._calls.set(self._calls.value + 1)
        try:
            return await answer(path, request)
        finally:
            self._calls.set(self._calls.value - 1)

    async def _elsewhere(self, path: str, request: Any) -> bytes | None:  # noqa: ANN401  untyped
        """Another gateway's answer; None if this one has to answer. Raises AioRpcError of that gateway."""
        while (where := self.answering.value) != HERE:
            if where != NOBODY:
                try:
                    async with Channel(where) as channel:
                        answer: bytes = await channel.unary_unary(path)(request.SerializeToString())
                        return answer
                except (grpc.aio.AioRpcError, OSError) as error:  # OSError: its folder isn't there any more
                    if isinstance(error, grpc.aio.AioRpcError) and error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
            # That gateway has ended, or isn't ready: either this one gets the lock, or another one.
            await self.answering.wait_for(lambda now, before=where: now != before)  # type: ignore[misc]
        return None

    async def _prepare(self, path: str, request: wire.NodePrepareResourcesRequest) -> Any:  # noqa: ANN401  untyped
        began = time.monotonic()
        while True:
            if (answer := await self._elsewhere(path, request)) is not None:
                return wire.NodePrepareResourcesResponse.FromString(answer)
            answers = await self._claims.prepare([Asked(one.namespace, one.name, one.uid) for one in request.claims])
            # A newer gateway may have asked for the claims meanwhile, and have what this one lacks.
            if self.answering.value == HERE or not any(isinstance(one, str) for one in answers.values()):
                break
        self._say("prepare", request, answers, began)
        found = {}
        for uid, given in answers.items():
            if isinstance(given, str):
                found[uid] = wire.NodePrepareResourceResponse(error=encodable(given[:LONGEST_TEXT]))
                continue
            devices = [
                wire.Device(
                    request_names=[one.request],
                    pool_name=one.pool,
                    device_name=one.device,
                    cdi_device_ids=one.cdi,
                    share_id=one.share_id or None,
                )
                for one in given
            ]
            found[uid] = wire.NodePrepareResourceResponse(devices=devices)
        return wire.NodePrepareResourcesResponse(claims=found)

    async def _unprepare(self, path: str, request: wire.NodeUnprepareResourcesRequest) -> Any:  # noqa: ANN401  untyped
        if (answer := await self._elsewhere(path, request)) is not None:
            return wire.NodeUnprepareResourcesResponse.FromString(answer)
        began = time.monotonic()
        answers = await self._claims.unprepare([Asked(one.namespace, one.name, one.uid) for one in request.claims])
        self._say("unprepare", request, answers, began)
        texts = {uid: one if isinstance(one, str) else "" for uid, one in answers.items()}
        found = {
            uid: wire.NodeUnprepareResourceResponse(error=encodable(text[:LONGEST_TEXT])) for uid, text in texts.items()
        }
        return wire.NodeUnprepareResourcesResponse(claims=found)

    def _say(
        self,
        what: str,
        request: wire.NodePrepareResourcesRequest | wire.NodeUnprepareResourcesRequest,
        answers: Mapping[str, tuple[Prepared, ...] | str],
        began: float,
    ) -> None:
        """Logs and counts the answers. ``began``: the call's start, by time.monotonic()."""
        refused, names = self._claims.refused.value, {one.uid: f"{one.namespace}/{one.name}" for one in request.claims}
        for uid, answer in answers.items():
            self._claims.calls.add(what, "error" if isinstance(answer, str) else "success", began)
            if isinstance(answer, str):
                extra = {"claim": names[uid], "reason": answer}
                self._log.warning("can't %s claim %s: %s", what, names[uid], answer, extra=extra)
                refused = f"can't {what} claim {names[uid]}: {answer}", time.monotonic()
            elif what == "prepare" or (refused is not None and f" {names[uid]}: " in refused[0]):
                refused = None
        self._claims.refused.set(refused)
