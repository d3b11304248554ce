"""What a kubelet repeats: a start is refused, or a spec written anew, when it isn't what the ids give now."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import APIS, Call
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.deviceplugin.wire import v1beta1_pb2 as wire
from dpgateway.errors import DeviceUnavailable, DriverTimeout, RequestError
from dpgateway.model import Allocation, Device, DeviceNode, Mount
from dpgateway.node.holders import Container, Noted
from tests.support.resource import FakeResource
from tests.support.serving import KUBELET
from tests.support.specs import cdi
from tests.support.time import Clock
from tests.support.waiting import turns, until

BETA = APIS[0]
NAME = "example.com/stick"


class Sticks:
    """A driver of sticks that knows under which path each one is now."""

    abilities = busy = frozenset[str]()

    def __init__(self, **paths):
        self.paths = paths
        self.repeated = 0
        self.error = None
        self.prepared = False

    async def allocate(self, devices, late, options=None):
        return self.answer(devices)

    async def repeat(self, devices):
        self.repeated += 1
        if self.error:
            raise self.error
        return self.answer(devices)

    def answer(self, devices):
        return Allocation(device_nodes=tuple(DeviceNode(self.paths[one.id], f"/dev/{one.id}") for one in devices))

    async def prepare(self, devices, *, once=True, options=None):
        self.prepared, self.error = True, None

    def release(self, devices, free, told):
        told()


class Previewing(Sticks):
    abilities = frozenset(["preview"])

    async def preview(self, device):
        return self.answer([device])


class Node:
    """One resource, its kubelet's checkpoint, and its containers."""

    def __init__(self, calls, log, *directories, **config):
        self.calls, self.clock = calls, Clock()
        self.note = {}
        self.holdings = ResourceHoldings(Holdings().noted({}, 0.0, 0.0), read=self.read)
        delivery = cdi(*directories, runtime=True)
        one = FakeResource(configured(**config), calls, self.clock, holdings=self.holdings, delivery=delivery, log=log)
        self.config, self.inventory, self.resource = one.config, one.inventory, one.calls
        self.list()
        self.resource.remember_agent(KUBELET)
        self.answers = self.resource.answers

    def list(self, **hardware):
        devices = (Device(id_, hardware=(hardware.get(id_, path),)) for id_, path in self.calls.paths.items())
        self.inventory.take(tuple(devices))

    async def admit(self, *ids, container="c"):
        """What the container is given, as its kubelet writes it down."""
        answer = wire.AllocateResponse.FromString(
            next(rpc.encode for rpc in BETA.rpcs if rpc.name == "Allocate")(await self.resource.allocate([ids], BETA))
        ).container_responses[0]
        for id_ in ids:
            before = self.note.get(id_, Noted())
            self.note[id_] = before.joined(
                Noted(containers=frozenset([Container("1a", container, answer.SerializeToString())]))
            )

    async def read(self):
        now = self.clock.monotonic()
        note = None if self.note is None else dict(self.note)
        self.holdings.set(self.holdings.value.noted(note, now, now))

    async def start(self, *ids):
        await self.resource.prepare(ids)

    async def refused(self, *ids):
        with pytest.raises(RequestError) as caught:
            await self.start(*ids)
        return str(caught.value)

    @property
    def outdated(self):
        return dict(self.answers.outdated.value)


def configured(**config):
    return ResourceConfig(NAME, "driver-name", keep_lost=timedelta(seconds=600), **config)


@pytest.fixture
def make(log):
    nodes = []

    def new(calls, *directories, **config):
        nodes.append(Node(calls, log, *directories, **config))
        return nodes[-1]

    yield new
    for node in nodes:
        node.inventory.list.close()


GONE = (
    f"resource {NAME}: device z: this container was given /dev/ttyUSB0, and it is /dev/ttyUSB1 now: delete the pod, "
    "because a kubelet repeats what it was told first"
)


async def test_a_container_starts_again_with_what_it_was_given(make):
    node = make(Sticks(z="/dev/ttyUSB0"))
    await node.admit("z")
    await node.start("z")
    await node.start("z")
    assert (node.calls.repeated, node.outdated) == (2, {})


async def test_a_start_with_somebody_elses_node_is_refused(make, records):
    node = make(Sticks(z="/dev/ttyUSB0"))
    await node.admit("z")
    node.calls.paths = {"z": "/dev/ttyUSB1", "ups": "/dev/ttyUSB0"}
    node.list()
    assert await node.refused("z") == GONE
    assert node.outdated == {"z": GONE.partition("device z: ")[2]}
    assert [text for text in records.texts() if text.startswith("z, held by a container: this container was given")]
    node.calls.paths = {"z": "/dev/ttyUSB0"}  # it is plugged back
    node.list()
    await node.start("z")
    assert node.outdated == {}


async def test_a_path_to_other_hardware_is_refused(make):
    """Its id is its path."""
    node = make(Sticks(z="/dev/null"))
    await node.admit("z")
    await node.start("z")
    node.list(z="char 1:5")
    said = "this container was given /dev/null as /dev/null, and it is char 1:5 now: delete the pod"
    assert said in await node.refused("z")
    node.list()
    await node.start("z")


