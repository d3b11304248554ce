"""What a node's groups ask of the DRA front, and tell the gateway: claims to wait for, and what is offered."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace as Stub
from typing import Any

import pytest

from dpgateway.cluster.errors import ClusterError
from dpgateway.dra.claims.holdings import ClaimHoldings
from dpgateway.dra.claims.records import Phase
from dpgateway.errors import OnOtherFront
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.resource.front import Usage
from dpgateway.switching.choosing import Group
from dpgateway.switching.facts import DraFacts
from dpgateway.switching.node_switch import NodeSwitch
from dpgateway.switching.states import SwitchFiles, SwitchRecord, SwitchState
from tests.support.hung import hung_disk
from tests.support.resources import NAME, configured
from tests.support.time import in_virtual_time
from tests.support.waiting import turns, until

DRIVER, POOL = "dra.example.com", "node/boards"
GROUP = Group((NAME,), pool=POOL)


def claim(name, driver=DRIVER, pool=POOL):
    results = [{"driver": driver, "pool": pool, "device": "a"}]
    status = {"allocation": {"devices": {"results": results}}} if driver else {}
    return {"metadata": {"namespace": "default", "name": name, "uid": name}, "status": status}


@pytest.fixture
def front(tmp_path):
    one = Stub(
        name="dra", us=Stub(driver=DRIVER), common=Stub(state_dir=tmp_path), lists=0, members=Stub(look=lambda: None)
    )
    found = [
        claim("new"),
        claim("begun"),
        claim("done"),
        claim("free", ""),
        claim("x", "another"),
        claim("y", pool="z"),
    ]

    async def listed(_kind, _fields, keep):
        one.lists += 1
        return Stub(objects=list(filter(keep, found)))

    one.publisher, one.server = Stub(state=Observable(None)), Stub(list=listed)
    one.server.up, one.loaded, one.instance = True, asyncio.Event(), Stub(ownership=Stub(other=Observable("")))
    one.members.withdrawn = False
    records = {"begun": Stub(phase=Phase.PREPARING), "done": Stub(phase=Phase.PREPARED)}
    one.claims = Stub(store=Stub(records=records), waits=Stub())
    return one


async def moved(_names):
    """All of them are where they should be."""


@pytest.fixture
def switch(front, tmp_path):
    facts = Stub(facts=Observable(DraFacts()), need=lambda _: None)
    gateway = Stub(serving={}, offer=lambda: None, move=moved)
    holdings = Stub(by_resource={}, node=Stub(appeared=Observable(None)))
    parts: tuple[Any, Any, Any, Any] = front, facts, gateway, holdings
    return NodeSwitch(*parts, SwitchFiles(tmp_path, Threads()))


async def test_how_long_a_kubelet_has_run(switch):
    assert switch.view(GROUP, "deviceplugin").age == 0
    switch._holdings.node.appeared.set((time.monotonic() - 7, "kubelet"))
    assert 7 <= switch.view(GROUP, "deviceplugin").age < 60


async def test_claims_are_listed_once_and_then_told_by_records(front, switch):
    assert sorted(await switch.pending(POOL, 0.0)) == ["default/begun", "default/new"]
    front.claims.store.records["begun"] = Stub(phase=Phase.PREPARED)
    assert list(await switch.pending(POOL, 0.0)) == ["default/new"]
    del front.claims.store.records["begun"]
    assert list(await switch.pending(POOL, 0.0)) == ["default/new"], "it was prepared, and has ended since"
    assert front.lists == 1
    switch.offer()  # of the next state
    await switch.pending(POOL, 0.0)
    assert front.lists == 2


async def test_another_groups_change_keeps_the_list(front, switch, tmp_path):
    """Else a node with many resources would list all claims of the cluster once for each two of them."""
    await SwitchFiles(tmp_path, Threads()).write(SwitchRecord(NAME, SwitchState.LEAVING_DRA))
    front.us.pool_of = lambda _: POOL
    await switch.configure([configured(front="auto")])
    await switch.pending(POOL, 0.0)
    switch.offer()
    await switch.pending(POOL, 0.0)
    assert front.lists == 1


async def test_groups_that_leave_together_list_once(front, switch, tmp_path):
    """As those of a node do when its DeviceClasses go."""
    files = SwitchFiles(tmp_path, Threads())
    for group in ("boards", "z"):
        await files.write(SwitchRecord(group, SwitchState.LEAVING_DRA))
    front.us.pool_of = lambda config: {"boards": POOL}.get(config.pool, config.pool)
    await switch.configure([configured(front="auto", pool=pool, name=pool) for pool in ("boards", "z")])
    since = time.monotonic()
    both = await asyncio.gather(switch.pending(POOL, since), switch.pending("z", since))
    assert [sorted(one) for one in both] == [["default/begun", "default/new"], ["default/y"]]
    assert front.lists == 1


async def test_a_group_whose_slices_went_later_lists_again(front, switch, tmp_path):
    """The scheduler may have had claims in hand that the first list lacks."""
    await test_groups_that_leave_together_list_once(front, switch, tmp_path)
    switch.switches["z"].record = SwitchRecord("z", SwitchState.DRA)
    switch.offer()
    await switch.pending("z", time.monotonic())
    assert front.lists == 2


async def test_a_list_has_the_groups_that_there_are_as_it_begins(front, switch, tmp_path):
    """A reload adds a group while another list goes on: the claims of its pool are waited for, too."""
    files, listed, go_on = SwitchFiles(tmp_path, Threads()), front.server.list, asyncio.Event()

    async def slow(*asked):
        await go_on.wait()
        return await listed(*asked)

    front.server.list = slow
    for group in ("boards", "z"):
        await files.write(SwitchRecord(group, SwitchState.LEAVING_DRA))
    front.us.pool_of = lambda config: {"boards": POOL}.get(config.pool, config.pool)
    boards, other = (configured(front="auto", pool=pool, name=pool) for pool in ("boards", "z"))
    await switch.configure([boards])
    lists = [asyncio.create_task(switch.pending(POOL, time.monotonic()))]
    await turns()
    lists.append(asyncio.create_task(switch.pending(POOL, since := time.monotonic())))
    await turns()
    await switch.configure([boards, other])
    go_on.set()
    await asyncio.gather(*lists)
    assert list(await switch.pending("z", since)) == ["default/y"]
    assert front.lists == 2


async def test_a_list_that_fails_is_one_failure_for_all_groups(front, switch):
    async def fails(_kind, _fields, _keep):
        front.lists += 1
        raise ClusterError("forbidden", 403)

    front.server.list = fails
    since = time.monotonic()
    for pool in (POOL, "z"):
        with pytest.raises(ClusterError):
            await switch.pending(pool, since)
    assert front.lists == 1


def test_an_allocate_that_waits_is_in_flight(front, tmp_path):
    """For the containers before, for example. The device plugin would end under it."""
    usage = Usage(ClaimHoldings())
    facts, holdings = (
        Stub(facts=Observable(DraFacts())),
        Stub(by_resource={NAME: usage}, node=Stub(appeared=Observable(None))),
    )
    parts: tuple[Any, Any, Any, Any] = front, facts, Stub(serving={}), holdings
    one = NodeSwitch(*parts, SwitchFiles(tmp_path, Threads()))
    assert not one.view(GROUP, "deviceplugin").in_flight
    with usage.kubelet_allocates():
        assert one.view(GROUP, "deviceplugin").in_flight


async def test_a_full_disk_keeps_no_resource_from_its_front(front, switch, tmp_path):
    """After a reload the front is known, and not on disk yet: it changes once it is."""
    (tmp_path / "dra").write_text("in the way")
    front.us.pool_of = lambda _: POOL
    switch._gateway.serving[NAME] = Stub(present="deviceplugin")
    await switch.configure([configured(front="auto")])
    await switch.confirm_front(NAME, "deviceplugin")
    await front.owned()
    with pytest.raises(OnOtherFront):
        await switch.confirm_front(NAME, "dra")


@in_virtual_time
async def test_a_hung_disk_keeps_no_loop_from_its_work(front: Any, switch: NodeSwitch, tmp_path: Path) -> None:
    """The group begins on the device plugin, as if the state couldn't be read."""
    front.us.pool_of = lambda _: POOL
    with hung_disk(tmp_path / "dra") as disk:
        await switch.configure([configured(front="auto")])
        assert switch.front_of(NAME) == "deviceplugin"
        await until(disk.asked.is_set)
        assert disk.hangs


