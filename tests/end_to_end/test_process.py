"""The real process, with the simulated driver and a driver that misbehaves, under simulated kubelets."""

import asyncio
import importlib.util
import json
import signal
import socket
import time
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager

import pytest
from h2.connection import H2Connection
from h2.events import DataReceived, Event

from dpgateway.status.readiness import DAMPED
from dpgateway_simulator import Kubelet, PluginError
from tests.support.gateway import COMMAND, Gateway
from tests.support.http import ask
from tests.support.node import Node
from tests.support.waiting import until

R, S = "example.com/thing", "example.com/other"
SIMULATED = {"name": R, "driver": "simulated", "options": {"count": 4, "env_prefix": "X"}}
ERAS = ["1.9", "1.10", "1.12", "1.24", "1.25", "1.34"]
"""Without the oldest and the newest, which tests/scenarios has."""
CALLS = 50
SECRET = "hunter2"  # noqa: S105  nobody's


def awkward(name=R, **options):
    return {"name": name, "driver": "awkward", "options": options}


@pytest.fixture
def directory(process):
    return process.device_plugins_dir


async def ends_in_order(process, number=signal.SIGTERM):
    """It ends in order, and leaves nothing behind."""
    assert await process.end(number) == 0
    assert process.names() == []


async def offered(one, count=4, resource=R):
    await one.wait_for(lambda: one.counts(resource)[1] == count)


async def test_it_waits_for_the_kubelets_directory(process, directory):
    directory.rmdir()
    await process.start(SIMULATED)
    await process.said("serving 1 resource")
    assert not directory.exists()
    async with Kubelet("1.31", directory) as one:
        await offered(one)
    assert await process.end() == 0


async def test_children_of_a_process_that_began_without_sigchld(process, directory):
    """Their exit codes, which the kernel would drop, are the health of devices."""
    health = {"command": ["/bin/false"]}
    process.command = ("env", "--ignore-signal=CHLD", *COMMAND)
    await process.start({"name": R, "driver": "chardev", "options": {"paths": ["/dev/null"], "health": health}})

    async with Kubelet("1.31", directory) as one:
        await one.wait_for(lambda: one.counts(R)[0] == 1)

        async def asked():
            (resource,) = (await Node(process.folder, process, one).json(R))["resources"]
            return [one for one in resource["devices"] if one["reason"] != "/bin/false: nothing is known yet"]

        assert [one["reason"] for one in await until(asked)] == ["/bin/false: exit code 1"]
        assert await process.end() == 0


@pytest.mark.parametrize("version", ERAS)
async def test_pods_through_restarts_of_the_kubelet(process, directory, version):
    await process.start(SIMULATED)
    async with Kubelet(version, directory) as one:
        await offered(one)
        assert (await one.admit("p", {"c": {R: 1}}))["ok"]
        for graceful in (True, False):
            await one.restart(graceful=graceful)
            await offered(one)
        assert (await one.admit("q", {"c": {R: 2}}))["ok"]
        await ends_in_order(process)
    assert process.warnings() == []


async def test_a_link_to_the_kubelets_directory(process, short_path):
    """/var/lib/kubelet is a link on MicroK8s."""
    (short_path / "snap").mkdir()
    (short_path / "lib").symlink_to(short_path / "snap")
    process.device_plugins_dir = short_path / "lib/device-plugins"
    async with Kubelet("1.34", short_path / "snap/device-plugins") as one:
        await process.start(SIMULATED)
        await offered(one)
        assert (await one.admit("p", {"c": {R: 1}}))["ok"]
        await one.restart()
        await offered(one)
        await ends_in_order(process)
    assert process.warnings() == []


async def test_modules_that_it_never_loads(process, directory):
    """Together they take 6 MB, and what only DRA and events need takes 25: this is on every node, for ever."""
    process.environment["NEEDLESS"] = needless = (
        "ruamel.yaml importlib.metadata grpc_reflection.v1alpha.reflection rich uvicorn "
        "lightkube lightkube.models httpx2 httpcore2 h11 anyio msgspec "
        "dpgateway.cluster dpgateway.cluster.server dpgateway.dra dpgateway.events dpgateway.registry "
        "dpgateway.switching"
    )
    process.imported = False
    look = (
        "import os, sys; loaded = sorted({*os.environ['NEEDLESS'].split()} & {*sys.modules})\n"
        "self._context.log.info(f'loaded: {loaded}')"
    )
    await process.start(awkward(ids="a", runs=look))
    await process.said("loaded: []")
    async with Kubelet("1.31", directory) as one:
        await offered(one, 1)
        process.reload(awkward(ids="ab", runs=look))
        await offered(one, 2)
        await process.said("loaded: []", 2)
    assert all(map(importlib.util.find_spec, needless.split())), "a name that no module has any more"


