"""The front of a node with real drivers, as a kubelet and a scheduler see it: sockets, slices and claims."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from dpgateway import Allocation, Device, Health
from dpgateway.cluster.server import ApiServer
from dpgateway.deviceplugin.api import LIST_LIMIT
from dpgateway.dra.claims.reading import EXTENDED
from dpgateway.dra.front import FRONT, Cluster, DraFront, NodeState
from dpgateway.dra.handover import ASK, ASKING, TAKE
from dpgateway.dra.health import VANISHED
from dpgateway.dra.instance import LOOK
from dpgateway.dra.plugin import DraPlugin
from dpgateway.dra.publishing import Us
from dpgateway.dra.slices.offered import Offered
from dpgateway.dra.wire import dra_pb2 as wire
from dpgateway.dra.wire import health_pb2
from dpgateway.drivers.running import CallsAfterClose, RunningDriver
from dpgateway.errors import KubeletError
from dpgateway.kit.channel import Channel
from dpgateway.kit.observable import Observable
from dpgateway.kit.seqpacket import Peer
from dpgateway.kit.threads import Threads
from dpgateway.registry.socket import FOLDER
from dpgateway.registry.wire import pluginregistration_pb2 as registration
from dpgateway.resource.front import NO_KUBELET, Unreleased
from dpgateway.resource.journal import Journal
from dpgateway.resource.orphans import Orphans
from dpgateway.resource.pools import Pools
from dpgateway.resource.resource import Common
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from tests.node.lister import Lister, encoded
from tests.support.holdings import node_holdings, run_both
from tests.support.resources import NAME, configured, scripted
from tests.support.specs import own
from tests.support.threads import StuckDisk
from tests.support.time import hurry
from tests.support.waiting import turns, until

US = Us("dra.example.com", "n1")
POOL = f"n1/{NAME}"
V1 = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
V1BETA1 = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"


class Gateway:
    """A gateway's DRA front, with one resource."""

    def __init__(
        self,
        root: Path,
        server: ApiServer,
        group: asyncio.TaskGroup,
        log: Any,
        threads: Threads,
        *,
        boot: str = "boot-1",
        **config: Any,
    ) -> None:
        plugins, state = root / "device-plugins", root / "state"
        holdings = node_holdings(plugins, [], threads)
        pools = Pools(Orphans(holdings, plugins, state, threads), CallsAfterClose())
        common = Common(plugins, state, threads, pools, LIST_LIMIT, front=FRONT)
        pools.record = common.served.record
        there = asyncio.Event()
        there.set()
        self.front = DraFront(US, root, Cluster(server, own(root / "cdi")), common, NodeState(there, boot))
        self.config = Observable(configured(**config))
        pools.add(self.config.value)
        self.driver = RunningDriver(self.config, "n1", threads, log)
        self.plugin = DraPlugin(self.config, self.driver, self.front, group)
        self.front.members.expect(self.config.value)
        runs = partial(run_both, holdings), pools.run, self.front.run, self.driver.run, self._serve
        self.ended = False
        self.tasks = {run: group.create_task(run()) for run in runs}

    async def _serve(self) -> None:
        await self.plugin.run()  # returns once another gateway takes over
        await self._leave()

    async def _leave(self) -> None:
        await self.plugin.drain(0)
        await self.plugin.close()

    async def end(self) -> None:
        """As the process ends."""
        if self.ended:
            return
        self.ended = True
        self.front.ending()
        await self._leave()
        await self.front.close()


