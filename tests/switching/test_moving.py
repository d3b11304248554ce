"""Resources of a whole gateway that change their front: with drivers that get in the way, and across reloads."""

import asyncio
import threading
from dataclasses import replace
from functools import partial

import pytest

from dpgateway import Device
from dpgateway.config.values import ClusterSettings, DraSettings, RuntimeSettings
from dpgateway.kit.threads import Threads
from dpgateway.resource.ownership import Ownership
from dpgateway.switching.states import SwitchFiles
from dpgateway_simulator.cluster import SimulatedCluster
from tests.support.gateway import Gateway as Process
from tests.support.inside import Inside
from tests.support.resources import NAME, Scripted, configured, scripted
from tests.support.waiting import BUSY, turns, until

DRIVER, OTHER = "dra.example.com", "example.com/other"


class Gateway(Inside):
    def __init__(self, folder, cluster):
        super().__init__(folder / "device-plugins")
        account = cluster.account(folder)
        self.cluster = ClusterSettings(account["server"], token=folder / "token")
        self.runtime = RuntimeSettings(cdi_dirs=(folder / "cdi",))

    def configuration(self, *resources):
        whole = super().configuration(*resources)
        return replace(whole, dra=DraSettings(DRIVER), cluster=self.cluster, runtime=self.runtime)


@pytest.fixture
async def cluster(short_path):
    async with SimulatedCluster() as cluster:
        cluster.device_class("thing", DRIVER, resource=NAME, attributes={"resource": NAME})
        kubelet = cluster.node("1.37", root=short_path, name="node-a")
        await kubelet.start()
        await cluster.run("agent", {"c": {}}, within=BUSY)  # a kubelet that lists no pod may not know its pods yet
        yield cluster


@pytest.fixture
async def gateway(short_path, cluster):
    one = Gateway(short_path, cluster)
    yield one
    await one.end()


class Exclusive(Scripted):
    """A driver of hardware that one process may open once."""

    opened = threading.Lock()

    def __init__(self, options, context):
        super().__init__(options, context)
        self.mine = False

    def devices(self):
        self.mine = self.mine or self.opened.acquire(blocking=False)
        return [Device("a"), Device("b")] if self.mine else []

    def close(self):
        if self.mine:
            self.opened.release()


class Counted(Scripted):
    """With the number of those that weren't closed."""

    alive = 0

    def __init__(self, options, context):
        super().__init__(options, context)
        type(self).alive += 1

    def devices(self):
        return [Device("z")]

    def close(self):
        type(self).alive -= 1


async def test_a_driver_that_the_old_front_keeps_from_its_devices(gateway, cluster):
    gateway.serve(configured(driver_class=Exclusive, front="auto", refresh=1))
    await until(lambda: cluster.devices(DRIVER))
    await cluster.run("new", {"c": {NAME: 1}}, within=BUSY)
    assert cluster.allocated("new") != []


async def test_a_node_that_has_just_come_gets_no_pod_by_the_device_plugin(gateway, cluster, caplog):
    """It would leave that a moment later."""
    caplog.set_level("INFO")
    cluster.create("waits", {"c": {NAME: 1}})
    gateway.serve(configured(driver_class=Scripted, front="auto"))
    await cluster.until("waits", "Running", within=BUSY)
    assert cluster.allocated("waits") != []
    assert "the device plugin" not in "".join(one.message for one in caplog.records if NAME in one.message)


async def test_a_held_device_leaves_those_of_other_hardware(gateway, cluster):
    """Their ids are alike, and they are in no pool."""
    made = [{"resource": name, "attributes": {"resource": name}} for name in (NAME, OTHER)]
    cluster.server.store.delete(("deviceclasses", "", "thing"))
    gateway.serve(*[replace(configured(driver_class=Scripted, front="auto"), name=name) for name in (NAME, OTHER)])
    await until(lambda: [cluster.allocatable("node-a", name) for name in (NAME, OTHER)] == [2, 2])
    await cluster.run("holds", {"c": {NAME: 1}}, within=BUSY)
    for number, one in enumerate(made):
        cluster.device_class(f"class-{number}", DRIVER, **one)
    await until(lambda: len(cluster.inventory()) == 3)
    await cluster.run("others", {"c": {OTHER: 2}}, within=BUSY)


