import asyncio
import fcntl
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from dpgateway import Device
from dpgateway.deviceplugin.api import LARGEST
from dpgateway.deviceplugin.handover.proxy import Proxy
from dpgateway.deviceplugin.server.endpoint import Endpoint
from dpgateway.deviceplugin.server.handlers import STREAMS
from dpgateway.deviceplugin.wire import v1beta1_pb2
from dpgateway.errors import KubeletError
from dpgateway.resource.ownership import Ownership
from tests.support.counting import descriptors
from tests.support.resources import NAME
from tests.support.serving import V1ALPHA, V1BETA1, group, health, status
from tests.support.waiting import turns, until

ROOT = Path(__file__).resolve().parents[3]
BOTH = {"a": "Healthy", "b": "Healthy"}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_socket_and_folder_are_ours_alone(serve):
    served = await serve()
    assert (mode(served.folder), mode(served.socket)) == (0o700, 0o600)
    assert stat.S_ISSOCK(served.socket.stat().st_mode)


async def test_each_link_serves_every_dialect(serve, connect):
    served = await serve()
    links = [served.directory / await served.endpoint.link() for _ in range(2)]
    for socket in (served.socket, *links):
        for path in (V1BETA1, V1ALPHA):
            assert health(await connect(socket).watch(path).read(), path) == BOTH


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
async def test_a_question_is_twice_a_list(serve, connect, more, refused):
    served = await serve()
    client = connect(served.socket)
    question = v1beta1_pb2.PreferredAllocationRequest()
    container = question.container_requests.add(available_deviceIDs=["a"], allocation_size=1)
    container.must_include_deviceIDs.append("x" * 2 * LARGEST)
    container.must_include_deviceIDs[0] = "x" * (4 * LARGEST - question.ByteSize() + more)
    assert question.ByteSize() == 2 * LARGEST + more
    call = client.call("GetPreferredAllocation", question)
    if refused:
        assert (await status(call))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    else:
        await call


async def test_opening_twice_binds_once(serve):
    served = await serve()
    before = served.socket.stat().st_ino
    await asyncio.gather(*(served.endpoint.open() for _ in range(5)))
    assert served.socket.stat().st_ino == before


async def test_the_longest_name_is_served(serve, connect):
    name = f"{'.'.join(['d' * 59] * 4)}/{'n' * 63}"
    assert health(await connect((await serve(name=name)).socket).watch().read()) == BOTH


async def test_a_directory_of_any_length_is_served(serve, connect, short_path, tmp_path):
    deep = short_path.joinpath(*["d" * 50] * 4)
    deep.mkdir(parents=True)
    served = await serve(deep)
    link = await served.endpoint.link()
    short = short_path / "s"  # a client of gRPC has the same limit of 107 bytes
    short.symlink_to(deep / "dpgateway")
    for socket in (short / served.socket.name, short / Path(link).name):
        assert health(await connect(socket).watch().read()) == BOTH
    assert mode(served.socket) == 0o600


async def test_names_that_are_settled_leave_only_the_newest(serve):
    served = await serve()
    old, new = await served.endpoint.link(), await served.endpoint.link()
    served.endpoint.tidy()
    assert not (served.directory / old).exists()
    assert (served.directory / new).exists()


@pytest.mark.parametrize("deleted", ["socket", "links", "folder", "directory"])
async def test_deleted_names_leave_a_stream_alone(serve, connect, deleted):
    """And the next link works."""
    served = await serve()
    link = served.directory / await served.endpoint.link()
    client = connect(link)
    stream = client.watch()
    await stream.read()
    if deleted == "socket":
        served.socket.unlink()
    elif deleted == "links":
        link.unlink()
    else:
        shutil.rmtree(served.folder if deleted == "folder" else served.directory)
        served.directory.mkdir(exist_ok=True)
    await turns()
    served.inventory.fail("broken", overdue=True)
    assert set(health(await stream.read()).values()) == {"Unhealthy"}
    again = connect(served.directory / await served.endpoint.link())
    assert set(health(await again.watch().read()).values()) == {"Unhealthy"}
    served.inventory.take((Device("a"), Device("b")))
    assert health(await stream.read()) == BOTH  # the old one still lives
    assert await client.call("GetDevicePluginOptions")


async def test_without_the_kubelets_directory(serve):
    """There is no link, and the directory isn't made."""
    served = await serve()
    shutil.rmtree(served.directory)
    with pytest.raises(KubeletError):
        await served.endpoint.link()
    assert not served.directory.exists()


async def test_no_link_while_calls_wait_for_another_gateway(serve, log):
    """A kubelet that has come just then would dial it late, and take its streams for those of the last Register."""
    served = await serve()
    served.handlers.forward(Proxy(NAME, log).answer)
    with pytest.raises(KubeletError, match="another gateway is taking the resource over"):
        await served.endpoint.link()
    served.handlers.forward(None)
    assert await served.endpoint.link()


