"""Which pages there are, and what each says. docs/reference/pages.md describes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from dpgateway.status import Readiness, to_json
from dpgateway.web.answers import JSON, Answer, Page

LATELY = 0.5
"""Seconds within which everything has to answer: a kubelet's probe waits for 1 s, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom the pages ask."""

    readiness: Callable[[], Readiness]
    works: Callable[[], Awaitable[object]]
    """Returns when the event loop and the workers have done what they were given."""


def pages(sources: Sources) -> Mapping[str, Page]:
    """Each page by its path. Another page is another row."""
    return {
        "/healthz": partial(_health, sources.works),
        "/readyz": partial(_readiness, sources.readiness),
    }


async def _health(works: Callable[[], Awaitable[object]]) -> Answer:
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


async def _readiness(look: Callable[[], Readiness]) -> Answer:
    found = look()
    return _json(found, ok=found.ready)


def _json(value: object, *, ok: bool = True) -> Answer:
    return Answer(JSON, f"{to_json(value)}\n".encode(), 200 if ok else 503)
