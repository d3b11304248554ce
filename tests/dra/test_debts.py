"""What only the journal of DRA knows of a resource that is on the device plugin by now."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dpgateway.deviceplugin.api import LIST_LIMIT
from dpgateway.deviceplugin.holdings.observed import follow
from dpgateway.dra.beside import OtherFront
from dpgateway.dra.claims.files import ClaimDisk, ClaimFiles
from dpgateway.dra.claims.store import ClaimStore
from dpgateway.dra.debts import LeftDebts
from dpgateway.dra.front import FRONT
from dpgateway.dra.publishing import Us
from dpgateway.drivers.running import CallsAfterClose, RunningDriver
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.resource.front import Unreleased
from dpgateway.resource.journal import Journal
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.pools import Pools
from dpgateway.resource.resource import Common, Resource
from tests.dra.claim_node import BOOT, LOG
from tests.support.holdings import Told
from tests.support.resources import NAME, configured, scripted
from tests.support.waiting import until


@pytest.mark.parametrize(("driver", "released"), [("scripted", ["a"]), ("another", [])])
async def test_what_is_decided_leaves_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, driver: str, released: list[str]
) -> None:
    """Released or not: a later start would owe it, or tell of it, again."""
    plugins, threads, told, now = tmp_path / "device-plugins", Threads(), Told([NAME]), time.monotonic()
    plugins.mkdir()
    usage = told.by_resource[NAME]
    usage.set(usage.value.noted({}, now, now))
    pools = Pools(Orphans(told, plugins, tmp_path, threads), CallsAfterClose())
    common = Common(plugins, tmp_path, threads, pools, LIST_LIMIT)
    got: list[str] = []
    has_release = scripted(release=lambda devices: got.extend(device.id for device in devices))
    config = Observable(configured(driver_class=has_release))
    pools.add(config.value)
    runs = RunningDriver(config, "n1", threads, LOG)
    resource = Resource(config, runs, usage, common, LOG)

    dra = replace(common, front=FRONT)
    journal, beside = Journal(tmp_path, plugins, NAME, FRONT), OtherFront(Us("dra.example.com", "n1"), dra)
    journal.save({"a": Unreleased("", hardware=frozenset(["a"]), since=1, device="a", driver=driver)})
    store = ClaimStore(ClaimDisk(ClaimFiles(tmp_path), threads), BOOT, pools.left, LOG)
    store.journal, store.owe, store.doubts.others = lambda _: journal.load(), beside.owe, beside.pools
    await store.load()
    store.doubts.missing("")
    assert pools.left.value[NAME].taken == {"a"}

    common.served.begun.subscribe(store.served.notify)
    followed = partial(follow, usage, resource.inventory, resource.releases)
    following = pools.run, runs.run, resource.run, followed, LeftDebts(store, dra).run
    tasks = [asyncio.ensure_future(run()) for run in following]
    await resource.ownership.acquire()
    await resource.begin(took_over=False)
    resource.journal.go_on()
    await until(lambda: not journal.path.exists())
    await until(lambda: got == released)
    assert ("isn't told" in caplog.text) is not bool(released)
    assert not pools.left.value
    for task in tasks:
        task.cancel()
    resource.stop()
    resource.ownership.end()
