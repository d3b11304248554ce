"""Which pages there are, and what each says. docs/reference/pages.md describes them."""

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
"""Seconds within which everything has to answer: a kubelet's probe waits for 1 s, unless told otherwise."""
KEPT = 1.0
"""Seconds for which an answer about all devices counts, so that those who ask often cost no more than one who does."""
FORGOTTEN = 10.0
"""Seconds after which it is looked whether somebody has asked lately."""
AT_ONCE = 64 * 1024
"""Characters that are made before somebody else has a turn: a container that wants its devices comes first."""

_FILES = Path(__file__).with_name("page")
_FILE_TYPES = {
    "page.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom the pages ask."""

    status: Callable[[], Status]
    readiness: Callable[[], Readiness]
    works: Callable[[], Awaitable[object]]
    """Returns when the event loop and the workers have done what they were given."""
    figures: Callable[[], Figures]


def pages(sources: Sources) -> Mapping[str, Page]:
    """Each page by its path. Another page is another row."""
    table: dict[str, Page] = {}
    table |= {
        "/": _file("page.html"),
        "/page.css": _file("page.css"),
        "/page.js": _file("page.js"),
        "/healthz": partial(_health, sources.works),
        "/readyz": partial(_readiness, sources.readiness),
        "/metrics": kept(_metrics(sources.figures)),
        "/status.json": kept(partial(_status, sources.status)),
        "/statusz": kept(partial(_statusz, sources.status, table)),
    }
    return table


def kept(page: Page, seconds: float = KEPT) -> Page:
    """The same page, made once for all who ask within ``seconds``."""
    return _Kept(page, seconds).answer


class _Kept:
    """A page. Its last answer may be megabytes, so it is forgotten; but not at once, because each timer is a moment at
    which an idle process wakes.
    """

    def __init__(self, page: Page, seconds: float) -> None:
        self._page, self._seconds = page, seconds
        self._last: Response | None = None
        self._old = 0.0
        """When the last answer doesn't count any more."""
        self._making = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    async def answer(self) -> Response:
        clock = asyncio.get_running_loop().time
        async with self._making:
            if self._last is not None and clock() < self._old:
                return self._last
            self._last = None  # not beside the next one
            self._last = made = await self._page()
            self._old = clock() + self._seconds
            if self._timer is None:
                self._forget()
            return made

    def _forget(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._old:
            self._timer = loop.call_later(FORGOTTEN, self._forget)
        else:
            self._last = self._timer = None


def _file(name: str) -> Page:
    async def answer() -> Response:
        return Response(_FILE_TYPES[name], (_FILES / name).read_bytes())  # small, and in the kernel's memory

    return answer


async def _status(look: Callable[[], Status]) -> Response:
    return Response(JSON, await gathered(pieces(look())))


async def _statusz(look: Callable[[], Status], paths: Iterable[str]) -> Response:
    return Response(TEXT, await gathered(statusz.lines(look(), paths)))


async def gathered(pieces: Iterable[str]) -> bytes:
    """All of it, while others have their turns."""
    texts, size = [], 0
    for piece in pieces:
        texts.append(piece.encode())
        size += len(piece)
        if size > AT_ONCE:
            size = 0
            await asyncio.sleep(0)
    return b"".join(texts)


async def _health(works: Callable[[], Awaitable[object]]) -> Response:
    """Whether the event loop and the threads do what they are given. A driver that hangs is no failure of them."""
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


def _metrics(look: Callable[[], Figures]) -> Page:
    """Loads what makes the page when somebody first asks, because it takes megabytes."""
    made: list[Page] = []

    async def page() -> Response:
        if not made:
            load = partial(import_module, "dpgateway.web.metrics")
            module: Any = await Threads(idle=0).call("load the metrics", load)
            made.append(module.Metrics(look).answer)
        return await made[0]()

    return page


async def _readiness(look: Callable[[], Readiness]) -> Response:
    found = look()
    return _json(found, ok=found.ready)


def _json(value: object, *, ok: bool) -> Response:
    return Response(JSON, f"{to_json(value)}\n".encode(), 200 if ok else 503)
