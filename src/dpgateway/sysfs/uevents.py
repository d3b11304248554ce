"""The kernel's uevents: an object of sysfs was added, removed, bound to a driver, or changed.

inotify reports nothing in sysfs. The kernel broadcasts uevents to every network namespace owned by the initial user
namespace, including a pod's, and listening needs no privilege (lib/kobject_uevent.c, uevent_net_init). Uevents of
network interfaces reach only the interface's namespace.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NETLINK_KOBJECT_UEVENT = 15  # include/uapi/linux/netlink.h
_FROM_KERNEL = 1
"""The multicast group of the kernel's messages; udev sends to group 2."""
_SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h
_BUFFER = 2 * 1024 * 1024
"""Bytes of the receive buffer. A server's boot sends some thousand messages, of up to 2 KiB, within a second."""
_LONGEST = 8192  # two pages: UEVENT_BUFFER_SIZE is 2048, and the header comes before it


@dataclass(frozen=True, slots=True)
class Uevent:
    """One message."""

    action: str
    path: str
    """The object's path relative to /sys."""
    subsystem: str

    @classmethod
    def parse(cls, message: bytes) -> Uevent | None:
        """None if it isn't a message in the kernel's format."""
        lines = message.decode(errors="surrogateescape").split("\0")  # as os.listdir says names
        said = {key: value for key, mark, value in (line.partition("=") for line in lines[1:]) if mark}
        if not {"ACTION", "DEVPATH"} <= said.keys():
            return None
        return cls(said["ACTION"], said["DEVPATH"].lstrip("/"), said.get("SUBSYSTEM", ""))


class Uevents:
    """A non-blocking socket for these messages. Raises OSError if it can't be opened."""

    def __init__(self) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_NETLINK, kind, _NETLINK_KOBJECT_UEVENT)
        try:
            with contextlib.suppress(PermissionError):  # without CAP_NET_ADMIN the system's limit holds
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
            self._socket.bind((0, _FROM_KERNEL))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> Iterator[Uevent | None]:
        """The messages since the last call. None stands for lost messages (ENOBUFS, netlink(7))."""
        while True:
            try:
                message, (sender, _) = self._socket.recvfrom(_LONGEST)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None
            else:
                event = Uevent.parse(message) if sender == 0 else None  # any process may send to this socket
                if event is not None:
                    yield event


def unheard() -> str | None:
    """Why no uevents arrive in this process: it is in a user namespace other than the initial one. None if they do."""
    try:
        everybody = Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return None
    if everybody in ([], ["0", "0", "4294967295"]):  # user_namespaces(7)
        return None
    return f"the kernel sends no uevents to a user namespace (process {os.getpid()} is in one)"
