"""Requests to an API server that fails in each of the ways that servers, balancers and files fail."""

from __future__ import annotations

import asyncio
import json
import math
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dpgateway.cluster.account import LONGEST, Account
from dpgateway.cluster.errors import ClusterError
from dpgateway.cluster.server import REPEATED, ApiServer, ObjectKind
from dpgateway.cluster.transport import LARGEST, LONGEST_LINE
from dpgateway.cluster.watching import WatchedObjects
from dpgateway.dra.slices.layout import MOST_DEVICES
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway_simulator.apiserver import SimulatedApiServer as Simulated
from dpgateway_simulator.apiserver import Store
from dpgateway_simulator.apiserver.admitting import LONGEST_STRING, MOST_ATTRIBUTES
from tests.support.hung import hung_disk
from tests.support.inline import Inline
from tests.support.time import hurry, in_virtual_time, skip
from tests.support.waiting import BUSY, turns, until

NODE = ObjectKind.NODE


async def refused(asked: Any) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        await asked
    return caught.value


# the account


async def test_a_rotated_token_is_read_when_it_is_refused(
    server: ApiServer, simulated: Simulated, tmp_path: Path
) -> None:
    simulated.token = "first"  # noqa: S105  of a simulated server
    assert await server.get(NODE, "n1")
    simulated.token = "second"  # noqa: S105  of a simulated server
    (tmp_path / "token").write_text("second\n")
    assert await server.get(NODE, "n1")
    assert simulated.asked == ["GET nodes n1"] * 3


async def test_a_watch_gets_the_rotated_token(server: ApiServer, simulated: Simulated, tmp_path: Path) -> None:
    simulated.token = "first"  # noqa: S105  of a simulated server
    watched = WatchedObjects(server, NODE, {}, Complaint(bind("test")))
    task = asyncio.create_task(watched.run())
    await until(lambda: "GET nodes watch" in simulated.asked)
    simulated.token = "second"  # noqa: S105  of a simulated server
    (tmp_path / "token").write_text("second")
    simulated.hang_up()
    await until(lambda: simulated.asked[-1] == "GET nodes watch" and len(simulated.asked) > 2)
    simulated.store.create("nodes", "", {"metadata": {"name": "n2"}})
    await watched.objects.wait_for(lambda found: found and "n2" in found)
    task.cancel()


async def test_a_token_that_stays_wrong_names_its_file(server: ApiServer, simulated: Simulated, tmp_path: Path) -> None:
    simulated.token = "another"  # noqa: S105  of a simulated server
    error = await refused(server.get(NODE, "n1"))
    assert error.status == 401
    assert str(tmp_path / "token") in str(error)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe", b"two\nlines"])
async def test_a_file_that_is_no_token_is_named(simulated: Simulated, tmp_path: Path, content: bytes | None) -> None:
    token = tmp_path / "other"
    if content is not None:
        token.write_bytes(content)
    server = ApiServer(Account(simulated.url, None, token))
    assert str(token) in str(await refused(server.get(NODE, "n1")))
    token.write_text("good")
    assert await server.get(NODE, "n1")
    await server.close()


async def test_an_unknown_server_is_named_before_certificates(tmp_path: Path) -> None:
    server = ApiServer(Account("", tmp_path / "none.crt", tmp_path / "none"))
    assert "the API server is unknown" in str(await refused(server.get(NODE, "n1")))


