"""One group of resources: its change from front to front, under running pods.

Theory of operation. :meth:`FrontSwitch.step` looks at the facts and at the present state, does what is due, and says
when to look again; it is called after each change of anything. So a gateway that starts in any state just goes on.

- Only the gateway that serves all resources of the group acts. Another one, which waits for a handover, reads the state
  from disk from time to time, because it has to begin on the right front; so does each resource before it is served.
- To DRA: the pods that waited for a kubelet come first. The scheduler takes the device plugin for as long as the Node
  shows a device. The kubelet writes its Node each 10 s, so the list is emptied first; slices are published when the
  Node shows nothing any more, and SETTLING later. Allocates of pods that come in between are served, and count.
- Back: slices are deleted first; what the scheduler had in hand is written SETTLING_CLAIMS later. Then, at random
  within SPREAD, claims are listed. A claim may be allocated long before it is prepared, because volumes are attached
  before. So claims that are allocated here and not prepared yet are waited for, up to PENDING; later ones are refused,
  and their pods have to be deleted. With a kubelet or a runtime that is too old, SETTLING is all.
- A group that nothing has offered on this node yet is served once its first front is chosen. Else a node that has just
  come gets pods in the seconds before it leaves the device plugin again, and those are refused.
- A step that waits for what doesn't come ends after PATIENCE, where devices can be had: LEAVING_PLUGIN with the device
  plugin again; LEAVING_DRA too, if the API server answers, but its slices don't become empty, because a right is gone.
  Claims of these are refused then. What an earlier gateway waited counts for LEAVING_PLUGIN, where slices are empty;
  each gateway tries anew to empty slices, because with these and a list at once two allocators give the devices away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from dpgateway.errors import GatewayError
from dpgateway.kit.clock import Clock
from dpgateway.kit.complaint import Complaint
from dpgateway.kit.log import bind
from dpgateway.kit.observable import Observable
from dpgateway.kit.timestamp import timestamp
from dpgateway.resource.published import SwitchStatus
from dpgateway.switching.choosing import ChosenFront, FrontChoice, Group, choose
from dpgateway.switching.facts import DraFacts
from dpgateway.switching.states import SwitchFiles, SwitchRecord, SwitchState
from dpgateway.switching.view import GroupView, SwitchedResources

ADMITTING = 5.0
"""Seconds from a kubelet's start for which no group leaves the device plugin: the kubelet admits the pods that were
bound while it was away, one after the other, and would refuse them."""
SETTLING = 2.0
"""Seconds from the Node without devices until slices are published: a pod that was bound before has come by then."""
PATIENCE = 120.0
"""Timeout in seconds for a Node without devices, and for empty slices at an API server that answers."""
FIRST = 10.0
"""Timeout in seconds of a group without a front for the needs of DRA; then the device plugin offers it."""
SETTLING_CLAIMS = 10.0
"""Seconds from the empty slices until the claims are listed."""
SPREAD = 5.0
"""The most seconds more, at random: a class that goes takes all nodes off DRA in the same second, and each reads all
claims of the cluster.
"""
PENDING = 60.0
"""Timeout in seconds, from then on, for claims to be prepared."""
LIST_AGAIN = 20.0
"""Seconds until the claims are listed again after a failure."""
LOOK = 5.0
"""Poll interval in seconds of what makes no event: the state on disk, the records of claims."""

_log = bind(__name__)

P, LP, D, LD = SwitchState.PLUGIN, SwitchState.LEAVING_PLUGIN, SwitchState.DRA, SwitchState.LEAVING_DRA


class FrontSwitch:
    """One group. Used from the event loop."""

    def __init__(
        self,
        record: SwitchRecord,
        facts: Observable[DraFacts],
        resources: SwitchedResources,
        files: SwitchFiles,
        *,
        clock: Clock = time,
    ) -> None:
        self.record, self.group = record, Group(())
        self.choice = FrontChoice("dra" if record.state.front == "dra" else "deviceplugin", record.because)
        """The last decision."""
        self.waits_for = ""
        """The condition for the next state; empty if there is none."""
        self._facts, self._resources, self._files, self._clock = facts, resources, files, clock
        self._spread = SPREAD * resources.jitter
        self._complaint = Complaint(_log, f"the front of {record.group} stays as it is: %s")
        self._settled: float | None = None
        """Since when the present state only has to settle; None before."""
        self._began = clock.monotonic()
        """Since when the present state is known, and served, here."""
        self._list_again, self._unlisted = float("-inf"), ""
        """When the claims may be listed again, and why they couldn't be."""
        self._read = float("-inf")
        """When the state was last read from disk, in seconds of the monotonic clock."""
        self.saved = True
        """Whether the record is of the disk; else it is written there before anything is read, or changes."""
        self.begun = asyncio.Event()
        """Set once the first front is chosen: at once, unless nothing has offered the group on this node yet."""
        self.begun.set()
        self.locked: set[str] = set()
        """`locked` contains the resources that wait for that; no other gateway serves these."""
        self._disk = asyncio.Lock()
        """Held while the state is read or written: what was read before a write mustn't undo it."""

    @property
    def status(self) -> SwitchStatus:
        record, choice = self.record, self.choice
        # What has brought it to this front may be over for days: why it stays is the last decision.
        stays = not record.state.leaving and choice.front == record.state.front
        because = choice.because if stays else record.because
        return SwitchStatus(
            record.group,
            self.group.names,
            record.state.value,
            timestamp(record.since) if record.since else None,
            because or choice.because,
            self.waits_for or None,
            choice.obstacles,
            choice.unknown,
            node.text or None if (node := self._facts.value.node).value is False else None,
            choice.flaps,
        )

    async def refresh(self) -> None:
        """Reads the state, which another gateway may have written; or writes the one that a reload has found. Raises
        GatewayError, OSError.
        """
        async with self._disk:
            self._read = self._clock.monotonic()
            if not self.saved:
                await self._files.write(self.record)
                self.saved = True
                return
            try:
                found = await self._files.read(self.record.group)
            except ValueError:
                return  # said when it was read first
            if found is not None and found != self.record and found.is_of(self.group.names):
                self._begin(found)
                self._resources.offer()

    async def step(self) -> float | None:
        """Does what is due. Returns the seconds after which to look again although nothing has changed."""
        try:
            now = self._clock.monotonic()
            again = await (self._step(now) if self.begun.is_set() else self._choose_first(now))
        except (GatewayError, OSError) as error:
            self._complaint.say(str(error))
            return LOOK
        self._complaint.over()
        return again

    async def _step(self, now: float) -> float | None:
        record, group = self.record, self.group
        view = self._resources.view(group, record.state.front)
        # Another gateway has the resources, or they haven't begun.
        if not view.serves:
            other = f"; until then their front is the other gateway's to change: {view.elsewhere}"
            self.waits_for = f"{', '.join(group.names)} to be served here{other if view.elsewhere else ''}"
            self._began = now
            if now - self._read >= LOOK:
                if self.saved:
                    await self.refresh()
                self._read = now  # what isn't on disk isn't written: the disk may be another gateway's by now
                await self._resources.move(group.names)
            return LOOK
        if not self.saved and not record.state.leaving:
            if now - self._read < LOOK:
                return LOOK
            await self.refresh()
            view = self._resources.view(group, record.state.front)
        changes = self._changes(now)
        earlier = changes[:-1] if record.state.leaving else changes
        # Once it has left the device plugin, only what would take it off DRA takes it back.
        front: ChosenFront = "deviceplugin" if record.state is P else "dra"
        self.choice = choice = choose(self._facts.value, group, front, now, earlier)
        self.waits_for = ""
        if record.state is P and choice.front == "dra":
            return await self._quit_plugin(view, choice, now)
        if record.state is D and choice.front == "deviceplugin":
            return await self._enter(LD, choice.because, now)
        if record.state.leaving:
            return await (self._leave_plugin if record.state is LP else self._leave_dra)(view, choice, now)
        return None if choice.again is None else max(0.0, choice.again - now)

    async def _choose_first(self, now: float) -> float:
        """The front on which the group begins. What the kubelet knows begins on the device plugin at once: it may have
        come by a handover. What has just begun to be false, to a gateway that has just begun, may still become true.
        """
        names = self.group.names
        self.choice = choice = choose(self._facts.value, self.group, "dra", now)
        if not self.locked:
            self.waits_for, self._began = f"{', '.join(names)} to be served here", now
            return LOOK
        try:
            await self.refresh()  # another gateway may have chosen
            known = self.record.since > 0 or await self._resources.known(names)
        except (GatewayError, OSError):
            self.begun.set()
            raise
        if known:
            self.begun.set()
            return 0.0
        others = [f"{name} to be served here" for name in names if name not in self.locked]
        closed = self._resources.view(self.group, self.record.state.front).closed
        missing = (*choice.obstacles, *choice.unknown, *others, *filter(None, [closed]))
        self.waits_for = missing[0] if missing else ""
        if choice.front == "dra" and missing and now - self._began < FIRST:
            return FIRST - (now - self._began)
        try:
            if choice.front == "dra" and not missing and self._shows_none:
                await self._enter(D, choice.because, now)
        finally:
            self.begun.set()
        return 0.0

    async def _quit_plugin(self, view: GroupView, choice: FrontChoice, now: float) -> float:
        self.waits_for = view.kept
        if self.waits_for:
            return LOOK
        if view.age < ADMITTING:
            self.waits_for = "pods that waited for the kubelet, which has just started"
            return ADMITTING - view.age
        return await self._enter(LP, choice.because, now)

    async def _leave_plugin(self, view: GroupView, choice: FrontChoice, now: float) -> float:
        if choice.front != "dra":
            return await self._enter(P, choice.because, now)
        # A gateway before this one waited a part of it, and a clock that is set back makes that look shorter.
        waited = max(self._clock.time() - self.record.since, now - self._began)
        shown = self._facts.value.allocatable
        devices = None if shown is None else {name: shown[name] for name in self.group.names if shown.get(name)}
        missing = (*choice.obstacles, *choice.unknown, *filter(None, [view.kept]))
        if missing or devices is None or devices or view.in_flight:
            self._settled = None
            found = ", ".join(f"{count} of {name}" for name, count in (devices or {}).items())
            no_device = "the Node to show no device of the device plugin"
            self.waits_for = missing[0] if missing else f"{no_device}: found {found}" if found else no_device
            if waited > PATIENCE:
                return await self._enter(P, f"for {PATIENCE:g} s it waited for {self.waits_for}", now)
            return LOOK if view.kept or view.in_flight else max(1.0, PATIENCE - waited)
        if (wait := self._settling(SETTLING, now)) > 0:
            self.waits_for = "pods that were bound before"
            return wait
        try:
            return await self._enter(D, self.record.because, now)
        except (GatewayError, OSError) as error:
            if self.record.state is D:
                raise
            again = await self._enter(P, f"its state can't be written: {error}", now)
            self.saved = False  # a write that takes its time may come after this one
            return again

    async def _leave_dra(self, view: GroupView, choice: FrontChoice, now: float) -> float:
        # What has just begun to be false, to a gateway that has just begun, is why it leaves.
        if choice.front == "dra" and not choice.unknown and not choice.obstacles and self._shows_none:
            return await self._enter(D, choice.because, now)
        refused = now - self._began > PATIENCE and view.answers
        if self._resources.published(self.group.pool) != 0 and not refused:
            self._settled = None
            self.waits_for = "its slices to be empty at the API server"
            return LOOK
        # A kubelet that can't give devices by DRA prepares no claims of pods that are on their way, so none are listed:
        # it asks the device plugin for them, and rejects them as long as that has none.
        able = self._facts.value.node.value is not False
        if (wait := self._settling(SETTLING_CLAIMS + self._spread if able else SETTLING, now)) > 0:
            self.waits_for = "claims that the scheduler had in hand"
            return wait
        pending = await self._pending(now) if able else ()
        if pending and self._settling(SETTLING_CLAIMS + PENDING, now) > 0:
            self.waits_for = f"claims to be prepared: {', '.join(sorted(pending))}"
            return LOOK
        if pending:
            text = "%s goes back to the device plugin; claims not prepared yet are refused, delete their pods: %s"
            _log.warning(text, self.record.group, ", ".join(sorted(pending)))
        return await self._enter(P, self.record.because, now)

    async def _pending(self, now: float) -> Collection[str]:
        """The claims to wait for, or why they aren't known. After a failure, whatever changes meanwhile, they aren't
        listed for LIST_AGAIN: all nodes may be leaving DRA, and each reads all claims of the cluster.
        """
        if now >= self._list_again:
            try:
                since = (now if self._settled is None else self._settled) + SETTLING_CLAIMS
                return await self._resources.pending(self.group.pool, since)
            except GatewayError as error:
                self._list_again, self._unlisted = now + LIST_AGAIN, f"those that can't be listed: {error}"
        return (self._unlisted,)

    @property
    def _shows_none(self) -> bool:
        """Whether the Node shows no device: a gateway with a full disk may have gone on to the device plugin."""
        shown = self._facts.value.allocatable
        return shown is not None and not any(shown.get(name) for name in self.group.names)

    def _settling(self, seconds: float, now: float) -> float:
        """The rest of the settling time, which the first call begins."""
        self._settled = now if self._settled is None else self._settled
        return self._settled + seconds - now

    def _begin(self, record: SwitchRecord) -> None:
        self.record, self._settled, self._began = record, None, self._clock.monotonic()
        self._spread = SPREAD * self._resources.jitter

    def _changes(self, now: float) -> tuple[float, ...]:
        """Those of this boot: the monotonic clock begins anew at each, and passes the times of an earlier one."""
        booted = self._clock.time() - now
        return self.record.changes if self.record.since >= booted else ()

    async def _enter(self, state: SwitchState, because: str, now: float) -> float:
        """The state is on disk before it has an effect. But a full disk mustn't keep a group where neither front offers
        anything: back to where it came from, and to the device plugin, it goes all the same, because the next gateway
        may go on from where it was. So it leaves DRA for a kubelet or a runtime that is too old: with these, no gateway
        has slices. Raises GatewayError, OSError.
        """
        before = replace(self.record, changes=self._changes(now), resources=self.group.names)
        forced = state is LD and self._facts.value.node.value is False
        new = before.at(state, because, now, self._clock.time(), forced=forced)
        moved = state.front != self.record.state.front and self.begun.is_set()
        async with self._disk:
            try:
                await self._files.write(new)
            except (GatewayError, OSError) as error:
                nothing = self.record.state.leaving or forced
                if not nothing or (moved and state is D):
                    if isinstance(error, TimeoutError):  # it may be written yet
                        self.saved = False
                    raise
                self.saved = False
            self._begin(new)
        text = "%s: %s, because %s"
        _log.info(text, self.record.group, _WORDS[state], because, extra={"resources": list(self.group.names)})
        self._resources.offer()
        if moved:
            await self._resources.move(self.group.names)
        return 0.0


_WORDS: Mapping[SwitchState, str] = {
    P: "the device plugin offers it",
    LP: "it leaves the device plugin for DRA",
    D: "DRA offers it",
    LD: "it leaves DRA for the device plugin",
}
