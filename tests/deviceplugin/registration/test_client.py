import asyncio
import contextlib
import dataclasses
import os
import resource
import socket

import grpc
import grpc.aio
import pytest

from dpgateway.deviceplugin.api import APIS, v1alpha1, v1alpha2, v1beta1
from dpgateway.deviceplugin.registration.client import ApiRefused, KubeletClient, RegisterFailed
from dpgateway.deviceplugin.values import Options, Registration
from dpgateway.deviceplugin.wire import v1beta1_pb2
from dpgateway.kit.unix import Credentials
from tests.support.counting import descriptors
from tests.support.serving import group
from tests.support.time import hurry
from tests.support.waiting import until

OURS = Credentials(os.getpid(), os.geteuid(), os.getegid())
WHAT = Registration("example.com/thing", "dpgateway/x-1.sock", Options(prepare=True, prefer=False))


class FakeKubelet:
    """Serves one package's Registration with whatever ``answer`` does."""

    def __init__(self, directory, package="v1beta1"):
        self.path, self.package = directory / "kubelet.sock", package
        self.requests = []
        self.error = None
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def start(self):
        self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(self._register)
        name = f"{self.package}.Registration"
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Register": handler}),))
        self.server.add_insecure_port(f"unix:{self.path}")
        await self.server.start()

    async def _register(self, raw, context):
        self.requests.append(raw)
        await self.go_on.wait()
        if self.error:
            await context.abort(*self.error)
        return b""


@pytest.fixture
async def client(short_path):
    client = KubeletClient(short_path, APIS, group())
    yield client
    await client.close()


@pytest.fixture
async def kubelet(short_path):
    kubelet = FakeKubelet(short_path)
    await kubelet.start()
    yield kubelet
    await kubelet.server.stop(None)


async def test_register_remembers_the_api(client, kubelet):
    assert client.accepted is None
    await client.register(v1beta1.API, WHAT)
    request = v1beta1_pb2.RegisterRequest.FromString(kubelet.requests[0])
    assert (request.version, request.endpoint) == ("v1beta1", WHAT.endpoint)
    assert (request.resource_name, request.options.pre_start_required) == (WHAT.resource, True)
    assert client.accepted is v1beta1.API


REFUSALS = [
    "unsupported API version by the Kubelet registry",
    'requested API version "v1beta1" is not supported by kubelet. Supported version is "v1alpha2"',
    'requested API version "v1alpha2" is not supported by kubelet. Supported versions are ["v1beta1"]',
]


@pytest.mark.parametrize("text", REFUSALS, ids=["1.8", "1.9", "1.10"])
async def test_an_unsupported_version_means_another_api(client, kubelet, text):
    kubelet.error = (grpc.StatusCode.UNKNOWN, text)
    with pytest.raises(ApiRefused, match="API version"):
        await client.register(v1beta1.API, WHAT)
    assert client.accepted is None


async def test_an_unknown_service_means_another_api(client, kubelet):
    with pytest.raises(ApiRefused):
        await client.register(v1alpha1.API, WHAT)


@pytest.mark.parametrize(
    ("code", "listening"),
    [
        (grpc.StatusCode.UNKNOWN, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, True),
        (grpc.StatusCode.INTERNAL, True),
        (grpc.StatusCode.UNAVAILABLE, False),
    ],
    ids=str,
)
async def test_any_other_error_is_a_failure_that_settles_nothing(client, kubelet, code, listening):
    kubelet.error = (code, "the ResourceName is invalid")
    with pytest.raises(RegisterFailed, match=f"{code.name}: the ResourceName is invalid") as caught:
        await client.register(v1beta1.API, WHAT)
    assert caught.value.listening is listening
    assert client.accepted is None


@pytest.mark.parametrize("state", ["no file", "a file", "a socket that nobody listens on"])
async def test_without_a_kubelet_it_fails_at_once(client, short_path, state):
    """And works at once when there is one."""
    path = short_path / "kubelet.sock"
    if state == "a file":
        path.touch()
    bound = socket.socket(socket.AF_UNIX)
    if state == "a socket that nobody listens on":
        bound.bind(str(path))
    for _ in range(5):
        with pytest.raises(RegisterFailed) as caught:
            async with asyncio.timeout(60):
                await client.register(v1beta1.API, WHAT)
        assert not caught.value.listening
    bound.close()
    path.unlink(missing_ok=True)
    kubelet = FakeKubelet(short_path)
    await kubelet.start()
    async with asyncio.timeout(60):
        await client.register(v1beta1.API, WHAT)
    await kubelet.server.stop(None)


async def test_one_failure_breaks_no_other_register(client, kubelet):
    kubelet.go_on.clear()
    first = asyncio.ensure_future(client.register(v1beta1.API, WHAT))
    await until(lambda: kubelet.requests)
    kubelet.path.unlink()
    client.new_kubelet()
    with pytest.raises(RegisterFailed):
        await client.register(v1beta1.API, WHAT)
    kubelet.go_on.set()
    await first


