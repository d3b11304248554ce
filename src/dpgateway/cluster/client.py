"""The library's client, renewed with the account's files.

They are replaced while the gateway runs: the token is read again when the server refuses it, the certificates when
their file has changed. Then another client takes over, and the old one ends once its requests have.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from dpgateway.cluster.account import Account


class RenewedClient:
    """Used from the event loop."""

    def __init__(self, account: Account, answered: Callable[[str, str, int], None], deadline: float) -> None:
        """``answered``: called after each request with verb, plural, and the status or 0; ``deadline``: seconds for an
        answer.
        """
        self._account, self._answered, self._deadline = account, answered, deadline
        self._client: Any = None
        self._ca_read: object = None
        """The version of the file with the certificates that the client has: time, inode and size."""
        self._retired: tuple[Any, ...] = ()
        """The client before it, with the certificates that were replaced last."""

    async def current(self) -> Any:  # noqa: ANN401  of a library that is loaded late
        """Another client once the certificates have changed: the library reads them only when it is made. Raises
        ImportError without the library, OSError for certificates that can't be read, ConfigurationError for such a
        token.
        """
        read: object = None
        if self._account.ca is not None:
            file = self._account.ca.stat()
            read = file.st_mtime_ns, file.st_ino, file.st_size
        if self._client is None or read != self._ca_read:
            # Requests are under way with the one before; those of the one before it ended long ago.
            made, gone = self._made(), self._retired
            self._retired = () if self._client is None else (self._client,)
            self._client, self._ca_read = made, read
            await _closed(*gone)
        return self._client

    async def close(self) -> None:
        clients, self._client, self._retired = (*self._retired, self._client), None, ()
        await _closed(*clients)

    def _made(self) -> Any:  # noqa: ANN401  of a library that is loaded late
        from httpx2 import Timeout  # noqa: PLC0415
        from lightkube import AsyncClient, KubeConfig  # noqa: PLC0415  18 MB, for nodes with DRA only
        from lightkube.config.models import Cluster, User  # noqa: PLC0415

        from dpgateway.cluster.transport import ClusterTransport, certificates  # noqa: PLC0415

        for library in ("httpx2", "httpcore2"):  # else each request is a line of the log, or ten
            logging.getLogger(library).setLevel(logging.WARNING)
        account = self._account
        account.read_token()
        transport = ClusterTransport(certificates(account.server, account.ca), self._answered, self._deadline)
        # What the client has of certificates is read once more, for nothing: the transport checks them.
        ca = None if account.ca is None else str(account.ca)
        cluster = Cluster(server=account.server, certificate_auth=ca, insecure=account.server.startswith("http://"))
        config = KubeConfig.from_one(cluster=cluster, user=User(token_file=str(account.token)), namespace="default")
        # The transport has the certificates and the limits. The client's own deadline is for what ours doesn't see.
        return AsyncClient(config=config, timeout=Timeout(2 * self._deadline), trust_env=False, transport=transport)


async def _closed(*clients: Any) -> None:  # noqa: ANN401  of a library that is loaded late
    for client in filter(None, clients):
        with contextlib.suppress(Exception):
            await client.close()