def authority(folder: Path, name: str) -> ssl.SSLContext:
    """A server's certificate, signed by itself; ``NAME.crt`` is the one that clients trust."""
    crt, key = folder / f"{name}.crt", folder / f"{name}.key"
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", str(key), "-out", str(crt), "-days", "2", "-subj", f"/CN={name}")
    added = ("-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run([*made, *files, *added], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(crt, key)
    return context


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[Simulated]:
    one = Simulated()
    one.tls = authority(tmp_path, "one")
    await one.up()
    one.store.create("nodes", "", {"metadata": {"name": "n1"}})
    yield one
    await one.down()


@pytest.fixture
def account(secure: Simulated, tmp_path: Path) -> Account:
    (tmp_path / "ca.crt").write_bytes((tmp_path / "one.crt").read_bytes())
    (tmp_path / "token").write_text("t")
    return Account(secure.url, tmp_path / "ca.crt", tmp_path / "token")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
async def test_certificates_that_are_no_file_are_named(account: Account, make: Callable[[Path], None]) -> None:
    """A pipe would hold up each later read, too."""
    assert account.ca
    account.ca.write_text("#" * LONGEST + "\n" + account.ca.read_text())  # there is no limit
    right = account.ca.rename(account.ca.with_name("right"))
    make(account.ca)
    server = ApiServer(account)
    assert f"{account.ca}: expected " in str(await refused(server.get(NODE, "n1")))
    account.ca.rename(account.ca.with_name("wrong"))
    right.rename(account.ca)
    assert await server.get(NODE, "n1")
    await server.close()


async def test_replaced_certificates_are_read(secure: Simulated, account: Account, tmp_path: Path) -> None:
    server = ApiServer(account)
    assert await server.get(NODE, "n1")
    await secure.down()
    secure.tls = authority(tmp_path, "two")
    await secure.up()
    assert "certificate" in str(await refused(server.get(NODE, "n1"))).lower()
    for name in ("one", "two"):  # a second time: the client before the last one is closed
        (tmp_path / "new").write_bytes((tmp_path / f"{name}.crt").read_bytes())
        (tmp_path / "new").rename(tmp_path / "ca.crt")
        if name == "two":
            assert await server.get(NODE, "n1")
        else:
            await refused(server.get(NODE, "n1"))
    await server.close()


@pytest.mark.parametrize("content", [None, "", "no certificate"])
async def test_certificates_that_cant_be_read_are_named(account: Account, content: str | None) -> None:
    assert account.ca
    account.ca.unlink()
    if content is not None:
        account.ca.write_text(content)
    server = ApiServer(account)
    assert str(account.ca) in str(await refused(server.get(NODE, "n1")))
    await server.close()


class SlowDisk(Inline):
    """What is read arrives once it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    def call(self, name: str, function: Callable[[], Any], seconds: float = math.inf) -> asyncio.Future[Any]:
        read = super().call(name, function, seconds)

        async def arrives() -> Any:
            await self.released.wait()
            return await read

        return asyncio.ensure_future(arrives())


async def test_a_server_that_is_closed_while_certificates_are_read(simulated: Simulated, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    disk = SlowDisk()
    disk.released.set()
    server = ApiServer(Account(simulated.url, None, tmp_path / "token"), threads=disk)
    listing = await server.list(NODE, {})
    disk.released.clear()
    watch: Any = server.changes(NODE, {}, listing.version, 300)
    first = asyncio.ensure_future(anext(watch))
    await turns()
    await server.close()
    disk.released.set()
    await until(lambda: "GET nodes watch" in simulated.asked)
    simulated.store.create("nodes", "", {"metadata": {"name": "n2"}})
    assert (await first)[0] == "ADDED"
    await watch.aclose()
    await server.close()


@pytest.mark.parametrize("file", ["ca", "token"])
async def test_a_hung_disk_keeps_no_loop_from_its_work(
    simulated: Simulated, tmp_path: Path, short_path: Path, file: str
) -> None:
    """The token is on it from the first rotation on."""
    token, ca = tmp_path / "token", short_path / "disk/ca.crt" if file == "ca" else None
    token.write_text("first")
    server = ApiServer(Account(simulated.url, ca, token))
    with hung_disk(short_path / "disk") as disk:
        if file == "token":
            simulated.token = "first"  # noqa: S105  of a simulated server
            assert await server.get(NODE, "n1")
            simulated.token = "second"  # noqa: S105  of a simulated server
            token.unlink()
            token.symlink_to(short_path / "disk/token")
        asked = asyncio.create_task(refused(server.get(NODE, "n1")))
        await until(disk.asked.is_set)
        assert disk.hangs
        hurry(20)
        await until(asked.done)
        assert f"{token} can't be read: the disk hasn't answered for 5 s" in str(asked.result())
    await server.close()


# the server


@pytest.mark.parametrize("status", [429, 503])
async def test_a_request_that_was_turned_away_is_sent_again(
    server: ApiServer, simulated: Simulated, status: int
) -> None:
    simulated.faults.append(("POST nodes", status, {"Retry-After": "1"}))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await server.create(NODE, {"metadata": {"name": "n2"}})
    assert loop.time() - began >= 1


async def test_a_server_that_asks_for_more_than_the_deadline_is_heard(server: ApiServer, simulated: Simulated) -> None:
    simulated.faults.append(("GET nodes", 429, {"Retry-After": "45"}))
    error = await refused(server.get(NODE, "n1"))
    assert (error.status, error.after) == (429, 45.0)


@pytest.mark.parametrize("said", ["", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_without_seconds_nothing_is_sent_again(server: ApiServer, simulated: Simulated, said: str) -> None:
    simulated.faults.append(("GET nodes", 503, {"Retry-After": said} if said else {}))
    error = await refused(server.get(NODE, "n1"))
    assert (error.status, error.after) == (503, 0.0)
    assert len(simulated.asked) == 1


async def test_a_redirect_isnt_followed(server: ApiServer, simulated: Simulated) -> None:
    simulated.faults.append(("GET nodes", 307, {"Location": f"{simulated.url}/api/v1/nodes/elsewhere"}))
    assert (await refused(server.get(NODE, "n1"))).status == 307
    assert len(simulated.asked) == 1


async def test_the_environments_proxies_are_ignored(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    assert await server.get(NODE, "n1")


async def test_a_server_that_is_down_and_back_is_asked_again(server: ApiServer, simulated: Simulated) -> None:
    assert await server.get(NODE, "n1")
    await simulated.down()
    assert (await refused(server.get(NODE, "n1"))).status == 0
    await simulated.up()
    assert await server.get(NODE, "n1")


async def test_a_patient_request_waits_for_a_server_that_is_away(server: ApiServer, simulated: Simulated) -> None:
    await simulated.down()
    asked = asyncio.create_task(server.get(NODE, "n1", patience=30))
    await until(lambda: server.up is False)
    await simulated.up()
    simulated.faults.append(("GET nodes", 500, {}))
    assert await asked


async def test_patience_isnt_for_a_refusal(server: ApiServer, simulated: Simulated) -> None:
    simulated.faults.append(("GET nodes", 403, {}))
    assert (await refused(server.get(NODE, "n1", patience=30))).status == 403
    assert await server.get(NODE, "none", patience=30) is None
    assert len(simulated.asked) == 2


async def test_requests_are_counted(server: ApiServer, simulated: Simulated) -> None:
    await server.get(NODE, "n1")
    await server.list(ObjectKind.SLICE, {})
    simulated.faults.append(("PUT resourceclaims", 403, {}))
    claim = {"metadata": {"name": "c", "namespace": "default"}}
    await refused(server.replace(ObjectKind.CLAIM, claim))
    await simulated.down()
    await refused(server.delete(ObjectKind.SLICE, "s"))
    assert server.requests == {
        ("get", "nodes", "200"): 1,
        ("list", "resourceslices", "200"): 1,
        ("update", "resourceclaims", "403"): 1,
        ("delete", "resourceslices", "none"): 1,
    }


# a server that says what a test wants

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()


def whole(body: bytes, head: str = HEAD) -> bytes:
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chunk(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def line(name: str, what: str = "ADDED") -> bytes:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": "8"}}
    return json.dumps({"type": what, "object": node}).encode() + b"\n"


class RawServer:
    """Gives each request the next of its answers, then ends the connection, unless the answer is to hang."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.hangs = False
        self.asked: list[bytes] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            if self.answers:
                writer.write(self.answers.pop(0))
            if self.hangs:
                await reader.read()
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    one = RawServer()
    listening = await asyncio.start_server(one.connected, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    yield one
    listening.close()


@pytest.fixture
async def of_raw(raw: Any, tmp_path: Path) -> AsyncIterator[Callable[..., ApiServer]]:
    made: list[ApiServer] = []
    (tmp_path / "token").write_text("t")

    def make(deadline: float = 30.0) -> ApiServer:
        made.append(ApiServer(Account(raw.url, None, tmp_path / "token"), deadline))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def test_a_server_that_hangs_is_given_up(raw: RawServer, of_raw: Any) -> None:
    raw.hangs = True
    error = await refused(of_raw(deadline=0.2).get(NODE, "n1"))
    assert (error.status, "no answer for 0.2 s" in str(error)) == (0, True)


async def test_an_answer_that_stops_halfway_is_given_up(raw: RawServer, of_raw: Any) -> None:
    raw.hangs = True
    raw.answers.append(CHUNKED + chunk(b'{"kind":'))
    assert "no answer" in str(await refused(of_raw(deadline=0.2).get(NODE, "n1")))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        whole(b"not JSON"),
        whole(b"[1, 2]"),
        whole(b"{}")[:-1],
        CHUNKED + chunk(b'{"kind":'),
    ],
)
async def test_an_answer_that_is_none_is_an_error(raw: RawServer, of_raw: Any, answer: bytes) -> None:
    raw.answers.append(answer)
    assert (await refused(of_raw().get(NODE, "n1"))).status == 0