async def test_a_reload_offers_what_the_new_pools_state_says(front, tmp_path):
    await SwitchFiles(tmp_path, Threads()).write(SwitchRecord("boards", SwitchState.LEAVING_PLUGIN))
    told: list[bool] = []
    facts = Stub(facts=Observable(DraFacts()), need=lambda _: None)
    gateway = Stub(serving={}, offer=lambda: told.append(changes.offers(NAME, "deviceplugin")))
    parts: tuple[Any, Any, Any, Any] = front, facts, gateway, Stub(by_resource={})
    front.us.pool_of = lambda config: f"node/{config.pool}"
    changes: NodeSwitch = NodeSwitch(*parts, SwitchFiles(tmp_path, Threads()))
    for pool in (None, "boards", None):
        await changes.configure([configured(front="auto", pool=pool)])
    assert told == [True, False, True]


def test_of_two_gateways_the_one_with_the_driver_goes_first(front, switch):
    assert switch.view(GROUP, "deviceplugin").closed == "the DRA driver to be served here"
    front.instance.ownership.other.set("another gateway serves dra.example.com: pid 9; this one when that one ends")
    assert (
        "takes over the resources next: another gateway serves dra.example.com: pid 9"
        in switch.view(GROUP, "deviceplugin").closed
    )
    front.loaded.set()
    assert switch.view(GROUP, "deviceplugin").closed == ""
