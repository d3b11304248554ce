"""The simulated API server: HTTP/1.1 with JSON on a loopback port, and its faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping

import h11

from dpgateway_simulator.apiserver.admitting import ApiRefusal, Object
from dpgateway_simulator.apiserver.requests import (
    KINDS,
    WITH_STATUS,
    ApiRequest,
    event,
    merged,
    parsed,
    status_of,
)
from dpgateway_simulator.apiserver.store import Store

LARGEST = 3 * 1024 * 1024
"""Bytes of a request (limit of the API server's own handlers)."""
BOOKMARK = 60.0
"""Seconds between the bookmarks of a watch that asked for them."""


class SimulatedApiServer:
    """Used from the event loop. Its faults: `down`, `hang_up`, `hang`, `faults`, `token`, `forbidden`, `unserved`,
    and those of its store: `compact`, `wipe`, `off`.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.asked: list[str] = []
        """Each request: its method, plural and name, with ``watch`` for a watch and ``dry run``."""
        self.token: str | None = None
        """The only token that is accepted; None: any."""
        self.faults: list[tuple[str, int, Mapping[str, str]]] = []
        """Each with the beginning of the request that it is for, as in ``asked``, and the answer's status and headers.
        Status 0: the request is done, and the connection ends without an answer.
        """
        self.tls: ssl.SSLContext | None = None
        """Its certificate and key; None: without TLS. Of the next connections."""
        self.forbidden: set[tuple[str, str]] = set()
        """Verbs and plurals that are refused (403), such as ("list", "resourceclaims")."""
        self.unserved: set[str] = set()
        """Plurals of kinds that it doesn't have."""
        self.bookmark = BOOKMARK
        self._answering = asyncio.Event()
        self._answering.set()
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        """The connections, by the task that serves each."""
        self._port = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self._port}"

    async def up(self, port: int = 0) -> None:
        """Serves, on this port of loopback; 0: the one of before, at first any. Raises OSError."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port or self._port, ssl=self.tls)
        self._port = self._server.sockets[0].getsockname()[1]
        self.store.wake()

    @property
    def serving(self) -> bool:
        """Whether it answers; kubelets and controllers, which read the store itself, wait while it doesn't."""
        return self._server is not None and self._server.is_serving() and self._answering.is_set()

    def hang(self) -> None:
        """Takes requests from now on and answers none of them, until `resume`; watches fall silent."""
        self._answering.clear()

    def resume(self) -> None:
        self._answering.set()
        self.store.wake()

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
        request = parsed(head, body)
        doing = "watch" if "watch" in request.options else "dry run" if "dryRun" in request.options else ""
        what = " ".join(filter(None, (request.method, request.plural, request.name, doing)))
        self.asked.append(what)
        await self._answering.wait()
        fault = next((one for one in self.faults if what.startswith(one[0])), None)
        if fault is not None:
            self.faults.remove(fault)
        if fault is not None and fault[1] == 0:
            with contextlib.suppress(ApiRefusal):
                self._found(request)
            raise ConnectionAbortedError("a fault")
        try:
            if fault is not None:
                raise ApiRefusal(fault[1], "", "a fault")
            if self.token is not None and (b"authorization", f"Bearer {self.token}".encode()) not in head.headers:
                raise ApiRefusal(401, "Unauthorized", "Unauthorized")
            if (request.verb, request.plural) in self.forbidden:
                why = f'{request.plural} is forbidden: cannot {request.verb} resource "{request.plural}"'
                raise ApiRefusal(403, "Forbidden", why)
            if doing == "watch":
                await self._watch(connection, writer, request)
                return
            code, found = 201 if request.method == "POST" else 200, self._found(request)
        except ApiRefusal as error:
            code, found = error.code, status_of(error)
        body, more = json.dumps(found).encode(), fault[2] if fault is not None else {}
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **more}
        answer = h11.Response(status_code=code, headers=list(headers.items()))
        await _send(connection, writer, answer, h11.Data(body), h11.EndOfMessage())

    def _found(self, one: ApiRequest) -> Object:
        """What a request other than a watch gets. Raises ApiRefusal."""
        if one.plural == "selfsubjectaccessreviews":
            asked = one.body["spec"]["resourceAttributes"]
            allowed = (asked["verb"], asked["resource"]) not in self.forbidden
            return {**one.body, "metadata": {}, "status": {"allowed": allowed}}
        if one.plural not in KINDS or one.plural in self.unserved:
            raise ApiRefusal(404, "NotFound", "the server could not find the requested resource")
        if one.verb == "list":
            found = self.store.list(one.plural, one.namespace, one.fields)
            begin, limit = int(one.options.get("continue", 0)), int(one.options.get("limit", 0)) or len(found)
            metadata = {"resourceVersion": str(self.store.version)}
            if begin + limit < len(found):
                metadata["continue"] = str(begin + limit)
            return {"kind": f"{KINDS[one.plural]}List", "metadata": metadata, "items": found[begin : begin + limit]}
        if one.verb == "deletecollection":
            self.store.wipe(one.plural, one.fields)
            return {"kind": "Status", "status": "Success"}
        return self.store.get(one.key) if one.verb == "get" else self._written(one)

    def _written(self, one: ApiRequest) -> Object:
        dry_run = one.options.get("dryRun") == "All"
        with_status = one.plural in WITH_STATUS
        match one.verb:
            case "create":
                given = {name: value for name, value in one.body.items() if name != "status" or not with_status}
                return self.store.create(one.plural, one.namespace, given, dry_run=dry_run)
            case "update":
                part = one.part or ("but status" if with_status else "")
                return self.store.replace(one.key, one.body, part=part, dry_run=dry_run)
            case "patch":
                patched = merged(self.store.get(one.key), one.body)
                return self.store.replace(one.key, patched, part=one.part, dry_run=dry_run)
            case "delete" if not dry_run:
                conditions = one.body.get("preconditions", {})
                grace = one.options.get("gracePeriodSeconds", one.body.get("gracePeriodSeconds"))
                given = {"uid": conditions.get("uid", ""), "version": conditions.get("resourceVersion", "")}
                return self.store.delete(one.key, grace=None if grace is None else int(grace), **given)
        return self.store.get(one.key)

    async def _watch(self, connection: h11.Connection, writer: asyncio.StreamWriter, one: ApiRequest) -> None:
        version = int(one.options.get("resourceVersion") or self.store.version)
        headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
        await _send(connection, writer, h11.Response(status_code=200, headers=headers))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(int(one.options.get("timeoutSeconds") or 300)):
                while True:
                    try:
                        await self._answering.wait()
                        upto = self.store.version
                        for change in list(self.store.since(version, one.plural, one.fields)):
                            await _send(connection, writer, h11.Data(event(change.what, change.found)))
                        version = max(version, upto)
                    except ApiRefusal as error:
                        await _send(connection, writer, h11.Data(event("ERROR", status_of(error))))
                        break
                    if self.store.version == version:
                        await self._next(connection, writer, one, version)
        await _send(connection, writer, h11.EndOfMessage())

    async def _next(
        self, connection: h11.Connection, writer: asyncio.StreamWriter, one: ApiRequest, version: int
    ) -> None:
        """Returns after the next write, with bookmarks until then."""
        wanted = one.options.get("allowWatchBookmarks") == "true"
        while self.store.version == version:  # else a write came while a bookmark was sent
            try:
                async with asyncio.timeout(self.bookmark if wanted else None):
                    await self.store.changed()
                    break
            except TimeoutError:
                mark = {"kind": KINDS[one.plural], "metadata": {"resourceVersion": str(version)}}
                await _send(connection, writer, h11.Data(event("BOOKMARK", mark)))


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


async def _send(connection: h11.Connection, writer: asyncio.StreamWriter, *events: h11.Event) -> None:
    writer.write(b"".join(connection.send(one) or b"" for one in events))
    await writer.drain()
