"""Clients that aren't the kubelet, and look like one: nothing that they do hides what the kubelet does."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from dpgateway_simulator import Kubelet
from tests.support import foreign
from tests.support.gateway import COMMAND, Gateway
from tests.support.waiting import until

R = "example.com/thing"
SIMULATED = {"name": R, "driver": "simulated", "options": {"count": 4, "env_prefix": "X"}}


@pytest.fixture
def directory(short_path):
    path = short_path / "dp"
    path.mkdir()
    return path


@pytest.fixture
async def gateway(short_path, directory):
    async with Gateway(short_path, directory) as gateway:
        await gateway.start(SIMULATED)
        await gateway.said("serving 1 resource")
        yield gateway


@pytest.fixture
async def kubelet(directory):
    one = Kubelet("1.34", directory)
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
async def other(directory):
    command = (sys.executable, "-W", "ignore", str(Path(foreign.__file__)))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    yield Foreign(directory, process)
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


async def test_a_foreign_stream_that_comes_first_is_no_kubelets(gateway, kubelet, other):
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


async def test_a_kubelet_in_another_pid_namespace_is_known_by_its_user_agent(gateway, kubelet):
    """As a container sees it: the kubelet's pid is 0."""
    await gateway.end()
    gateway.command = ("unshare", "--pid", "--fork", "--kill-child", *COMMAND)
    await gateway.start()
    await kubelet.start()
    await offered(kubelet)
    await dropped(kubelet)
    await offered(kubelet)