class Node:
    """A kubelet that registers what it finds, and the scheduler's half of a claim."""

    us = US
    pool = NAME
    """Of the slices of its claims' devices, on this node."""

    def __init__(self, root: Path, simulated: Simulated) -> None:
        self.root, self.store = root, simulated.store
        self.endpoint = self.registered = Path()
        for name in (FOLDER, "plugins", "device-plugins", "cdi"):
            (root / name).mkdir()

    @property
    def sockets(self) -> list[Path]:
        return [path for path in (self.root / FOLDER).iterdir() if not path.name.startswith(".")]

    async def register(self, socket: Path | None = None, *, accepts: bool = True) -> None:
        await until(lambda: self.sockets)
        self.registered = socket or self.sockets[0]
        async with Channel(self.registered) as channel:
            ask = channel.unary_unary("/pluginregistration.Registration/GetInfo")
            info = registration.PluginInfo.FromString(await ask(b""))
            assert (info.type, info.name) == ("DRAPlugin", US.driver)
            self.endpoint = Path(info.endpoint)
            said = registration.RegistrationStatus(plugin_registered=accepts).SerializeToString()
            await channel.unary_unary("/pluginregistration.Registration/NotifyRegistrationStatus")(said)

    async def offered(self) -> None:
        """Registers the driver, and waits until the scheduler sees its devices."""
        await self.register()
        await until(lambda: "b" in self.devices)

    @property
    def slices(self) -> list[Any]:
        return self.store.list("resourceslices", "", self.us.fields)

    @property
    def pools(self) -> list[str]:
        """Of each slice; a pool whose devices aren't known to be free has none yet."""
        return [one["spec"]["pool"]["name"] for one in self.slices]

    @property
    def devices(self) -> dict[str, Any]:
        return {device["name"]: device for one in self.slices for device in one["spec"].get("devices", ())}

    def allocate(self, name: str, device: str, *pods: str, class_: str = "", **more: str) -> wire.Claim:
        """``class_``: of a claim that the scheduler made for a pod's extended resources. ``more``: of the result."""
        pool = f"{self.us.node}/{self.pool}"
        result = {"request": "r", "driver": self.us.driver, "pool": pool, "device": device, **more}
        reserved = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        metadata = {"name": name, "annotations": {EXTENDED: "true"} if class_ else {}}
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class_}}]}}
        claim = {"metadata": metadata, "spec": spec, "status": status}
        made = self.store.create("resourceclaims", "default", claim)
        return wire.Claim(namespace="default", name=name, uid=made["metadata"]["uid"])

    async def prepare(self, claim: wire.Claim, service: str = V1) -> Any:
        request = wire.NodePrepareResourcesRequest(claims=[claim]).SerializeToString()
        async with Channel(self.endpoint) as channel:
            raw = await channel.unary_unary(f"{service}/NodePrepareResources")(request)
        return wire.NodePrepareResourcesResponse.FromString(raw).claims[claim.uid]

    async def unprepare(self, claim: wire.Claim) -> str:
        request = wire.NodeUnprepareResourcesRequest(claims=[claim]).SerializeToString()
        async with Channel(self.endpoint) as channel:
            raw = await channel.unary_unary(f"{V1}/NodeUnprepareResources")(request)
        return str(wire.NodeUnprepareResourcesResponse.FromString(raw).claims[claim.uid].error)


@pytest.fixture
async def node(short_path: Path, simulated: Simulated) -> AsyncIterator[Node]:
    lister = Lister(short_path / "pod-resources" / "kubelet.sock")
    lister.answers["v1"] = encoded(("kube-system", "other", {}))
    await lister.start()
    yield Node(short_path, simulated)
    await lister.stop()


class Ended(Exception):
    """Raised in a task group, it cancels all tasks of the group."""


async def end(running: list[Gateway]) -> None:
    for one in running:
        await one.end()
    raise Ended


@pytest.fixture
async def make(node: Node, server: ApiServer, log: Any) -> AsyncIterator[Any]:
    running: list[Gateway] = []
    try:
        async with asyncio.TaskGroup() as group:

            def gateway(driver_class: Any = None, threads: Threads | None = None, **config: Any) -> Gateway:
                config["driver_class"] = driver_class or scripted()
                made = Gateway(node.root, server, group, log, threads or Threads(), **config)
                running.append(made)
                return made

            yield gateway
            await end(running)
    except* Ended:
        pass


async def test_devices_are_published_once_the_kubelet_registers(node: Node, make: Any) -> None:
    make()
    await node.register()
    await until(lambda: sorted(node.devices) == ["a", "b"])
    assert node.devices["a"]["attributes"]["resource"] == {"string": NAME}


