"""Tells the kubelet's ListAndWatch streams from other clients', which are served, but change no state.

Theory of operation
    - A user agent proves nothing: every Go client has a kubelet's. The kubelet is the process that listens on
      ``kubelet.sock``, and a connection is the kubelet's if its peer is that process (SO_PEERCRED, unix(7)).
    - gRPC doesn't expose a stream's connection. But a kubelet of any release dials once for each registration, opens
      one stream on that connection, and closes it after the stream. So a new stream is the kubelet's if the kubelet has
      a connection without a stream, and it has ended once that connection has.
    - A peer in another pid namespace has pid 0. If the kubelet is in one, every Go client there counts as the kubelet.
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
        """``paths``: the paths at which the resource's servers are bound."""
        self._paths, self._is_kubelet = paths, is_kubelet
        self._used: frozenset[Connection] = frozenset()
        """The kubelet's connections that have had their stream."""
        self._streams: set[_Stream] = set()

    def opened(self, kubelets: Callable[[], StreamCallbacks]) -> StreamCallbacks | None:
        """The callbacks of a new stream, made by ``kubelets``, if it is the kubelet's; None for other clients'."""
        connection = self._unused()
        # A scan is costly, and another resource's may have found the connection already.
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
        """Ends this stream, and each one whose connection has ended: another client may have opened it."""
        for ended in [stream, *(one for one in self._streams if not one.connection.is_open)]:
            if ended in self._streams:
                self._streams.remove(ended)
                ended.callbacks.closed()