@pytest.mark.parametrize("kind", ["", "Content-Type: text/html\r\n", "Content-Type: application/json\r\n"])
async def test_a_balancers_refusal_has_its_status(raw: RawServer, of_raw: Any, kind: str) -> None:
    raw.answers.append(whole(b"<h1>Bad gateway</h1>", f"HTTP/1.1 502 Bad Gateway\r\n{kind}"))
    assert (await refused(of_raw().get(NODE, "n1"))).status == 502


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
async def test_a_balancers_404_says_nothing_of_the_object(raw: RawServer, of_raw: Any, kind: str) -> None:
    """Else claims would be refused, and records of claims that nobody ends taken for those of claims that are gone."""
    nothing = whole(b'{"error": "no backend"}', f"HTTP/1.1 404 Not Found\r\nContent-Type: {kind}\r\n")
    raw.answers += [nothing, nothing]
    assert (await refused(of_raw().get(NODE, "n1"))).status == 404
    assert (await refused(of_raw().delete(NODE, "n1"))).status == 404
    node = json.loads(line("n1"))["object"]
    raw.answers += [nothing, whole(json.dumps(node).encode())]
    assert await of_raw().get(NODE, "n1", patience=30.0)


async def test_a_server_without_the_api_says_nothing_of_the_object(server: ApiServer, simulated: Simulated) -> None:
    """It gives the reason of an object that isn't there, but names none."""
    simulated.unserved.add("nodes")
    assert (await refused(server.get(NODE, "n1"))).status == 404
    simulated.unserved.clear()
    assert await server.get(NODE, "n2") is None


