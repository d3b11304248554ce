"""Requests and answers of the simulated API server: HTTP/1.1, JSON, on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import h11

from dpgateway_simulator.apiserver.store import ApiRefusal, Object, Store, StoredChange

LARGEST = 3 * 1024 * 1024
"""Bytes of a request (limit of the API server's own handlers)."""
KINDS = {
    "nodes": "Node",
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
    "deviceclasses": "DeviceClass",
    "events": "Event",
}


@dataclass(frozen=True)
class ApiRequest:
    """A request, parsed."""

    method: str
    plural: str
    namespace: str
    name: str
    options: Mapping[str, str]
    body: Object

    @property
    def fields(self) -> dict[str, str]:
        """The field selector."""
        return dict(one.split("=", 1) for one in self.options.get("fieldSelector", "").split(",") if one)


class SimulatedApiServer:
    """Used from the event loop."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.asked: list[str] = []
        """Each request: its method, plural and name, with ``watch`` for a watch and ``dry run``."""
        self.token: str | None = None
        """The only token that is accepted; None: any."""
        self.faults: list[tuple[str, int, Mapping[str, str]]] = []
        """Each with the beginning of the request that it is for, as in ``asked``, and the answer's status and headers.
        """
        self.tls: ssl.SSLContext | None = None
        """Its certificate and key; None: without TLS. Of the next connections."""
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        """The connections, by the task that serves each."""
        self._port = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self._port}"

    async def up(self) -> None:
        """Serves, on the same port as before."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, ssl=self.tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Ends all connections and refuses new ones; the objects stay."""
        if self._server is not None:
            self._server.close()
            self.hang_up()
            await self._server.wait_closed()

    def hang_up(self) -> None:
        """Ends all connections, as a server that is restarted behind a balancer."""
        for task, writer in list(self._open.items()):
            writer.transport.abort()
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine runs in one
        self._open[task] = writer
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST)
        try:
            while (request := await _received(connection, reader)) is not None:
                await self._answer(connection, writer, *request)
                if connection.our_state is not h11.DONE:
                    return
                connection.start_next_cycle()
        except (ConnectionError, h11.ProtocolError, asyncio.CancelledError):  # hang_up() cancels
            return
        finally:
            self._open.pop(task)
            writer.close()

    async def _answer(
        self, connection: h11.Connection, writer: asyncio.StreamWriter, head: h11.Request, body: bytes
    ) -> None:
        request = _parsed(head, body)
        doing = "watch" if "watch" in request.options else "dry run" if "dryRun" in request.options else ""
        what = " ".join(filter(None, (request.method, request.plural, request.name, doing)))
        self.asked.append(what)
        fault = next((one for one in self.faults if what.startswith(one[0])), None)
        if fault is not None:
            self.faults.remove(fault)
            text = json.dumps(_status(ApiRefusal(fault[1], "", "a fault"))).encode()
            await _send(connection, writer, fault[1], text, fault[2])
        elif self.token is not None and (b"authorization", f"Bearer {self.token}".encode()) not in head.headers:
            await _send(connection, writer, 401, json.dumps(_status(ApiRefusal(401, "Unauthorized", ""))).encode(), {})
        elif doing == "watch":
            await self._watch(connection, writer, request)
        else:
            try:
                code, found = 201 if request.method == "POST" else 200, self._found(request)
            except ApiRefusal as error:
                code, found = error.code, _status(error)
            await _send(connection, writer, code, json.dumps(found).encode(), {})

    def _found(self, one: ApiRequest) -> Object:
        dry_run, key = one.options.get("dryRun") == "All", (one.plural, one.namespace, one.name)
        if one.method == "GET" and not one.name:
            return self._listed(one)
        if one.method == "GET":
            return self.store.get(key)
        if one.method == "POST":
            return self.store.create(one.plural, one.namespace, one.body, dry_run=dry_run)
        if one.method == "PUT":
            return self.store.replace(key, one.body, dry_run=dry_run)
        if one.method == "DELETE":
            return self.store.delete(key)
        raise ApiRefusal(405, "MethodNotAllowed", f"{one.method} isn't allowed")

    def _listed(self, one: ApiRequest) -> Object:
        found = self.store.list(one.plural, one.namespace, one.fields)
        begin, limit = int(one.options.get("continue", 0)), int(one.options.get("limit", 0)) or len(found)
        metadata = {"resourceVersion": str(self.store.version)}
        if begin + limit < len(found):
            metadata["continue"] = str(begin + limit)
        kind = f"{KINDS[one.plural]}List"
        return {"kind": kind, "metadata": metadata, "items": found[begin : begin + limit]}

    async def _watch(self, connection: h11.Connection, writer: asyncio.StreamWriter, one: ApiRequest) -> None:
        version = int(one.options.get("resourceVersion") or self.store.version)
        await _head(connection, writer, 200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(int(one.options.get("timeoutSeconds") or 300)):
                while True:
                    try:
                        for change in self.store.since(version, one.plural, one.fields):
                            await _chunk(connection, writer, _line(change))
                        version = max(version, self.store.version)
                    except ApiRefusal as error:
                        await _chunk(connection, writer, _event("ERROR", _status(error)))
                        break
                    await self.store.changed()
        writer.write(connection.send(h11.EndOfMessage()) or b"")
        await writer.drain()


async def _received(connection: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request, bytes] | None:
    """The next request and its body; None at the end of the connection."""
    head, body = None, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return head, body
        else:
            return None


def _parsed(head: h11.Request, body: bytes) -> ApiRequest:
    """``/api/v1/...`` or ``/apis/GROUP/VERSION/[namespaces/NAMESPACE/]PLURAL[/NAME]``."""
    url = urlsplit(head.target.decode())
    parts = url.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, *_ = (*parts, "", "")
    given = json.loads(body) if body else {}
    return ApiRequest(head.method.decode(), plural, namespace, name, dict(parse_qsl(url.query)), given)


async def _send(
    connection: h11.Connection, writer: asyncio.StreamWriter, code: int, body: bytes, more: Mapping[str, str]
) -> None:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **more}
    await _head(connection, writer, code, headers)
    writer.write((connection.send(h11.Data(body)) or b"") + (connection.send(h11.EndOfMessage()) or b""))
    await writer.drain()


async def _head(
    connection: h11.Connection, writer: asyncio.StreamWriter, code: int, headers: Mapping[str, str]
) -> None:
    writer.write(connection.send(h11.Response(status_code=code, headers=list(headers.items()))) or b"")
    await writer.drain()


async def _chunk(connection: h11.Connection, writer: asyncio.StreamWriter, line: bytes) -> None:
    writer.write(connection.send(h11.Data(line)) or b"")
    await writer.drain()


def _line(change: StoredChange) -> bytes:
    return _event(change.what, change.found)


def _event(what: str, found: Object) -> bytes:
    return json.dumps({"type": what, "object": found}).encode() + b"\n"


def _status(error: ApiRefusal) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "code": error.code,
    }
