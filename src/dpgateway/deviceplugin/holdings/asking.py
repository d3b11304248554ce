"""Detects the end of pods, and asks the kubelet's PodResources for holders: at each hint, and periodically.

Theory of operation. A hint is an event that may change the answer: a write of the checkpoint, a pod's directory that
came or went, a stopped sandbox, or another kubelet. A round has three steps, each of which updates the holdings:

    look   named pods whose directory is gone have ended
    ask    PodResources List, once no Allocate is in flight
    ends   pods that are no longer listed and have no running sandbox have ended, even with a directory; the others,
           and those that the kubelet has struck from its note, run on if the runtime or their cgroups say so

An answer is dropped if another kubelet appeared meanwhile: the old kubelet may know ids that the new one has forgotten.
There is no round while no id is in use or unreleased.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial

from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import DOUBT
from dpgateway.errors import GatewayError, NoThread
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import aligned, backoff
from dpgateway.kit.threads import Threads
from dpgateway.node.cgroups import PodCgroups
from dpgateway.node.directory import Places
from dpgateway.node.podresources import APIS, LONGEST, PodResources, between_allocates
from dpgateway.node.pods import STARTED, PodDirectories
from dpgateway.node.sandboxes import Sandboxes

PAUSE = 0.2
"""Seconds between two rounds; a kubelet allows 100 Lists a second."""
SLOW = 30.0
"""Seconds until a round without a hint."""
BLIND = 2.0
"""The same while pods' directories can't be seen or watched: then only List tells of the end of a pod."""

CGROUPS_WITHIN = 1.0
"""Timeout in seconds for a look at the cgroups, which the kernel may hold up."""

NOTICED_WITHIN = 3.0
"""Seconds within which a kubelet notices the end of a sandbox. Until then it is asked again."""

_log = bind(__name__)


class Asking:
    """Publishes its findings as holdings. Used from the event loop."""

    def __init__(
        self, holdings: Mapping[str, ResourceHoldings], places: Places, threads: Threads, longest: float = LONGEST
    ) -> None:
        """``longest``: seconds that a round waits for Allocates in flight; after that it goes on without List."""
        self._holdings, self._longest = holdings, longest
        self._pods = PodDirectories(places.pods, self.hint)
        self._pod_resources = PodResources(places.pod_resources, threads)
        self._sandboxes = Sandboxes(places.runtimes, self._stopped)
        self._cgroups, self._threads = PodCgroups(places.cgroups), threads
        self._stops: dict[str, float] = {}
        """`_stops` contains the times of stopped sandboxes, keyed by pod, for named pods not known to have ended."""
        self._noted: dict[str, float] = {}
        """`_noted` contains the time of the note by which a pod was admitted at the latest, keyed by pod."""
        self._removed: frozenset[str] = frozenset()
        """The pods whose directories are gone."""
        self._ended: frozenset[str] = frozenset()
        """The unlisted pods without a running sandbox."""
        self._hint = asyncio.Event()
        self._another_kubelet = False
        self._failures = 0
        self._complaint = Complaint(_log, "the kubelet doesn't say which pods have what: %s", level=logging.DEBUG)
        self.answered: float | None = None
        """When the last answered List began, in seconds of the monotonic clock; None before the first."""
        self.asked = Counter[str]()
        """The number of Lists so far, by outcome."""

    @property
    def complaint(self) -> str:
        """Why List fails; empty if it doesn't."""
        return self._complaint.text

    @property
    def api(self) -> str | None:
        """The PodResources version in which this kubelet answered; None before that."""
        return self._pod_resources.api

    def hint(self) -> None:
        self._hint.set()

    def new_kubelet(self) -> None:
        self._another_kubelet = True
        self._hint.set()

    async def running(self, pods: frozenset[str], *, static: bool = False) -> frozenset[str] | None:
        """The pods, by uid, that have a container which may run; None if neither runtime nor cgroups say. ``static``:
        also of those that aren't the API server's.
        """
        if (said := await self._sandboxes.running(pods, static=static)) is not None:
            return said
        look = partial(self._cgroups.running, pods, static=static)
        try:
            return await self._threads.call_within("look at the pods' cgroups", look, CGROUPS_WITHIN)
        except (NoThread, TimeoutError):
            return None

    def _stopped(self, pod: str) -> None:
        if any(pod in holdings.value.pods for holdings in self._holdings.values()):
            self._stops[pod] = time.monotonic()
            self._hint.set()

    async def run(self) -> None:
        """Runs rounds until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(), name="watch the pods' directories")
            group.create_task(self._sandboxes.run(), name="follow the container runtime's events")
            await self._ask_which_run()  # of none: whether anybody tells
            while True:
                # A hint that comes during a round starts the next one.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await self._hint.wait()
                self._hint.clear()

                if any(holdings.value.taken for holdings in self._holdings.values()):
                    # Within STARTED a missing directory may still come: a kubelet allocates at admission and makes the
                    # pod's directory afterwards. The directories belong to the kubelet that answers on the socket
                    # beside them (pkg/kubelet/kubelet_getters.go, every release).
                    values, now = [holdings.value for holdings in self._holdings.values()], time.monotonic()
                    started = now - max(value.kubelet_since for value in values) > STARTED
                    named = frozenset().union(*(value.pods for value in values))
                    # The last note counts if each List frees the devices of pods that are gone, surely from 1.20 on;
                    # else the first one: a kubelet writes the same again at each list of any plugin.
                    written, active = max(value.written for value in values), frozenset[str]()
                    if self._pod_resources.api == APIS[0] and not self._failures:
                        active = frozenset().union(*(value.having for value in values))
                    self._noted = {pod: written if pod in active else self._noted.get(pod, written) for pod in named}
                    recent = {pod for pod, first in self._noted.items() if now - first <= STARTED}
                    # What the kubelet lists isn't known before it was asked.
                    listed, sure = frozenset().union(*(value.listing for value in values)), self.answered is not None
                    started = started and (sure or self._failures > 0)
                    self._removed = self._pods.gone(named, started=started, sure=sure, waiting=listed | recent)
                    self._publish_ends()

                    await self._ask()

                    # Pods that ended with their directory still there are unlisted, and without a running sandbox.
                    ending = frozenset().union(*(one.value.ending for one in self._holdings.values()))
                    self._ended &= ending
                    asked = ending - self._removed - self._ended
                    ended = await self._sandboxes.ended(asked) if asked else frozenset()
                    if not (asked and self._another_kubelet):  # else it was the old kubelet's pods that were unlisted
                        self._ended |= ended
                        self._publish_ends()
                    await self._ask_which_run()
                    await asyncio.sleep(PAUSE)

    def _patience(self) -> float:
        """Seconds until a round without a hint."""
        values = [holdings.value for holdings in self._holdings.values()]

        # A starting kubelet serves PodResources a little later than Register.
        if self._failures:
            return backoff(self._failures, SLOW)

        # The kubelet may still list a pod whose sandbox has stopped.
        now, over = time.monotonic(), self._removed | self._ended
        self._stops = {pod: at for pod, at in self._stops.items() if pod not in over and now - at < NOTICED_WITHIN}
        if self._stops:
            return PAUSE
        if any(value.struck.awaits(value.gone) for value in values):
            return PAUSE
        if any(value.in_doubt for value in values):
            return DOUBT
        hinted = self._pods.seen and self._pods.watched
        return aligned(SLOW if hinted or not any(value.taken for value in values) else BLIND)

    async def _ask_which_run(self) -> None:
        """Asks whether the pods run that had what the kubelet has struck, and those that it has stopped listing."""
        values = [one.value for one in self._holdings.values()]
        asked = frozenset().union(*(value.struck.all | value.ending - value.gone for value in values))
        if not asked and all(value.struck.asks for value in values):
            return
        running = await self.running(asked, static=True)
        for holdings in self._holdings.values():
            holdings.set(holdings.value.told(running, asked))

    def _publish_ends(self) -> None:
        gone = self._removed | self._ended
        for holdings in self._holdings.values():
            before = holdings.value
            after = before.ended(gone & before.pods, self._pods.starting & before.pods)
            # Without a complete view of the directories an unclear id stays unclear.
            if self._pods.started is not None:
                after = after.among(self._pods.started)
            holdings.set(after)

    async def _ask(self) -> None:
        # Allocates end by their own deadlines; the round goes on without an answer.
        usages = self._holdings.values()  # a view: resources come and go
        if not await between_allocates(lambda: any(one.grant_under_way for one in usages), self._longest):
            self.hint()
            return
        if self._another_kubelet:
            self._another_kubelet = False
            self._pod_resources.new_kubelet()

        asked = time.monotonic()
        try:
            listing = await self._pod_resources.list(self._holdings)
        except (GatewayError, OSError) as error:
            self._failures += 1
            self.asked["failure"] += 1
            self._complaint.say(str(error))
            return
        self.asked["success"] += 1
        if self._another_kubelet:  # the answer is the old kubelet's
            return
        # From the first answer on, the directories are known to be this kubelet's: see run().
        if self.answered is None:
            self.hint()
        self.answered, self._failures = asked, 0
        self._complaint.over()
        for resource in listing.keys() & self._holdings.keys():  # a reload may have added or removed some
            holdings = self._holdings[resource]
            holdings.set(holdings.value.heard(listing[resource], asked))
