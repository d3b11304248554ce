"""The socket on which the gateway says how it is, as its clients find it."""

import asyncio
import contextlib
import json
import stat
import weakref
from dataclasses import replace

import pytest

from dpgateway.daemon import control
from dpgateway.daemon.control import Control, ControlSubject, Times
from dpgateway.kit.observable import Signal
from dpgateway.status import SCHEMA, GatewayStatus, Reloads, ResourceStatus, Status
from dpgateway.status.values import DeviceStatus, DriverStatus, KubeletStatus, PodResourcesStatus
from tests.support.time import hurry
from tests.support.waiting import BUSY, until

QUICK = Times(patience=20, gathering=0.01, look=0.01, hold=0.01)
NOW = "2026-01-01T00:00:00Z"


def status(node):
    kubelet, asked = (
        KubeletStatus(there=False, since=NOW, incarnation=None, api=None, release=None),
        PodResourcesStatus(None, None),
    )
    return Status(SCHEMA, NOW, GatewayStatus("1", 1, node, NOW), Reloads(NOW), kubelet, asked, (), (), ())


class Running:
    """One gateway's socket; ``node`` is what its clients hear."""

    def __init__(self, path, node, *, serves=True, times=QUICK):
        self.path, self.status, self.changed, self.serves = path, status(node), Signal(), serves
        self.asked = []
        ready, configured = ({"gateway": {"node": word}} for word in ("ready", "configured"))
        subject = ControlSubject(self.look, self.changed, lambda: ready, lambda: configured, lambda: self.serves)
        self.task = asyncio.ensure_future(Control(path, subject, times).run())

    def look(self, name):
        self.asked.append(name)
        return self.status

    def change(self, node):
        self.status = status(node)
        self.changed.notify()

    async def end(self):
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.fixture
async def run(short_path):
    started = []

    async def start(node="a", **keys):
        started.append(Running(short_path / "run" / "control.sock", node, **keys))
        await until(lambda: started[-1].task.done() or started[-1].path.exists())
        return started[-1]

    yield start
    for one in started:
        await one.end()


class Client:
    def __init__(self, path):
        self.path = path

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_unix_connection(self.path)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def asks(self, line):
        self.writer.write(f"{line}\n".encode())
        return await self.hears()

    async def hears(self):
        """The node of the next answer; None at the end."""
        line = await self.reader.readline()
        return json.loads(line)["gateway"]["node"] if line else None


async def node(path, line="status"):
    try:
        async with Client(path) as client:
            return await client.asks(line)
    except OSError:
        return None


async def test_who_asks_gets_one_line_of_one_resource_or_of_all(run):
    running = await run()
    async with Client(running.path) as client:
        assert await client.asks("status example.com/a") == "a"
        assert await client.hears() is None
    assert await node(running.path) == "a"
    assert running.asked == ["example.com/a", ""]
    assert await node(running.path, "summary") == "a"
    assert await node(running.path, "configuration") == "configured"
    assert await node(running.path, "readiness") == "ready"


async def test_a_file_of_others_is_never_replaced(short_path):
    path = short_path / "run" / "control.sock"
    path.parent.mkdir(mode=0o700)
    path.write_text("kept")
    running = Running(path, "a")
    with pytest.raises(OSError, match="found a file that is no socket, expected a gateway's socket, or nothing"):
        async with asyncio.timeout(BUSY):
            await running.task
    assert path.read_text() == "kept"
    assert list(path.parent.iterdir()) == [path]


class Attributes(dict[str, str]):
    """A dictionary that can be referred to weakly."""


async def test_a_slow_reader_of_a_summary_holds_no_healthy_device(run):
    patient = replace(QUICK, patience=3600)
    running = await run("a" * 2_000_000, times=patient)  # more than fits into the socket's buffers
    attributes = Attributes()
    kept = weakref.ref(attributes)
    device = DeviceStatus("d", "d", True, None, None, False, False, None, (), (), attributes)
    driver = DriverStatus("d", "1", None, None, None)
    resource = ResourceStatus("e.com/x", True, (), None, driver, devices=(device,))
    running.status = replace(running.status, resources=(resource,))
    del attributes, device, resource
    async with Client(running.path) as client:
        client.writer.write(b"summary\n")
        await client.reader.readexactly(1)
        running.change("b")
        await until(lambda: kept() is None)


async def test_only_its_own_user_can_open_it(run):
    path = (await run()).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_directory_in_which_others_can_write_is_refused(run, short_path):
    (short_path / "run").mkdir()
    (short_path / "run").chmod(0o777)
    running = await run()
    assert isinstance(running.task.exception(), PermissionError)


