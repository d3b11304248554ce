"""The table of pages, and the content of each. docs/reference/pages.md describes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from dpgateway.kit.threads import Threads
from dpgateway.status import Figures, Readiness, Status, pieces, to_json
from dpgateway.web import statusz
from dpgateway.web.answers import JSON, TEXT, Page, Response

LATELY = 0.5
"""Seconds within which a healthy process answers: a kubelet's probe waits for 1 s by default."""
FRESH = 1.0
"""Seconds for which an answer about all devices is reused, so that many clients cost as much as one."""
FORGOTTEN = 10.0
"""Seconds between checks whether the last answer is too old to keep in memory."""
AT_ONCE = 64 * 1024
"""Characters made in one turn of the event loop, so that a pending Allocate comes first."""

_FILES = Path(__file__).with_name("page")
_FILE_TYPES = {
    "page.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """The functions that the pages call."""

    status: Callable[[], Status]
    readiness: Callable[[], Readiness]
    works: Callable[[], Awaitable[object]]
    """Returns once a worker thread has run a piece of work."""
    figures: Callable[[], Figures]
    full: Callable[[], bool]
    """Whether the metrics have all series of each resource."""


def pages(sources: Sources) -> Mapping[str, Page]:
    """Each page by its path. A new page is a new row."""
    table: dict[str, Page] = {}
    table |= {
        "/": partial(_file, "page.html"),
        "/page.css": partial(_file, "page.css"),
        "/page.js": partial(_file, "page.js"),
        "/healthz": partial(_health, sources.works),
        "/readyz": partial(_readiness, sources.readiness),
        "/metrics": Cached(_metrics(sources.figures, sources.full)),
        "/status.json": Cached(partial(gathered, JSON, lambda: pieces(sources.status()))),
        "/statusz": Cached(partial(gathered, TEXT, lambda: statusz.lines(sources.status(), table))),
    }
    return table


class Cached:
    """A page with its last answer. The answer may be megabytes, so it is dropped when it is old; the timer for that is
    slow, because each timer wakes an idle process.

    A task of its own makes the answer, while requests wait for it: one that is given up costs no more than one that
    isn't, however many come.
    """

    def __init__(self, page: Page, seconds: float = FRESH) -> None:
        """``seconds``: within which all requests get the same answer."""
        self._page, self._seconds = page, seconds
        self._last: Response | None = None
        self._old = 0.0
        """When the last answer becomes too old, by the event loop's clock."""
        self._making: asyncio.Task[Response] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self) -> Response:
        if self._last is not None and asyncio.get_running_loop().time() < self._old:
            return self._last
        if self._making is None:
            self._last = None  # freed before the next one is made
            self._making = asyncio.create_task(self._make(), name="make a page")
        return await asyncio.shield(self._making)

    async def _make(self) -> Response:
        try:
            self._last = made = await self._page()
        finally:
            self._making = None
        self._old = asyncio.get_running_loop().time() + self._seconds
        if self._timer is None:
            self._forget()
        return made

    def _forget(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._old:
            self._timer = loop.call_later(FORGOTTEN, self._forget)
        else:
            self._last = self._timer = None


async def _file(name: str) -> Response:
    return Response(_FILE_TYPES[name], (_FILES / name).read_bytes())  # small, and in the page cache


async def gathered(kind: str, make: Callable[[], Iterable[str]]) -> Response:
    """Joins the pieces, with turns for other tasks in between."""
    texts, size = [], 0
    for piece in make():
        texts.append(piece.encode())
        size += len(piece)
        if size > AT_ONCE:
            size = 0
            await asyncio.sleep(0)
    return Response(kind, b"".join(texts))


async def _health(works: Callable[[], Awaitable[object]]) -> Response:
    """Liveness: whether the event loop and the worker threads respond. A hanging driver doesn't affect it."""
    found = {"event_loop": await _answers(asyncio.sleep(0)), "workers": await _answers(works())}
    healthy = all(one["ok"] for one in found.values())
    return _json({"healthy": healthy, **found}, ok=healthy)


async def _answers(work: Awaitable[object]) -> dict[str, object]:
    began, failure = time.monotonic(), None
    try:
        async with asyncio.timeout(LATELY):
            await work
    except TimeoutError:
        failure = "no answer"
    except Exception as error:  # the system has no thread left
        failure = str(error)
    seconds = time.monotonic() - began
    if seconds > LATELY:
        failure = failure or "a late answer"
    return {"ok": failure is None, "seconds": round(seconds, 6), "reason": failure}


def _metrics(look: Callable[[], Figures], full: Callable[[], bool]) -> Page:
    """Loads the metrics at the first scrape, because they take megabytes."""
    made: list[Page] = []

    async def page() -> Response:
        if not made:
            load = partial(import_module, "dpgateway.web.metrics")
            module: Any = await Threads(idle=0).call("load the metrics", load)
            made.append(module.Metrics(look, full).answer)
        return await made[0]()

    return page


async def _readiness(look: Callable[[], Readiness]) -> Response:
    found = look()
    return _json(found, ok=found.ready)


def _json(value: object, *, ok: bool) -> Response:
    return Response(JSON, f"{to_json(value)}\n".encode(), 200 if ok else 503)
