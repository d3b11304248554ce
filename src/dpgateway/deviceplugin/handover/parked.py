"""A kubelet's connections, kept open after the gateway that accepted them has ended.

In a kubelet 1.25 to 1.36 the end of a resource's older stream ends the newer one, too (kubernetes #121994). So the
newer gateway holds a duplicate of the older one's connection, silent, until the kubelet closes it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable

_LOOK = 1.0
"""Seconds between two looks, while unread data is the older gateway's to read."""


class ParkedConnections:
    """The parked connections of one resource. Used from the event loop."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def park(self, descriptors: Iterable[int]) -> None:
        """Takes ownership of the descriptors."""
        for descriptor in descriptors:
            self.descriptors.append(descriptor)
            self._watch(descriptor)

    def _watch(self, descriptor: int) -> None:
        if descriptor in self.descriptors:
            asyncio.get_running_loop().add_reader(descriptor, self._look, descriptor)

    def _look(self, descriptor: int) -> None:
        """The connection is readable: the kubelet has closed it, or the older gateway hasn't read its data yet."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(descriptor)
        connection = socket.socket(fileno=descriptor)
        try:
            # Consumes no data, which is the older gateway's.
            ended = not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:  # the older gateway was faster
            ended = False
        except OSError:
            ended = True
        finally:
            connection.detach()
        if ended:
            self.descriptors.remove(descriptor)
            os.close(descriptor)
        else:
            loop.call_later(_LOOK, self._watch, descriptor)

    def close(self) -> None:
        for descriptor in self.descriptors:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
        self.descriptors.clear()
