import asyncio
from dataclasses import replace

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway import Device, Health
from dpgateway.deviceplugin.api import APIS, v1alpha1
from dpgateway.deviceplugin.server.streams import End, ListEncoder, Lists, ListThrottle
from dpgateway.deviceplugin.wire import v1alpha2_pb2, v1beta1_pb2
from dpgateway.kit.observable import Signal
from dpgateway.resource.shares import Offer
from tests.support.serving import V1ALPHA, V1BETA1, health
from tests.support.waiting import turns, until

HEALTHY, SICK = {"a": "Healthy", "b": "Healthy"}, {"a": "Unhealthy", "b": "Unhealthy"}


@pytest.fixture
async def served(serve):
    return await serve(keep_lost=0.0)


@pytest.fixture
async def client(served, connect):
    return connect(served.socket)


def megabyte(version=0):
    """A list of a megabyte; each version has another device Unhealthy."""
    sick = Health.unhealthy("x")
    return tuple(Device(_id(number), sick if number == version else Health.healthy()) for number in range(1000))


def _id(number):
    return f"{number:01000}"


@pytest.mark.parametrize("path", [V1BETA1, V1ALPHA])
async def test_the_full_list_comes_first(served, client, path):
    stream = client.watch(path)
    assert health(await stream.read(), path) == HEALTHY
    served.inventory.take((Device("a", Health.unhealthy("x")), Device("b")))
    assert health(await stream.read(), path) == {"a": "Unhealthy", "b": "Healthy"}


async def test_an_empty_list_is_sent_too(serve, connect):
    empty = await serve(name="example.com/empty", devices=[])
    assert health(await connect(empty.socket).watch().read()) == {}


async def test_only_news_is_sent(served, client):
    stream = client.watch()
    await stream.read()
    served.inventory.take((Device("b"), Device("a")))
    served.inventory.take((Device("a", Health.unhealthy("one")), Device("b")))
    await stream.read()
    served.inventory.take((Device("a", Health.unhealthy("another")), Device("b")))
    served.inventory.take((Device("a"), Device("b")))
    assert health(await stream.read()) == HEALTHY


async def test_a_stream_before_the_first_list_waits_for_it(serve, connect):
    early = await serve(name="example.com/early", devices=None)
    reading = asyncio.ensure_future(connect(early.socket).watch().read())
    await until(lambda: early.audience.open)
    assert not reading.done()
    assert not early.audience.listed
    early.inventory.take((Device("a"), Device("b")))
    assert health(await reading) == HEALTHY


async def test_a_list_is_sent_when_another_message_is_asked_for(served):
    sent: list[int] = []
    stream = Lists(served.inventory.list, ListThrottle(Signal())).watch(APIS[0], False, End(), lambda: sent.append(1))
    await anext(stream)
    assert sent == []
    served.inventory.fail("gone", overdue=True)
    await anext(stream)
    assert sent == [1]
    await stream.aclose()


async def test_every_stream_gets_every_list(served, connect):
    streams = [connect(served.socket).watch() for _ in range(5)]
    assert [health(await stream.read()) for stream in streams] == [HEALTHY] * 5
    served.inventory.fail("gone", overdue=True)
    assert [health(await stream.read()) for stream in streams] == [SICK] * 5


async def test_a_slow_stream_skips_to_the_newest_list(served, client):
    served.inventory.take(megabyte())
    stream = client.watch()
    await stream.read()
    for version in range(1, 50):
        served.inventory.take(megabyte(version))
        await turns()
    received = 0
    while health(await stream.read())[_id(49)] != "Unhealthy":
        received += 1
    assert received < 25


async def test_a_dead_stream_takes_nothing_from_the_others(served, connect):
    dead, alive = connect(served.socket), connect(served.socket)
    first, second = dead.watch(), alive.watch()
    await first.read()
    await second.read()
    await dead.close()
    served.inventory.fail("gone", overdue=True)
    assert health(await second.read()) == SICK


@pytest.mark.parametrize(("path", "agent"), [(V1ALPHA, "grpc-go/1.3.0"), (V1BETA1, "grpc-go/1.7.5")])
async def test_a_forgetful_kubelet_gets_two_lists(served, connect, path, agent):
    """All Unhealthy first, and the true list at once."""
    stream = connect(served.socket, agent=agent).watch(path)
    assert health(await stream.read(), path) == SICK
    assert health(await stream.read(), path) == HEALTHY
    await until(lambda: served.audience.listed)
    assert len(served.audience.listed) == 1