class Boards(Scripted):
    """A driver whose devices name their hardware."""

    def devices(self):
        return [Device("a", hardware=("board 1",)), Device("b", hardware=("board 2",))]


@pytest.mark.parametrize("pool", [None, "boards"])
@pytest.mark.parametrize("first", ["deviceplugin", "dra"])
async def test_a_front_without_the_other_one_s_journal_gives_nothing_twice(short_path, cluster, first, pool):
    """What that gave are ids alone, and the present devices have their hardware."""
    lives = [Gateway(short_path, cluster) for _ in range(2)]
    fronts = (first, "dra" if first == "deviceplugin" else "deviceplugin")
    for number, (life, front) in enumerate(zip(lives, fronts, strict=True)):
        life.serve(configured(driver_class=Boards, front=front, pool=pool))
        await until(partial(offered_by, cluster, front))
        await cluster.run(f"pod-{number}", {"c": {NAME: 1}}, within=BUSY)
        await life.end()
        for journal in [one for one in (short_path / "state").iterdir() if one.is_file()]:
            journal.unlink()
    assert {cluster.given(f"pod-{number}")["c"]["envs"]["GOT"] for number in range(2)} == {"a", "b"}


async def test_a_front_for_good_and_back(gateway, cluster, caplog):
    """The state of the first time isn't that of the second one."""
    caplog.set_level("INFO")
    auto = configured(driver_class=Scripted, front="auto")
    gateway.serve(auto)
    await until(lambda: cluster.devices(DRIVER))
    gateway.reload(gateway.configuration(replace(auto, front="deviceplugin")))
    await until(lambda: not cluster.devices(DRIVER))
    await until(lambda: cluster.allocatable("node-a", NAME) == 2)
    caplog.clear()
    gateway.reload(gateway.configuration(auto))
    await until(lambda: cluster.devices(DRIVER))
    assert "it leaves the device plugin" in caplog.text


@pytest.mark.parametrize("front", ["deviceplugin", "dra"])
async def test_a_gateway_begins_where_a_fixed_front_left_it(short_path, cluster, caplog, front):
    """Each configuration with a gateway of its own. What the disk has is of the first one."""
    caplog.set_level("INFO")
    auto, lives = configured(driver_class=Scripted, front="auto"), [Gateway(short_path, cluster) for _ in range(3)]
    if front == "dra":
        cluster.server.store.delete(("deviceclasses", "", "thing"))
    lives[0].serve(auto)
    await until(lambda: cluster.devices(DRIVER) if front == "deviceplugin" else allocatable(cluster) == 2)
    await lives[0].end()
    lives[1].serve(replace(auto, front=front))
    await until(lambda: cluster.devices(DRIVER) if front == "dra" else allocatable(cluster) == 2)
    await until(lambda: front == "dra" or not cluster.devices(DRIVER))  # else the next one ends at once
    await lives[1].end()
    if front == "dra":
        cluster.device_class("thing", DRIVER, resource=NAME, attributes={"resource": NAME})
    caplog.clear()
    lives[2].serve(auto)
    if front == "deviceplugin":
        await until(lambda: cluster.devices(DRIVER))
    else:
        # A Node whose status still counts the device plugin's devices would get the pod by it.
        await until(lambda: allocatable(cluster) == 0)
        await cluster.run("new", {"c": {NAME: 1}}, within=BUSY)
    await lives[2].end()
    assert ("it leaves" in caplog.text) == (front == "deviceplugin")


async def test_no_other_gateway_gets_in_between(gateway, cluster, short_path):
    """One that has handed the resource over, and lingers, would serve it on the front of its own configuration."""
    cluster.server.store.delete(("deviceclasses", "", "thing"))
    gateway.serve(configured(driver_class=Scripted, front="auto"))
    await until(lambda: allocatable(cluster) == 2)
    other = Ownership(short_path / "device-plugins", NAME)
    waiting = asyncio.ensure_future(other.acquire())
    await until(lambda: other.other.value)

    gateway.reload(gateway.configuration(configured(driver_class=Counted, front="auto")))
    await until(lambda: healthy(cluster) == {"z"})
    cluster.device_class("thing", DRIVER, resource=NAME, attributes={"resource": NAME})
    await until(lambda: cluster.devices(DRIVER))
    gateway.reload(gateway.configuration(configured(driver_class=Scripted, front="deviceplugin")))
    await until(lambda: healthy(cluster) == {"a", "b"})
    assert not waiting.done()
    gateway.reload(gateway.configuration())
    await waiting
    other.end()