async def test_a_file_in_the_folders_place(serve):
    """It is an error, and the next try may succeed."""
    served = await serve(bind=False)
    served.directory.chmod(0o500)
    blocking = served.folder
    blocking.parent.chmod(0o700)
    blocking.write_text("in the way")
    for _ in range(3):
        with pytest.raises(KubeletError):
            await served.endpoint.open()
    blocking.unlink()
    await served.endpoint.open()


async def test_a_folder_that_may_not_be_written(serve, connect, short_path):
    """It is an error, and the next try may succeed."""
    short_path.chmod(0o755)
    served = await serve(bind=False)
    served.folder.mkdir()
    lock = served.folder / f"{hashlib.sha256(served.handlers.name.encode()).hexdigest()[:16]}.lock"
    with lock.open("w") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        opening = asyncio.ensure_future(served.endpoint.open())  # it sees that the folder is ours, and waits
        await turns()
        served.folder.chmod(0o755)
        os.seteuid(65534)
        try:
            fcntl.flock(another, fcntl.LOCK_UN)
            with pytest.raises(KubeletError, match=rf"can't serve on {served.folder}/\S+\.new: .*Permission denied"):
                await opening
        finally:
            os.seteuid(0)
    assert health(await connect(served.directory / await served.endpoint.link()).watch().read()) == BOTH


async def test_a_socket_that_vanishes_is_not_served(serve, connect):
    served = await serve(bind=False)
    opening = asyncio.ensure_future(served.endpoint.open())
    sockets: list[Path] = []
    while not opening.done() and not sockets:  # gRPC starts after it has bound, and lets others do something meanwhile
        await asyncio.sleep(0)
        sockets = list(served.folder.glob("*.new"))
    sockets[0].unlink()
    with pytest.raises(KubeletError, match="can't serve on"):
        await opening
    assert health(await connect(served.directory / await served.endpoint.link()).watch().read()) == BOTH


async def test_closing_ends_streams_and_removes_every_name(serve, connect):
    served = await serve()
    stream = connect(served.directory / await served.endpoint.link()).watch()
    await stream.read()
    async with asyncio.timeout(20):
        await served.endpoint.close()
    assert await stream.read() is grpc.aio.EOF
    assert list(served.folder.iterdir()) == [served.endpoint.ownership.path]


async def test_closing_waits_so_long_for_an_allocate(serve, connect):
    served = await serve()
    served.lanes.go_on.clear()
    request = v1beta1_pb2.AllocateRequest(container_requests=[{"devices_ids": ["a"]}])
    failing = asyncio.ensure_future(status(connect(served.socket).call("Allocate", request)))
    await until(lambda: served.lanes.allocated)
    async with asyncio.timeout(9):  # less than the call may take
        await served.endpoint.drain(0.05)
        await served.endpoint.close()
    await failing


async def test_abandoning_removes_every_name_at_once(serve):
    served = await serve()
    await served.endpoint.link()
    served.endpoint.abandon()
    assert list(served.folder.iterdir()) == [served.endpoint.ownership.path]


