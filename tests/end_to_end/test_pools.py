"""Two names of the same hardware, whatever becomes of the gateway, the kubelet and the configuration."""

import itertools
import os
import signal
import stat

import pytest

from tests.support import kubelet as asked
from tests.support.files import texts
from tests.support.waiting import until

GPU, SHARED = "example.com/gpu", "example.com/gpu-shared"
HELD = "char 240:4 is held as example.com/gpu by"


@pytest.fixture
async def process(process, short_path, kubelet):
    """It serves a GPU that a pod has."""
    dev = short_path / "dev"
    dev.mkdir()
    os.mknod(dev / "gpu0", stat.S_IFCHR | 0o600, os.makedev(240, 4))
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
    """A pod that ended before the gateway saw its directory counts as gone a minute after it was admitted."""
    await kubelet.wait_for(lambda: kubelet.counts(resource)[1] == count, 90)


async def both_fit(kubelet):
    """Kubelets hear a little later what is excluded, so one may choose it until then."""
    numbers = itertools.count()

    async def fits():
        await healthy(kubelet, SHARED, 2)
        return (await kubelet.admit(f"viewers-{next(numbers)}", {"a": {SHARED: 1}, "b": {SHARED: 1}}))["ok"]

    await until(fits, 90)


async def refused(kubelet, reason=HELD):
    await asked.refused(kubelet, SHARED, "gpu0::1", reason)


async def remembered(process):
    state = process.folder / "state"
    await until(lambda: any("char 240:4" in text for text in texts(state).values()))


async def test_held_hardware_through_restarts(process, kubelet, short_path):
    await until(lambda: any("is held as example.com/gpu by default/encoder" in line for line in process.log))
    assert not any(one["level"] == "warning" and "held" in one["message"] for one in process.entries())
    await refused(kubelet, HELD + " default/encoder")
    await remembered(process)
    registered = process.lines("registered")
    await kubelet.restart()
    await process.said("registered", registered + 2)
    await refused(kubelet)
    await process.end(signal.SIGKILL)
    registered = process.lines("registered")
    await process.start()
    await process.said("registered", registered + 2)
    await refused(kubelet)
    await process.end(signal.SIGKILL)
    registered = process.lines("registered")
    await process.start(shared(short_path / "dev"))  # the pod runs on
    await process.said("registered", registered + 1)
    await refused(kubelet)
    kubelet.remove("encoder")
    await both_fit(kubelet)


async def test_held_hardware_after_a_reboot(process, kubelet, short_path):
    """Also if the checkpoint is lost: then the kubelet admits its pods again, and chooses as if nothing were held."""
    await remembered(process)
    for checkpoint in ("kept", "lost"):
        await process.end(signal.SIGKILL)
        registered = process.lines("registered")
        await kubelet.kill()
        if checkpoint == "lost":
            (short_path / "device-plugins" / "kubelet_internal_checkpoint").unlink()
        await kubelet.start()
        await process.start()
        await process.said("registered", registered + 2)
        await healthy(kubelet, GPU, 1)  # with no list yet it would admit pods without devices
        await healthy(kubelet, SHARED, 0)
        await refused(kubelet)
        assert not (await kubelet.admit("viewer", {"a": {SHARED: 1}}))["ok"]
    assert (await kubelet.admit("encoder", {"c": {GPU: 1}}))["ok"]
    await refused(kubelet)
    kubelet.remove("encoder")
    await healthy(kubelet, SHARED, 2)


async def test_what_a_refused_pod_was_given(process, kubelet):
    """The pod never gets a directory, and the kubelet writes nothing down of its refusal."""
    kubelet.remove("encoder")
    await healthy(kubelet, SHARED, 2)
    assert not (await kubelet.admit("greedy", {"c": {GPU: 1, SHARED: 1}}))["ok"]
    assert not (await kubelet.admit("greedier", {"c": {GPU: 1}, "d": {SHARED: 1}}))["ok"]
    await both_fit(kubelet)