async def test_a_new_configuration_is_taken_over_or_refused(process, directory):
    await process.start(SIMULATED)
    async with Kubelet("1.31", directory) as one:
        await offered(one)
        process.reload(SIMULATED, {**SIMULATED, "name": S})
        await process.said(f"the configuration was read again; added: {S}")
        await offered(one, resource=S)
        process.reload({**SIMULATED, "options": {"count": "x"}}, {**SIMULATED, "name": S, "shares": 0})
        await process.said("resources[0].options.count: found")
        await process.said("resources[1].shares")
        await process.said("the new configuration is refused because of 2 problems; the old one goes on")
        process.reload({**SIMULATED, "name": S}, awkward("example.com/slow", hangs=["options"]))
        await process.said(f"the configuration was read again; added: example.com/slow; removed: {R}")
        await offered(one, 0)
        assert (await one.admit("p", {"c": {S: 1}}))["ok"]
        assert sum(event.kind == "registered" for event in one.events) == 2
        await ends_in_order(process)


async def test_a_changed_file_is_taken_over_without_a_signal(process, directory):
    await process.start(SIMULATED)
    async with Kubelet("1.31", directory) as one:
        await offered(one)
        file = process.folder / "config.yaml"
        other = process.folder / "other.yaml"
        other.write_text(file.read_text().replace(R, S))
        other.rename(file)
        await process.said(f"the configuration was read again; added: {S}; removed: {R}")
        await offered(one, resource=S)
        await ends_in_order(process)


async def test_pages_follow_the_kubelet(process, directory):
    process.web = {"listen": "127.0.0.1:0"}
    await process.start({**SIMULATED, "env": {"TOKEN": SECRET}})
    await process.said("the pages are at http://127.0.0.1:")
    (line,) = [line["message"] for line in process.entries() if "the pages are at" in line["message"]]
    port = int(line.rstrip("/").rpartition(":")[2])

    async def ready(status):
        found = await ask(port, "/readyz")
        return found.status == status and found.json

    async def healthy():
        return (await ask(port, "/healthz")).json["healthy"]

    await until(healthy)
    assert (await until(lambda: ready(503)))["reason"] == "there is no kubelet.sock"
    async with Kubelet("1.31", directory) as one:
        await offered(one)
        assert (await until(lambda: ready(200)))["resources"] == [{"name": R, "ready": True, "reason": None}]
        assert (await one.admit("p", {"c": {R: 1}}))["ok"]
        for path in ("/", "/metrics", "/status.json", "/statusz"):
            page = await ask(port, path)
            assert (page.status, SECRET.encode() in page.body) == (200, False)
        (directory / "kubelet.sock").rename(directory / "hidden")
        found = await until(lambda: ready(503))  # as all below after DAMPED seconds, for which it counts as ready still
        assert (found["kubelet"], found["resources"][0]["ready"]) == (False, True)  # a live stream outweighs everything
        (directory / "hidden").rename(directory / "kubelet.sock")
        await until(lambda: ready(200))
        began = time.monotonic()
        await one.kill()
        assert not (await until(lambda: ready(503)))["resources"][0]["ready"]
        assert time.monotonic() - began > DAMPED - 1
        await one.start()
        await until(lambda: ready(200))
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await ends_in_order(process)
        writer.close()
    assert process.warnings() == []


async def test_another_kubelet_in_another_era_takes_over(process, directory):
    await process.start(SIMULATED)
    async with Kubelet("1.8", directory) as one:
        await offered(one)
        for version in ("1.9", "1.10", "1.37", "1.9"):
            await one.upgrade(version)
            await offered(one)
    assert await process.end() == 0


async def test_each_container_is_one_line_with_its_devices(process, directory):
    await process.start(SIMULATED)
    async with Kubelet("1.31", directory) as one:
        await offered(one)
        for _ in range(CALLS):
            await one.allocate(R, ["node-0", "node-2"])
        await process.said("allocated", CALLS)
    await ends_in_order(process)
    entries = [entry for entry in process.entries() if "allocated" in entry["message"]]
    assert len(entries) == CALLS
    for entry in entries:
        assert entry["message"].startswith("allocated 2 devices to a container, in ")
        assert 0 < entry.pop("seconds") < 20
        del entry["ts"], entry["message"], entry["logger"]
        devices = {"devices": ["node-0", "node-2"], "count": 2}
        assert entry == {"level": "info", "resource": R, "driver": "simulated", "api": "v1beta1", **devices}


