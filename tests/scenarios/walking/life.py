"""The pods of a node, through all that happens to it, and what the oracle says of them.

What can be done is here, one method for each; which of it is done, and when, says `walk`.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from dpgateway_simulator import Crashed
from tests.real_kubelet.link import Died
from tests.scenarios.engines import Real
from tests.scenarios.walking import runtime
from tests.scenarios.walking.hardware import Gone
from tests.scenarios.walking.node import STICKS, Node
from tests.scenarios.walking.oracle import GivenTwice, Grant, Violation
from tests.support.waiting import until

ANSWERED = 60.0
"""Seconds within which a kubelet has admitted a pod, whatever its plugins do."""
DIED = Crashed, Died


@dataclass
class Pod:
    name: str
    slot: str
    resource: str
    busy: bool = True
    """Whether something is done to it."""


class Life(Node):
    """Used as a node is."""

    async def __aenter__(self) -> Self:
        self.pods: dict[str, Pod] = {}
        self._names = 0
        return await super().__aenter__()

    def full(self, slot: str) -> bool:
        """Whether as many pods have got something of a slot as there is."""
        plan, sticks = self.plan, sum(index is not None for index in self.hardware.sticks.values())
        room = {"stick": sticks, "shared": plan.shared * plan.shares, "slow": plan.slow}
        kind = slot.partition("-")[0]
        return sum(pod.slot.startswith(kind) for pod in self.pods.values()) >= room.get(kind, plan.cards)

    # the kubelet

    async def restart_kubelet(self, *, graceful: bool, pods_first: bool) -> None:
        self.restarting = True
        try:
            self.counts["kubelet restarts"] += 1
            replies = await self.kubelet.restart(graceful=graceful, first="pods" if pods_first else None)
            self.kubelet.engine.slow_down(self.slow)
        except (*DIED, RuntimeError) as error:
            raise Violation("the kubelet lives", f"it ended at its restart: {error}", []) from error
        finally:
            self.restarting = False
        for name, reply in replies.items():
            if not reply["ok"] and name in self.pods:
                self.note(f"the kubelet gives {name} up: {reply.get('error')}")
                self._is_over(name)
        for name in [name for name in self.pods if name not in self.kubelet.pods]:
            self._is_over(name)

    def slow_down(self, seconds: float) -> None:
        self.slow = seconds
        if not self.restarting:
            self.kubelet.engine.slow_down(seconds)

    # pods

    async def admit(self, resource: str, slot: str, *, later: float = 0.0) -> str | None:
        """A pod that wants one device; its name, if it got one. `later`: seconds until its container starts."""
        if self.restarting:
            return None
        self._names += 1
        pod = Pod(f"p{self._names}", slot, resource)
        allowed = self.allowed(slot)
        reply: Mapping[str, Any] = {}
        async with self.giving_something():
            try:
                async with asyncio.timeout(ANSWERED):
                    if (await self.kubelet.counts(resource))[0] is None:
                        return None  # no scheduler sends a pod for what the node hasn't
                    reply = await self.kubelet.admit(pod.name, {"c": {resource: 1}}, start=not later)
            except TimeoutError:
                raise Violation("the kubelet answers", f"{pod.name} wasn't admitted in {ANSWERED:g} s", []) from None
            except Exception as error:
                self._kubelet_failed(error)
                return None
            if reply.get("stage") == "admit" or pod.name not in self.kubelet.pods:
                self.counts["pods refused"] += 1
                self.note(f"{pod.name} is refused {resource}: {_short(reply.get('error'))}")
                return None
            self.counts["pods admitted"] += 1
            self.pods[pod.name] = pod
            try:
                self._given(pod, max(allowed, self.allowed(slot)), reply)
            finally:
                pod.busy = False
            if not later and pod.name in self.pods:
                self._created(pod, reply["containers"][0])
        if later:
            await asyncio.sleep(later)
            await self.start(pod.name)
        return pod.name

    def _given(self, pod: Pod, allowed: int, reply: Mapping[str, Any]) -> None:
        """What Allocate gave, which the kubelet remembers."""
        (self.folder / "kubelet" / "pods" / pod.name).mkdir(exist_ok=True)
        try:
            found = runtime.remembered(self.kubelet.directory / "kubelet_internal_checkpoint", pod.name)
            if found is None:  # real kubelets before 1.12 may write an older note after the admission's
                found = frozenset(), reply["containers"][0]["options"]
            ids, options = found
            things = frozenset(self.runtime.nodes(options).values())
        except (FileNotFoundError, KeyError, TypeError, IndexError) as error:
            raise AssertionError(f"{pod.name}: {reply} has no answer: {error!r}") from error
        except Gone as error:
            things = frozenset()
            self.note(f"{pod.name} was given what isn't there: {error}")
        files = {one["host_path"].rpartition("/")[2] for one in options["mounts"]}
        paths = frozenset(str(self.folder / "files" / name) for name in files)
        grant = Grant(pod.resource, ids, things, paths, allowed)
        self.note(f"{pod.name} is admitted: {grant}, of {allowed} at most")
        self._judge(lambda: self.oracle.given(pod.name, grant))
        for serial in STICKS:
            if any(serial in id_ for id_ in ids) and things != {serial}:
                text = f"{pod.name} was given {'+'.join(things)} as {'+'.join(ids)}"
                self.found(Violation("its own, or nothing", text, [pod.name]))

    def _judge(self, look: Callable[[], None]) -> None:
        try:
            look()
        except GivenTwice as fault:
            self.note(f"{fault}, so they end")
            self.counts["ids that the kubelet gave twice"] += 1
            for name in fault.pods:
                self._is_over(name)
                self.spawn(f"remove {name}", self._remove(name))
        except Violation as violation:
            self.found(violation)

    def _created(self, pod: Pod, reply: Mapping[str, Any]) -> None:
        """The runtime creates the container, if the kubelet lets it."""
        options = reply.get("options")
        if reply.get("error") or not options:
            self.counts["starts refused"] += 1
            self.note(f"{pod.name} isn't started: {_short(reply.get('error'))}")
            return
        try:
            nodes = self.runtime.nodes(options)
        except Gone as error:
            self.counts["containers not created"] += 1
            self.note(f"{pod.name} can't be created: {error}")
            return
        again = self.oracle.grants[pod.name].starts if pod.name in self.oracle.grants else 0
        self.counts["containers restarted" if again else "containers started"] += 1
        self.note(f"{pod.name} starts{' again' if again else ''} with {nodes}")
        self._judge(lambda: self.oracle.started(pod.name, nodes))

    async def start(self, name: str) -> None:
        """The container starts (again); before that its process has ended."""
        pod = self.pods.get(name)
        if pod is None or pod.busy or self.restarting:
            return None
        pod.busy = True
        try:
            self.oracle.down(name)
            async with self.giving_something():
                try:
                    reply = await self.kubelet.start_container(name)
                except Exception as error:
                    return self._kubelet_failed(error)
                if name in self.pods and name in self.oracle.grants:
                    self._created(pod, reply)
        finally:
            pod.busy = False

    async def end_pod(self, name: str, *, cleaned: float = 0.0) -> None:
        """Its container ends, then the kubelet forgets it; its directory is removed some seconds later."""
        if name not in self.pods or self.restarting:
            return
        self._is_over(name)
        await self._remove(name)
        self.counts["pods ended"] += 1
        if cleaned:
            await asyncio.sleep(cleaned)
        self._clean(name)

    async def _remove(self, name: str) -> None:
        if name in self.kubelet.pods:
            try:
                await self.kubelet.remove(name)
            except Exception as error:
                self._kubelet_failed(error)

    def _is_over(self, name: str) -> None:
        self.pods.pop(name, None)
        self.oracle.ended(name)
        if name not in self.kubelet.pods:
            self._clean(name)

    def _clean(self, name: str) -> None:
        with contextlib.suppress(OSError):  # a simulated kubelet has removed it
            (self.folder / "kubelet" / "pods" / name).rmdir()

    def _kubelet_failed(self, error: Exception) -> None:
        """It may have been ended while it was asked; then nobody got anything."""
        real = isinstance(self.kubelet.engine, Real)
        if isinstance(error, DIED) and not self.restarting and (not real or "panic" in str(error)):
            raise Violation("the kubelet lives", str(error), []) from error
        self.note(f"the kubelet didn't answer: {type(error).__name__}: {_short(str(error))}")

    # at its end

    async def serves(self) -> None:
        """Until the kubelet has every list of the first gateway."""
        await until(self._counted, 60)

    async def are_free(self, slots: tuple[str, ...], seconds: float) -> None:
        """Until the kubelet has a healthy device under each name of these slots, or so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.restarting:
            names = [name for name, slot in self.names() if slot in slots]
            with contextlib.suppress(Exception):  # it has just ended
                if all([(await self.kubelet.counts(name))[1] for name in names]):
                    return
            await asyncio.sleep(0.05)

    async def _counted(self) -> bool:
        return all([(await self.kubelet.counts(self.plan.name(slot)))[1] for slot in self.plan.slots])

    async def settle(self, seconds: float) -> None:
        """Everything has ended but one gateway: each device is given again. Raises Violation."""
        await self._all_ends()
        if not self.gateways:
            await self.start_gateway(self.plan)
        if all(index is None for index in self.hardware.sticks.values()):
            self.hardware.plug(STICKS[0], 0)
        end = time.monotonic() + seconds
        waiting = list(self.plan.slots)
        while waiting:  # one round after the other: what one pod gets is nobody else's, and every admission frees
            for slot in list(waiting):
                if (pod := await self.admit(self.plan.name(slot), slot)) is not None:
                    await self.end_pod(pod)
                    waiting.remove(slot)
                    # Of a pod whose directory came and went between two looks the end is known after a minute.
                    end = time.monotonic() + seconds
            if waiting and time.monotonic() > end:
                names = ", ".join(map(self.plan.name, waiting))
                raise Violation("free in the end", f"nothing holds {names}, and for {seconds:g} s nobody gets it", [])
            await asyncio.sleep(0.5)

    async def _all_ends(self) -> None:
        self.slow_down(0)
        await until(lambda: not self.busy, 60, found=lambda: str([task.get_name() for task in self._background]))
        for one in self.gateways[:-1]:
            await self.end_gateway(one, signal.SIGTERM)
        for name in list(self.pods):
            await self.end_pod(name)


def _short(text: str | None, most: int = 260) -> str:
    return (text or "nothing was said").replace("\n", " ")[:most]
