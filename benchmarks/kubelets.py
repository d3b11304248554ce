"""Kubelets that report the arrival of each list: a real device manager if one is built, else the stub.

Times are seconds since the epoch, taken in the kubelet's process.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from asyncinotify import Inotify, Mask

from benchmarks.stub import Stub
from tests.real_kubelet.device_manager import DeviceManager
from tests.real_kubelet.programs import PROGRAMS, RELEASES

SETTLED = 14.0
"""Seconds after a kubelet's start: by then, 12 s after that, a gateway has returned free memory (gateway.py)."""
_DUE = 60.0
"""Seconds for any wait, before the run fails."""


class Kubelet(Protocol):
    """A sequence of kubelets in one directory."""

    name: str

    async def start(self) -> None: ...

    async def served(self) -> float:
        """The time at which this kubelet began to serve kubelet.sock."""

    async def listed(self, count: int) -> Sequence[float]:
        """The times at which this kubelet had the first lists of the first ``count`` resources."""

    async def stop(self) -> None: ...


def newest_release() -> str | None:
    """The newest release with a built device manager; None without one, or without root."""
    if os.geteuid() != 0:
        return None
    newer = [release for release in RELEASES if int(release.partition(".")[2]) >= 25]
    return next((release for release in reversed(newer) if PROGRAMS[f"device-manager-{release}"].built), None)


def kubelet(directory: Path) -> Kubelet:
    release = newest_release()
    return RealKubelet(directory, release) if release else StubKubelet(directory)


class RealKubelet:
    """A real device manager. Times come from its log, in microseconds; requests would use the kubelet's CPU time."""

    _SERVING = "Starting device plugin registration server"
    _LISTED = re.compile(r'"State pushed for device plugin" resource="([^"]+)"')

    def __init__(self, directory: Path, release: str) -> None:
        self.name = f"the device manager of Kubernetes {release}"
        self._log = directory.parent / "kubelet.log"
        self._log.touch()
        self._manager = DeviceManager(release, directory, log=self._log)
        self._begins = 0

    async def start(self) -> None:
        self._begins = self._log.stat().st_size
        await self._manager.start()

    async def served(self) -> float:
        return next(_stamp(line) for line in self._lines() if self._SERVING in line)

    async def listed(self, count: int) -> Sequence[float]:
        async with asyncio.timeout(_DUE):
            with Inotify() as inotify:
                inotify.add_watch(self._log, Mask.MODIFY)
                while len(found := self._first_lists()) < count:
                    await inotify.get()
        return sorted(found.values())

    def _first_lists(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for line in self._lines():
            if match := self._LISTED.search(line):
                found.setdefault(match[1], _stamp(line))
        return found

    def _lines(self) -> Sequence[str]:
        with self._log.open("rb") as log:
            log.seek(self._begins)
            return log.read().decode(errors="replace").splitlines()

    async def stop(self) -> None:
        await self._manager.stop()


def _stamp(line: str) -> float:
    """The time of a klog line, ``I1121 08:36:59.114158 ...``: local time without a year."""
    return datetime.strptime(f"{datetime.now():%Y} {line[1:21]}", "%Y %m%d %H:%M:%S.%f").timestamp()


class StubKubelet:
    """The stub of a kubelet, timed here."""

    name = "a stub of a kubelet"

    def __init__(self, directory: Path) -> None:
        self._stub = Stub(directory)
        self._served = 0.0

    async def start(self) -> None:
        self._served = time.time()
        self._stub.start()

    async def served(self) -> float:
        return self._served

    async def listed(self, count: int) -> Sequence[float]:
        times = []
        for lists in [plugin.lists() for plugin in self._stub.plugins(count)]:
            next(lists)
            times.append(time.time())
        return times

    async def stop(self) -> None:
        self._stub.stop()