async def test_a_kubelet_without_dra_takes_the_slices_of_its_node(node: Node, make: Any) -> None:
    make()
    await node.offered()
    now = node.store.get(("nodes", "", "n1"))
    node.store.replace(("nodes", "", "n1"), {**now, "status": {"nodeInfo": {"kubeletVersion": "v1.33.4"}}})
    await node.register(accepts=False)
    await until(lambda: not node.slices)


@pytest.mark.parametrize("service", [V1, V1BETA1])
async def test_a_claim_from_slice_to_release(node: Node, make: Any, service: str) -> None:
    released: list[str] = []
    gateway = make(scripted(release=lambda devices: released.extend(device.id for device in devices)))
    await node.offered()
    claim = node.allocate("c", "b")
    answer = await node.prepare(claim, service)
    assert (answer.error, answer.devices[0].device_name) == ("", "b")
    assert list(answer.devices[0].request_names) == ["r"]
    assert gateway.plugin.usage.value.last_known == {"b"}
    assert await node.unprepare(claim) == ""
    assert released == ["b"]


async def test_nothing_is_offered_while_a_record_is_damaged(node: Node, make: Any) -> None:
    folder = node.root / "state" / "dra" / "claims"
    folder.mkdir(parents=True)
    (folder / "uid-1.json").write_text("{")
    make()
    await node.register()
    await until(lambda: node.slices)
    assert node.devices == {}
    assert await node.unprepare(wire.Claim(namespace="default", name="c", uid="uid-1")) == ""
    await until(lambda: sorted(node.devices) == ["a", "b"])


class Function:
    """A resource of a pool."""

    pool = "n1/boards"

    def __init__(self, name: str) -> None:
        self.name = name

    def offered(self) -> list[Offered]:
        return [Offered(Device("b0"), self.name, f"{self.name}-b0", frozenset({"b0"}))]

    def said_health(self) -> tuple[()]:
        return ()

    def give(self) -> None:
        """It has nothing."""


async def test_a_pool_s_slices_do_not_depend_on_which_resource_comes_first(node: Node, make: Any) -> None:
    front, wanted = make().front, []
    await node.register()
    await until(lambda: node.devices)
    for names in ("aes", "fft"), ("fft", "aes"):
        for name in names:
            front.members.add(Function(name))
        wanted.append(front.publisher.wanted.value[Function.pool])
        for name in names:
            front.members.remove(Function(name))
    assert wanted[0] == wanted[1]


async def test_an_unhealthy_device_is_tainted(node: Node, make: Any) -> None:
    make(scripted(devices=lambda: [Device("a", Health.unhealthy("no link")), Device("b")]))
    await node.register()
    await until(lambda: sorted(node.devices) == ["a", "b"])
    (taint,) = node.devices["a"]["taints"]
    assert (taint["key"], taint["value"], taint["effect"]) == ("dra.example.com/unhealthy", "no-link", "NoSchedule")
    assert "taints" not in node.devices["b"]


async def test_the_kubelet_is_told_how_devices_are(node: Node, make: Any) -> None:
    listed = [Device("a"), Device("b", Health.unhealthy("no link"))]
    make(scripted(devices=lambda: list(listed)), refresh=0.05)
    await node.register()
    await until(lambda: sorted(node.devices) == ["a", "b"])
    assert (await node.prepare(node.allocate("c", "a"))).error == ""
    async with Channel(node.endpoint) as channel:
        stream = channel.unary_stream("/v1.DRAResourceHealth/NodeWatchResources")(b"")

        async def told() -> dict[str, str]:
            message = health_pb2.NodeWatchResourcesResponse.FromString(await stream.read())
            return {one.device.device_name: one.message for one in message.devices}

        assert await told() == {"a": "", "b": "no link"}
        del listed[0]
        while (last := await told())["a"] == "":  # everything is said each second at first
            assert last["b"] == "no link"
        assert last["a"] == VANISHED


