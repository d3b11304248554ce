"""A kubelet's calls to one resource, independent of the version: options, preference, Allocate, and container starts.

Allocating and preparing is the resource's work (``resource.granting``). This module adds the device-plugin API's part:
several containers in one Allocate, CDI names for kubelets that may not know them, fields that a version lacks, the size
limit of answers, and the check, before a start, that the kubelet's stored answer still means the same devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dpgateway.deviceplugin.api import LARGEST, Api, Call
from dpgateway.deviceplugin.cdi import CdiDelivery, Recipient
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.deviceplugin.preferred import PreferredAllocation
from dpgateway.deviceplugin.stored_answers import StoredAnswers
from dpgateway.deviceplugin.values import Grant, Options, Preference
from dpgateway.errors import CdiError, RequestError
from dpgateway.model import Allocation
from dpgateway.node.checkpoint import WRITING
from dpgateway.node.sandboxes import END_WITHIN, outlasting
from dpgateway.resource.granting import CLAIMS_END, Granting, Terms

NOTHING = Allocation()


class KubeletCalls:
    """Used from the event loop."""

    def __init__(
        self,
        granting: Granting,
        holdings: ResourceHoldings,
        cdi: CdiDelivery,
        api: Api,
        claimed: Callable[[], bool] = lambda: False,
    ) -> None:
        """``claimed``: whether containers have devices of the resource by claims, from another front."""
        self.granting, self.inventory, self.releases = granting, granting.inventory, granting.releases
        self.name, self.driver = granting.inventory.name, granting.driver
        self._config, self._log, self._cdi, self._holdings = granting.config, granting.log, cdi, holdings
        self.api = api
        """The API of the last Register: 1.8 and 1.9 share a path, but not the format of Allocate's answer."""
        self.agent = ""
        """The user agent of the kubelet that opened the last stream; of the first call before any stream."""
        self._claimed = claimed
        self.allocate_prepares = False
        """Whether the kubelet was told not to call PreStartContainer, so Allocate prepares."""
        self._before: dict[str, frozenset[str]] = {}
        """`_before` contains the uids of the pods that had an id before it was given away, until its container starts,
        keyed by id.
        """
        self._preferred = PreferredAllocation(self._config, self.inventory.ledger, self.driver, self._log)
        self.answers = StoredAnswers(granting, holdings, cdi, api=lambda: self.api)

    def speak(self, api: Api) -> None:
        """Sets the version of this registration."""
        self.api = api

    def remember_agent(self, agent: str) -> None:
        """A kubelet with this user agent has opened a stream, or calls before that."""
        self.agent = agent

    def patience(self, call: Call, api: Api) -> float:
        """The most seconds that an answer takes: the waits for earlier containers, each of them at most half of the
        driver's timeout, that timeout, and the delivery of CDI devices, or before a start their check, for which the
        driver is asked, too. A kubelet has a timeout of its own only for PreStartContainer, 30 s.
        """
        timeouts = self._config.value.timeouts
        prepare, allocate = timeouts.prepare.total_seconds(), timeouts.allocate.total_seconds()
        if call is Call.PREPARE:
            return prepare + min(END_WITHIN, prepare / 2) + allocate + self._cdi.longest
        if call is Call.ALLOCATE:
            waits = sum(min(one, allocate / 2) for one in (WRITING, END_WITHIN, CLAIMS_END))
            return allocate + waits + self._cdi.longest + (prepare if self._prepares(api) else 0.0)
        return timeouts.prefer.total_seconds()

    # the calls

    def options(self) -> Options:
        """The options. PreStartContainer is wanted, because the kubelet's stored answer may be outdated; but not while
        claims have devices: with it, no container would start that has the resource by a claim (``remainder``). Then a
        preference is wanted in any case, because the kubelet doesn't know which devices the claims have.
        """
        # Until the next kubelet, or the end of this plugin: another registration takes all devices away for a second.
        self.allocate_prepares = self.allocate_prepares or self._claimed()
        if self.allocate_prepares:
            self._holdings.set(self._holdings.value.unasked())
        return Options(prepare=not self.allocate_prepares, prefer=self.allocate_prepares or self._preferred.available)

    def new_kubelet(self) -> None:
        """Forgets what the kubelet before was told: this one asks for the options anew."""
        self.allocate_prepares = False

    def _prepares(self, api: Api) -> bool:
        """Whether Allocate prepares, because the kubelet doesn't ask for it before a start."""
        return self.allocate_prepares or Call.PREPARE not in api.by_call

    async def prefer(self, requests: Iterable[Preference]) -> tuple[tuple[str, ...], ...]:
        """The best ids for each container. Never raises: an empty answer leaves the choice to the kubelet."""
        return tuple([await self._preferred.answer(request) for request in requests])

    async def allocate(
        self, requests: Iterable[Sequence[str]], api: Api, *, prepares: bool = False
    ) -> tuple[Grant, ...]:
        """One grant per container, in the order of the requests; also prepared if ``api`` has no PreStartContainer, or
        the kubelet was told not to call it, perhaps by an older gateway (``prepares``). Raises GatewayError.
        """
        grants: list[Grant] = []
        prepares = prepares or self._prepares(api)
        with self._holdings.kubelet_allocates():
            for asked in requests:
                ids, had = tuple(dict.fromkeys(asked)), self._holdings.value
                if not ids:
                    grants.append(Grant(ids, NOTHING))
                    continue
                # An id that the kubelet considers free may still be in use, if its pod went while no kubelet ran, or
                # was deleted by force.
                if not api.repeats and (had.stale or had.earlier(ids)):
                    had = await self._earlier_end(ids)

                # The start will ask for the pods that had the ids. A pod's containers may get one after the other.
                if not prepares:
                    self._before |= {i: self._before.get(i, frozenset()) | had.earlier([i]) for i in ids}
                deliver = partial(self._deliver, ids, api, tuple(grants))
                terms = Terms(api.name, deliver, api.repeats, prepares)
                grants.append(Grant(ids, await self.granting.grant(ids, terms)))
        return tuple(grants)

    async def _earlier_end(self, ids: tuple[str, ...]) -> Holdings:
        """Waits for the containers that had these ids; returns the holdings then. Of a pod that is deleted by force a
        kubelet frees them at once, but its containers run for their grace period (2 s with 1.34 to 1.37). The next
        static pod of a name starts only after the one before, so these aren't waited for. Raises RequestError.
        """
        # The driver has all of the timeout afterwards.
        half = self._config.value.timeouts.allocate.total_seconds() / 2

        # A kubelet that has just started has written a note for its first list, and may have taken devices back from
        # pods that went while none ran, whose containers run on.
        if self._holdings.value.stale:
            with contextlib.suppress(TimeoutError):  # the disk hangs, and the kubelet waits
                async with asyncio.timeout(min(WRITING, half)):
                    await self._holdings.read()

        # Perhaps they are of the same pod, whose init containers have them; then nothing of it runs yet.
        within = min(END_WITHIN, half)
        if running := await outlasting(self._holdings.running, lambda: self._holdings.value.earlier(ids), within):
            which = ", ".join(sorted(running))
            raise RequestError(
                f"resource {self.name}: {', '.join(ids)} can't be given away yet: the kubelet has taken it back from a "
                f"pod that still runs ({which}); was that deleted by force?"
            )
        return self._holdings.value

    async def _deliver(
        self, ids: tuple[str, ...], api: Api, others: tuple[Grant, ...], allocation: Allocation
    ) -> Allocation:
        """Adapts the allocation to this kubelet and its runtime. ``others``: the earlier grants of the same answer.
        Raises RequestError or CdiError.
        """
        config = self._config.value
        if allocation.cdi_devices or config.cdi == "always":
            to = Recipient(self.name, ids, config.cdi, api.passes_cdi(self.agent))
            try:
                allocation, warning = await self._cdi.deliver(allocation, to)
            except CdiError as error:
                raise CdiError(f"resource {self.name}: {error}") from error
            if warning:
                self.granting.log_once(logging.WARNING, warning)
        # A container may work without them, so a loss is logged, not refused.
        for field in api.losses:
            if getattr(allocation, field):
                text = f"the kubelet's API {api.name} has no {field}: containers don't get them"
                self.granting.log_once(logging.WARNING, text)
        # The kubelet would reject a longer answer, too, but this error names the remedy.
        answer = (*others, Grant(ids, allocation))
        if len(api.by_call[Call.ALLOCATE].encode(answer)) > LARGEST:
            less = f"let the driver {config.driver}, or the configuration at {config.where}, give a container less"
            what = "env, annotations, mounts, device nodes or CDI devices"
            text = f"{api.too_large(answer)}; {less} {what}: device {', '.join(ids)}"
            raise RequestError(f"resource {self.name}: {text}")
        return allocation

    async def prepare(self, ids: Sequence[str]) -> None:
        """Prepares these ids for the start of their container, first or repeated. Raises GatewayError; the kubelet asks
        again.
        """

        # A static pod may have had these ids. A kubelet frees them once its manifest is gone, but its containers run
        # for their grace period. An Allocate can't wait for it, because that may be of the next static pod of its name,
        # which starts only then.
        async def ask(pods: frozenset[str]) -> frozenset[str] | None:
            if not self._holdings.value.fresh.isdisjoint(ids):  # by now the kubelet has noted whose they are
                await self._holdings.read()
            return await self._holdings.running(pods, static=True)

        within = min(END_WITHIN, self._config.value.timeouts.prepare.total_seconds() / 2)
        if running := await outlasting(ask, partial(self._had_before, ids), within):
            which = ", ".join(sorted(running))
            text = f"{', '.join(ids)} can't be prepared yet: a pod that had it before still runs ({which})"
            raise RequestError(f"resource {self.name}: {text}")
        for id_ in ids:
            self._before.pop(id_, None)
        await self.granting.prepare(ids, self.answers.check, self.api.name)

    def _had_before(self, ids: Sequence[str]) -> frozenset[str]:
        """The uids of the pods that had these ids and aren't known to have ended. A kubelet frees all devices of a pod
        at once, so one that has any is this one, or a static pod that was started again, which has the uid it had.
        """
        value = self._holdings.value
        up_to_date = value.fresh.isdisjoint(ids)
        have = [noted.pods for noted in (value.note or {}).values()] if up_to_date else []
        had = [self._before.get(id_, frozenset[str]()) for id_ in ids]
        # Another gateway may have allocated: the notes of this pod and of those before tell of it, too.
        noted = [value.struck.of(id_) for id_ in ids if id_ in (value.note or ())]
        return frozenset().union(*had, *noted).difference(value.gone, *have)
