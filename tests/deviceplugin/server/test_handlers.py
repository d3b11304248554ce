import asyncio

import grpc
import pytest

from dpgateway import Allocation, Busy, Device, DeviceUnavailable, DriverError
from dpgateway.deviceplugin.api import v1alpha1, v1alpha2
from dpgateway.deviceplugin.server.handlers import LONGEST_TEXT
from dpgateway.deviceplugin.wire import v0_1_pb2, v1alpha2_pb2, v1beta1_pb2
from dpgateway.errors import DriverFault, DriverTimeout
from tests.support.serving import V1ALPHA, V1BETA1, status
from tests.support.waiting import turns, until

CODE = grpc.StatusCode


@pytest.fixture
async def served(serve):
    return await serve()


@pytest.fixture
async def client(served, connect):
    return connect(served.socket)


def allocate(*ids):
    return v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ids}])


async def test_allocate_answers_each_container(served, client):
    request = v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}, {"devices_ids": ["b"]}])
    answer = v1beta1_pb2.AllocateResponse.FromString(await client.call("Allocate", request))
    assert [dict(one.envs) for one in answer.container_responses] == [{"A": "1"}] * 2
    assert served.lanes.allocated == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("spoken", "kind"), [(v1alpha2.API, v1alpha2_pb2.AllocateResponse), (v1alpha1.API, v0_1_pb2.AllocateResponse)]
)
async def test_the_registered_dialect_answers(served, client, spoken, kind):
    """On the path that two dialects share."""
    served.calls.speak(spoken)
    raw = await client.call("Allocate", v1alpha2_pb2.AllocateRequest(devicesIDs=["a"]), V1ALPHA)
    answer = kind.FromString(raw)
    envs = answer.envs if kind is v1alpha2_pb2.AllocateResponse else answer.spec[0].envs
    assert dict(envs) == {"A": "1"}
    assert served.lanes.prepared == ["a"]  # these have no call for it


async def test_an_unregistered_path_is_the_newer_dialects(served, client):
    raw = await client.call("Allocate", v1alpha2_pb2.AllocateRequest(devicesIDs=["a"]), V1ALPHA)
    assert dict(v1alpha2_pb2.AllocateResponse.FromString(raw).envs) == {"A": "1"}


async def test_options_preference_and_prepare_are_answered(served, client):
    served.lanes.abilities, served.lanes.preferred = frozenset({"prepare", "prefer"}), [Device("a")]
    options = v1beta1_pb2.DevicePluginOptions.FromString(await client.call("GetDevicePluginOptions"))
    assert options.pre_start_required
    assert options.get_preferred_allocation_available
    wish = {"available_deviceIDs": ["a", "b"], "must_include_deviceIDs": [], "allocation_size": 1}
    request = v1beta1_pb2.PreferredAllocationRequest(container_requests=[wish])
    raw = await client.call("GetPreferredAllocation", request)
    answer = v1beta1_pb2.PreferredAllocationResponse.FromString(raw)
    assert list(answer.container_responses[0].deviceIDs) == ["a"]
    await client.call("PreStartContainer", v1beta1_pb2.PreStartContainerRequest(devices_ids=["b"]))
    assert served.lanes.prepared == ["b"]


ERRORS = [
    (DriverError("worn out"), CODE.FAILED_PRECONDITION),
    (DeviceUnavailable("gone"), CODE.FAILED_PRECONDITION),
    (Busy("later"), CODE.RESOURCE_EXHAUSTED),
    (DriverTimeout("slow"), CODE.DEADLINE_EXCEEDED),
    (DriverFault("odd"), CODE.INTERNAL),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda one: type(one).__name__)
async def test_each_error_has_its_code(served, client, records, error, code):
    served.lanes.error = error
    assert await status(client.call("Allocate", allocate("a"))) == (code, str(error))
    assert records.texts() == [f"Allocate refused: {error}"]
    assert served.handlers.rpcs.read()["Allocate"].outcomes == {code.name: 1}
    since = served.handlers.refused.value[1]
    await status(client.call("Allocate", allocate("a")))
    assert served.handlers.refused.value == (str(error), since)
    served.lanes.error = None
    await client.call("Allocate", allocate("a"))
    assert served.handlers.refused.value is None


async def test_a_cdi_device_without_a_spec_is_a_trouble(served, client):
    """It concerns the next container, too."""
    given, served.lanes.allocation = served.lanes.allocation, Allocation(cdi_devices=("v.example/c=a",))
    code, text = await status(client.call("Allocate", allocate("a")))
    assert code is CODE.FAILED_PRECONDITION
    assert "resource example.com/thing: no spec has the CDI device v.example/c=a" in text
    assert served.handlers.refused.value[0] == text
    served.lanes.allocation = given
    await client.call("Allocate", allocate("a"))
    assert served.handlers.refused.value is None


