"""Serves the pages at the configured address, and follows changes of it. Failures stay within this task."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from dpgateway.config import WebSettings
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.kit.tasks import retry
from dpgateway.kit.threads import Threads
from dpgateway.web.answers import Application, Limits, Page

BACKLOG = 64
"""The listener's queue of connections."""
LONGEST_PAUSE = 10.0
"""Seconds, at most, until an address in use is tried again: an older gateway of the node may still have it, and the
liveness probe of this one fails until then.
"""

_log = bind(__name__)


class Serving:
    """One task: :meth:`run`."""

    def __init__(
        self, pages: Mapping[str, Page], wanted: Observable[WebSettings], limits: Limits | None = None
    ) -> None:
        self._pages, self._wanted, self._limits = pages, wanted, limits or Limits()
        self._complaint = Complaint(_log, "the pages can't be served at %s")

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            version, address = self._wanted.version, self._wanted.value.address
            if address is None:
                await self._wanted.wait(version)
                continue

            # One server per address: a change cancels it, also while the address can't be bound.
            self._complaint.over()
            serve, failed = partial(self._serve, *address), partial(self._failed, _url(*address))
            serving = asyncio.create_task(retry(serve, failed, longest=LONGEST_PAUSE), name="pages")
            try:
                while self._wanted.value.address == address:
                    version = await self._wanted.wait(version)
            finally:
                serving.cancel()
                await asyncio.wait({serving})
            _log.info("the pages have left %s", _url(*address))

    def _failed(self, url: str, error: Exception) -> None:
        if not isinstance(error, OSError):
            _log.error("a bug: the pages at %s failed, and are served again", url, exc_info=error)
        else:
            self._complaint.say(f"{url}, which is tried again: {error}")

    async def _serve(self, host: IPv4Address | IPv6Address, port: int) -> None:
        # A late import, because uvicorn takes megabytes; on a thread, because it takes long.
        http: Any = await Threads(idle=0).call("load the server", partial(import_module, "dpgateway.web.connections"))
        connections = http.Connections(Application(self._pages, local=host.is_loopback), self._limits)
        with socket.socket(socket.AF_INET6 if host.version == 6 else socket.AF_INET) as listener:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((str(host), port))
            server = await asyncio.get_running_loop().create_server(connections.make, sock=listener, backlog=BACKLOG)
            self._complaint.over()
            _log.info("the pages are at %s", _url(host, listener.getsockname()[1]))
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                server.close()
                await connections.close()


def _url(host: IPv4Address | IPv6Address, port: int) -> str:
    return f"http://{f'[{host}]' if host.version == 6 else host}:{port}/"