async def test_a_kubelet_1_8_keeps_no_health(served, connect):
    served.calls.speak(v1alpha1.API)
    stream = connect(served.socket, agent="grpc-go/1.3.0").watch(V1ALPHA)
    assert health(await stream.read(), V1ALPHA) == HEALTHY


@pytest.mark.parametrize("agent", ["grpc-go/1.13.0", "grpc-go/1.72.1", "grpc-go/1.30.0", "curl"])
async def test_any_other_client_gets_the_true_list_first(served, connect, agent):
    assert health(await connect(served.socket, agent=agent).watch().read()) == HEALTHY


async def test_only_streams_of_kubelets_count(served, connect):
    kubelet, other = connect(served.socket).watch(), connect(served.socket, agent="someone").watch()
    await kubelet.read()
    await other.read()
    assert len(served.audience.open) == len(served.audience.opened_streams) == 1
    kubelet.cancel()
    await until(lambda: not served.audience.open)


@pytest.mark.parametrize("end", ["cancelled", "its connection closed", "ended by the gateway"])
async def test_the_end_of_a_stream_is_told_however_it_ends(served, client, end):
    stream = client.watch()
    await stream.read()
    assert served.audience.open
    if end == "cancelled":
        stream.cancel()
    elif end == "its connection closed":
        await client.close()
    else:
        served.handlers.end_streams()
        assert await stream.read() is grpc.aio.EOF
    await until(lambda: not served.audience.open)


@pytest.mark.parametrize("end", ["cancelled", "its connection closed"])
async def test_the_end_of_an_unread_stream_is_told(served, client, end):
    served.inventory.take(megabyte())
    stream = client.watch()
    await until(lambda: served.audience.open)
    for version in range(1, 20):
        served.inventory.take(megabyte(version))
        await turns()
    if end == "cancelled":
        stream.cancel()
    else:
        await client.close()
    await until(lambda: not served.audience.open)


async def test_cancelled_streams_leave_nothing(served, client):
    await client.call("GetDevicePluginOptions")
    before = len(asyncio.all_tasks())
    streams = [client.watch() for _ in range(200)]
    await asyncio.gather(*(stream.read() for stream in streams[:100]))
    for stream in streams:
        stream.cancel()
    await until(lambda: not served.audience.open and len(asyncio.all_tasks()) <= before)
    assert len(served.audience.opened_streams) >= 100
    served.handlers.end_streams()
    assert health(await client.watch().read()) == HEALTHY


# their bytes

OFFERS = st.builds(
    Offer,
    id=st.sampled_from(["", "a", "b", "é" * 100]),
    health=st.sampled_from([Health.healthy(), Health.unhealthy("on fire")]),
    numa_nodes=st.sampled_from([(), (0,), (0, 3)]),
)
LISTS = st.lists(OFFERS, unique_by=lambda offer: offer.id, max_size=8)


def whole(api, offers):
    """The bytes of a list that is built as one message."""
    message = (v1beta1_pb2 if api.package == "v1beta1" else v1alpha2_pb2).ListAndWatchResponse()
    for offer in offers:
        device = message.devices.add(ID=offer.id, health="Healthy" if offer.health.ok else "Unhealthy")
        if api.package == "v1beta1":
            for node in offer.numa_nodes:
                device.topology.nodes.add(ID=node)
    return message.SerializeToString()


def by_id(offers):
    return {offer.id: offer for offer in offers}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@given(lists=st.lists(LISTS, max_size=4))
@settings(deadline=None, max_examples=60)
def test_joined_pieces_are_the_whole_message(api, lists):
    """In the order in which the same ids were listed first."""
    encoder = ListEncoder(api)
    order: list[str] = []
    for offers in map(by_id, lists):
        order = order if offers.keys() == set(order) else list(offers)
        assert encoder.encode(offers) == whole(api, [offers[id_] for id_ in order])


def test_only_changed_offers_are_encoded():
    encoded = []

    def to_offer(offer):
        encoded.append(offer.id)
        return APIS[0].to_offer(offer)

    a, b = Offer("a"), Offer("b")
    encoder = ListEncoder(replace(APIS[0], to_offer=to_offer))
    for offers in ([a, b], [a, b], [replace(a, health=Health.unhealthy("wet")), b], [b], [a, b]):
        encoder.encode(by_id(offers))
    assert encoded == ["a", "b", "a", "a"]


def test_an_empty_list_is_the_empty_message():
    assert ListEncoder(APIS[0]).encode({}) == b""
