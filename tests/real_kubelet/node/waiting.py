"""Waiting for what nothing tells."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.real_kubelet.node.namespaces import NodeError

T = TypeVar("T")


async def until(what: str, check: Callable[[], Awaitable[T | None]], timeout: float = 60) -> T:  # noqa: ASYNC109
    """What `check` returns once that is true; polled, since the kubelet's own API for pods has no watch."""
    try:
        async with asyncio.timeout(timeout):
            while not (found := await check()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise NodeError(f"no {what} within {timeout} s") from None
    return found