async def test_an_rpc_that_the_kubelet_gives_up(served, client):
    served.lanes.go_on.clear()
    call = client.call("Allocate", allocate("a"))
    await until(lambda: served.lanes.allocated)
    call.cancel()
    await until(served.handlers.rpcs.read)
    assert served.handlers.rpcs.read()["Allocate"].outcomes == {"CANCELLED": 1}


async def test_an_unknown_id_is_refused_by_name(served, client):
    code, text = await status(client.call("Allocate", allocate("a", "nobody")))
    assert code is CODE.FAILED_PRECONDITION
    assert "resource example.com/thing: device nobody is unknown" in text
    assert served.lanes.allocated == []
    assert served.handlers.refused.value is None


async def test_a_bug_is_an_internal_error(served, client, records):
    served.lanes.error = LookupError("oops")
    code, text = await status(client.call("Allocate", allocate("a")))
    assert (code, "a bug of the gateway" in text) == (CODE.INTERNAL, True)
    assert records.records[-1].exc_info[0] is LookupError


@pytest.mark.parametrize(("character", "sent"), [("x", 1), ("%", 3), ("\n", 3), ("é", 6), ("€", 9), ("\U0001f600", 12)])
async def test_a_very_long_error_still_arrives(served, client, character, sent):
    """gRPC sends each byte that isn't printable ASCII as three, in a header."""
    served.lanes.error = DriverError(character * 1_000_000)
    assert await status(client.call("Allocate", allocate("a"))) == (
        CODE.FAILED_PRECONDITION,
        character * (LONGEST_TEXT // sent),
    )


async def test_half_a_character_in_an_error_is_escaped(served, client):
    """As in a file name that isn't UTF-8: gRPC can't send it, and would never answer."""
    served.lanes.error = DriverError("can't open /dev/caf\udce9")
    assert await status(client.call("Allocate", allocate("a"))) == (
        CODE.FAILED_PRECONDITION,
        r"can't open /dev/caf\udce9",
    )


METHODS = ["GetDevicePluginOptions", "GetPreferredAllocation", "Allocate", "PreStartContainer"]


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 10, b"\x0a\x05\xff", b"\x0a\x02\xc3\x28"], ids=["noise", "short", "text"]
)
@pytest.mark.parametrize("method", METHODS)
async def test_garbage_is_an_invalid_argument(served, client, method, garbage):
    if method == "GetDevicePluginOptions" and garbage == b"\x0a\x02\xc3\x28":
        return  # an unknown field of an empty message
    code, text = await status(client.call(method, garbage))
    assert code is CODE.INVALID_ARGUMENT
    assert f"v1beta1.DevicePlugin/{method}" in text


@pytest.mark.parametrize("path", [V1BETA1, V1ALPHA])
async def test_garbage_opens_no_stream(served, client, path):
    code, _ = await status(client.watch(path, b"\xff" * 10).read())
    assert code is CODE.INVALID_ARGUMENT
    assert served.audience.opened_streams == []


async def test_a_stream_that_must_end_as_it_opens_ends(served, client):
    opened = served.audience.opened

    def end():
        served.handlers.end_streams()
        return opened()

    served.audience.opened = end
    assert [message async for message in client.watch()] == []
    assert not served.audience.open


async def test_an_unknown_method_is_unimplemented(served, client):
    assert (await status(client.call("Nothing")))[0] is CODE.UNIMPLEMENTED
    assert (await status(client.call("PreStartContainer", path=V1ALPHA)))[0] is CODE.UNIMPLEMENTED


async def test_a_cancelled_allocate_is_no_error(served, client, records):
    served.lanes.go_on.clear()
    call = client.call("Allocate", allocate("a"))
    await until(lambda: served.lanes.allocated)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(20):
        await served.handlers.done()
    assert records.texts() == []


async def test_of_what_goes_well_only_an_allocation_is_a_line(served, client, records):
    await client.call("Allocate", allocate("a"))
    await client.call("GetDevicePluginOptions")
    stream = client.watch()
    await stream.read()
    stream.cancel()
    await until(lambda: not served.audience.open)
    (text,) = records.texts()
    assert text.startswith("allocated 1 device to a container, in ")


async def test_an_end_finishes_the_calls_in_flight(served, client):
    """New ones are refused."""
    served.lanes.go_on.clear()
    stream = client.watch()
    await stream.read()
    call = client.call("Allocate", allocate("a"))
    await until(lambda: served.lanes.allocated)
    closing = asyncio.ensure_future(served.endpoint.drain(20))
    await turns()
    assert (await status(client.call("Allocate", allocate("b"))))[0] is CODE.UNAVAILABLE
    assert (await status(client.watch().read()))[0] is CODE.UNAVAILABLE
    assert served.audience.open
    served.lanes.go_on.set()
    await call
    await closing
    await served.endpoint.close()
    assert await stream.read() is grpc.aio.EOF
    assert not served.audience.open
