import socket
from collections.abc import Awaitable, Callable

import grpc
import pytest

from dpgateway import Allocation, Busy, DriverError
from dpgateway.deviceplugin.handover.proxy import Proxy
from dpgateway.deviceplugin.wire import v1alpha2_pb2, v1beta1_pb2
from tests.support.resources import NAME
from tests.support.serving import KUBELET, V1ALPHA, V1BETA1, Served, status
from tests.support.specs import cdi
from tests.support.waiting import until

REQUEST = v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}])
WHICH = {"available_deviceIDs": ["a", "b"], "must_include_deviceIDs": ["b"], "allocation_size": 1}


@pytest.fixture
async def older(request, serve, short_path):
    """It has little time for a newer gateway that is frozen."""
    (short_path / "older").mkdir()
    if "frozen" not in request.fixturenames:
        return await serve(short_path / "older")
    little = {"allocate": 0.1, "prepare": 0.2, "prefer": 0.1}
    return await serve(short_path / "older", delivery=cdi(patience=0), timeouts=little)


@pytest.fixture
async def newer(serve, short_path):
    (short_path / "newer").mkdir()
    return await serve(short_path / "newer")


@pytest.fixture
async def proxy(older, log):
    """Forwards what the older gateway is asked to a newer one that isn't known to serve yet."""
    proxy = Proxy(NAME, log)
    older.handlers.forward(proxy.answer)
    yield proxy
    await proxy.end()


@pytest.fixture
async def allocate(older, connect, proxy):
    """Asks the older gateway."""
    client = connect(older.socket)
    return lambda: client.call("Allocate", REQUEST)


async def test_a_call_waits_for_the_newer_gateway(older, newer, proxy, allocate):
    newer.lanes.allocation = Allocation(env={"FROM": "newer"})
    call = allocate()
    await until(older.handlers.running)
    proxy.serves(newer.socket)
    answer = v1beta1_pb2.AllocateResponse.FromString(await call)
    assert dict(answer.container_responses[0].envs) == {"FROM": "newer"}
    assert (older.lanes.allocated, newer.lanes.allocated) == ([], [("a",)])


async def test_the_newer_gateway_knows_the_kubelet(
    older: Served, newer: Served, proxy: Proxy, allocate: Callable[[], Awaitable[bytes]]
) -> None:
    """By a call, before the kubelet has opened a stream there: its release decides whether it passes CDI names on."""
    older.calls.remember_agent(KUBELET)
    proxy.serves(newer.socket, agent=older.calls.agent)
    await allocate()
    assert newer.calls.api.passes_cdi(newer.calls.agent)


async def test_a_refusal_is_told_as_it_is(older, newer, proxy, allocate):
    newer.lanes.error = DriverError("worn out")
    proxy.serves(newer.socket)
    assert await status(allocate()) == (grpc.StatusCode.FAILED_PRECONDITION, "worn out")
    assert older.lanes.allocated == []


async def test_a_dead_gateway_that_may_have_given(older, newer, proxy, allocate, connect):
    proxy.serves(newer.socket)
    await allocate()
    newer.lanes.error = Busy("later")
    assert await status(allocate()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "later")
    await newer.close()
    assert (await status(allocate()))[0] == grpc.StatusCode.UNAVAILABLE
    assert older.lanes.allocated == [], "it doesn't know what that one gave away"
    await connect(older.socket).call("GetDevicePluginOptions")


async def test_a_gateway_that_never_serves(older, proxy, allocate):
    call = allocate()
    await until(older.handlers.running)
    await proxy.end()
    await call
    assert older.lanes.allocated == [("a",)]


async def test_a_dead_gateway_that_gave_nothing(older, newer, proxy, allocate):
    proxy.serves(newer.socket)
    await newer.close()
    await allocate()
    assert older.lanes.allocated == [("a",)]


async def test_a_dead_gateway_that_may_register(older, newer, proxy, allocate):
    proxy.serves(newer.socket)
    proxy.owns()
    await newer.close()
    code, _ = await status(allocate())
    assert code is grpc.StatusCode.UNAVAILABLE
    assert older.lanes.allocated == []


async def test_a_directory_that_is_gone_is_an_error(proxy, short_path):
    with pytest.raises(OSError, match="No such file"):
        proxy.serves(short_path / ("x" * 120) / "socket")


@pytest.fixture
async def frozen(short_path, proxy):
    """A newer gateway that has bound its socket, and whose process is stopped."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(short_path / "frozen.sock"))
        bound.listen()
        proxy.serves(short_path / "frozen.sock")
        yield


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("call", "seconds"),
    [
        (("Allocate", REQUEST, V1BETA1), "3.25 s"),
        (("PreStartContainer", v1beta1_pb2.PreStartContainerRequest(devices_ids=["a"]), V1BETA1), "3.4 s"),
        (("Allocate", v1alpha2_pb2.AllocateRequest(devicesIDs=["a"]), V1ALPHA), "3.45 s"),
    ],
    ids=["allocate", "prepare", "allocate that prepares, too"],
)
async def test_a_frozen_gateway_has_the_most_that_an_answer_takes(older, connect, records, call, seconds):
    text = f"the gateway that takes over hasn't answered {call[0]} within {seconds}"
    code, details = await status(connect(older.socket).call(*call))
    assert (code, details) == (grpc.StatusCode.DEADLINE_EXCEEDED, f"resource {NAME}: {text}")
    assert (older.lanes.allocated, older.lanes.prepared) == ([], []), "that one may do it yet"
    assert records.texts() == [text]


async def test_a_frozen_gateway_and_other_calls(older, frozen, connect):
    """The older gateway answers what decides nothing."""
    client = connect(older.socket)
    await client.call("GetDevicePluginOptions")
    await client.call("GetPreferredAllocation", v1beta1_pb2.PreferredAllocationRequest(container_requests=[WHICH]))