async def released(one, process):
    """A pod comes and goes. The gateway has read in the checkpoint that it holds a device, and then that it doesn't."""
    words = *COMMAND, "status", "--output=json", f"--control-socket={process.folder / 'control.sock'}"

    async def has_read():
        asked = await asyncio.create_subprocess_exec(*words, stdout=PIPE)
        found = json.loads((await asked.communicate())[0])["resources"]
        held = [device for resource in found if resource["name"] == R for device in resource["devices"]]
        return any(holder["pod_uid"] for device in held for holder in device["holders"])

    assert (await one.admit("first", {"c": {R: 1}}, start=False))["ok"]
    await until(has_read)
    one.remove("first")
    # A kubelet writes what it has freed with its next allocation.
    assert (await one.admit("next", {"c": {S: 1}}, start=False))["ok"]


@pytest.mark.parametrize("hangs", ["init", "devices", "allocate", "prepare", "release", "close"])
async def test_it_ends_within_2_s_with_code_0_whatever_hangs(process, directory, hangs):
    await process.start(awkward(hangs=[hangs]), {**SIMULATED, "name": S})
    async with Kubelet("1.31", directory) as one:
        await offered(one, resource=S)
        if hangs not in {"init", "devices"}:
            await offered(one, 2)
        calls = {"allocate": one.allocate, "prepare": one.pre_start}
        calling = [asyncio.ensure_future(calls[hangs](R, ["a"]))] if hangs in calls else []
        if hangs == "release":
            await released(one, process)
        if hangs != "close":
            await process.said(f"{hangs} hangs")
        await ends_in_order(process)
        for call in calling:
            with pytest.raises(PluginError):
                await call
    await process.said(f"{hangs} hangs")
    assert "error" not in {entry["level"] for entry in process.entries()}


async def test_drivers_that_hang_before_they_are_made(process, directory):
    hanging = [{"name": f"example.com/{n}", "driver": f"awkward_{n}_at_import"} for n in range(4)]
    hanging += [awkward("example.com/options", hangs=["options"]), awkward("example.com/claims", hangs=["claims"])]
    await process.start(*hanging, awkward(), SIMULATED | {"name": S})
    async with Kubelet("1.31", directory) as one:
        began = time.monotonic()
        await offered(one, resource=S)
        await offered(one, 2)
        assert time.monotonic() - began < 20  # 2 s of patience on a busy machine, not 30
        await process.said("waiting for the driver awkward_", 4)
        await process.said("which is being imported, for ", 4)
        for name in ("options", "claims"):
            await process.said(f"awkward (awkward 1.0), which is checking the options of example.com/{name} at ")
        await ends_in_order(process)


async def test_wrong_options_while_a_driver_hangs(process):
    hangs = {"name": R, "driver": "awkward_0_at_import"}
    await process.start(hangs, awkward(S, count=2))
    await process.said("config.yaml:1: resources[1].options.count: found 2, expected 1")
    assert await process.process.wait() == 2
    assert not process.names()


@asynccontextmanager
async def unread(socket_path):
    """A stream of lists from which nothing is read after the first bytes of a list."""
    loop, connection = asyncio.get_running_loop(), H2Connection()
    path = "/v1beta1.DevicePlugin/ListAndWatch"
    headers = {":method": "POST", ":scheme": "http", ":authority": "localhost", ":path": path}
    with socket.socket(socket.AF_UNIX) as one:
        one.setblocking(False)
        await until(lambda: one.connect_ex(str(socket_path)) == 0)
        connection.initiate_connection()
        connection.send_headers(1, [*headers.items(), ("te", "trailers"), ("content-type", "application/grpc")])
        connection.send_data(1, bytes(5), end_stream=True)  # an empty message
        events: list[Event] = []
        while not any(isinstance(event, DataReceived) for event in events):
            await loop.sock_sendall(one, connection.data_to_send())
            received = await loop.sock_recv(one, 4096)
            assert received, "the gateway ended the connection"
            events = connection.receive_data(received)
        yield


