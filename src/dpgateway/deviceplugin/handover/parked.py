"""Connections of a kubelet that stay open after the gateway that accepted them has ended.

In a kubelet 1.25 to 1.36 the end of a resource's older stream ends the newer one, too (kubernetes #121994). So the
newer gateway holds a copy of the older one's connection, on which nobody says anything any more, until the kubelet
closes it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable

_LOOK = 1.0
"""Seconds to the next look, while the older gateway may still read what the kubelet says."""


class ParkedConnections:
    """Those of one resource. Used from the event loop."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def park(self, descriptors: Iterable[int]) -> None:
        """They are this object's to close from now on."""
        for descriptor in descriptors:
            self.descriptors.append(descriptor)
            self._watch(descriptor)

    def _watch(self, descriptor: int) -> None:
        if descriptor in self.descriptors:
            asyncio.get_running_loop().add_reader(descriptor, self._look, descriptor)

    def _look(self, descriptor: int) -> None:
        """There is something to read: the kubelet's end, or what the older gateway hasn't read yet."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(descriptor)
        if _ended(descriptor):
            self.descriptors.remove(descriptor)
            os.close(descriptor)
        else:
            loop.call_later(_LOOK, self._watch, descriptor)

    def close(self) -> None:
        for descriptor in self.descriptors:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
        self.descriptors.clear()


def _ended(descriptor: int) -> bool:
    """Whether the kubelet has closed the connection. What it says is left to the older gateway."""
    connection = socket.socket(fileno=descriptor)
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:  # the older gateway was faster
        return False
    except OSError:
        return True
    finally:
        connection.detach()
