"""Requests to the API server, over lightkube.

An object is plain JSON: all that comes from the server is data to check, whatever its version. Every request has a
deadline. A request that failed in transit may have been done: the caller looks, and compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dpgateway.cluster.account import Account
from dpgateway.errors import GatewayError, cut

DEADLINE = 30.0
"""Seconds for an answer."""
PAGE = 500
"""Objects of one answer to a list."""
LONGEST_REASON = 1000

NOT_FOUND, CONFLICT, GONE, UNAUTHORIZED = 404, 409, 410, 401

Object = Mapping[str, Any]
"""An object of the API server, as JSON."""


class ObjectKind(Enum):
    """The kinds of objects that the gateway reads or writes: group, version, kind, plural, whether in a namespace."""

    NODE = "", "v1", "Node", "nodes", False
    SLICE = "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False
    CLAIM = "resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True
    CLASS = "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False

    @property
    def plural(self) -> str:
        return self.value[3]


class ClusterError(GatewayError):
    """The API server refused a request, or didn't answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        """``status``: of HTTP; 0 if there was no answer."""
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a list, and the version after which a watch goes on."""

    objects: tuple[Object, ...]
    version: str


class ApiServer:
    """The API server, as one account. Used from the event loop."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._client: Any = None
        self._ca_read = 0.0
        """The mtime of the certificates that the client has."""

    async def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Object | None:
        """The object; None if there is none. Raises ClusterError."""
        options = {"namespace": namespace} if namespace else {}
        try:
            return await self._object(f"get {kind.plural} {name}", lambda it: it.get(_of(kind), name, **options))
        except ClusterError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def list(self, kind: ObjectKind, fields: Mapping[str, str]) -> Listing:
        """The objects that have these fields. Raises ClusterError."""

        async def collected(client: Any) -> Listing:  # noqa: ANN401  of a library that is loaded late
            found = client.list(_of(kind), chunk_size=PAGE, fields=dict(fields))
            return Listing(tuple([dict(one) async for one in found]), found.resourceVersion)

        listing: Listing = await self._ask(f"list {kind.plural}", collected)
        return listing

    async def changes(
        self, kind: ObjectKind, fields: Mapping[str, str], version: str, seconds: int
    ) -> AsyncIterator[tuple[str, Object]]:
        """The changes after ``version``, as ``ADDED``, ``MODIFIED`` or ``DELETED`` and the object. Never ends; raises
        ClusterError. ``seconds``: after which the server ends each answer, and the client asks for the next.
        """
        options = {"fields": dict(fields), "server_timeout": seconds, "resource_version": version}
        async with contextlib.aclosing(self._connected().watch(_of(kind), **options)) as found:
            while True:
                # No answer, not even an empty one, for longer than the server was told: the connection is dead.
                what = f"watch {kind.plural}"
                change, one = await self._ask(what, lambda _: anext(found), seconds + DEADLINE)
                yield change, dict(one)

    async def create(self, kind: ObjectKind, what: Object, *, dry_run: bool = False) -> Object:
        """The object as the server has it. ``dry_run``: as it would have it. Raises ClusterError."""
        return await self._object(f"create {kind.plural}", lambda it: it.create(_of(kind)(what), dry_run=dry_run))

    async def replace(self, kind: ObjectKind, what: Object) -> Object:
        """The object as the server has it. Raises ClusterError: CONFLICT if it isn't that of ``resourceVersion``."""
        name = what["metadata"]["name"]
        return await self._object(f"update {kind.plural} {name}", lambda it: it.replace(_of(kind)(what), name))

    async def delete(self, kind: ObjectKind, name: str) -> None:
        """Harmless if there is none. Raises ClusterError."""
        try:
            await self._ask(f"delete {kind.plural} {name}", lambda it: it.delete(_of(kind), name))
        except ClusterError as error:
            if error.status != NOT_FOUND:
                raise

    async def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                await self._client.close()

    def _connected(self) -> Any:  # noqa: ANN401  of a library that is loaded late
        """The client. Another one once the certificates have changed: the library reads them only when it is made."""
        from lightkube import AsyncClient, KubeConfig  # noqa: PLC0415  18 MB, for nodes with DRA only
        from lightkube.config.models import Cluster, User  # noqa: PLC0415

        account = self._account
        try:
            read = account.ca.stat().st_mtime if account.ca is not None else 0.0
            if self._client is None or read != self._ca_read:
                cluster = Cluster(
                    server=account.server, certificate_auth=None if account.ca is None else str(account.ca)
                )
                config = KubeConfig.from_one(
                    cluster=cluster, user=User(token_file=str(account.token)), namespace="default"
                )
                self._client, self._ca_read = AsyncClient(config=config, timeout=None, trust_env=False), read
        except OSError as error:
            raise ClusterError(f"the API server {account.server} can't be asked: {error}") from error
        return self._client

    async def _object(self, what: str, ask: Callable[[Any], Awaitable[Any]]) -> Object:
        return dict(await self._ask(what, ask))

    async def _ask(self, what: str, ask: Callable[[Any], Awaitable[Any]], within: float = DEADLINE) -> Any:  # noqa: ANN401
        """What the client answers to ``ask``. Raises ClusterError."""
        from httpx2 import HTTPStatusError  # noqa: PLC0415

        where = f"{what} at {self._account.server}"
        try:
            async with asyncio.timeout(within):
                return await ask(self._connected())
        except ClusterError:
            raise
        except HTTPStatusError as error:
            code = getattr(getattr(error, "status", None), "code", None) or getattr(error.response, "status_code", 0)
            raise ClusterError(f"{where}: found status {code}: {cut(str(error), LONGEST_REASON)}", code or 0) from error
        except TimeoutError:
            raise ClusterError(f"{where}: no answer for {within:g} s") from None
        except Exception as error:  # the library, httpx and ssl each have errors of their own
            raise ClusterError(f"{where}: {type(error).__name__}: {cut(str(error), LONGEST_REASON)}") from error


@functools.cache  # the library refuses a second class for a kind
def _of(kind: ObjectKind) -> Any:  # noqa: ANN401  of a library that is loaded late
    """The library's class for a kind: a dict, without a model of its own, which would cost memory for each version."""
    from lightkube import generic_resource  # noqa: PLC0415

    group, version, name, plural, namespaced = kind.value
    make = generic_resource.create_namespaced_resource if namespaced else generic_resource.create_global_resource
    return make(group, version, name, plural)