async def test_it_ends_within_2_s_while_a_stream_is_not_read(process, directory):
    await process.start({**SIMULATED, "options": {"count": 20_000, "device_id_prefix": "x" * 60}})
    name = await until(lambda: next((name for name in process.names() if name.endswith(".sock")), None))
    async with asyncio.timeout(60), unread(directory / "dpgateway" / name):
        await ends_in_order(process)


async def test_it_ends_at_once_when_nothing_hangs(process, directory):
    async def seconds():
        await process.start(SIMULATED)
        async with Kubelet("1.31", directory) as one:
            await offered(one)
            began = time.monotonic()
            await ends_in_order(process, signal.SIGINT)
            return time.monotonic() - began

    for _ in range(5):  # a machine may stall, but not each time
        if (took := await seconds()) < 1:
            return
    assert took < 1


@pytest.mark.parametrize("exits", ["init", "devices", "allocate"])
async def test_a_driver_that_exits(process, directory, exits):
    await process.start(awkward(exits=[exits]), {**SIMULATED, "name": S})
    async with Kubelet("1.31", directory) as one:
        await offered(one, resource=S)
        if exits == "allocate":
            await offered(one, 2)
            reply = await one.admit("p", {"c": {R: 1}})
            assert not reply["ok"]
            assert "SystemExit: 3" in str(reply)
        await process.said("SystemExit: 3")
        assert (await one.admit("q", {"c": {S: 1}}))["ok"]
        assert await process.end() == 0


async def test_every_line_of_the_log_is_json(process, directory):
    process.log_level = "debug"
    await process.start(awkward(noisy=True))
    async with Kubelet("1.31", directory) as one:
        await offered(one, 2)
        await one.admit("p", {"c": {R: 1}})
        one.delete_socket()
        one.drop_streams()
        directory.rename(process.folder / "gone")
        await process.said("the kubelet's last stream ended")
        assert await process.end() == 0
    messages = [line["message"] for line in process.entries()]
    for said in ("devices was called", "uncaught ZeroDivisionError", "a word", "registered", "ended"):
        assert any(said in message for message in messages), said
    printed = {line["logger"]: line for line in process.entries() if "allocate" in line["message"]}
    assert printed["stdout"]["message"] == "allocate prints"
    assert printed["stderr"]["message"] == "allocate complains"
    assert printed["stderr"]["thread_name"] == f"{R} allocate"


async def test_a_second_gateway_takes_over(process, short_path, directory):
    await process.start(SIMULATED)
    async with Kubelet("1.31", directory) as one, Gateway(short_path, directory) as second:
        await offered(one)
        await second.start(SIMULATED)
        await second.said(f"pid {process.pid}")
        assert await process.end(signal.SIGKILL) == -signal.SIGKILL
        await second.said("registered")
        await offered(one)
        # the lock, the socket, the name that is registered, and where the next one asks
        await until(lambda: len(second.names()) == 4)
        await ends_in_order(second)


async def test_resources_share_one_inotify_instance(process, short_path, directory):
    """Of the 128 that root has; also where another gateway serves them all, and each waits for its lock."""
    (dev := short_path / "dev").mkdir()
    ports = [
        {"name": f"{R}-{one}", "driver": "chardev", "options": {"paths": [f"/dev/port{one}"], "dev": str(dev)}}
        for one in range(8)
    ]
    async with Kubelet("1.31", directory), Gateway(short_path, directory) as second:
        await process.start(*ports)
        await process.said('"registered"', len(ports))
        assert process.used()["inotify"] == 1
        await second.start(*ports)
        await second.said(f"pid {process.pid}", len(ports))
        await until(lambda: second.used()["inotify"] == 1)
        assert await process.end() == 0
        await second.said('"registered"', len(ports))
        assert second.used()["inotify"] == 1


async def test_restarts_of_the_kubelet_leak_nothing(process, directory):
    await process.start(SIMULATED, {**SIMULATED, "name": S})
    async with Kubelet("1.31", directory) as one:

        async def restart(count):
            for _ in range(count):
                await one.restart()
                await offered(one)
                await offered(one, resource=S)

        await restart(20)
        before, names = process.used(), len(process.names())
        await restart(60)
        bounds = {"descriptors": 2, "threads": 4, "KiB": 1024}  # gRPC's pool of threads grows when all are busy

        def grown():
            return {what: count - before[what] for what, count in process.used().items()}

        await until(lambda: all(grown()[what] <= bound for what, bound in bounds.items()), found=grown)
        await until(lambda: len(process.names()) <= names)
        await ends_in_order(process)