async def test_a_link_may_lead_to_another_number(make, tmp_path):
    (link := tmp_path / "by-id").symlink_to("/dev/null")
    node = make(Sticks(z=str(link)))
    await node.admit("z")
    node.list(z="char 1:5")
    await node.start("z")
    assert node.outdated == {}


async def test_an_ignorant_gateway_asks_the_kubelets_copy(make):
    """After a restart of the gateway, or a reboot."""
    before = make(Sticks(z="/dev/ttyUSB0"))
    await before.admit("z")
    after = make(Sticks(z="/dev/ttyUSB1"))
    after.note = before.note
    assert await after.refused("z") == GONE


async def test_without_a_readable_checkpoint_nothing_starts(make):
    node = make(Sticks(z="/dev/ttyUSB0"))
    node.note = None
    assert "the kubelet's checkpoint can't be read" in await node.refused("z")


async def test_an_unwritten_container_is_not_compared(make):
    node = make(Sticks(z="/dev/ttyUSB0"))
    await node.start("z")
    assert node.calls.repeated == 0


async def test_what_an_init_container_was_given_is_its_own(make):
    """It has one of the two devices, and the other container has both."""
    node = make(Sticks(a="/dev/ttyUSB0", b="/dev/ttyUSB1"))
    await node.admit("a", container="init")
    await node.admit("a", "b")
    await node.start("a")
    node.calls.paths = {"a": "/dev/ttyUSB0", "b": "/dev/ttyUSB5"}
    node.list()
    await node.start("a")
    assert "was given /dev/ttyUSB1, and it is /dev/ttyUSB5 now" in await node.refused("b", "a")


async def test_two_devices_of_one_container_that_swap(make):
    node = make(Sticks(a="/dev/ttyUSB0", b="/dev/ttyUSB1"))
    await node.admit("a", "b")
    node.calls.paths = {"a": "/dev/ttyUSB1", "b": "/dev/ttyUSB0"}
    assert "this container was given" in await node.refused("a", "b")


async def test_a_driver_that_numbers_by_the_order_of_its_devices(make):
    """No kubelet keeps the order."""

    class Numbered(Sticks):
        def answer(self, devices):
            nodes = (DeviceNode(self.paths[one.id], f"/dev/{index}") for index, one in enumerate(devices))
            return Allocation(device_nodes=tuple(nodes))

    node = make(Numbered(a="/dev/ttyUSB0", b="/dev/ttyUSB1"))
    await node.admit("a", "b")
    await node.start("b", "a")


async def test_a_driver_that_lists_its_devices_in_a_text(make):
    """As the SR-IOV plugin does. They are named in the order in which a kubelet asks."""

    class Listing(Sticks):
        def answer(self, devices):
            return Allocation(env={"PCI": ",".join(self.paths[one.id] for one in devices)})

    node = make(Listing(a="02.0", b="02.1"))
    await node.admit("b", "a")
    await node.start("a", "b")
    node.calls.paths = {"a": "02.0", "b": "02.7"}
    assert "this container was given env PCI=02.1,02.0" in await node.refused("a", "b")


async def test_what_the_configuration_adds_is_not_compared(make):
    node = make(Sticks(z="/dev/ttyUSB0"), mounts=(Mount("/yesterday", "/m"),), env={"A": "1"})
    await node.admit("z")
    node.config.set(configured(mounts=(Mount("/today", "/m"),), env={"A": "2"}))
    await node.start("z")


async def test_a_driver_that_refuses_to_say_lets_nothing_start(make):
    node = make(Sticks(z="/dev/ttyUSB0"))
    await node.admit("z")
    node.calls.error = DeviceUnavailable("it is gone")
    with pytest.raises(DeviceUnavailable, match="it is gone"):
        await node.start("z")


async def test_a_driver_that_must_prepare_first(make):
    node = make(Sticks(z="/dev/ttyUSB0"))
    node.calls.abilities = frozenset(["prepare"])
    await node.admit("z")
    node.calls.error = DeviceUnavailable("it is faulty")
    await node.start("z")
    assert node.calls.prepared
    node.calls.error, node.calls.paths = DeviceUnavailable("it is faulty"), {"z": "/dev/ttyUSB1"}
    assert await node.refused("z") == GONE


# a spec of our own


def spec_of(directory):
    (found,) = directory.glob("dpgateway-*.json")
    return found.read_text()


async def test_a_spec_leads_to_where_the_device_is_now(make, tmp_path):
    node = make(Sticks(z="/dev/ttyUSB0"), tmp_path, cdi="always")
    await node.admit("z")
    node.calls.paths = {"z": "/dev/ttyUSB1"}
    node.list()
    await node.start("z")
    assert "/dev/ttyUSB1" in spec_of(tmp_path)
    assert "/dev/ttyUSB0" not in spec_of(tmp_path)
    assert node.outdated == {}


