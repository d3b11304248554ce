"""One registration of a plugin: a socket in the kubelet's plugins_registry, and what the kubelet says about it.

Theory of operation (pkg/kubelet/pluginmanager, 1.37). The kubelet watches the directory for sockets that are created or
removed, dials a new one, asks GetInfo, and says by NotifyRegistrationStatus whether it took the plugin. A refusal is
asked again with backoff, from 0.5 s to 2 min. It doesn't notice a rename away, and counts a rename back as another
registration. So:

- A socket is bound under a name with a dot, which the kubelet ignores, then renamed: it is complete when it is seen.
- To leave is to unlink; the kubelet drops the plugin within a second.
- Each registration has a name of its own, never used before. A newer instance of a plugin registers beside the older
  one, which unlinks its socket only then: the kubelet uses the one that connected last.
- A socket of ours that nobody listens at is of a killed gateway, and is removed: else the kubelet dials it at each
  start.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from dpgateway.errors import KubeletError, cut
from dpgateway.kit import unix
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import uncancelled
from dpgateway.registry.wire import pluginregistration_pb2 as wire

FOLDER = "plugins_registry"
"""Below the kubelet's root directory (pkg/kubelet/config/defaults.go)."""
SERVICE = "pluginregistration.Registration"
LONGEST_REASON = 1000
"""Characters kept of a refusal."""

_NAME = re.compile(r"\.?dpgateway-[0-9a-f]{8}-[0-9a-f]{8}\.sock")
"""A socket of a gateway: the plugin's hash, and the instance's."""


@dataclass(frozen=True, slots=True)
class RegisteredPlugin:
    """What a kubelet is told."""

    type: str
    """``DRAPlugin``."""
    name: str
    endpoint: Path
    """The plugin's own socket, as the kubelet sees it. A kubelet refuses one that it knows already."""
    versions: tuple[str, ...]
    """The services at the endpoint, the best first."""


@dataclass(frozen=True, slots=True)
class RegistrationAnswer:
    """What the kubelet said last."""

    accepted: bool = False
    reason: str = ""
    """Of a refusal: the only explanation that there is."""
    at: float = 0.0
    """On the monotonic clock."""


class RegistrationSocket:
    """The registration of one plugin. Used from the event loop."""

    def __init__(self, root: Path, plugin: RegisteredPlugin, log: logging.LoggerAdapter[logging.Logger]) -> None:
        """``root``: the kubelet's root directory."""
        self.folder, self.plugin, self._log = root / FOLDER, plugin, log
        self.needed: Callable[[], bool] = lambda: True
        """Whether a refusal is a failure: nothing may need the plugin on a kubelet that is too old for it."""
        self.answer: Observable[RegistrationAnswer | None] = Observable(None)
        """None until the kubelet has said whether it takes the plugin. A restarted kubelet says it again, which is news
        even if the answer is the same.
        """
        hash_ = hashlib.sha256(plugin.name.encode()).hexdigest()[:8]
        self.path = self.folder / f"dpgateway-{hash_}-{secrets.token_hex(4)}.sock"
        self._server: grpc.aio.Server | None = None
        self._address: unix.Address | None = None

    async def open(self) -> None:
        """Shows the socket to the kubelet. Raises KubeletError, OSError."""
        if len(os.fsencode(self.path)) > unix.LONGEST:
            most = unix.LONGEST - len(self.path.name) - 1
            raise KubeletError(
                f"{self.folder}: found a path of {len(os.fsencode(self.folder))} bytes, expected at most {most}"
            )
        self.folder.stat()  # the kubelet makes it, with a mode and a label of its own
        self.sweep()
        hidden = self.path.with_name(f".{self.path.name}")
        self._address = unix.Address(hidden)
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        method = grpc.unary_unary_rpc_method_handler
        info = method(self._info, wire.InfoRequest.FromString, wire.PluginInfo.SerializeToString)
        status = method(
            self._status, wire.RegistrationStatus.FromString, wire.RegistrationStatusResponse.SerializeToString
        )
        calls = {"GetInfo": info, "NotifyRegistrationStatus": status}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            try:
                self._server.add_insecure_port(str(self._address))
            except RuntimeError as error:
                raise KubeletError(f"can't serve on {hidden}: {error}") from error
            await uncancelled(self._server.start())  # as deviceplugin.server.serving
            hidden.chmod(0o600)
            hidden.rename(self.path)
            undo.pop_all()

    def sweep(self) -> None:
        """Removes the sockets that killed gateways left: nobody listens there. Raises OSError."""
        for path in self.folder.iterdir():
            if _NAME.fullmatch(path.name) and unix.is_dead(path):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
                self._log.info("removed a registration socket that a killed gateway left: %s", path)

    def leave(self) -> None:
        """Has the kubelet drop this registration, if it isn't dropped already."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    async def close(self) -> None:
        self.leave()
        if self._server is not None:
            await self._server.stop(0)
        if self._address is not None:
            self._address.close()

    # the kubelet's calls

    async def _info(self, _: wire.InfoRequest, _context: object) -> wire.PluginInfo:
        one = self.plugin
        return wire.PluginInfo(
            type=one.type, name=one.name, endpoint=str(one.endpoint), supported_versions=list(one.versions)
        )

    async def _status(self, said: wire.RegistrationStatus, _context: object) -> wire.RegistrationStatusResponse:
        reason = "" if said.plugin_registered else cut(said.error or "no reason was given", LONGEST_REASON)
        answer = RegistrationAnswer(said.plugin_registered, reason, time.monotonic())
        before = self.answer.value
        if answer.accepted:
            self._log.info("the kubelet registered %s", self.plugin.name)
        elif before is None or before.reason != reason:
            level = logging.ERROR if self.needed() else logging.INFO
            self._log.log(level, "the kubelet refuses %s: %s", self.plugin.name, reason, extra={"reason": reason})
        self.answer.set(answer)
        return wire.RegistrationStatusResponse()