async def test_what_a_claim_has_by_another_pool_is_not_offered(node: Node, make: Any) -> None:
    """The scheduler would take it for another device, and its pod would wait for the end of the claim's."""
    gateway = make()
    await node.register()
    await until(lambda: sorted(node.devices) == ["a", "b"])
    claim = node.allocate("c", "a")
    await node.prepare(claim)
    gateway.config.set(replace(gateway.config.value, pool="boards"))
    await until(lambda: node.pools == ["n1/boards"] and node.devices)
    ids = {device["attributes"]["id"]["string"] for device in node.devices.values()}
    assert ids == {"b"}
    assert await node.unprepare(claim) == ""
    await until(lambda: len(node.devices) == 2)


async def test_devices_that_a_boot_has_exchanged_are_prepared_again(node: Node, make: Any) -> None:
    def named(*names: str) -> Any:
        return scripted(devices=lambda: [Device(id_, hardware=(name,)) for id_, name in zip("ab", names, strict=True)])

    gateway = make(named("one", "two"))
    await node.offered()
    claims = [node.allocate(f"of-{id_}", id_) for id_ in "ab"]
    for claim in claims:
        assert (await node.prepare(claim)).devices
    await gateway.end()
    make(named("two", "one"), boot="boot-2")
    await node.register()
    for claim in claims:
        answer = await node.prepare(claim)
        assert (answer.error, len(answer.devices)) == ("", 1)
    await until(lambda: set(node.devices) == {"a", "b"})


async def test_what_a_claim_has_as_a_share_is_not_offered_once_there_are_none(node: Node, make: Any) -> None:
    """The scheduler would take it for free."""
    gateway = make(shares=2)
    await node.offered()
    claim = node.allocate("c", "a", shareID="share")
    assert (await node.prepare(claim)).devices
    gateway.config.set(configured(shares=1, driver_class=gateway.config.value.driver_class))
    await until(lambda: set(node.devices) == {"b"})
    assert await node.unprepare(claim) == ""
    await until(lambda: set(node.devices) == {"a", "b"})


async def test_what_a_claim_has_by_another_resource_is_not_offered(node: Node, make: Any) -> None:
    """The resource was renamed, and the hardware isn't named like the device."""
    driver = scripted(devices=lambda: [Device("a", hardware=("one",)), Device("b", hardware=("two",))])
    gateway = make(driver)
    await node.register()
    await until(lambda: sorted(node.devices) == ["a", "b"])
    await node.prepare(node.allocate("c", "a"))
    await gateway.end()
    make(driver, name="example.com/other")
    await node.register()
    await until(lambda: node.pools == ["n1/example.com/other"] and node.devices)
    assert list(node.devices) == ["b"]


async def test_a_driver_that_hangs_in_a_handover_holds_up_no_other_claims(node: Node, make: Any) -> None:
    hangs = threading.Event()

    def prepare(devices: Any) -> None:
        if devices[0].id == "a":
            hangs.wait(60)

    make(scripted(prepare=prepare), timeouts={"prepare": 60})
    await node.offered()
    hanging = asyncio.create_task(node.prepare(node.allocate("c", "a")))
    await until(lambda: list((node.root / "state" / "dra" / "claims").glob("*.json")))
    make(scripted(prepare=prepare))
    other, end = node.allocate("other", "b"), asyncio.get_running_loop().time() + 9
    longest = []  # once the newer gateway has asked in vain
    while (began := asyncio.get_running_loop().time()) < end:
        assert (await node.prepare(other)).devices
        longest.append(asyncio.get_running_loop().time() - began)
        await asyncio.sleep(0.1)
    assert sum(seconds > 2 for seconds in longest) <= 1
    hangs.set()
    assert (await hanging).devices


async def test_a_claim_that_the_older_gateway_may_not_read_any_more_is_prepared_by_the_newer(
    node: Node, simulated: Simulated, make: Any
) -> None:
    """A pod that is deleted by force loses its account while its gateway still serves."""
    older = make()
    await node.offered()
    simulated.token = "another"  # noqa: S105  of a simulated server
    preparing = asyncio.create_task(node.prepare(node.allocate("c", "b")))
    await until(lambda: simulated.asked.count("GET resourceclaims c") > 2)
    make()
    await until(lambda: older.front.claims.waits.asked)
    simulated.token = None
    assert (await preparing).devices