async def test_an_answer_that_is_too_large_is_refused(raw: RawServer, of_raw: Any) -> None:
    raw.answers.append(whole(b'{"a": "' + b"x" * LARGEST + b'"}'))
    assert str(LARGEST) in str(await refused(of_raw().get(NODE, "n1")))


async def test_slices_as_large_as_they_get_are_listed(server: ApiServer, simulated: Simulated) -> None:
    """Of 6,400 devices with as many attributes as the API has."""
    said = {f"attribute-{number:022}": {"string": "x" * LONGEST_STRING} for number in range(MOST_ATTRIBUTES)}
    devices = [{"name": f"device-{number}", "attributes": said} for number in range(MOST_DEVICES)]
    for number in range(100):
        name = f"{number:04}-slice"
        one = {"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"pool": {"name": "p"}, "devices": devices}}
        simulated.store.objects["resourceslices", "", name] = one
    assert len((await server.list(ObjectKind.SLICE, {})).objects) == 100


async def test_answers_arent_compressed(raw: RawServer, of_raw: Any) -> None:
    raw.answers.append(whole(b"{}"))
    await of_raw().get(NODE, "n1")
    assert b"accept-encoding: identity" in raw.asked[0].lower()
    assert b"user-agent: dpgateway" in raw.asked[0].lower()


async def changes(server: ApiServer) -> tuple[list[str], str]:
    """The changes of a watch until it fails, and why."""
    found: list[str] = []
    watch = server.changes(NODE, {}, "7", 300)
    while True:
        try:
            what, one = await anext(watch)
        except ClusterError as error:
            return found, str(error)
        found.append(f"{what} {one['metadata']['name']}")


@pytest.mark.parametrize("rest", [line("n2")[:20], chunk(line("n2")[:20]) + b"0\r\n\r\n", chunk(b"null\n"), b"xyz"])
async def test_a_watch_that_is_cut_off_fails(raw: RawServer, of_raw: Any, rest: bytes) -> None:
    raw.answers.append(CHUNKED + chunk(line("n1")) + rest)
    assert (await changes(of_raw()))[0] == ["ADDED n1"]


UNSOUND = [
    {},
    {"metadata": None},
    {"metadata": {"name": "n2"}},
    {"metadata": {"name": 2, "resourceVersion": "8"}},
    {"metadata": {"name": "n2", "resourceVersion": "new"}},
]


@pytest.mark.parametrize("one", UNSOUND, ids=str)
async def test_an_object_without_a_name_or_a_version_is_an_error(raw: RawServer, of_raw: Any, one: Any) -> None:
    listing = {"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": [one]}
    raw.answers.append(whole(json.dumps(listing).encode()))
    assert (await refused(of_raw().list(NODE, {}))).status == 0
    change = json.dumps({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Node", **one}}).encode()
    raw.answers.append(CHUNKED + chunk(line("n1")) + chunk(change + b"\n"))
    assert (await changes(of_raw()))[0] == ["ADDED n1"]


UNSOUND_SLICES = [
    {},
    {"pool": None},
    {"pool": {"name": 1}},
    {"pool": {"name": "p", "generation": "new"}},
    {"pool": {"name": "p"}, "devices": [{}]},
    {"pool": {"name": "p"}, "devices": "none"},
]


@pytest.mark.parametrize("spec", UNSOUND_SLICES, ids=str)
async def test_a_slice_that_cant_be_read_is_an_error(raw: RawServer, of_raw: Any, spec: Any) -> None:
    slices, metadata = ObjectKind.SLICE, {"name": "s", "resourceVersion": "8"}
    one = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
    listing = {"kind": "ResourceSliceList", "metadata": {"resourceVersion": "7"}, "items": [one]}
    raw.answers += [whole(json.dumps(found).encode()) for found in (listing, one, one, one)]
    asked = (
        of_raw().list(slices, {}),
        of_raw().replace(slices, one),
        of_raw().create(slices, one),
        of_raw().create(slices, one, dry_run=True),
    )
    for it in asked:
        assert (await refused(it)).status == 0


async def test_many_lines_of_a_watch_may_be_more_than_one_may(raw: RawServer, of_raw: Any) -> None:
    long = line("n" * (LONGEST_LINE // 4))
    raw.answers.append(CHUNKED + b"".join(chunk(long) for _ in range(6)) + chunk(b"x" * (LONGEST_LINE + 1)))
    found, why = await changes(of_raw())
    assert len(found) == 6
    assert str(LONGEST_LINE) in why


async def test_a_text_with_another_end_of_a_line(raw: RawServer, of_raw: Any) -> None:
    """U+0085: Go's JSON has it as it is, and Python's lines end there."""
    before, after = line("n|2").split(b"|")
    raw.answers.append(CHUNKED + chunk(before + b"\xc2") + chunk(b"\x85" + after) + chunk(line("n3")))
    assert (await changes(of_raw()))[0] == ["ADDED n\x852", "ADDED n3"]


async def test_a_watch_in_which_nothing_happens_goes_on(simulated: Simulated, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    server = ApiServer(Account(simulated.url, None, tmp_path / "token"), deadline=2.0)
    watch = asyncio.ensure_future(anext(server.changes(NODE, {}, str(simulated.store.version), 3)))
    await until(lambda: simulated.asked.count("GET nodes watch") >= 2 or watch.done())
    simulated.store.create("nodes", "", {"metadata": {"name": "n2"}})
    assert (await watch)[1]["metadata"]["name"] == "n2"
    await server.close()


async def test_watches_that_end_at_once_are_begun_again_after_pauses(raw: RawServer, of_raw: Any) -> None:
    raw.answers += [CHUNKED + b"0\r\n\r\n"] * 4 + [CHUNKED + chunk(line("n1"))]
    watch = of_raw(deadline=300.0).changes(NODE, {}, "7", 300)
    hurry(10)
    loop = asyncio.get_running_loop()
    began = loop.time()
    first = asyncio.ensure_future(anext(watch))
    await until(first.done)
    assert first.result()[1]["metadata"]["name"] == "n1"
    assert loop.time() - began >= (1 + 2 + 4 + 8) / 2


async def test_a_silent_watch_is_given_up(raw: RawServer, of_raw: Any) -> None:
    raw.answers.append(CHUNKED)
    raw.hangs = True
    server = of_raw(deadline=0.1)
    with pytest.raises(ClusterError, match="no answer"):
        await anext(server.changes(NODE, {}, "7", 0))


async def test_a_watch_that_isnt_accepted_is_given_up(raw: RawServer, of_raw: Any) -> None:
    """An accepted one may be silent for minutes."""
    raw.hangs = True
    async with asyncio.timeout(BUSY):
        found, why = await changes(of_raw(deadline=0.2))
    assert (found, "no answer for 0.2 s" in why) == ([], True)


@pytest.fixture
async def watched(server: ApiServer) -> AsyncIterator[WatchedObjects]:
    one = WatchedObjects(server, NODE, {}, Complaint(bind("test")))
    task = asyncio.create_task(one.run())
    await one.objects.wait_for(lambda found: found is not None)
    yield one
    task.cancel()
    await asyncio.wait({task})


async def test_a_forgotten_version_is_followed_by_a_list(watched: WatchedObjects, simulated: Simulated) -> None:
    await until(lambda: "GET nodes watch" in simulated.asked)
    simulated.store.create("nodes", "", {"metadata": {"name": "n2"}})
    await watched.objects.wait_for(lambda found: "n2" in (found or ()))
    simulated.store.delete(("nodes", "", "n2"))
    simulated.store.compact()
    simulated.hang_up()
    await watched.objects.wait_for(lambda found: "n2" not in (found or ()))
    assert simulated.asked.count("GET nodes") == 2


class Overtaken(Store):
    """The answer to a list may come after that to a later write."""

    write: Callable[[], object] | None = None

    def list(self, *selected: Any) -> Any:
        found = super().list(*selected)
        if self.write is not None:
            asyncio.get_running_loop().call_soon(self.write)
        return found


@pytest.mark.parametrize("simulated", [Overtaken()], indirect=True)
async def test_a_write_during_a_list_is_not_lost(watched: WatchedObjects, simulated: Simulated) -> None:
    """Else what was created would be taken for deleted, and created once more."""
    history = list[str]()

    def write() -> None:
        simulated.store.write = None  # type: ignore[attr-defined]
        watched.wrote(simulated.store.update(("nodes", "", "n1"), lambda it: it.update(spec={"podCIDR": "10.0.0.0"})))
        watched.wrote(simulated.store.create("nodes", "", {"metadata": {"name": "n2"}}))
        watched.objects.subscribe(lambda: history.append(f"{len(watched.objects.value or ())} {watched.objects.value}"))

    simulated.store.write = write  # type: ignore[attr-defined]
    await until(lambda: "GET nodes watch" in simulated.asked)
    simulated.hang_up()
    await until(lambda: simulated.asked.count("GET nodes watch") == 2)
    assert all(text.startswith("2") and "podCIDR" in text for text in history)


@pytest.mark.parametrize("fault", [(429, {"Retry-After": "1"}), (503, {}), (500, {}), (410, {})])
async def test_a_watch_that_is_refused_begins_again(
    watched: WatchedObjects, simulated: Simulated, fault: tuple[int, dict[str, str]]
) -> None:
    await until(lambda: "GET nodes watch" in simulated.asked)
    simulated.faults.append(("GET nodes", *fault))
    simulated.hang_up()
    await until(lambda: not simulated.faults)
    simulated.store.create("nodes", "", {"metadata": {"name": "n2"}})
    await watched.objects.wait_for(lambda found: "n2" in (found or ()))
    assert watched.failure.value == ""


async def passes(at_once: float) -> None:
    """No more of virtual time passes at once, so that what is sent has a moment to arrive before a deadline is over."""
    while True:  # noqa: ASYNC110  no event is awaited
        await asyncio.sleep(at_once)


@pytest.mark.parametrize("status", [500, 410])
@in_virtual_time
async def test_watches_that_fail_are_begun_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """Although each list between them succeeds."""
    (tmp_path / "token").write_text("first")
    simulated = Simulated()
    await simulated.up()
    time_passes = asyncio.create_task(passes(1))
    server = ApiServer(Account(simulated.url, None, tmp_path / "token"), 1e5, Inline())
    watched = WatchedObjects(server, NODE, {}, Complaint(bind("test")))
    simulated.faults += [("GET nodes watch", status, {})] * 20
    loop = asyncio.get_running_loop()
    began = loop.time()
    task = asyncio.create_task(watched.run())
    await watched.failure.wait_for(bool)
    await watched.failure.wait_for(lambda text: not text)
    assert (simulated.faults, simulated.asked.count("GET nodes")) == ([], 21)
    assert loop.time() - began >= (1 + 2 + 4 + 8 + 16 + 15 * 30) / 2
    assert len(caplog.messages) == 1
    for one in (task, time_passes):
        one.cancel()
    await asyncio.wait({task, time_passes})
    await server.close()
    await simulated.down()


@in_virtual_time
async def test_watches_that_hang_are_a_failure_until_one_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Although each list between them succeeds."""
    (tmp_path / "token").write_text("t")
    raw, listed = RawServer(), json.dumps({"metadata": {"resourceVersion": "7"}, "items": []}).encode()
    # Of each connection it answers the first request, which is a list, and no second one.
    raw.answers, raw.hangs = [whole(listed)] * 4, True
    listening = await asyncio.start_server(raw.connected, "127.0.0.1", 0)
    account = Account(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", None, tmp_path / "token")
    server = ApiServer(account, threads=Inline())
    watched = WatchedObjects(server, NODE, {}, Complaint(bind("test")))
    time_passes = asyncio.create_task(passes(0.01))
    history, away, ups = list[str](), list[object](), set[bool | None]()
    watched.failure.subscribe(lambda: history.append(watched.failure.value))
    watched.failure.subscribe(lambda: ups.add(server.up))
    server.away.subscribe(lambda: away.append(server.away.value))
    task = asyncio.create_task(watched.run())
    await until(lambda: len(raw.asked) == 4)
    assert all("no answer for 30 s" in text for text in history)
    assert len(caplog.messages) == 1
    assert (away, ups) == ([], {True}), "the server answers, the watches' failure is said apart"
    # The list and the watch after it have a connection each.
    raw.answers, raw.hangs = [whole(listed), CHUNKED + chunk(line("n2")) + b"0\r\n\r\n"] * 2, False
    await watched.failure.wait_for(lambda text: not text)
    for one in (task, time_passes):
        one.cancel()
    await asyncio.wait({task, time_passes})
    await server.close()
    listening.close()


async def test_a_server_whose_watches_alone_go_on_is_away(
    watched: WatchedObjects, server: ApiServer, simulated: Simulated
) -> None:
    await until(lambda: "GET nodes watch" in simulated.asked)
    simulated.faults += [("GET nodes n1", 500, {})] * 2
    await refused(server.get(NODE, "n1"))
    away = server.away.value
    simulated.store.create("nodes", "", {"metadata": {"name": "n2"}})
    await watched.objects.wait_for(lambda found: "n2" in (found or ()))
    assert server.away.value is away is not None
    await refused(server.get(NODE, "n1"))
    assert server.away.value == away, "since the first failure"
    await server.get(NODE, "n1")
    assert server.away.value is None


async def test_a_server_that_nobody_asks_any_more_is_back_by_its_watches(
    watched: WatchedObjects, server: ApiServer, simulated: Simulated
) -> None:
    """A pod whose claim couldn't be read was deleted."""
    await until(lambda: "GET nodes watch" in simulated.asked)
    simulated.faults += [("GET nodes n1", 0, {})]
    await refused(server.get(NODE, "n1"))
    assert (server.up, server.away.value is None) == (False, False)
    skip(REPEATED)
    simulated.store.create("nodes", "", {"metadata": {"name": "n2"}})
    await server.away.wait_for(lambda away: away is None)


async def test_a_list_whose_pages_are_forgotten_is_a_failure(watched: WatchedObjects, simulated: Simulated) -> None:
    await until(lambda: "GET nodes watch" in simulated.asked)
    simulated.faults.append(("GET nodes", 410, {}))
    simulated.hang_up()
    await watched.failure.wait_for(lambda text: "410" in text)
    await watched.failure.wait_for(lambda text: not text)


def test_a_missing_client_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    program = f"""
import asyncio, sys
from pathlib import Path
from dpgateway.cluster.account import Account
from dpgateway.cluster.errors import ClusterError
from dpgateway.cluster.server import REPEATED, ApiServer, ObjectKind
sys.modules["lightkube"] = None
server = ApiServer(Account("http://127.0.0.1:1", None, Path({str(tmp_path / "token")!r})))
try:
    asyncio.run(server.get(ObjectKind.NODE, "n1"))
except ClusterError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=True)
    assert "pip install 'dpgateway[dra]'" in done.stdout
