"""What a client may cost."""

import asyncio
import contextlib
import itertools
import resource
import select
import socket

import pytest

from dpgateway.web.answers import Limits
from tests.support.http import ask, cut, read_reply
from tests.support.waiting import turns, until

SLOW = 1000


def quick(asking, taking=0.6):
    """Seconds after which who asks for nothing, or doesn't take the answer, is cut."""
    limits = Limits(asking=asking, taking=taking, connections=8)
    return pytest.mark.parametrize("pages", [limits], indirect=True, ids=[""])


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * SLOW)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.asynccontextmanager
async def connected(port, sent=b""):
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(sent)  # at once: whoever asks for nothing is cut soon
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        yield reader, writer
    finally:
        writer.close()


def request(path="/text", method="GET", more=""):
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n".encode()


def slow_page(pages):
    """Adds /slow, which answers once what is returned is set."""
    go_on = asyncio.Event()

    async def slow():
        await go_on.wait()
        return await pages.table["/text"]()

    pages.table["/slow"] = slow
    return go_on


@quick(2)
async def test_thousand_slow_clients(port, many_descriptors):
    parts = itertools.cycle([b"", b"GET /text HT", request()[:-2], request(more="content-length: 9\r\n")])
    slow = []
    for number in range(SLOW):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        slow.append(one)
        if number % 50 == 0:  # a backlog that is full has clients try again only after a second
            assert (await ask(port, "/text")).status == 200
    for one in slow:
        with contextlib.suppress(OSError):
            one.send(next(parts))
    assert (await ask(port, "/text")).status == 200
    open_ = [one for one in slow if not ended(one)]
    assert len(open_) <= 8
    await until(lambda: all(map(ended, open_)))
    for one in slow:
        one.close()


def ended(one):
    try:
        while one.recv(1000):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


async def test_a_connection_can_be_used_again(port):
    async with connected(port) as (reader, writer):
        for _ in range(3):
            writer.write(request())
            assert (await read_reply(reader)).body == b"here"


async def test_longest_idle_goes_first(port):
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for _ in range(8):  # idle one after the other
            clients.append(await stack.enter_async_context(connected(port, request())))
            await read_reply(clients[-1][0])
        first_reader, first_writer = clients[0]
        first_writer.write(request())
        await read_reply(first_reader)
        assert (await ask(port, "/text")).status == 200
        assert not await cut(clients[1][0])
        first_writer.write(request())
        assert (await read_reply(first_reader)).body == b"here"


async def test_busy_outlives_idle(pages, port):
    go_on = slow_page(pages)
    async with connected(port, request("/slow")) as (reader, _), contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            other, _ = await stack.enter_async_context(connected(port, request()))
            await read_reply(other)
        go_on.set()
        assert (await read_reply(reader)).body == b"here"


async def test_work_ends_with_its_connection(pages, port):
    """Once a connection that was evicted left its request running."""
    never, began, running = asyncio.Event(), [], []

    async def page():
        began.append(1)
        running.append(1)
        try:
            await never.wait()
        finally:
            running.pop()

    pages.table["/never"] = page
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(40):
            await stack.enter_async_context(connected(port, request("/never")))
            await until(lambda: began)
            began.clear()
            await until(lambda: len(running) <= 8)
    await until(lambda: not running)


async def test_compression_ends_with_its_connection(pages, port):
    pages.text = "".join(map(str, range(500_000)))
    before = len(asyncio.all_tasks())
    clients = []
    for _ in range(40):
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(request(more="accept-encoding: gzip\r\n"))
        one.setblocking(False)
        clients.append(one)
        await turns(4)
    await until(lambda: sum(map(ended, clients)) >= 32)
    assert len(asyncio.all_tasks()) <= before + 8 + 1
    for one in clients:
        one.close()


@quick(0.3, taking=20)
async def test_answers_may_take_longer(pages, port):
    go_on = slow_page(pages)
    async with connected(port, request("/slow")) as (reader, _), connected(port) as (silent, _):
        await cut(silent)
        go_on.set()
        assert (await read_reply(reader)).status == 200


@quick(0.3, taking=20)
async def test_answers_to_pipelined_requests_may_take_longer(pages, port):
    go_on = slow_page(pages)
    async with connected(port, request() + request("/slow")) as (reader, _):
        assert (await read_reply(reader)).status == 200
        async with connected(port) as (silent, _):
            await cut(silent)
        go_on.set()
        assert (await read_reply(reader)).status == 200


@quick(0.3)
async def test_slow_reader_is_cut(pages, port):
    pages.text = "x" * 20_000_000
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(request())
        poll = select.poll()
        poll.register(one, select.POLLHUP)
        await until(lambda: poll.poll(0))
        one.setblocking(False)
        assert received(one) < 20_000_000


def received(one):
    count = 0
    with contextlib.suppress(OSError):
        while got := len(one.recv(1_000_000)):
            count += got
    return count


@pytest.mark.parametrize("sent", [b"x" * 9000, request()[:-2] + b"a: " + b"b" * 9000, b"\0\r\n\r\n"], ids=len)
async def test_wrong_requests_are_not_logged(port, caplog, sent):
    async with connected(port, sent) as (reader, _):
        assert (await read_reply(reader)).status == 400
        assert await cut(reader) == b"Invalid HTTP request received."
    assert caplog.messages == []


async def test_wrong_bodies_are_not_logged(pages, port, caplog):
    """The body is wrong before the request has its answer, while that is sent, and after it."""
    pages.text = "x" * 20_000_000
    chunked = request(more="transfer-encoding: chunked\r\n")
    async with connected(port, chunked + b"zzz\r\n") as (reader, _):
        assert (await read_reply(reader)).status == 400
        await cut(reader)
    async with connected(port, chunked) as (reader, writer):
        await reader.readexactly(1)
        writer.write(b"zzz\r\n")
        await cut(reader)
    async with connected(port, chunked) as (reader, writer):
        assert (await read_reply(reader)).status == 200
        writer.write(b"zzz\r\n")
        await cut(reader)
    assert (await ask(port, "/text")).status == 200
    assert caplog.messages == []


async def test_bodies_and_upgrades_are_ignored(port, caplog):
    more = "content-length: 3\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    async with connected(port, request(more=more) + b"abc" + request()) as (reader, _):
        for _ in range(2):
            assert (await read_reply(reader)).status == 200
    assert caplog.messages == []


def test_documented_limits():
    assert Limits() == Limits(asking=5.0, taking=10.0, connections=32)