async def test_a_resource_that_begins_in_a_handover_goes_with_the_others(node: Node, make: Any, gate: Any) -> None:
    """It has its lock already, and waits for its driver's list while the newer gateway takes the driver over."""
    lists = gate([Device("a"), Device("b")])
    older = make(scripted(devices=lists))
    await node.register()
    await until(lambda: older.plugin.resource.served)
    make()
    await until(lambda: not older.front.loaded.is_set())
    lists.open()
    await until(older.tasks[older._serve].done)
    await until(lambda: len(node.sockets) == 2)
    await node.register(next(one for one in node.sockets if one != node.registered))
    await until(lambda: "b" in node.devices)


async def test_a_driver_that_hangs_in_release_is_handed_over(node: Node, make: Any) -> None:
    hangs, goes, released = threading.Event(), threading.Event(), list[str]()

    def release(devices: Any) -> None:
        goes.wait(60)
        released.extend(device.id for device in devices)

    older = make(scripted(release=lambda _: hangs.wait(60)))
    await node.offered()
    claim = node.allocate("c", "b")
    await node.prepare(claim)
    ending = asyncio.create_task(node.unprepare(claim))
    (record,) = (node.root / "state" / "dra" / "claims").glob("*.json")
    await until(lambda: '"ending"' in record.read_text())
    make(scripted(release=release))

    # The newer gateway gets the driver once the older one's has hung for 40 s, which pass in 2 s here.
    hurry(20)
    await until(lambda: not older.front.loaded.is_set())
    hurry(0.05)  # the newer one reads the records now
    await until(lambda: len(node.sockets) == 2)
    await node.register(next(one for one in node.sockets if one != node.registered))
    assert await ending == ""

    # And its own driver releases the device, which no claim gets before.
    next_one = asyncio.create_task(node.prepare(node.allocate("d", "b")))
    await until(lambda: len(node.sockets) == 1)
    assert not next_one.done()
    assert record.exists()
    goes.set()
    assert (await next_one).devices
    assert released == ["b"]
    await until(lambda: not record.exists())  # the device is free before its record is gone
    hangs.set()


async def test_a_handover_waits_for_an_allocate_that_nobody_waits_for(node: Node, make: Any) -> None:
    """What it gives is this gateway's to release: the newer one knows nothing of it."""
    goes, released = threading.Event(), list[str]()

    def allocate(_: Any) -> Allocation:
        goes.wait(60)
        return Allocation()

    def release(devices: Any) -> None:
        released.extend(device.id for device in devices)

    older = make(scripted(allocate=allocate, release=release), timeouts={"allocate": 1})
    await node.offered()
    assert "hasn't answered for 1 s" in (await node.prepare(node.allocate("c", "b"))).error
    make()
    await until(lambda: older.front.claims.waits.asked)
    await turns(50)
    assert older.front.loaded.is_set()
    goes.set()
    await until(lambda: len(node.sockets) == 2)
    assert released == ["b"]


async def test_a_gateway_that_ends_keeps_the_driver_for_calls_under_way(
    node: Node, make: Any, simulated: Simulated
) -> None:
    """Also for those that the kubelet waits for no more."""
    gateway = make()
    await node.offered()
    simulated.hang()
    asking = asyncio.create_task(node.prepare(node.allocate("c", "b")))
    await until(lambda: "GET resourceclaims c" in simulated.asked)
    hurry(0.02)
    ending = asyncio.create_task(gateway.end())
    await until(asking.done)
    await until(lambda: not gateway.plugin.resource.ownership.undivided)
    await turns()
    assert gateway.front.instance.ownership.undivided
    assert gateway.front.claims.lanes.running
    simulated.resume()
    await until(lambda: not gateway.front.instance.ownership.undivided)
    assert not gateway.front.claims.lanes.running
    hurry(50)
    await ending


async def test_a_resource_stays_while_a_write_of_its_journal_hangs(node: Node, make: Any) -> None:
    """Else it would come after what the newer gateway has written."""
    driver, disk = scripted(release=lambda _: None), StuckDisk("journal")
    older = make(driver, threads=disk)
    await node.offered()
    disk.stick()
    await node.prepare(node.allocate("c", "b"))
    newer = make(driver)
    await until(newer.front.loaded.is_set)
    await until(older.tasks[older._serve].done)
    await until(lambda: newer.plugin.resource.elsewhere.value)
    disk.go_on()
    await until(lambda: newer.plugin.resource.served)
    assert newer.plugin.usage.value.unreleased.keys() == {"b"}


