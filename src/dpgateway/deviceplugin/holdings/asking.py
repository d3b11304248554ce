"""Finds out which pods are gone, and asks the kubelet which pod has what: at each hint, and sometimes without one.

Theory of operation. A hint is whatever may have changed the answer: another checkpoint, a pod's directory that came or
went, a sandbox that stopped, or another kubelet. A round has three steps, each of which changes the holdings:

    look   which of the named pods have no directory any more: they are gone
    ask    PodResources List, once no Allocate is in flight
    ends   which pods that aren't listed any more have no running sandbox: they have ended, although their directory is
           still there

An answer is dropped if another kubelet came meanwhile: the one before may have known what this one has forgotten. There
is no round while no id is in use or unreleased.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Mapping

from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import DOUBT
from dpgateway.errors import GatewayError
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.tasks import aligned, backoff
from dpgateway.kit.threads import Threads
from dpgateway.node.directory import Places
from dpgateway.node.podresources import PodResources
from dpgateway.node.pods import STARTED, PodDirectories
from dpgateway.node.sandboxes import Sandboxes

PAUSE = 0.2
"""Seconds between two looks; a kubelet allows 100 Lists a second."""
SLOW = 30.0
"""Seconds after which there is a look without a hint."""
BLIND = 2.0
"""The same while pods' directories can't be seen, or aren't watched: then nothing hints at the end of a pod, but the
kubelet's answer."""

LONGEST = 30.0
"""Seconds for which the kubelet isn't asked because of an Allocate that is in flight; then it is asked all the same."""
_LOOK = 0.02
"""Seconds between two looks at what is in flight."""

SETTLING = 3.0
"""Seconds after the end of a pod's sandbox within which its kubelet has noticed. Until then it is asked again."""

_log = bind(__name__)


class Asking:
    """Used from the event loop; publishes what it finds out as holdings."""

    def __init__(self, holdings: Mapping[str, ResourceHoldings], places: Places, threads: Threads) -> None:
        self._holdings = holdings
        self._pods = PodDirectories(places.pods, self.hint)
        self._pod_resources = PodResources(places.pod_resources, threads)
        self._sandboxes = Sandboxes(places.runtimes, self._stopped)
        self._stops: dict[str, float] = {}
        """When the sandbox of each of these pods stopped, of those that are named and weren't known to be gone."""
        self._removed: frozenset[str] = frozenset()
        """The pods whose directories are gone."""
        self._ended: frozenset[str] = frozenset()
        """The pods that the kubelet doesn't list any more, and of which nothing runs."""
        self._hint = asyncio.Event()
        self._another_kubelet = False
        self._failures = 0
        self._complaint = Complaint(_log, "the kubelet doesn't say which pods have what: %s", level=logging.DEBUG)
        self.answered: float | None = None
        """When the kubelet said it last, in seconds of the monotonic clock."""
        self.asked = Counter[str]()
        """How often the kubelet was asked so far, by outcome."""

    @property
    def complaint(self) -> str:
        """Why the kubelet doesn't say which pods have what; empty if it does."""
        return self._complaint.text

    @property
    def api(self) -> str | None:
        """The version of PodResources in which this kubelet answered."""
        return self._pod_resources.api

    def hint(self) -> None:
        self._hint.set()

    def new_kubelet(self) -> None:
        self._another_kubelet = True
        self._hint.set()

    def _stopped(self, pod: str) -> None:
        if any(pod in holdings.value.pods for holdings in self._holdings.values()):
            self._stops[pod] = time.monotonic()
            self._hint.set()

    async def run(self) -> None:
        """Looks and asks until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(), name="watch the pods' directories")
            group.create_task(self._sandboxes.run(), name="follow the container runtime's events")
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await self._hint.wait()
                self._hint.clear()
                if any(holdings.value.taken for holdings in self._holdings.values()):
                    self._look()
                    await self._ask()
                    await self._see_ends()
                    await asyncio.sleep(PAUSE)

    def _patience(self) -> float:
        """Seconds until a round without a hint."""
        values = [holdings.value for holdings in self._holdings.values()]

        # A kubelet that starts serves this API a little later than the other.
        if self._failures:
            return backoff(self._failures, SLOW)

        # The sandbox of a pod has stopped, and its kubelet may still list it.
        now, over = time.monotonic(), self._removed | self._ended
        self._stops = {pod: at for pod, at in self._stops.items() if pod not in over and now - at < SETTLING}
        if self._stops:
            return PAUSE
        if any(value.in_doubt for value in values):
            return DOUBT
        hinted = self._pods.seen and self._pods.watched
        return aligned(SLOW if hinted or not any(value.taken for value in values) else BLIND)

    def _look(self) -> None:
        values = [holdings.value for holdings in self._holdings.values()]
        admitted = max(max(value.written, value.kubelet_since) for value in values)
        named = frozenset().union(*(value.pods for value in values))
        started = time.monotonic() - admitted > STARTED
        # whoever answers on the socket has its pods beside it (pkg/kubelet/kubelet_getters.go, every release)
        self._removed = self._pods.gone(named, started=started, sure=self.answered is not None)
        self._publish_ends()

    async def _see_ends(self) -> None:
        """What has ended although its directory is still there: a kubelet lists it no more, and nothing of it runs."""
        ending = frozenset().union(*(holdings.value.ending for holdings in self._holdings.values()))
        self._ended &= ending
        if asked := ending - self._removed - self._ended:
            ended = await self._sandboxes.ended(asked)
            if self._another_kubelet:
                return
            self._ended |= ended
        self._publish_ends()

    def _publish_ends(self) -> None:
        gone = self._removed | self._ended
        for holdings in self._holdings.values():
            before = holdings.value
            after = before.ended(gone & before.pods, self._pods.starting & before.pods)
            if self._pods.started is not None:
                after = after.among(self._pods.started)
            holdings.set(after)

    async def _ask(self) -> None:
        # List frees the devices of deleted pods, and for that the kubelet recounts what is allocated: without the
        # devices that it is just allocating, which it would give to the next pod, too (UpdateAllocatedDevices in
        # pkg/kubelet/cm/devicemanager/manager.go, 1.37; nothing adds them again once Allocate was answered).
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST):
                while any(one.value.in_flight for one in self._holdings.values()):  # noqa: ASYNC110  it is amended
                    await asyncio.sleep(_LOOK)
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
        if self._another_kubelet:  # the one before answered, which may have known what this one has forgotten
            return
        if self.answered is None:
            self.hint()
        self.answered, self._failures = asked, 0
        self._complaint.over()
        for resource in listing.keys() & self._holdings.keys():  # some may have come or gone meanwhile
            holdings = self._holdings[resource]
            holdings.set(holdings.value.heard(listing[resource], asked))
