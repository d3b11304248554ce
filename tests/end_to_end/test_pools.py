"""Two names of the same hardware, whatever becomes of the gateway and its configuration."""

import os
import signal
import stat

import pytest

from dpgateway_simulator import Kubelet, PluginError
from tests.support.gateway import Gateway
from tests.support.waiting import until

GPU, SHARED = "example.com/gpu", "example.com/gpu-shared"
HELD = "char 240:4 is held as example.com/gpu by"


@pytest.fixture
async def kubelet(short_path):
    one = Kubelet("1.31", short_path / "device-plugins")
    await one.start()
    yield one
    await one.kill()


@pytest.fixture
async def process(short_path, kubelet):
    """The gateway, with a GPU that a pod has."""
    dev = short_path / "dev"
    dev.mkdir()
    os.mknod(dev / "gpu0", stat.S_IFCHR | 0o600, os.makedev(240, 4))
    async with Gateway(short_path, short_path / "device-plugins") as process:
        await process.start(whole(dev), shared(dev))
        await healthy(kubelet, SHARED, 2)
        await healthy(kubelet, GPU, 1)
        assert (await kubelet.admit("encoder", {"c": {GPU: 1}}))["ok"]
        await healthy(kubelet, SHARED, 0)
        yield process
        assert await process.end() == 0


def whole(dev, **more):
    options = {"paths": ["/dev/gpu*"], "dev": str(dev)}
    return {"name": GPU, "driver": "chardev", "pool": "gpus", "options": options, **more}


def shared(dev, **more):
    return whole(dev, name=SHARED, shares=2, **more)


async def healthy(kubelet, resource, count):
    await kubelet.wait_for(lambda: kubelet.counts(resource)[1] == count)


async def refused(kubelet, reason=HELD):
    with pytest.raises(PluginError, match=reason):
        await kubelet.allocate(SHARED, ["gpu0::1"])


async def remembered(process):
    state = process.folder / "state"
    await until(lambda: any("char 240:4" in path.read_text() for path in state.glob("*.json")))


async def free_again(kubelet):
    kubelet.remove("encoder")
    await healthy(kubelet, SHARED, 2)
    assert (await kubelet.admit("viewers", {"a": {SHARED: 1}, "b": {SHARED: 1}}))["ok"]


async def test_the_pod_is_named_and_what_it_had_is_free_once_it_is_gone(process, kubelet):
    await until(lambda: any("is held as example.com/gpu by default/encoder" in line for line in process.log))
    await refused(kubelet, "is held as example.com/gpu by default/encoder")
    await free_again(kubelet)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_it_survives_the_gateway(process, kubelet, number):
    await remembered(process)
    await process.end(number)
    await process.start()
    await process.said("registered", 4)
    await refused(kubelet)


async def test_it_survives_the_kubelet(process, kubelet):
    await kubelet.restart()
    await process.said("registered", 4)
    await refused(kubelet)


@pytest.mark.parametrize("how", ["reload", "restart"])
async def test_a_resource_that_is_not_configured_any_more_keeps_what_its_containers_have(
    process, kubelet, short_path, how
):
    dev = short_path / "dev"
    await remembered(process)
    if how == "reload":
        process.reload(shared(dev))
        await process.said("the configuration was read again; removed: example.com/gpu")
    else:
        await process.end(signal.SIGKILL)
        await process.start(shared(dev))
        await process.said("registered", 3)
    await refused(kubelet)
    process.reload(shared(dev, pool="renamed"))
    await process.said("changed in place: example.com/gpu-shared (pool)")
    await refused(kubelet)


async def test_a_resource_that_comes_into_the_pool_later_brings_what_its_containers_have(process, kubelet, short_path):
    dev = short_path / "dev"
    process.reload(whole(dev, pool=None), shared(dev))
    await healthy(kubelet, SHARED, 2)
    process.reload(whole(dev), shared(dev))
    await healthy(kubelet, SHARED, 0)
    process.reload(whole(dev, pool="renamed"), shared(dev, pool="renamed"))
    await process.said("changed in place", 3)
    await refused(kubelet)