@pytest.mark.parametrize("kind", ["journal", "claims"])
async def test_a_lock_stays_at_the_end_while_a_write_hangs(node: Node, make: Any, kind: str) -> None:
    disk = StuckDisk(kind)
    gateway = make(scripted(release=lambda _: None), threads=disk)
    await node.offered()
    disk.stick()
    preparing = asyncio.create_task(node.prepare(node.allocate("c", "b")))
    if kind == "journal":
        await preparing
        lock = gateway.plugin.resource.ownership
    else:
        await until(lambda: gateway.front.claims.store.disk.changing)
        lock = gateway.front.instance.ownership
    await gateway.end()
    gateway.plugin.abandon()
    gateway.front.abandon()
    assert lock.owner() is not None
    disk.go_on()
    await until(lambda: lock.owner() is None)
    await asyncio.wait({preparing})
    # What the process leaves when it ends.
    await until(lambda: not gateway.front.claims.lanes.running)
    gateway.front.claims.rest()
    await turns()


async def test_a_lock_stays_while_a_write_of_another_front_s_journal_hangs(node: Node, make: Any) -> None:
    """The next gateway may give devices by that front, and a late write would destroy what its journal says."""
    journal = Journal(node.root / "state", node.root / "device-plugins", NAME)
    journal.save({"a": Unreleased(NO_KUBELET, hardware=frozenset({"a"}), device="a", driver="scripted")})
    disk = StuckDisk("left journal")
    disk.stick()
    gateway = make(scripted(release=lambda _: None), threads=disk, front="dra")
    await until(lambda: disk.hanging)
    lock = gateway.plugin.resource.ownership
    await gateway.end()
    gateway.plugin.abandon()
    assert lock.owner() is not None
    disk.go_on()
    await until(lambda: lock.owner() is None)
    assert not journal.load()


async def test_claims_wait_for_a_resource_that_begins_anew(node: Node, make: Any) -> None:
    gateway, failed = make(), asyncio.Event()

    async def fails_once() -> None:
        if not failed.is_set():
            failed.set()
            raise KubeletError("the disk hasn't answered")

    gateway.front.common.pools.look_at_left = fails_once
    await node.register()
    await failed.wait()
    assert (await node.prepare(node.allocate("c", "b"))).devices


async def test_a_front_that_starts_again_after_a_bug_knows_what_it_gave(node: Node, make: Any) -> None:
    gateway = make()
    await node.offered()
    claim = node.allocate("c", "b")
    await node.prepare(claim)
    # As while a call writes it.
    (node.root / "state" / "dra" / "claims" / f"{claim.uid}.json").unlink()
    front = gateway.front
    gateway.tasks[front.run].cancel()
    await asyncio.wait({gateway.tasks[front.run]})
    again = asyncio.create_task(front.run())
    for one in node.slices:
        node.store.delete(("resourceslices", "", one["metadata"]["name"]))
    await until(lambda: node.devices)
    assert gateway.plugin.usage.value.last_known == {"b"}
    again.cancel()


@pytest.mark.parametrize("what", [FOLDER, "plugins"])
async def test_it_registers_again_after_a_reset_of_the_node(node: Node, make: Any, what: str) -> None:
    make()
    await node.offered()
    (old,) = node.sockets
    for path in (node.root / what).iterdir():
        path.unlink() if path.is_socket() else shutil.rmtree(path)
    await until(lambda: node.sockets not in ([], [old]))
    await node.register()
    assert (await node.prepare(node.allocate("c", "b"))).devices


