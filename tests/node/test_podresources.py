"""Whatever answers on the socket, List gives all that it says of our resources, or one error."""

import asyncio
import contextlib

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgateway.errors import KubeletError
from dpgateway.kit.threads import Threads
from dpgateway.node.holders import Holder
from dpgateway.node.podresources import LARGEST, ListedClaim, ListedDevice, PodResources, claims, holders
from dpgateway_simulator.wire import v1
from tests.node.lister import Lister, encoded, field, refusing

THING, OTHER = "example.com/thing", "example.com/other"
ENCODER = "team", "encoder-0", {"main": [(THING, ["a"]), (THING, ["b"]), ("example.com/else", ["x"])]}
LISTED = {"a": Holder("team", "encoder-0", "main"), "b": Holder("team", "encoder-0", "main")}


class Jobs(Threads):
    """Notes which jobs ran on them."""

    def __init__(self):
        super().__init__()
        self.names = []

    def call(self, name, *arguments):
        self.names.append(name)
        return super().call(name, *arguments)


@pytest.fixture
async def kubelet(short_path):
    lister = Lister(short_path / "kubelet.sock")
    await lister.start()
    yield lister
    await lister.stop()


@pytest.fixture
def threads():
    return Jobs()


@pytest.fixture
async def asked(kubelet, threads):
    return PodResources(kubelet.socket, threads, deadline=20.0)


async def refused(client):
    with pytest.raises(KubeletError) as caught:
        await client.list([THING])
    return str(caught.value)


async def test_each_resource_gets_its_holders(kubelet, asked):
    kubelet.answers["v1"] = encoded(ENCODER)
    assert await asked.list([THING, OTHER]) == {THING: LISTED, OTHER: {}}


async def test_an_older_version_is_remembered(kubelet, asked):
    kubelet.answers["v1alpha1"] = encoded(ENCODER)
    for _ in range(2):
        assert await asked.list([THING]) == {THING: LISTED}
    assert kubelet.calls == ["v1", "v1alpha1", "v1alpha1"]
    assert asked.api == "v1alpha1"


async def test_a_kubelet_without_the_api_is_asked_once(kubelet, asked):
    for _ in range(2):
        assert await refused(asked) == f"{kubelet.socket}: the kubelet serves none of v1, v1alpha1"
    assert kubelet.calls == ["v1", "v1alpha1"]
    kubelet.answers["v1"] = encoded(ENCODER)
    asked.new_kubelet()
    assert asked.api is None
    assert await asked.list([THING]) == {THING: LISTED}
    assert asked.api == "v1"


async def test_a_rate_limit_says_nothing_of_the_version(kubelet, asked):
    kubelet.answers["v1"] = refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    assert await refused(asked) == f"{kubelet.socket}: RESOURCE_EXHAUSTED: rejected by rate limit"
    kubelet.answers["v1"] = encoded(ENCODER)
    assert await asked.list([THING]) == {THING: LISTED}
    assert kubelet.calls == ["v1", "v1"]


async def test_a_kubelet_that_is_away_is_asked_again_when_it_is_back(kubelet, asked):
    kubelet.answers["v1"] = encoded(ENCODER)
    await kubelet.stop()
    assert await refused(asked) == f"{kubelet.socket}: UNAVAILABLE: No such file or directory"
    await kubelet.start()
    assert await asked.list([THING]) == {THING: LISTED}


async def test_a_kubelet_that_never_answers_has_a_deadline(kubelet, threads):
    async def hang(_):
        await asyncio.Event().wait()

    kubelet.answers["v1"] = hang
    client = PodResources(kubelet.socket, threads, deadline=0.05)
    assert "DEADLINE_EXCEEDED" in await refused(client)


def test_a_name_too_long_is_cut():
    """Each is kept for each id, and said in the status: 15 MB took 300."""
    answer = encoded(("n" * 15_000_000, "p", {"c": [(THING, ["a"])]}))
    (holder,) = holders(answer, [THING])[THING].values()
    assert holder == ("n" * 253 + "... (15000000 characters)", "p", "c")


