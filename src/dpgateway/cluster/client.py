"""The library's client, renewed with the account's files.

They are replaced while the gateway runs: the token is read again when the server refuses it, the certificates when
their file has changed. Then another client takes over, and the old one ends once its requests have. Files are read on a
thread, one read at a time: the disk may hang.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from dpgateway.cluster.account import LONGEST, Account
from dpgateway.errors import ConfigurationError
from dpgateway.kit.files import TooLongError, read
from dpgateway.kit.tasks import KeyedLanes
from dpgateway.kit.threads import Threads

T = TypeVar("T")

DISK = 5.0
"""Seconds that the disk has to answer."""
_UNREAD = object()


class RenewedClient:
    """Used from the event loop."""

    def __init__(
        self, account: Account, answered: Callable[[str, str, int], None], deadline: float, threads: Threads
    ) -> None:
        """``answered``: called after each request with verb, plural, and the status or 0; ``deadline``: seconds for an
        answer.
        """
        self._account, self._answered, self._deadline = account, answered, deadline
        self._threads, self._reads = threads, KeyedLanes("account of the API server:")
        self._client: Any = None
        self._ca_read: object = _UNREAD
        """The version of the file with the certificates that the client has: time, inode and size."""
        self._token = ""
        self._retired: tuple[Any, ...] = ()
        """The client before it, with the certificates that were replaced last."""

    async def current(self) -> Any:  # noqa: ANN401  of a library that is loaded late
        """Another client once the certificates have changed: the library reads them only when it is made. Raises
        ImportError without the library, OSError for certificates that can't be read, ConfigurationError for such a
        token.
        """
        return await self._within("certificates", self._renewed)

    async def token(self, *, anew: bool = False) -> str:
        """Raises ConfigurationError. ``anew``: the server doesn't accept the one that was read last."""
        if anew:
            read = partial(self._threads.call, "token of the API server", self._account.read_token)
            self._token = await self._within("token", read)
        return self._token

    async def _within(self, what: str, read: Callable[[], Awaitable[T]]) -> T:
        """What a read returns; one that hangs is the only one. Raises ConfigurationError after DISK."""
        try:
            return await self._reads.in_turn(what, read, DISK, "the disk")
        except TimeoutError as error:
            files = " and ".join(str(file) for file in (self._account.ca, self._account.token) if file is not None)
            raise ConfigurationError(f"{files} can't be read: {error}") from error

    async def _renewed(self) -> Any:  # noqa: ANN401  of a library that is loaded late
        look = partial(self._look, self._ca_read)
        made, self._ca_read = await self._threads.call("certificates of the API server", look)
        if made is None and self._client is None:  # it was closed meanwhile, so what was read is of no client
            self._ca_read = _UNREAD
            return await self._renewed()
        if made is not None:
            # Requests are under way with the previous client; those with the one before it ended long ago.
            (client, self._token), gone = made, self._retired
            self._retired = () if self._client is None else (self._client,)
            self._client = client
            await _closed(*gone)
        return self._client

    async def close(self) -> None:
        clients, self._client, self._retired = (*self._retired, self._client), None, ()
        self._ca_read = _UNREAD
        await _closed(*clients)

    def _look(self, known: object) -> tuple[tuple[Any, str] | None, object]:
        """Another client and the token, unless the certificates are ``known``; and their version. Blocks."""
        read: object = None
        if self._account.ca is not None:
            file = self._account.ca.stat()
            read = file.st_mtime_ns, file.st_ino, file.st_size
        return None if read == known else self._made(), read

    def _made(self) -> tuple[Any, str]:
        from httpx2 import Timeout  # noqa: PLC0415
        from lightkube import AsyncClient, KubeConfig  # noqa: PLC0415  18 MB, for nodes with DRA only
        from lightkube.config.models import Cluster, User  # noqa: PLC0415

        from dpgateway.cluster.transport import ClusterTransport, certificates  # noqa: PLC0415

        for library in ("httpx2", "httpcore2"):  # else each request is a line of the log, or ten
            logging.getLogger(library).setLevel(logging.WARNING)
        account = self._account
        token = account.read_token()
        # OpenSSL would wait for a pipe's writer, and read a device without an end; of a file there is no limit.
        if account.ca is not None:
            with contextlib.suppress(TooLongError):
                read(account.ca, LONGEST, follow=True)
        checked = certificates(account.server, account.ca)
        transport = ClusterTransport(checked, self.token, self._answered, self._deadline)
        # What the client has of certificates is read once more, for nothing: the transport checks them.
        ca = None if account.ca is None else str(account.ca)
        cluster = Cluster(server=account.server, certificate_auth=ca, insecure=account.server.startswith("http://"))
        config = KubeConfig.from_one(cluster=cluster, user=User(), namespace="default")
        # The transport has the account and the limits. The client's own deadline is for what ours doesn't see.
        timeout = Timeout(2 * self._deadline)
        return AsyncClient(config=config, timeout=timeout, trust_env=False, transport=transport), token


async def _closed(*clients: Any) -> None:  # noqa: ANN401  of a library that is loaded late
    for client in filter(None, clients):
        with contextlib.suppress(Exception):
            await client.close()