async def test_it_registers_again_while_a_newer_gateway_asks_in_vain(
    node: Node, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver, or the disk, may hang for hours."""
    hangs = threading.Event()
    driver = scripted(prepare=lambda _: hangs.wait(60))
    make(driver, timeouts={"prepare": 1000})
    await node.offered()
    hanging = asyncio.create_task(node.prepare(node.allocate("c", "a")))
    await until(lambda: list((node.root / "state" / "dra" / "claims").glob("*.json")))
    make(driver)
    hurry(10)
    await until(lambda: "a claim is under way for long" in caplog.text)
    loop = asyncio.get_running_loop()
    asks_again = loop.time() + 3 * ASKING
    await until(lambda: loop.time() > asks_again)
    (old,) = node.sockets
    old.unlink()
    await until(lambda: node.sockets not in ([], [old]))
    hangs.set()
    await asyncio.wait([hanging])
    hurry(0.05)


async def test_a_newer_gateway_asks_while_it_registers_again(node: Node, make: Any) -> None:
    """The kubelet's calls wait from then on, for the newer one, or until that has ended."""
    hangs, newer = threading.Event(), list[Peer]()
    instance = make(scripted(prepare=lambda _: hangs.wait(60)), timeouts={"prepare": 1000}).front.instance
    await node.offered()
    hanging = asyncio.create_task(node.prepare(node.allocate("c", "a")))
    await until(lambda: list((node.root / "state" / "dra" / "claims").glob("*.json")))

    def ask() -> None:
        if instance.answer.value is None and not newer:
            hurry(0.02)
            newer.append(Peer.dial(instance.ownership.next))
            newer[0].send(ASK)

    instance.answer.subscribe(ask)
    (old,) = node.sockets
    old.unlink()
    hurry(50)
    await until(lambda: node.sockets not in ([], [old]))
    waits = asyncio.create_task(node.prepare(node.allocate("d", "b")))
    await turns()
    hangs.set()
    await hanging
    assert await newer[0].receive() == TAKE
    assert not waits.done()
    hurry(5)  # it registers again, then the disk has its time
    newer[0].close()
    await waits


async def test_the_slices_stay_when_the_gateway_ends(node: Node, make: Any) -> None:
    gateway = make()
    await node.register()
    await until(lambda: "a" in node.devices)
    await gateway.end()
    assert sorted(node.devices) == ["a", "b"]
    assert node.sockets == []


async def test_a_gateway_that_ends_registers_no_more(node: Node, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It looks for its sockets from time to time, also while calls under way hold up its end."""
    gateway = make()
    await node.register()
    await until(lambda: "a" in node.devices)
    gateway.front.ending()
    hurry(50)
    loop = asyncio.get_running_loop()
    end = loop.time() + 3 * LOOK
    await until(lambda: loop.time() > end)
    await turns()
    assert "registered again" not in caplog.text
    assert node.sockets == []


@pytest.mark.parametrize("what", ["its lock", "its registration"])
async def test_a_start_that_failed_at_first_forgets_no_doubt(
    node: Node, make: Any, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """In an empty ``state_dir``, another front waits for what the kubelet knows of claims."""
    folder = node.root / ("plugins" if what == "its lock" else FOLDER)
    folder.rmdir()
    if what == "its lock":
        folder.touch()
    front = make().front
    store, said = front.claims.store, list[frozenset[str]]()
    store.doubts.others, other = lambda: {"example.com/other": "n1/other"}, frozenset({"example.com/other"})
    store.doubts.in_doubt.subscribe(lambda: said.append(store.doubts.in_doubt.value))
    await until(lambda: "DRA can't be served" in caplog.text)
    hurry(10)  # only now: the disk has its time to answer
    failure = front.status().registration.failure or ""
    assert failure.startswith(f"{node.root}/plugins")
    loop = asyncio.get_running_loop()
    end = loop.time() + 10  # several retries say the same
    await until(lambda: loop.time() > end)
    assert [text for text in caplog.messages if "DRA" in text] == [f"DRA can't be served: {failure}"]
    if what == "its lock":
        folder.unlink()
    folder.mkdir()
    await until(lambda: said and said[-1] == other)
    await until(lambda: not store.doubts.in_doubt.value)
    assert [one for one, _ in groupby(said)] == [other, frozenset()] * (1 if what == "its lock" else 2)
    await until(lambda: front.status().registration.failure is None)
