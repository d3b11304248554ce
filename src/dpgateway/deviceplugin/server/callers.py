"""Tells the kubelet's ListAndWatch streams from those of other clients, which are served, but change no state.

A user agent proves nothing: any client written in Go has a kubelet's. The kubelet is the process that listens on
``kubelet.sock``, and its connections are those whose peer is that process (SO_PEERCRED, unix(7)). gRPC doesn't tell
which stream came over which connection, and needn't: a kubelet of any release dials each time it registers a plugin,
opens one stream on that connection, and closes it when the stream has ended. So a stream is the kubelet's if there is
a connection of the kubelet that had none yet, and has ended when that connection has.

Where the kubelet is in another pid namespace, its pid is 0, and so is everybody's there: then each client in Go counts
as the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from dpgateway.deviceplugin.server.handlers import StreamCallbacks
from dpgateway.kit.accepted import ACCEPTED, Connection
from dpgateway.kit.unix import Credentials


@dataclass(eq=False, slots=True)
class _Stream:
    connection: Connection
    callbacks: StreamCallbacks


class Callers:
    """The streams of one resource. Used from the event loop."""

    def __init__(self, paths: Callable[[], Collection[str]], is_kubelet: Callable[[Credentials], bool]) -> None:
        """``paths``: where the resource is served, as it is bound."""
        self._paths, self._is_kubelet = paths, is_kubelet
        self._used: frozenset[Connection] = frozenset()
        """The kubelet's connections on which a stream was opened."""
        self._streams: set[_Stream] = set()

    def opened(self, kubelets: Callable[[], StreamCallbacks]) -> StreamCallbacks | None:
        """A stream was opened: its callbacks, which ``kubelets`` makes, if it is the kubelet's; None if it isn't."""
        connection = self._unused()
        if connection is None:
            ACCEPTED.look()
            connection = self._unused()
        if connection is None:
            return None
        self._used |= {connection}
        stream = _Stream(connection, kubelets())
        self._streams.add(stream)
        return replace(stream.callbacks, closed=partial(self._closed, stream))

    def _unused(self) -> Connection | None:
        there = ACCEPTED.at(self._paths())
        self._used &= frozenset(there)
        return next((one for one in there if one not in self._used and self._is_kubelet(one.peer)), None)

    def _closed(self, stream: _Stream) -> None:
        """Ends also the streams whose connections have ended: another client may have opened the stream of each."""
        for ended in [stream, *(one for one in self._streams if not one.connection.is_open)]:
            if ended in self._streams:
                self._streams.remove(ended)
                ended.callbacks.closed()