async def test_a_new_kubelet_has_a_new_connection(client, kubelet, short_path):
    """And may speak another API."""
    await client.register(v1beta1.API, WHAT)
    await kubelet.server.stop(None)
    kubelet.path.unlink(missing_ok=True)
    client.new_kubelet()
    assert client.accepted is None
    older = FakeKubelet(short_path, "deviceplugin")
    await older.start()
    await client.register(v1alpha2.API, WHAT)
    assert client.accepted is v1alpha2.API
    await older.server.stop(None)


async def test_a_silent_kubelet_is_given_up(kubelet, short_path):
    """At the deadline; that settles nothing about the API."""
    kubelet.go_on.clear()
    client = KubeletClient(short_path, APIS, group(), deadline=0.5)
    with pytest.raises(RegisterFailed, match="DEADLINE_EXCEEDED") as caught:
        await client.register(v1beta1.API, WHAT)
    assert caught.value.listening
    assert client.accepted is None
    kubelet.go_on.set()

    async def accepted():  # not each time within half a second on a busy machine
        with contextlib.suppress(RegisterFailed):
            await client.register(v1beta1.API, WHAT)
        return client.accepted

    await until(accepted)
    await client.close()


async def test_a_goodbye_fails_at_once(client, short_path):
    """With gRPC's own retries the call goes on until its deadline, with a core busy and half a gigabyte a second."""
    settings, goaway = b"\0\0\0\4\0\0\0\0\0", b"\0\0\x08\7\0\0\0\0\0" + bytes(8)
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        writer.write(settings + goaway)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        connections.remove(writer)

    server = await asyncio.start_unix_server(serve, short_path / "kubelet.sock")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RegisterFailed, match="UNAVAILABLE"):
        await client.register(v1beta1.API, WHAT)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB
    await client.close()
    await until(lambda: not connections)
    server.close()


async def test_no_common_api_is_warned_of_once(kubelet, short_path, caplog):
    client = KubeletClient(short_path, APIS, group(), gathering=60.0)

    async def refused(name):
        for api in APIS:
            with pytest.raises(ApiRefused):
                await client.register(api, dataclasses.replace(WHAT, resource=name))

    kubelet.error = (grpc.StatusCode.UNKNOWN, "unsupported API version")
    await refused("of another kubelet")
    client.new_kubelet()
    for name in ("example.com/a", "example.com/b", "accepted at last"):
        await refused(name)
    kubelet.error = None
    await client.register(v1beta1.API, dataclasses.replace(WHAT, resource="accepted at last"))
    hurry(100)
    await until(lambda: caplog.records)
    (record,) = caplog.records
    assert record.__dict__["resources"] == ["example.com/a", "example.com/b"]
    assert "it answered 'UNKNOWN: unsupported API version' to v1beta1, 'UNIMPLEMENTED: " in record.getMessage()
    await client.close()


async def test_a_cancelled_register_is_cancelled_at_the_kubelet(client, kubelet):
    kubelet.go_on.clear()
    task = asyncio.ensure_future(client.register(v1beta1.API, WHAT))
    await until(lambda: kubelet.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_directory_of_any_length_will_do(short_path):
    deep = short_path.joinpath(*["d" * 50] * 4)
    deep.mkdir(parents=True)
    real = short_path / "r"
    real.symlink_to(deep)
    kubelet = FakeKubelet(real)
    await kubelet.start()
    client = KubeletClient(deep, APIS, group())
    await client.register(v1beta1.API, WHAT)
    assert kubelet.requests
    await client.close()
    await kubelet.server.stop(None)


async def test_many_kubelets_leave_nothing_behind(short_path):
    deep = short_path.joinpath(*["d" * 50] * 4)
    deep.mkdir(parents=True)
    client = KubeletClient(deep, APIS, group())
    await asyncio.sleep(0)
    tasks, before = len(asyncio.all_tasks()), descriptors()
    for _ in range(30):
        with pytest.raises(RegisterFailed):
            await client.register(v1beta1.API, WHAT)
        client.new_kubelet()
    await until(lambda: len(asyncio.all_tasks()) <= tasks + 1)  # grpc's own poller
    await until(lambda: descriptors() < before + 20)  # some are gRPC's
    await client.close()


async def test_the_kubelet_is_the_process_that_listens(client, kubelet):
    assert client.is_kubelet(OURS)
    assert not client.is_kubelet(OURS._replace(pid=1))


async def test_anybody_is_the_kubelet_while_none_listens(client):
    assert client.is_kubelet(OURS._replace(pid=1))


async def test_the_last_listener_stays_the_kubelet(client, kubelet):
    assert client.is_kubelet(OURS)
    await kubelet.server.stop(None)
    assert not client.is_kubelet(OURS._replace(pid=1))
    client.new_kubelet()
    assert client.is_kubelet(OURS._replace(pid=1))
