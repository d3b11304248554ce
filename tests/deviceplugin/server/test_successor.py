import grpc
import pytest

from dpgateway import Allocation, DriverError
from dpgateway.deviceplugin.server.successor import Successor
from dpgateway.deviceplugin.wire import v1beta1_pb2
from tests.support.serving import status
from tests.support.waiting import until

REQUEST = v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}])


@pytest.fixture
async def older(serve, short_path):
    (short_path / "older").mkdir()
    return await serve(short_path / "older")


@pytest.fixture
async def newer(serve, short_path):
    (short_path / "newer").mkdir()
    return await serve(short_path / "newer")


@pytest.fixture
async def successor(older):
    """Stands behind the older gateway, and isn't known to serve yet."""
    older.handlers.successor = Successor()
    yield older.handlers.successor
    await older.handlers.successor.end()


@pytest.fixture
async def allocate(older, connect, successor):
    """Asks the older gateway."""
    client = connect(older.socket)
    return lambda: client.call("Allocate", REQUEST)


async def test_a_call_waits_until_the_newer_gateway_serves_and_then_has_its_answer(older, newer, successor, allocate):
    newer.calls.allocation = Allocation(env={"FROM": "newer"})
    call = allocate()
    await until(lambda: older.handlers.calls)
    successor.serves(newer.socket)
    answer = v1beta1_pb2.AllocateResponse.FromString(await call)
    assert dict(answer.container_responses[0].envs) == {"FROM": "newer"}
    assert (older.calls.allocated, newer.calls.allocated) == ([], [("a",)])


async def test_a_refusal_of_the_newer_gateway_is_told_as_it_is(older, newer, successor, allocate):
    newer.calls.error = DriverError("worn out")
    successor.serves(newer.socket)
    assert await status(allocate()) == (grpc.StatusCode.FAILED_PRECONDITION, "worn out")
    assert older.calls.allocated == []


async def test_the_older_gateway_answers_what_waited_for_a_newer_one_that_never_served(older, successor, allocate):
    call = allocate()
    await until(lambda: older.handlers.calls)
    await successor.end()
    await call
    assert older.calls.allocated == [("a",)]


async def test_the_older_gateway_answers_if_the_newer_one_dies_before_the_lock_is_its_own(
    older, newer, successor, allocate
):
    successor.serves(newer.socket)
    await newer.close()
    await allocate()
    assert older.calls.allocated == [("a",)]


async def test_nobody_answers_for_a_newer_gateway_that_owns_the_lock_and_has_died(older, newer, successor, allocate):
    successor.serves(newer.socket)
    successor.owns()
    await newer.close()
    code, _ = await status(allocate())
    assert code is grpc.StatusCode.UNAVAILABLE
    assert older.calls.allocated == []


async def test_a_newer_gateway_whose_directory_is_gone_is_an_error(successor, short_path):
    with pytest.raises(OSError, match="No such file"):
        successor.serves(short_path / ("x" * 120) / "socket")