async def test_a_newer_gateway_learns_where_the_older_one_went(gateway, cluster, short_path, gate):
    """At the last moment before it has the driver: so it doesn't delete the slices of what it thought elsewhere."""
    cluster.server.store.delete(("deviceclasses", "", "thing"))
    async with Process(short_path, short_path / "device-plugins") as older:
        older.node_name, older.runtime = "node-a", {"cdi_dirs": [str(short_path / "cdi")]}
        older.more = {"dra": {"driver": DRIVER}, "cluster": cluster.account(short_path)}
        await older.start({"name": NAME, "driver": "simulated", "front": "auto", "options": {"ids": ["a", "b"]}})
        await until(lambda: cluster.allocatable("node-a", NAME) == 2)

        # Until its drivers list, the newer one takes nothing over.
        lists = gate([Device("a"), Device("b")])
        slow = scripted(devices=lists)
        gateway.serve(
            configured(driver_class=slow, front="auto"), configured(name=OTHER, driver_class=slow, front="dra")
        )
        await lists.entered(2)
        cluster.device_class("thing", DRIVER, resource=NAME, attributes={"resource": NAME})
        await until(lambda: cluster.devices(DRIVER))
        before = {one["metadata"]["uid"] for one in slices(cluster, NAME)}
        lists.open()
        await older.said("handed dra.example.com over")
        await until(lambda: slices(cluster, OTHER))
        assert {one["metadata"]["uid"] for one in slices(cluster, NAME)} == before


def offered_by(cluster, front):
    """Whether this front offers the devices, and the other one none."""
    return (bool(cluster.devices(DRIVER)), bool(allocatable(cluster))) == (front == "dra", front == "deviceplugin")


def allocatable(cluster):
    """The devices that the Node has."""
    return cluster.allocatable("node-a", NAME)


def slices(cluster, resource):
    """Those of the resource's pool."""
    found = cluster.server.store.list("resourceslices")
    return [one for one in found if one["spec"]["pool"]["name"] == f"node-a/{resource}"]


def published(cluster, resources):
    """Whether the pools of these resources have slices."""
    return all(slices(cluster, one.pool) for one in resources)


@pytest.mark.parametrize("pool", [None, "boards"], ids=["a pool begins", "one comes in"])
async def test_resources_of_both_fronts_get_one_pool(gateway, cluster, pool):
    """A reload does that in place, and both have the pool's front from then on."""
    first, second = (configured(name=name, driver_class=Scripted, front="auto") for name in (NAME, OTHER))
    gateway.serve(replace(first, pool=pool), second)
    await until(lambda: cluster.devices(DRIVER) and cluster.allocatable("node-a", OTHER) == 2)
    gateway.reload(gateway.configuration(*[replace(one, pool="boards") for one in (first, second)]))
    one_came_in = pool is not None
    await until(lambda: cluster.allocatable("node-a", OTHER if one_came_in else NAME) == (0 if one_came_in else 2))


async def test_a_front_for_good_with_a_driver_that_hangs(gateway, cluster, short_path, gate, caplog):
    """The older driver serves on, with a configuration that says `auto` while no group has the resource any more. Then
    another gateway takes it over, so that it begins again.
    """
    cluster.server.store.delete(("deviceclasses", "", "thing"))
    gateway.serve(configured(driver_class=Scripted, front="auto"))
    await until(lambda: cluster.allocatable("node-a", NAME) == 2)
    hangs = gate([])
    fixed = configured(driver_class=scripted(devices=hangs), front="deviceplugin")
    gateway.reload(gateway.configuration(fixed))
    await until(lambda: "goes on as before" in caplog.text)

    async with Process(short_path, short_path / "device-plugins") as newer:
        newer.node_name = "node-a"
        await newer.start({"name": NAME, "driver": "simulated", "options": {"ids": ["a", "b"]}})
        await until(lambda: "waiting because another gateway serves" in caplog.text)
    hangs.answer = [Device("c"), Device("d")]
    hangs.open()
    await until(lambda: healthy(cluster) >= {"c", "d"})
    await cluster.run("after", {"c": {NAME: 1}}, within=BUSY)
    assert cluster.given("after")["c"]["envs"]["GOT"] in {"c", "d"}
    assert "KeyError" not in caplog.text