async def test_who_watches_hears_of_changes_and_of_nothing_else(run):
    running = await run("1")
    async with Client(running.path) as client:
        assert await client.asks("watch") == "1"
        running.status = replace(running.status, time="later")
        running.changed.notify()
        await until(lambda: len(running.asked) == 2)
        running.change("2")
        assert await client.hears() == "2"
        running.change("3")
        assert await client.hears() == "3"


async def test_watchers_that_have_gone_leave_room_for_others(run):
    running = await run("1")
    for _ in range(2 * control.MOST_CLIENTS):
        async with Client(running.path) as client:
            await until(lambda: answered(running.path, "1"))
            assert await client.asks("watch") == "1"


async def test_those_who_watch_lock_nobody_out(run):
    running = await run("1")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2 * control.MOST_WATCHERS):
            client = await stack.enter_async_context(Client(running.path))
            assert await client.asks("watch") == "1"
        assert await client.hears() is None, "it is one too many"
        assert await node(running.path) == "1"


async def test_a_watcher_that_takes_nothing_has_its_time(run):
    running = await run("x" * 5_000_000, times=replace(QUICK, patience=1.5))
    clients = []
    for _ in range(control.MOST_WATCHERS):
        clients.append(await Client(running.path).__aenter__())
        clients[-1].writer.write(b"watch\n")  # at once: to ask, each has no more time than to take the answer
    await until(lambda: len(running.asked) == len(clients))
    running.status = status("a")
    await until(lambda: watched(running))
    for client in clients:
        await client.__aexit__()


async def watched(running):
    """Whether one more can watch: it hears of a change, too."""
    async with Client(running.path) as client:
        first = await client.asks("watch")
        running.change(f"{first}a")
        return first is not None and await client.hears() is not None


async def test_a_directory_that_others_can_write_by_now_is_left(run):
    running = await run("1")
    assert await node(running.path) == "1"
    running.path.parent.chmod(0o777)
    await asyncio.wait([running.task])
    assert isinstance(running.task.exception(), PermissionError)
    assert not running.path.exists()


async def test_a_socket_that_cannot_be_made_is_an_error_of_the_system(run):
    """Not a group of errors, which would be logged as a bug."""
    running = await run("1")
    running.path.unlink()
    (running.path / "x").mkdir(parents=True)  # nothing is renamed over a directory
    await asyncio.wait([running.task])
    assert isinstance(running.task.exception(), OSError)


@pytest.mark.parametrize("line", ["", "stop", "x" * 5000])
async def test_nothing_else_can_be_asked(run, line):
    assert await node((await run()).path, line) is None


@pytest.mark.parametrize("sent", [b"", b"stat", b"status\n"])
async def test_there_are_few_clients_and_one_that_sends_or_takes_nothing_has_its_time(run, sent):
    running = await run("x" * 5_000_000, times=replace(QUICK, patience=120))
    clients = [await Client(running.path).__aenter__() for _ in range(control.MOST_CLIENTS)]
    for client in clients:
        client.writer.write(sent)
    await until(lambda: refused(running.path))
    hurry(100)
    running.status = status("a")
    await until(lambda: answered(running.path, "a"))
    for client in clients:
        await client.__aexit__()


async def refused(path):
    return await node(path) is None


async def answered(path, by):
    return await node(path) == by


class TestTwoGateways:
    async def test_the_newer_one_answers_as_soon_as_it_serves(self, run):
        old, new = await run("old"), await run("new", serves=False)
        async with Client(old.path) as client:
            assert await client.asks("watch") == "old"
            assert await node(old.path) == "old"
            new.serves = True
            await until(lambda: answered(old.path, "new"))
            old.change("still there")
            assert await client.hears() == "still there"

    async def test_the_end_of_the_older_one_takes_nothing_away(self, run):
        old, new = await run("old"), await run("new")
        await until(lambda: answered(old.path, "new"))
        await old.end()
        assert await node(new.path) == "new"

    async def test_the_older_one_answers_again_when_the_newer_one_has_ended(self, run):
        old, new = await run("old"), await run("new")
        await until(lambda: answered(old.path, "new"))
        await new.end()
        await until(lambda: answered(old.path, "old"))

    async def test_what_a_killed_one_left_behind_is_replaced(self, run, short_path):
        (short_path / "run").mkdir(0o700)
        server = await asyncio.start_unix_server(lambda *_: None, short_path / "left")
        (short_path / "left").rename(short_path / "run/control.sock")
        server.close()
        (short_path / "run/control.sock.12-345").touch()
        (short_path / "run/control.sock.old").touch()
        running = await run("new", serves=False)
        await until(lambda: answered(running.path, "new"))
        assert {one.name for one in running.path.parent.iterdir()} == {"control.sock", "control.sock.old"}


async def test_it_leaves_nothing_behind(run):
    running = await run()
    await running.end()
    assert list(running.path.parent.iterdir()) == []