async def test_while_the_device_is_away_there_is_no_spec(make, tmp_path):
    node = make(Sticks(z="/dev/ttyUSB0"), tmp_path, cdi="always")
    async with following(node):
        await node.admit("z")
        await node.read()
        paths, node.calls.paths = node.calls.paths, {}
        node.list()
        node.answers.look()
        await until(lambda: not list(tmp_path.glob("dpgateway-*.json")))
        node.calls.paths = paths
        node.list()
        node.answers.look()
        await until(lambda: bool(list(tmp_path.glob("dpgateway-*.json"))))


async def test_a_late_preview_leaves_the_spec_to_the_start_that_came_meanwhile(make, tmp_path):
    node = make(Previewing(y="/dev/ttyUSB0", z="/dev/ttyUSB5"), tmp_path, cdi="always")
    slow, asked = asyncio.Event(), list[str]()

    async def preview(device):
        asked.append(device.id)
        said = node.calls.answer([device])
        if asked == ["y"]:
            await slow.wait()
        return said

    node.calls.preview = preview
    await node.admit("y")
    await node.admit("z")
    async with following(node, asked=True):
        await node.read()
        await until(lambda: asked)
        node.calls.paths = {**node.calls.paths, "y": "/dev/ttyUSB1"}
        node.list()
        await node.start("y")
        slow.set()
        await until(lambda: "z" in asked)
    specs = [path.read_text() for path in tmp_path.glob("dpgateway-*.json")]
    assert [any(path in text for text in specs) for path in ("/dev/ttyUSB0", "/dev/ttyUSB1")] == [False, True]


# without a start


@contextlib.asynccontextmanager
async def following(node, *, asked=False):
    """What runs beside the resource. ``asked``: whether the kubelet asks before a start."""
    if not asked:
        node.resource.speak(replace(BETA, rpcs=tuple(rpc for rpc in BETA.rpcs if rpc.call is not Call.PREPARE)))
    both = node.answers.follow(), node.answers.follow_notes()
    tasks = [asyncio.ensure_future(one) for one in both]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_what_is_outdated_is_told_before_any_start(make):
    """A kubelet 1.9 doesn't ask."""
    node = make(Sticks(z="/dev/ttyUSB0"))
    async with following(node):
        await node.admit("z")
        await node.read()
        await turns()
        assert (node.calls.repeated, node.outdated) == (1, {})
        node.answers.look()
        await turns()
        assert node.calls.repeated == 1, "nothing has changed"
        node.calls.paths = {"z": "/dev/ttyUSB1"}
        node.list()
        node.answers.look()
        await turns()
        assert "it is /dev/ttyUSB1 now" in node.outdated["z"]
        node.note.clear()
        await node.read()
        await turns()
        assert node.outdated == {}


@pytest.mark.parametrize("why", ["a start asks", "the gateway rests"])
async def test_allocate_is_asked_only_where_it_must_be(make, why):
    """To allocate may do something to the device."""
    node = make(Sticks(z="/dev/ttyUSB0"))
    if why == "the gateway rests":
        node.resource.releases.rest()
    async with following(node, asked=why == "a start asks"):
        await node.admit("z")
        await node.read()
        await turns()
        assert node.calls.repeated == 0


async def test_a_previewing_driver_allocates_only_at_starts(make):
    node = make(Previewing(a="/dev/ttyUSB0", b="/dev/ttyUSB1"))
    async with following(node, asked=True):
        await node.admit("a", "b")
        await node.read()
        await turns()
        assert node.outdated == {}
        node.calls.paths = {"a": "/dev/ttyUSB0", "b": "/dev/ttyUSB5"}
        node.list()
        node.answers.look()
        await turns()
        assert node.outdated.keys() == {"a", "b"}
        assert "was given /dev/ttyUSB1, and it is /dev/ttyUSB5 now" in node.outdated["b"]
        assert node.calls.repeated == 0


async def test_a_pod_that_has_ended_is_asked_about_no_more(make):
    """Its driver may be releasing."""
    node = make(Sticks(z="/dev/ttyUSB0"))
    await node.admit("z")
    await node.read()
    node.holdings.set(node.holdings.value.ended(frozenset(["1a"])))
    async with following(node):
        node.answers.look()
        await turns()
        assert node.calls.repeated == 0


async def test_a_driver_that_hangs_is_asked_before_starts_only(make):
    """Each call that hangs takes a place from those that give something away."""
    node = make(Sticks(a="/dev/ttyUSB0", b="/dev/ttyUSB1"))
    node.calls.error = DriverTimeout("allocate() hasn't answered for 10 s")
    async with following(node):
        await node.admit("a")
        await node.admit("b")
        await node.read()
        await turns()
        assert node.calls.repeated == 1


async def test_a_hanging_drivers_device_that_goes_loses_its_spec(make, tmp_path):
    """A driver often hangs just because its device is being unplugged. It isn't asked about one that is away."""
    node = make(Sticks(z="/dev/ttyUSB0"), tmp_path, cdi="always")
    async with following(node):
        await node.admit("z")
        node.calls.error = DriverTimeout("allocate() hasn't answered for 10 s")
        await node.read()
        await until(lambda: node.calls.repeated == 1)
        await turns()
        node.calls.paths = {}
        node.list()
        node.answers.look()
        await until(lambda: not list(tmp_path.glob("dpgateway-*.json")))
        assert node.calls.repeated == 1