async def test_a_reload_while_the_front_changes(gateway, cluster, gate, caplog):
    """Each of them ends the driver that was to come, and begins one: only the last one stays."""
    caplog.set_level("INFO")
    cluster.server.store.delete(("deviceclasses", "", "thing"))
    gateway.serve(configured(driver_class=Scripted, front="auto"))
    await until(lambda: cluster.allocatable("node-a", NAME) == 2)
    closes = gate()
    gateway.reload(gateway.configuration(configured(driver_class=scripted(devices=list, close=closes), front="auto")))
    await until(lambda: "goes on as before" in caplog.text)

    # All is there that DRA needs. The driver that was to come ends, slowly, and a reload comes meanwhile.
    cluster.device_class("thing", DRIVER, resource=NAME, attributes={"resource": NAME})
    await closes.entered()
    gateway.reload(gateway.configuration(configured(driver_class=Counted, front="auto")))
    await until(lambda: caplog.text.count("reading the configuration again") == 2)
    await turns(50)
    closes.open()
    await until(lambda: set(cluster.devices(DRIVER)) == {"z"})
    await until(lambda: Counted.alive == 1)  # those before may be closing yet


def healthy(cluster):
    """The ids on the kubelet's list that may be given."""
    found = cluster.kubelets["node-a"].resources().get(NAME, {"devices": []})["devices"]
    return {one["id"] for one in found if one["health"] == "Healthy"}


async def test_a_group_leaves_dra_while_a_new_driver_hangs(gateway, cluster, gate, caplog):
    """The configuration of before serves on, on whichever front it has to; the new one as soon as its driver lists."""
    gateway.serve(configured(driver_class=Scripted, front="auto"))
    await until(lambda: cluster.devices(DRIVER))
    hangs = gate([Device("c"), Device("d")])
    gateway.reload(gateway.configuration(configured(driver_class=scripted(devices=hangs), front="auto")))
    await until(lambda: "goes on as before" in caplog.text)

    await cluster.kubelets["node-a"].upgrade("1.34")
    await until(lambda: healthy(cluster) == {"a", "b"})
    await turns(50)
    assert healthy(cluster) == {"a", "b"}
    assert not cluster.devices(DRIVER)
    await cluster.run("back", {"c": {NAME: 1}}, within=BUSY)
    hangs.open()
    await until(lambda: healthy(cluster) == {"c", "d"})


async def test_a_full_disk_and_an_older_kubelet(gateway, cluster, short_path):
    """What no claim has is offered by the device plugin."""
    gateway.serve(configured(driver_class=Scripted, front="auto"))
    await until(lambda: cluster.devices(DRIVER))
    await cluster.run("claim", {"c": {NAME: 1}}, within=BUSY)
    had = cluster.given("claim")["c"]["envs"]["GOT"]
    folder = short_path / "state" / "dra" / "fronts"
    folder.rename(folder.with_suffix(".kept"))
    folder.write_text("in the way")

    await cluster.kubelets["node-a"].upgrade("1.34")
    await until(lambda: healthy(cluster))
    await cluster.run("back", {"c": {NAME: 1}}, within=BUSY)
    assert cluster.given("back")["c"]["envs"]["GOT"] != had


async def test_a_renamed_pool_leaves_no_state_to_another_one(short_path, cluster, caplog):
    """Each configuration with a gateway of its own. Another pool has the name for a while."""
    caplog.set_level("INFO")
    cluster.device_class("other", DRIVER, resource=OTHER, attributes={"resource": OTHER})
    thing, other = (configured(name=name, driver_class=Scripted, front="auto") for name in (NAME, OTHER))
    files = SwitchFiles(short_path / "state", Threads())
    lives = [
        [replace(thing, pool="boards")],
        [replace(thing, pool="renamed"), replace(other, pool="boards")],
        [replace(thing, pool="renamed")],
    ]
    for life, resources in enumerate(lives):
        caplog.clear()
        gateway = Gateway(short_path, cluster)
        gateway.serve(*resources)
        await until(partial(published, cluster, resources))
        # Each group chooses its front anew: none begins on that of another one.
        assert caplog.text.count("DRA offers it") == (2 if life == 1 else life == 0)
        if life == 2:
            await until(lambda: files.look("boards") is None)
            await cluster.run("last", {"c": {NAME: 1}}, within=BUSY)
        await gateway.end()
