"""Clients that aren't the kubelet, and look like one: nothing that they do hides what the kubelet does."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from dpgateway_simulator import Kubelet
from tests.support import foreign
from tests.support.gateway import COMMAND
from tests.support.waiting import until

R = "example.com/thing"
SIMULATED = {"name": R, "driver": "simulated", "options": {"count": 4, "env_prefix": "X"}}


@pytest.fixture
async def gateway(process):
    await process.start(SIMULATED)
    await process.said("serving 1 resource")
    return process


@pytest.fixture
async def kubelet(short_path):
    """Not yet started."""
    one = Kubelet("1.34", short_path / "device-plugins")
    yield one
    await one.kill()


class Foreign:
    """Holds a stream of the resource for each call of ``watch``."""

    def __init__(self, directory, process):
        self._folder, self._process = directory / "dpgateway", process

    def _bound(self):
        return next((one for one in self._folder.glob("*.sock") if "-" not in one.name), None)

    async def watch(self):
        path = await until(self._bound)
        self._process.stdin.write(f"{path}\n".encode())
        assert await self._process.stdout.readline() == b"listed\n"


@pytest.fixture
async def other(short_path):
    command = (sys.executable, "-W", "ignore", str(Path(foreign.__file__)))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    yield Foreign(short_path / "device-plugins", process)
    process.kill()
    await process.wait()


async def offered(kubelet):
    await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 4)


async def dropped(kubelet):
    assert kubelet.drop_streams(R) == 1
    await kubelet.wait_for(lambda: kubelet.counts(R)[1] == 0)


async def test_a_foreign_stream_hides_no_end_of_the_kubelets(gateway, kubelet, other):
    await kubelet.start()
    await offered(kubelet)
    await other.watch()
    await dropped(kubelet)
    await gateway.said("the kubelet's last stream ended")
    await offered(kubelet)
    await other.watch()
    await dropped(kubelet)
    await gateway.said("the kubelet's last stream ended", 2)
    await offered(kubelet)


async def test_a_foreign_stream_that_comes_first(gateway, kubelet, other):
    await gateway.said("to the kubelet of")
    await other.watch()
    await kubelet.start()
    await offered(kubelet)
    await dropped(kubelet)
    await offered(kubelet)


async def test_a_foreign_stream_puts_off_no_registration(gateway, kubelet, other):
    await kubelet.start()
    await offered(kubelet)
    await dropped(kubelet)
    await gateway.said("the kubelet's last stream ended")
    await other.watch()
    await offered(kubelet)


async def test_a_kubelet_in_another_pid_namespace(gateway, kubelet):
    """As a container sees it: its pid is 0, and its user agent tells."""
    await gateway.end()
    gateway.command = ("unshare", "--pid", "--fork", "--kill-child", *COMMAND)
    await gateway.start()
    await kubelet.start()
    await offered(kubelet)
    await dropped(kubelet)
    await offered(kubelet)
