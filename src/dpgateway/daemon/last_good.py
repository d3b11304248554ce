"""The last good configuration: kept in ``state_dir``, so that no start serves less than what worked before.

One JSON file for each pair of node name and configuration path, because gateways may share a ``state_dir``. It has what
this node serves, with defaults filled in: what ``dpgateway check --against-running`` compares. So a resource that a
reload couldn't change is kept as it goes on, and paths that take effect at the next start are kept as they are in use.

Written once the resources of a start, or of a reload, have started: a configuration whose drivers crash the process
is never kept. A later release reads it as it reads a configuration, with the same checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpgateway.config import Document, InvalidConfiguration, Place, Problem, from_json
from dpgateway.daemon.reloading import Reloading
from dpgateway.errors import GatewayError, describe
from dpgateway.gateway import Gateway
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.files import expect_private, make_private, read, sweep, write
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import KeyedLanes
from dpgateway.kit.threads import Threads
from dpgateway.kit.timestamp import timestamp

VERSION = 1
LARGEST = 32 * 1024 * 1024
"""Bytes of a file that is read: defaults are repeated in each resource."""
LOOK = 1.0
"""Seconds between two looks whether all resources have started; that may depend on time alone."""
PATIENCE = 10.0
"""Seconds that the disk has to answer."""
AGAIN = 60.0
"""Seconds until a failed write is retried."""

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class LastGood:
    """A configuration that was kept."""

    time: str
    """When: RFC 3339, UTC."""
    document: Document


class LastGoodFile:
    """The file. Its methods block."""

    def __init__(self, state_dir: Path, config: Path, node_name: str) -> None:
        """``config``: the configuration's absolute path."""
        name = hashlib.sha256(f"{node_name}\0{config}".encode(errors="surrogateescape")).hexdigest()[:16]
        self.path = state_dir / f"{name}.config"  # not .json, which is a journal
        self._node_name = node_name

    def load(self) -> LastGood | None:
        """Reads the file; None without one. Raises InvalidConfiguration for a content that this release can't use,
        OSError for a failed read, and for a file that another user may have written.
        """

        def written_by_us(found: os.stat_result) -> None:
            for path, status in ((self.path.parent, self.path.parent.stat()), (self.path, found)):
                expect_private(path, status)

        try:
            raw = read(self.path, LARGEST, written_by_us).content
        except FileNotFoundError:
            return None
        try:
            kept = json.loads(raw)
            version, time, configuration = kept["version"], kept["kept"], dict(kept["configuration"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            problem = Problem(Place(str(self.path)), f"{error!r:.300}", "a configuration that a gateway kept")
            raise InvalidConfiguration([problem]) from error
        if version != VERSION or not isinstance(time, str):
            problem = Problem(Place(str(self.path), key="version"), f"{version!r:.100}", str(VERSION))
            raise InvalidConfiguration([problem])
        return LastGood(time, from_json(configuration, str(self.path)).for_node(self._node_name))

    def save(self, served: Mapping[str, object]) -> None:
        """Replaces the file. ``served``: the configuration in plain values, and the node. Raises OSError; then the file
        is unchanged. Also removes what killed gateways have left in its directory, journals' new files included.
        """
        make_private(self.path.parent)  # drivers act on the content as root
        sweep(self.path.parent)
        write(self.path, json.dumps({"version": VERSION, "kept": timestamp(), **served}).encode())


class Keeping:
    """Keeps what the gateway serves. Used from the event loop. Errors of the disk are logged, and stop nothing."""

    def __init__(self, file: LastGoodFile, patience: float = PATIENCE, again: float = AGAIN) -> None:
        self._file, self._threads = file, Threads(idle=0)  # it changes rarely
        self._patience, self._again = patience, again
        self._lanes = KeyedLanes("the last good configuration")
        """One write at a time: one that timed out may still come to its end, and never after a later one's."""
        self._complaint = Complaint(_log, f"{file.path}: the last good configuration can't be written: %s")

    async def run(self, gateway: Gateway, reloading: Reloading) -> None:
        """Keeps what is served after the start and after each reload; never returns."""
        # The last good one as a whole stays as it is, with its time.
        seen = 0 if reloading.fallback is not None and reloading.fallback.whole else -1
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._again if self._complaint.text else None):
                    seen = await reloading.applied.wait(seen)
            while not gateway.overview.report().ready:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await gateway.changed.wait(gateway.changed.version)
            save = partial(self._file.save, gateway.configuration(reloading.wanted))
            written = partial(self._threads.call, "keep the configuration", save)
            try:
                await self._lanes.in_turn("", written, self._patience, "the disk")
            except (GatewayError, OSError) as error:  # GatewayError also for want of a thread
                self._complaint.say(describe(error))
            else:
                self._complaint.over()