SECOND = """
import asyncio, sys
from pathlib import Path
from tests.support.logs import Records
from dpgateway.kit.threads import Threads
from dpgateway.resource.ownership import Ownership
from tests.support.serving import Served
async def main():
    served = Served(Path(sys.argv[1]), Records().bound())
    served.inventory.take(())
    await served.endpoint.open()
    print("serving", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_a_second_gateway_waits_for_the_end(serve, connect, short_path, records):
    command = [sys.executable, "-c", SECOND, str(short_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as first:  # noqa: ASYNC220  another gateway
        try:
            assert first.stdout is not None
            assert await asyncio.to_thread(first.stdout.readline) == b"serving\n"
            served = await serve(bind=False)
            opening = asyncio.ensure_future(served.endpoint.open())
            await until(records.texts)
            said = f"waiting because another gateway serves example.com/thing: pid {first.pid}"
            (text,) = records.texts()
            assert text.startswith(said)
            assert health(await connect(served.socket).watch().read()) == {}
            assert not opening.done()
            (short_path / "dpgateway" / f"{served.socket.stem}-5.sock").touch()
        finally:
            first.send_signal(signal.SIGKILL)
        async with asyncio.timeout(20):
            await opening
    assert health(await connect(served.socket).watch().read()) == BOTH
    assert not list(served.folder.glob("*-5.sock"))


async def test_who_has_served_asks_nobody(serve, short_path, records):
    """Nobody would follow that handover to its end, and then both would serve."""
    asked: list[object] = []

    async def ask():
        asked.append(None)
        return -1

    served = await serve()
    served.folder.rename(short_path / "replaced")
    await serve()
    opening = asyncio.ensure_future(served.endpoint.open(ask))
    await until(records.texts)
    assert records.texts()[0].endswith("; this one takes over when that one ends")
    opening.cancel()
    await asyncio.wait({opening})
    assert asked == []


async def test_a_stop_while_waiting_for_another_gateway_is_heard(serve, short_path, log):
    served = await serve()
    waiting = asyncio.ensure_future(
        Endpoint(Ownership(short_path, served.handlers.name, log), served.handlers, group(), log).open()
    )
    await turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


class Generic:
    """A client that knows nothing but what reflection tells."""

    def __init__(self, socket):
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)])
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = DescriptorPool(self.database)

    def call_everything(self):
        results = {}
        for service in self.database.get_services():
            if service.startswith("grpc."):
                continue
            for method in self.pool.FindServiceByName(service).methods:
                kind, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
                path = f"/{service}/{method.name}"
                request = kind()
                if method.server_streaming:
                    call = self.channel.unary_stream(path, kind.SerializeToString, answer.FromString)
                    stream = call(request, timeout=20)
                    results[path] = next(stream)
                    stream.cancel()
                else:
                    results[path] = self.channel.unary_unary(path, kind.SerializeToString, answer.FromString)(
                        request, timeout=20
                    )
        return results


async def test_reflection_tells_everything(serve):
    served = await serve()
    generic = Generic(served.socket)
    try:
        results = await asyncio.to_thread(generic.call_everything)
    finally:
        generic.channel.close()
    assert set(results) == {
        "/v1beta1.DevicePlugin/GetDevicePluginOptions",
        "/v1beta1.DevicePlugin/ListAndWatch",
        "/v1beta1.DevicePlugin/GetPreferredAllocation",
        "/v1beta1.DevicePlugin/Allocate",
        "/v1beta1.DevicePlugin/PreStartContainer",
        "/deviceplugin.DevicePlugin/ListAndWatch",
        "/deviceplugin.DevicePlugin/Allocate",
    }
    for path in ("/v1beta1.DevicePlugin/ListAndWatch", "/deviceplugin.DevicePlugin/ListAndWatch"):
        assert {device.ID for device in results[path].devices} == {"a", "b"}


@pytest.mark.parametrize("depth", [0, 4], ids=["a short path", "a path too long for a socket"])
async def test_an_older_server_ends_after_its_streams(serve, connect, short_path, depth):
    directory = short_path.joinpath(*["d" * 50] * depth)
    directory.mkdir(parents=True, exist_ok=True)
    short = short_path / "s"
    short.symlink_to(directory)
    served = await serve(directory)
    before = descriptors()
    for _ in range(10):
        client = connect(short / await served.endpoint.link())
        assert health(await client.watch().read()) == BOTH
        await client.close()
        await until(lambda: not served.handlers.running(STREAMS))
        shutil.rmtree(served.folder)
    client = connect(short / await served.endpoint.link())
    stream = client.watch()
    await stream.read()
    served.endpoint.tidy()
    await until(lambda: descriptors() <= before + 4)
    served.inventory.fail("broken", overdue=True)
    assert set(health(await stream.read()).values()) == {"Unhealthy"}


@pytest.mark.parametrize("deleted", ["socket", "folder"])
async def test_an_older_server_leaves_the_newer_socket(serve, connect, deleted):
    served = await serve()
    served.socket.unlink() if deleted == "socket" else shutil.rmtree(served.folder)
    before = descriptors()
    stream = connect(served.directory / await served.endpoint.link()).watch()
    await stream.read()
    bound = served.socket.stat().st_ino
    served.endpoint.tidy()
    await until(lambda: descriptors() <= before + 2)  # of both ends of the stream
    assert served.socket.stat().st_ino == bound
    assert health(await connect(served.directory / await served.endpoint.link()).watch().read()) == BOTH
    assert served.socket.stat().st_ino == bound


async def test_no_descriptor_of_a_closed_server_stays(serve, connect, short_path):
    await (await serve(name="example.com/warm")).close()
    before = descriptors()
    for number in range(10):
        served = await serve(name=f"example.com/r{number}")
        await served.close()
    await until(lambda: descriptors() <= before + 2)


@pytest.mark.parametrize("moment", range(1, 8))
async def test_opening_that_is_cancelled_leaves_no_name(serve, moment):
    served = await serve(bind=False)
    opening = asyncio.ensure_future(served.endpoint.open())
    await turns(moment)
    opening.cancel()
    await asyncio.wait([opening])
    await served.endpoint.close()
    assert [path for path in served.folder.iterdir() if path.suffix == ".sock"] == []
