"""These tests ask promtool, which build.py makes. They run when asked for: with a path in this folder on pytest's
command line. Then nothing is skipped.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpgateway_simulator import Kubelet
from tests.support.gateway import Gateway

R = "example.com/thing"
THING = {"name": R, "driver": "simulated", "options": {"count": 100, "prepare": True}}


@dataclass(frozen=True)
class Node:
    """A gateway as a process of its own, which serves its pages, and a simulated kubelet."""

    gateway: Gateway
    kubelet: Kubelet
    port: int


@pytest.fixture
async def node(short_path: Path) -> AsyncIterator[Node]:
    directory = short_path / "device-plugins"
    async with Kubelet("1.31", directory) as kubelet, Gateway(short_path, directory) as gateway:
        gateway.web = {"listen": "127.0.0.1:0"}
        await gateway.start(THING)
        await kubelet.wait_for(lambda: kubelet.counts(R) == (100, 100))
        await gateway.said("the pages are at")
        (port,) = re.findall(r"the pages are at http://127\.0\.0\.1:(\d+)/", "".join(gateway.log))
        yield Node(gateway, kubelet, int(port))
        assert await gateway.end() == 0