async def test_an_answer_may_have_16_mib_and_no_byte_more(kubelet, asked):
    told = encoded(ENCODER)
    filling = LARGEST - len(told) - 6  # of an unknown field, whose head has 6 bytes
    kubelet.answers["v1"] = told + field(100, bytes(filling))
    assert len(kubelet.answers["v1"]) == LARGEST
    assert await asked.list([THING]) == {THING: LISTED}
    kubelet.answers["v1"] = told + field(100, bytes(filling + 1))
    assert "RESOURCE_EXHAUSTED" in await refused(asked)


async def test_garbage_is_no_answer(kubelet, asked):
    kubelet.answers["v1"] = b"\xff" * 100
    assert "not a ListPodResourcesResponse" in await refused(asked)


async def test_an_answer_is_read_on_a_thread(kubelet, asked, threads):
    """Of 16 MiB, that takes more than a second."""
    kubelet.answers["v1"] = encoded(ENCODER)
    await asked.list([THING])
    assert threads.names == ["read the answer to List"]


async def test_claims_name_their_pods_and_devices(kubelet, asked):
    """Two pods share a claim; one of them has it in two containers, each for other requests."""
    one = v1.ClaimResource([v1.CdiDevice("vendor.com/a=1")], "dra.example.com", "n1/pool", "a", "share-1")
    two = v1.ClaimResource([], "other.example.com", "n1", "b")
    both, first = ([v1.DynamicResource("c", "team", devices)] for devices in ([one, two], [one]))
    containers = [
        v1.ContainerResources("x", dynamic_resources=both),
        v1.ContainerResources("y", dynamic_resources=first),
    ]
    pods = [v1.PodResources("p", "team", containers), v1.PodResources("q", "team", containers[1:])]
    kubelet.answers["v1"] = bytes(v1.ListPodResourcesResponse(pods))
    devices = (
        ListedDevice("dra.example.com", "n1/pool", "a", ("vendor.com/a=1",), "share-1"),
        ListedDevice("other.example.com", "n1", "b", (), ""),
    )
    assert await asked.claims() == (
        (ListedClaim("team", "c", frozenset("pq"), devices),),
        frozenset({("team", "p"), ("team", "q")}),
    )


NAMES = st.text(max_size=5)
DEVICES = st.lists(st.tuples(st.sampled_from([THING, OTHER, ""]), st.lists(NAMES, max_size=3)), max_size=3)
PODS = st.lists(st.tuples(NAMES, NAMES, st.dictionaries(NAMES, DEVICES, max_size=3)), max_size=4)
UNKNOWN = st.lists(st.builds(field, st.integers(100, 2**29 - 1), st.binary(max_size=9)), max_size=2).map(b"".join)


def expected(pods):
    found: dict[str, dict[str, Holder]] = {THING: {}, OTHER: {}}
    for namespace, pod, containers in pods:
        for container, devices in containers.items():
            for resource, ids in devices:
                found.get(resource, {}).update(dict.fromkeys(ids, Holder(namespace, pod, container)))
    return found


@given(PODS, UNKNOWN)
def test_unknown_fields_are_left_out(pods, more):
    assert holders(encoded(*pods, more=more), [THING, OTHER]) == expected(pods)


@given(PODS)
def test_another_encoder_is_understood_too(pods):
    answer = v1.ListPodResourcesResponse(
        [
            v1.PodResources(name, namespace, [v1.ContainerResources(*_devices(one)) for one in containers.items()])
            for namespace, name, containers in pods
        ]
    )
    assert holders(bytes(answer), [THING, OTHER]) == expected(pods)


def _devices(container):
    name, devices = container
    near = v1.TopologyInfo([v1.NumaNode(1)])
    return name, [v1.ContainerDevices(resource, ids, near) for resource, ids in devices]


@given(PODS, st.data())
def test_a_damaged_answer_is_refused_or_says_something_else(pods, data):
    raw = bytearray(encoded(ENCODER, *pods))
    position = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        del raw[position:]
    else:
        raw[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = holders(bytes(raw), [THING, OTHER])
    except KubeletError:
        return
    assert found.keys() == {THING, OTHER}
    for ids in found.values():
        assert all(isinstance(text, str) for id_, holder in ids.items() for text in (id_, *holder))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_say_something(raw):
    with contextlib.suppress(KubeletError):
        assert holders(raw, [THING]).keys() == {THING}
    with contextlib.suppress(KubeletError):
        assert all(isinstance(one, ListedClaim) for one in claims(raw).claims)
