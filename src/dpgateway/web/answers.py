"""The ASGI application that answers with pages. It is independent of the server.

The pages are read-only, so GET and HEAD are the only methods. Web sites in the user's browser must not read them: with
DNS rebinding a site can resolve its own name to this address, and the browser then treats the pages as same-origin. So
on a loopback address only this machine's names are accepted as Host.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from dpgateway.errors import describe
from dpgateway.kit.log import bind

PIECE = 64 * 1024
"""Bytes per message to the server, which buffers that much for a client that doesn't read."""
SMALL = 1024
"""Bytes of an answer that isn't worth a compression."""
FAST, GZIP = 1, 31
"""The level, and zlib's window of a gzip stream (zlib.h, deflateInit2)."""
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_OWN_NAME = re.compile(rb"(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_GZIP = re.compile(rb"gzip(\s*;\s*q=(1(\.0*)?|0\.\d*[1-9]\d*))?", re.IGNORECASE)
_POLICY = (  # no other origins, nothing inline, no framing
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"accept-encoding"),
]

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class Response:
    """A page's content type, body and status."""

    content_type: str
    body: bytes
    status: int = 200


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the connections: timeouts in seconds, and their number."""

    asking: float = 5.0
    """From the start of a connection, or the end of the last answer, to the end of a request's headers."""
    taking: float = 10.0
    """From the end of the headers to the end of the answer."""
    connections: int = 32


Page = Callable[[], Awaitable[Response]]
"""Makes the answer, in turns that don't block the event loop."""

Headers = list[tuple[bytes, bytes]]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Application:
    """An ASGI application: https://asgi.readthedocs.io/en/latest/specs/www.html."""

    def __init__(self, pages: Mapping[str, Page], *, local: bool) -> None:
        """``pages``: by path. ``local``: whether the address is a loopback one."""
        self._pages, self._local = pages, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from email.utils import formatdate  # noqa: PLC0415  takes memory, and is needed for requests only

        answer, more = await self._answer(scope)
        body = answer.body
        # Prometheus and browsers name gzip in Accept-Encoding (RFC 9110, 12.5.3).
        given = b",".join([value for name, value in scope["headers"] if name == b"accept-encoding"])
        if len(body) > SMALL and any(_GZIP.fullmatch(coding.strip()) for coding in given.split(b",")):
            body = await _gzipped(body)
            more = [*more, (b"content-encoding", b"gzip")]
        headers = [
            *_HEADERS,
            (b"content-type", answer.content_type.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"date", formatdate(usegmt=True).encode()),
            *more,
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        for start in range(0, len(body), PIECE):
            piece = body[start : start + PIECE]  # the server sends none of it to HEAD
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer(self, scope: Scope) -> tuple[Response, Headers]:
        """The answer, and further headers."""
        # HTTP/1.0 may lack a Host; no browser speaks it.
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if self._local and not all(map(_OWN_NAME.fullmatch, hosts)):
            return _text(421, "this machine has no such name: ask for localhost or 127.0.0.1"), []
        if scope["method"] not in {"GET", "HEAD"}:
            return _text(405, "these pages can only be read"), [(b"allow", b"GET, HEAD")]
        page = self._pages.get(scope["path"])
        if page is None:
            return _text(404, f"there is no such page; there are: {' '.join(sorted(self._pages))}"), []
        try:
            return await page(), []
        except Exception as error:
            _log.error("a bug: the page %s failed: %s", scope["path"], describe(error), exc_info=error)
            return _text(500, "a bug of the gateway: its log says more"), []


async def _gzipped(body: bytes) -> bytes:
    """Compresses piece by piece, with turns for other tasks in between: a piece takes a millisecond.

    A function of its own, so that a client that reads slowly holds neither the pieces nor the compressor, which has
    256 KiB.
    """
    compressing, pieces = zlib.compressobj(FAST, wbits=GZIP), []
    for start in range(0, len(body), PIECE):
        pieces.append(compressing.compress(body[start : start + PIECE]))
        await asyncio.sleep(0)
    return b"".join([*pieces, compressing.flush()])


def _text(status: int, text: str) -> Response:
    return Response(TEXT, f"{text}\n".encode(), status)
