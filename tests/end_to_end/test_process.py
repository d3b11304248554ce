"""The real process, with the simulated driver and a driver that misbehaves, under simulated kubelets."""

import asyncio
import shutil
import signal
from contextlib import asynccontextmanager

import pytest

from dpgateway_simulator import Kubelet
from tests.support.process import Process, install
from tests.support.serving import Client
from tests.support.waiting import until

R, S = "example.com/thing", "example.com/other"
SIMULATED = {"name": R, "driver": "simulated", "options": {"count": 4, "env_prefix": "X"}}
ERAS = ["1.8", "1.9", "1.10", "1.12", "1.24", "1.25", "1.34", "1.37"]
WITHIN = 2.0


def awkward(name=R, **options):
    return {"name": name, "driver": "awkward", "options": options}


@pytest.fixture
def directory(short_path):
    path = short_path / "dp"
    path.mkdir()
    return path


@pytest.fixture
async def process(short_path, directory):
    install(short_path)
    process = Process(short_path, directory)
    yield process
    await process.close()


@asynccontextmanager
async def kubelet(version, directory):
    one = Kubelet(version, directory)
    await one.start()
    try:
        yield one
    finally:
        await one.kill()


async def offered(one, count=4, resource=R):
    await one.wait_for(lambda: one.counts(resource)[1] == count)


async def test_it_waits_for_the_kubelets_directory_which_it_never_makes(process, directory):
    directory.rmdir()
    await process.start(SIMULATED)
    await process.said("serving 1 resource")
    assert not directory.exists()
    async with kubelet("1.31", directory) as one:
        await offered(one)
    assert (await process.end())[0] == 0


@pytest.mark.parametrize("version", ERAS)
async def test_pods_get_devices_through_restarts_and_kills_of_the_kubelet(process, directory, version):
    await process.start(SIMULATED)
    async with kubelet(version, directory) as one:
        await offered(one)
        assert (await one.admit("p", {"c": {R: 1}}))["ok"]
        for graceful in (True, False):
            await one.restart(graceful=graceful)
            await offered(one)
        assert (await one.admit("q", {"c": {R: 2}}))["ok"]
        code, took = await process.end()
        assert (code, process.names()) == (0, [])
        assert took < WITHIN
    assert {line["level"] for line in process.log()} == {"info"}


async def test_another_kubelet_in_another_era_takes_over(process, directory):
    await process.start(SIMULATED)
    async with kubelet("1.8", directory) as one:
        await offered(one)
        for version in ("1.9", "1.10", "1.37", "1.9"):
            await one.upgrade(version)
            await offered(one)
    await process.end()


async def test_nothing_is_logged_for_each_rpc_at_the_default_level(process, directory):
    await process.start(SIMULATED)
    async with kubelet("1.31", directory) as one:
        await offered(one)
        await process.said("registered")
        before = len(process.lines)
        for _ in range(20):
            await one.allocate(R, ["node-0"])
        assert len(process.lines) == before
        await process.end()


@pytest.mark.parametrize("hangs", ["init", "devices", "allocate", "prepare", "release", "close"])
async def test_it_ends_within_2_s_with_code_0_whatever_hangs(process, directory, hangs):
    await process.start(awkward(hangs=[hangs]), {**SIMULATED, "name": S})
    async with kubelet("1.31", directory) as one:
        await offered(one, resource=S)
        pending = None
        if hangs in {"allocate", "prepare"}:
            await offered(one, 2)
            call = one.allocate(R, ["a"]) if hangs == "allocate" else one.pre_start(R, ["a"])
            pending = asyncio.ensure_future(call)
            await asyncio.sleep(0.05)
            assert not pending.done()
        code, took = await process.end()
        assert (code, process.names()) == (0, [])
        assert took < WITHIN
        if pending:
            await asyncio.wait([pending])
            assert pending.exception()


async def test_it_ends_within_2_s_while_a_stream_is_not_read(process, directory):
    await process.start({**SIMULATED, "options": {"count": 20_000, "device_id_prefix": "x" * 60}})
    await until(lambda: [name for name in process.names() if name.endswith(".sock")], 10)
    (name,) = [name for name in process.names() if name.endswith(".sock")]
    client = Client(directory / "dpgateway" / name)
    stream = client.watch()
    await stream.read()
    code, took = await process.end()
    assert (code, process.names()) == (0, [])
    assert took < WITHIN
    await client.close()


async def test_it_ends_at_once_when_nothing_hangs(process, directory):
    await process.start(SIMULATED)
    async with kubelet("1.31", directory) as one:
        await offered(one)
        code, took = await process.end(signal.SIGINT)
    assert (code, took < 1) == (0, True)


@pytest.mark.parametrize("exits", ["init", "devices", "allocate"])
async def test_a_driver_that_exits_harms_only_its_own_resource(process, directory, exits):
    await process.start(awkward(exits=[exits]), {**SIMULATED, "name": S})
    async with kubelet("1.31", directory) as one:
        await offered(one, resource=S)
        if exits == "allocate":
            await offered(one, 2)
            reply = await one.admit("p", {"c": {R: 1}})
            assert not reply["ok"]
            assert "SystemExit: 3" in str(reply)
        await process.said("SystemExit: 3")
        assert (await one.admit("q", {"c": {S: 1}}))["ok"]
        assert (await process.end())[0] == 0


async def test_every_line_on_standard_error_is_json_whatever_a_driver_and_grpc_say(process, directory):
    process.level = "debug"
    await process.start(awkward(noisy=True))
    async with kubelet("1.31", directory) as one:
        await offered(one, 2)
        await one.admit("p", {"c": {R: 1}})
        one.delete_socket()
        one.drop_streams()
        shutil.rmtree(directory)
        await process.said("the kubelet's last stream ended")
        await process.end()
    messages = " ".join(line["message"] for line in process.log())
    assert "devices was called" in messages
    assert "uncaught ZeroDivisionError" in messages


async def test_a_second_gateway_takes_over_when_the_first_is_killed(process, short_path, directory):
    await process.start(SIMULATED)
    second = Process(short_path, directory)
    async with kubelet("1.31", directory) as one:
        await offered(one)
        await second.start(SIMULATED)
        await second.said(f"pid {process.process.pid}")
        assert (await process.end(signal.SIGKILL))[0] == -signal.SIGKILL
        await second.said("registered")
        await offered(one)
        assert len(second.names()) == 3  # the lock, the socket, and the one name that is registered
    assert (await second.end(), second.names())[0][0] == 0
    await second.close()


async def test_two_hundred_restarts_of_the_kubelet_leave_nothing_behind(process, directory):
    await process.start(SIMULATED, {**SIMULATED, "name": S})
    async with kubelet("1.31", directory) as one:

        async def restart(count):
            for _ in range(count):
                await one.restart()
                await offered(one)
                await offered(one, resource=S)

        await restart(40)
        before, names = process.used(), len(process.names())
        await restart(160)
        await until(lambda: process.used()["descriptors"] <= before["descriptors"] + 2)
        after = process.used()
        assert after["threads"] <= before["threads"] + 4  # gRPC's pool grows when it is busy
        assert after["memory"] <= before["memory"] + 2048
        assert len(process.names()) <= names
        assert (await process.end())[0] == 0
