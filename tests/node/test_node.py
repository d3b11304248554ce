"""What a node makes of the kubelet's files, and who is told. How they are watched and read, other files here say."""

import asyncio
import json
import math
import os
import threading
import time

import pytest

from dpgateway.kit.threads import Threads
from dpgateway.node import checkpoint
from dpgateway.node.checkpoint import WRITING
from dpgateway.node.incarnation import Change
from tests.support.holdings import node_holdings, run_both
from tests.support.threads import Hanging
from tests.support.time import advance, hurry, in_virtual_time
from tests.support.waiting import turns, until

THING = "example.com/thing"


class Told:
    """What a node told, with what was known to be held by then."""

    def __init__(self, directory, threads=None):
        self.told = []
        self.holdings = node_holdings(directory, [THING], threads, self._changed)
        self.node = self.holdings.node
        self.task = asyncio.ensure_future(run_both(self.holdings))

    def _changed(self, change):
        self.told.append((change, self.node.kubelet, self.holdings.by_resource[THING].value.held))


@pytest.fixture
async def watch():
    made = []

    def make(directory, threads=None):
        made.append(Told(directory, threads))
        return made[-1]

    yield make
    for one in made:
        one.task.cancel()
        await asyncio.wait([one.task])


def make_kubelet(directory, *held):
    directory.mkdir()
    entries = [{"ResourceName": THING, "DeviceIDs": {"0": held}}]
    (directory / checkpoint.NAME).write_text(json.dumps({"Data": {"PodDeviceEntries": entries}, "Checksum": 1}))
    (directory / "kubelet.sock").touch()


async def test_a_resource_added_later_is_read_at_once(watch, tmp_path):
    one = watch(tmp_path / "device-plugins")
    make_kubelet(tmp_path / "device-plugins", "a")
    await until(lambda: one.told)
    one.holdings.drop(THING)
    one.holdings.add("example.com/other")
    one.holdings.add(THING)
    await until(lambda: one.holdings.by_resource[THING].value.held == {"a"})
    assert one.holdings.by_resource["example.com/other"].value.held == frozenset()
    found = {(holdings.value.kubelet, holdings.value.kubelet_since) for holdings in one.holdings.by_resource.values()}
    assert len(found) == 1
    assert all(kubelet for kubelet, _ in found)


async def test_a_kubelet_is_told_of_after_a_read(watch, tmp_path):
    hurry(0.05)  # the disk has its time: after WRITING it isn't waited for
    one = watch(tmp_path / "device-plugins")
    await until(lambda: one.holdings.by_resource[THING].value.known)  # there is no file yet, and nobody holds anything
    make_kubelet(tmp_path / "elsewhere", "a")
    (tmp_path / "elsewhere").rename(tmp_path / "device-plugins")
    await until(lambda: one.told)
    assert one.told == [(Change.NEW, True, {"a"})]
    assert one.node.there.is_set()


async def test_what_becomes_of_a_kubelet_is_told_in_its_order(watch, tmp_path):
    make_kubelet(tmp_path / "device-plugins")
    one = watch(tmp_path / "device-plugins")
    await until(lambda: one.told)
    (tmp_path / "device-plugins/kubelet.sock").unlink()
    await until(lambda: len(one.told) == 2)
    assert [(change, there) for change, there, _ in one.told] == [(Change.NEW, True), (Change.GONE, False)]


class Held(Threads):
    """The disk is as slow as the test says."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()

    def call(self, name, function, seconds=math.inf):
        return super().call(name, lambda: (self.go_on.wait(60), function())[1], seconds)


async def test_only_the_last_of_several_kubelets_is_told_of(watch, tmp_path):
    """Each that is told of is registered with, and what was meant for those before would reach the last."""
    make_kubelet(tmp_path / "device-plugins", "a")
    one = watch(tmp_path / "device-plugins", threads := Held())
    await until(lambda: one.told)
    threads.go_on.clear()
    new, began = tmp_path / "device-plugins/new.sock", time.monotonic()
    for _ in range(50):
        new.touch()
        new.rename(tmp_path / "device-plugins/kubelet.sock")
        await asyncio.sleep(0)  # each is seen by itself, because the watch looks at every turn of the loop
    threads.go_on.set()
    await until(lambda: len(one.told) > 1)
    await one.holdings.reader.read()
    assert len(one.told) <= 3 + (time.monotonic() - began) / WRITING  # after which a slow disk isn't waited for


async def test_a_kubelet_that_comes_is_known_before_it_is_told_of(watch, tmp_path):
    hurry(0.05)  # WRITING isn't over before the disk goes on
    make_kubelet(tmp_path / "device-plugins", "a")
    one = watch(tmp_path / "device-plugins", threads := Held())
    await until(lambda: one.told)
    assert not one.node.changing()
    threads.go_on.clear()
    (tmp_path / "device-plugins/new.sock").touch()
    (tmp_path / "device-plugins/new.sock").rename(tmp_path / "device-plugins/kubelet.sock")
    assert one.node.changing(), "the loop hasn't turned since"
    await turns()
    assert one.node.changing()
    threads.go_on.set()
    await until(lambda: len(one.told) == 2)
    assert not one.node.changing()


async def test_a_new_kubelets_older_checkpoint_proves_nothing(watch, tmp_path):
    """It may have forgotten what containers hold, so nothing is free because the file doesn't have it."""
    hurry(0.05)  # the disk has its time: after WRITING it isn't waited for
    directory = tmp_path / "device-plugins"
    make_kubelet(directory, "a")
    os.utime(directory / checkpoint.NAME, (time.time() - 1000,) * 2)
    one = watch(directory)
    await until(lambda: one.told)
    holdings = one.holdings.by_resource[THING].value
    now = time.monotonic()
    assert holdings.held == {"a"}
    assert holdings.noted({}, now, now).freed == frozenset()
    assert holdings.written == pytest.approx(time.monotonic() - 1000, abs=20)
    assert holdings.kubelet_since == pytest.approx(time.monotonic(), abs=20)


@in_virtual_time
async def test_a_hung_disk_delays_a_kubelet_one_second(tmp_path):
    make_kubelet(tmp_path / "device-plugins")
    one = Told(tmp_path / "device-plugins", Hanging())
    await advance(WRITING - 0.01)
    assert one.told == []
    await advance(0.02)
    assert one.told == [(Change.NEW, True, None)]
    one.task.cancel()
    await asyncio.wait([one.task])
