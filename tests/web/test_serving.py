"""Where the pages are, and what becomes of that."""

import asyncio
import socket

import pytest

from dpgateway.config import WebSettings
from dpgateway.web.answers import Limits
from tests.support.http import ask, cut

PATIENT = Limits(asking=60.0)


async def refused(port):
    try:
        await ask(port, "/text")
    except ConnectionError:
        return True
    return False


async def test_pages_follow_the_configuration(pages):
    first = await pages.port()
    pages.wanted.set(WebSettings())
    await pages.said("the pages have left")
    assert await refused(first)
    pages.wanted.set(WebSettings("127.0.0.1:0"))
    second = await pages.port()
    assert (await ask(second, "/text")).status == 200
    pages.wanted.set(WebSettings("[::1]:0"))
    await pages.said("the pages are at http://[::1]:")
    assert await refused(second)


async def test_any_name_on_a_network_address(pages):
    await pages.port()
    pages.wanted.set(WebSettings("0.0.0.0:0"))
    text = await pages.said("the pages are at http://0.0.0.0:")
    assert (await ask(int(text.rstrip("/").rpartition(":")[2]), "/text", host="node-1.example.com")).status == 200


async def test_taken_port_is_tried_again(pages):
    await pages.port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        pages.wanted.set(WebSettings(f"127.0.0.1:{port}"))
        await pages.said(f"the pages can't be served at http://127.0.0.1:{port}/, which is tried again: [Errno 98] ")
    assert await pages.port() == port
    assert (await ask(port, "/text")).status == 200


@pytest.mark.parametrize("pages", [PATIENT], indirect=True, ids=["patient"])
async def test_end_waits_for_no_client(pages, port, caplog):
    asked = asyncio.Event()

    async def slow():
        asked.set()
        await asyncio.get_running_loop().create_future()

    pages.table["/slow"] = slow
    asking = asyncio.ensure_future(ask(port, "/slow"))
    await asked.wait()
    idle, writer = await asyncio.open_connection("127.0.0.1", port)
    assert (await ask(port, "/text")).status == 200
    pages.task.cancel()
    async with asyncio.timeout(PATIENT.asking - 0.5):
        await asyncio.wait({pages.task})
    async with asyncio.timeout(PATIENT.asking - 0.5):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asking
        assert not await cut(idle)
    assert await refused(port)
    writer.close()
    assert caplog.messages == []
