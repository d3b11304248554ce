"""What is answered to whom."""

import gzip
import weakref
import zlib

import pytest

from dpgateway.web.answers import TEXT, Application, Response
from tests.support.http import ask


async def test_a_page_says_what_it_says(port):
    reply = await ask(port, "/text?a=b")
    assert (reply.status, reply.body) == (200, b"here")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["date"].endswith("GMT")


async def test_content_security_policy(port):
    headers = (await ask(port, "/text")).headers
    policy = dict(part.split(maxsplit=1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert set(policy.values()) == {"'none'", "'self'"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_head_has_the_headers_alone(port):
    reply = await ask(port, "/text", "HEAD")
    assert (reply.status, reply.headers["content-length"], reply.body) == (200, "4", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
async def test_nothing_can_be_changed(port, method):
    reply = await ask(port, "/text", method)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/text/", "/../text", "http://127.0.0.1/text", "*"])
async def test_no_other_page_is_there(port, path):
    reply = await ask(port, path)
    assert (reply.status, b"/text" in reply.body) == (404, True)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.1.2.3:9480", "[::1]:9480"])
async def test_names_of_this_machine_are_answered(port, host):
    assert (await ask(port, "/text", host=host)).status == 200


@pytest.mark.parametrize("host", ["example.com", "localhost.example.com", "127.0.0.1.example.com:9480", "10.0.0.1", ""])
async def test_foreign_names_are_refused(port, host):
    assert (await ask(port, "/text", host=host)).status == 421


async def test_a_large_answer_is_whole(pages, port):
    pages.text = "0123456789" * 100_000
    assert (await ask(port, "/text")).body == pages.text.encode()


async def test_bug_of_one_page(port, caplog):
    assert (await ask(port, "/bug")).status == 500
    assert "a bug: the page /bug failed: ZeroDivisionError: oops" in caplog.messages
    assert (await ask(port, "/text")).status == 200


@pytest.mark.parametrize("accepted", ["gzip", "deflate, GZIP;q=0.5", "br;q=1.0, gzip; q=1"])
async def test_large_answer_in_gzip(pages, port, accepted):
    pages.text = "0123456789" * 100_000
    reply = await ask(port, "/text", **{"accept-encoding": accepted})
    assert (reply.headers["content-encoding"], reply.headers["vary"]) == ("gzip", "accept-encoding")
    assert gzip.decompress(reply.body) == pages.text.encode()
    assert len(reply.body) < 10_000


@pytest.mark.parametrize("accepted", ["", "identity", "gzip;q=0", "gzip;q=0.0", "xgzip", "deflate"])
async def test_large_answer_to_others(pages, port, accepted):
    pages.text = "0123456789" * 1000
    reply = await ask(port, "/text", **{"accept-encoding": accepted})
    assert "content-encoding" not in reply.headers
    assert reply.body == pages.text.encode()


class Compressor:
    """A compressor that can be referred to weakly."""

    def __init__(self, *words, **keys):
        self._own = COMPRESSOR(*words, **keys)
        self.compress, self.flush = self._own.compress, self._own.flush


COMPRESSOR = zlib.compressobj


async def test_a_client_that_reads_slowly_holds_no_compressor(monkeypatch):
    made: list[weakref.ref[Compressor]] = []

    def compressor(*words, **keys):
        one = Compressor(*words, **keys)
        made.append(weakref.ref(one))
        return one

    monkeypatch.setattr(zlib, "compressobj", compressor)
    held: list[Compressor | None] = []

    async def page():
        return Response(TEXT, b"0123456789" * 1000)

    async def receive():
        raise AssertionError("a GET has no body")

    async def send(message):
        held.extend(one() for one in made)

    scope = {"path": "/", "method": "GET", "headers": [(b"accept-encoding", b"gzip")]}
    await Application({"/": page}, local=False)(scope, receive, send)
    assert (len(made), set(held)) == (1, {None})


async def test_small_answer_stays_plain(port):
    reply = await ask(port, "/text", **{"accept-encoding": "gzip"})
    assert ("content-encoding" in reply.headers, reply.body) == (False, b"here")
