"""What every request to the API server has in common on the wire. Loaded with the first request only, as is the client.

- An answer has at most LARGEST bytes, a line of a watch at most LONGEST_LINE: the memory of a node's agent isn't the
  server's to use. Answers aren't compressed, so that their bytes are what is counted.
- A connection that nobody hears of is found dead after about a minute: a watch may be silent for ten, and a balancer
  that forgets a connection, or a server without power, says nothing.
- A watch that is silent for longer than the server was told to let it last, and some, is dead, too. Each answer has a
  time of its own: the client asks for the next without a change in between.
- The client asks for the next at once, so where something ends each watch early, the end of its answer is delayed.
- No proxy of the environment is used, and no redirect followed: neither may have the token.
- A token that isn't accepted is read again, and the request sent once more: its file is replaced before it expires.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext, create_default_context
from typing import Protocol

import httpx2

from dpgateway.kit.tasks import backoff

LARGEST = 16 << 20
"""Bytes of an answer: 500 claims have about 1.5 MB, and etcd holds no object over 1.5 MiB."""
LONGEST_LINE = 4 << 20
"""Bytes of one line of a watch: one object."""
NEXT_LINE = "\N{NEXT LINE}".encode()
"""U+0085."""
EARLY = 30.0
"""Seconds. A watch that ended earlier, and than asked for, is followed by a pause, which is on average no longer."""
USER_AGENT = "dpgateway"
ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),  # ms, of bytes that aren't acknowledged
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

Answered = Callable[[str, str, int], None]
"""Gets the verb, the plural of the kind, and the status, of each request; 0 without an answer."""


class Token(Protocol):
    """Reads the account's token; ``anew`` if the last one isn't accepted. Raises ConfigurationError."""

    async def __call__(self, *, anew: bool = False) -> str: ...


class AnswerTooLarge(Exception):
    """An answer has more bytes than it may have."""


class ClusterTransport(httpx2.AsyncBaseTransport):
    """The connections of one client."""

    def __init__(self, certificates: SSLContext, token: Token, answered: Answered, deadline: float) -> None:
        """``deadline``: seconds for which a watch may be silent after its end."""
        self._inner = httpx2.AsyncHTTPTransport(verify=certificates, trust_env=False, socket_options=ALIVE)
        self._token, self._answered, self._deadline = token, answered, deadline
        self._early: Counter[str] = Counter()
        """How often in a row watches have ended early, by plural."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Authorization"] = f"Bearer {await self._token()}"
        response = await self._asked(request)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            await response.aclose()
            request.headers["Authorization"] = f"Bearer {await self._token(anew=True)}"
            response = await self._asked(request)
        return response

    async def _asked(self, request: httpx2.Request) -> httpx2.Response:
        request.headers.update({"Accept-Encoding": "identity", "User-Agent": USER_AGENT})
        # The path is /api/v1/... or /apis/GROUP/VERSION/..., in a namespace or not.
        parts = request.url.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            parts = parts[2:]
        plural, name, *_ = (*parts, "", "")
        reads = "get" if name else "watch" if "watch" in request.url.params else "list"
        verb = _VERBS.get(request.method, reads)
        lasts, began = int(request.url.params.get("timeoutSeconds") or 0), asyncio.get_running_loop().time()
        if verb == "watch":
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": lasts + self._deadline}
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._inner.handle_async_request(request)
        except TimeoutError as error:
            self._answered(verb, plural, 0)
            raise httpx2.ReadTimeout(f"no answer for {self._deadline:g} s") from error
        except Exception:
            self._answered(verb, plural, 0)
            raise
        self._answered(verb, plural, response.status_code)
        if isinstance(response.stream, httpx2.AsyncByteStream):
            begun = verb == "watch" and response.status_code == HTTPStatus.OK
            ended = partial(self._ended, plural, began, lasts) if begun else None
            response.stream = _Limited(response.stream, ended, by_line=verb == "watch")
        return response

    async def _ended(self, plural: str, began: float, lasts: int) -> None:
        """A watch has ended without an error. Returns when the next one may begin."""
        if asyncio.get_running_loop().time() - began >= min(lasts, EARLY):
            del self._early[plural]
            return
        self._early[plural] += 1
        # At random: a thousand nodes have the same server, or balancer.
        await asyncio.sleep(backoff(self._early[plural], EARLY) * random.uniform(0.5, 1.5))  # noqa: S311

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass(eq=False)
class _Limited(httpx2.AsyncByteStream):
    """An answer's bytes, as long as there aren't too many."""

    inner: httpx2.AsyncByteStream
    ended: Callable[[], Awaitable[None]] | None
    """Awaited after the last byte."""
    by_line: bool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, most = 0, LONGEST_LINE if self.by_line else LARGEST
        async for some in _escaped(self.inner) if self.by_line else self.inner:
            # Only the last line can be unfinished; those before it were read.
            size = len(some) - some.rindex(b"\n") if self.by_line and b"\n" in some else size + len(some)
            if size > most:
                raise AnswerTooLarge(f"found over {most} bytes in {'a line of ' if self.by_line else ''}its answer")
            yield some
        if self.ended is not None:
            await self.ended()

    async def aclose(self) -> None:
        await self.inner.aclose()


async def _escaped(lines: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """A watch's lines without U+0085: the server leaves it in texts as it is, and the client ends a line there."""
    half = b""
    async for some in lines:
        found = half + some
        half = NEXT_LINE[:1] if found.endswith(NEXT_LINE[:1]) else b""
        yield found.removesuffix(half).replace(NEXT_LINE, rb"\u0085")


def certificates(server: str, ca: Path | None) -> SSLContext:
    """What the certificate of ``server``, a URL, is checked with. ``ca``: a file, PEM; None: the system's. Raises
    OSError. One with http:// has no certificate; to read the system's takes 40 ms, so nothing is read and trusted.
    """
    if server.startswith("http://"):
        return SSLContext(PROTOCOL_TLS_CLIENT)
    return create_default_context(cafile=ca)
