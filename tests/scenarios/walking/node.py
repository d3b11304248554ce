"""A node of the walk: a kubelet, gateways, each with a configuration of its own, a container runtime, and hardware.

Hardware changes only while no container is being given something or started, because no gateway can know what happens
between its answer and the runtime's look.
"""

import asyncio
import contextlib
import inspect
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

from tests.scenarios.engines import Make
from tests.scenarios.kubelet import Kubelet
from tests.scenarios.walking import runtime, slow_release
from tests.scenarios.walking.hardware import Hardware
from tests.scenarios.walking.oracle import Oracle, Violation
from tests.scenarios.walking.plan import Plan
from tests.support import gateway
from tests.support.drivers import Site
from tests.support.waiting import until

STICKS = "STICK-A", "STICK-B", "STICK-C"
SOURCE = inspect.getsource(slow_release)


class WalkingGateway(gateway.Gateway):
    """One process, with a folder of its own; what a node has once is the node's."""

    log_format = "text"

    def __init__(self, node: "Node", number: int, plan: Plan) -> None:
        folder = node.folder / f"g{number}"
        folder.mkdir()
        super().__init__(folder, node.kubelet.directory)
        self.number, self.plan, self._node = number, plan, node
        self.effective = [plan]
        """The configurations of which one counts; the last one is the newest."""
        self.stopped = False
        """By SIGSTOP."""
        self.environment = {"PYTHONPATH": str(node.site)}
        self.runtime = {"socket": str(node.runtime.socket), "cdi_dirs": [str(node.runtime.cdi)]}

    def __str__(self) -> str:
        return f"g{self.number}"

    def _config(self) -> dict[str, Any]:
        return super()._config() | {"state_dir": str(self._node.folder / "state")}

    @property
    def heard(self) -> bool:
        """Whether it has begun to speak; before that a signal ends it like any young process."""
        return bool(self.log)

    @property
    def ready(self) -> bool:
        """Whether it has registered everything once."""
        registered = sum(" registered resource=" in line for line in self.log)
        return self.running and not self.stopped and registered >= len(self.plan.slots)

    def send(self, number: signal.Signals) -> None:
        if self.running:
            self.process.send_signal(number)
            self.stopped = number == signal.SIGSTOP or (self.stopped and number != signal.SIGCONT)


@dataclass
class Node:
    """What isn't its pods. Used from the event loop, within `async with`."""

    make: Make
    release: str
    random: Random
    plan: Plan
    note: Callable[[str], None]
    found: Callable[[Violation], None]
    counts: Counter[str] = field(default_factory=Counter)

    async def __aenter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="walk-"))
        # As on every node there is another pod: an empty directory proves nothing of pods that were never seen in it.
        (self.folder / "kubelet" / "pods" / "agent").mkdir(parents=True)
        (self.folder / "files").mkdir()
        self.hardware = Hardware(self.folder / "host")
        for family, count in (("card", self.plan.cards), ("shared", self.plan.shared), ("slow", self.plan.slow)):
            self.hardware.make(family, count)
        for index, serial in enumerate(STICKS[:2]):
            self.hardware.plug(serial, index)
        self.hardware.sticks[STICKS[2]] = None
        self.site = self.folder / "site"
        self.site.mkdir()
        Site(self.site)(SOURCE, module="slow_release", drivers={"slow-release": "slow_release"})
        self.runtime = runtime.Runtime(self.folder, self.hardware)
        await self.runtime.start()
        self.kubelet = Kubelet(self.make, self.release, self.folder / "kubelet" / "device-plugins")
        self.kubelet.plugin_paused = self._paused
        self.oracle = Oracle()
        self.gateways: list[WalkingGateway] = []
        self.ended: list[WalkingGateway] = []
        self.restarting = False
        self.slow = 0.0
        self._numbers = self._giving = 0
        self._background: set[asyncio.Task[None]] = set()
        self.errors: list[BaseException] = []
        await self.kubelet.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for one in [*self.gateways, *self.ended]:
            one.send(signal.SIGCONT)
            await one.close()
        await self.kubelet.close()
        await self.runtime.stop()
        self.hardware.close()
        shutil.rmtree(self.folder)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Gateways do nothing while a kubelet admits its pods again."""
        running = [one for one in self.gateways if not one.stopped]
        for one in running:
            one.send(signal.SIGSTOP)
        try:
            yield
        finally:
            for one in running:
                one.send(signal.SIGCONT)

    # in the background

    def spawn(self, name: str, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.errors.append(error)

    @property
    def busy(self) -> int:
        return len(self._background)

    def check(self) -> None:
        """What can be looked at any time. Raises what went wrong in the background."""
        if self.errors:
            raise self.errors[0]
        try:
            self.oracle.files(str(path) for path in (self.folder / "files").iterdir())
        except Violation as violation:
            self.found(violation)

    # gateways

    @property
    def newest(self) -> WalkingGateway | None:
        return self.gateways[-1] if self.gateways else None

    async def start_gateway(self, plan: Plan) -> WalkingGateway:
        self._numbers += 1
        new = WalkingGateway(self, self._numbers, plan)
        self.plan = plan
        self.gateways.append(new)
        await new.start(*plan.resources(self.hardware, str(self.folder / "files")))
        return new

    async def end_gateway(self, one: WalkingGateway, number: signal.Signals) -> None:
        if one in self.ended:
            return
        one.send(signal.SIGCONT)
        self.ended.append(one)
        heard = one.heard
        status = await one.end(number)
        if one in self.gateways:
            self.gateways.remove(one)
        self.note(f"{one} ended with {status}")
        self.counts[f"gateways {'killed' if number == signal.SIGKILL else 'ended'}"] += 1
        if number == signal.SIGTERM and status != 0 and heard:
            self.found(Violation("an orderly end", f"{one} ended with {status} after SIGTERM", []))

    def reload(self, one: WalkingGateway, plan: Plan) -> None:
        one.plan = self.plan = plan
        one.effective.append(plan)
        read = sum("the configuration was read again" in line for line in one.log)
        one.reload(*plan.resources(self.hardware, str(self.folder / "files")))
        self.counts["reloads"] += 1
        self.spawn("reload", self._reloaded(one, plan, read))

    async def _reloaded(self, one: WalkingGateway, plan: Plan, read: int) -> None:
        with contextlib.suppress(AssertionError):  # it has ended
            await one.said("the configuration was read again", read + 1)
            await asyncio.sleep(0.5)  # a line may be about an older file, because it looks at the file, too
        if plan in one.effective:
            del one.effective[: one.effective.index(plan)]

    async def pause(self, one: WalkingGateway, seconds: float) -> None:
        """It is stopped for a while."""
        one.send(signal.SIGSTOP)
        self.counts["gateways stopped"] += 1
        await asyncio.sleep(seconds)
        one.send(signal.SIGCONT)

    def names(self) -> list[tuple[str, str]]:
        """The resources that some gateway may serve, each with its slot."""
        return sorted(
            {(plan.name(slot), slot) for one in self.gateways for plan in one.effective for slot in plan.slots}
        )

    @property
    def calm(self) -> bool:
        """Whether one gateway serves, and all of its configuration."""
        return len(self.gateways) == 1 and self.gateways[0].ready and not self.restarting

    def allowed(self, slot: str) -> int:
        """How many containers may have a device of it, as far as any gateway may have its configuration."""
        plans = [plan for one in self.gateways for plan in one.effective]
        return max((plan.allowed(plan.name(slot)) for plan in plans), default=1)

    # hardware

    @asynccontextmanager
    async def giving_something(self) -> AsyncIterator[None]:
        self._giving += 1
        try:
            yield
        finally:
            self._giving -= 1

    async def hotplug(self, change: Callable[[], object]) -> None:
        await until(lambda: not self._giving)
        change()
        self.counts["hardware changes"] += 1

    def exchange_sticks(self) -> None:
        """Two sticks come back in another order; if only one is there, another one takes its place."""
        there = [serial for serial, index in self.hardware.sticks.items() if index is not None]
        absent = [serial for serial in self.hardware.sticks if serial not in there]
        indexes = [self.hardware.sticks[serial] for serial in there]
        for serial in there:
            self.hardware.unplug(serial)
        coming = [*reversed(there)] if len(there) > 1 else absent[:1]
        for serial, index in zip(coming, indexes, strict=False):
            assert index is not None
            self.hardware.plug(serial, index)

    def move_stick(self) -> None:
        """One goes, or comes back, wherever there is room."""
        serial = self.random.choice(list(self.hardware.sticks))
        if self.hardware.sticks[serial] is not None:
            return self.hardware.unplug(serial)
        taken = set(self.hardware.sticks.values())
        return self.hardware.plug(serial, self.random.choice([index for index in range(3) if index not in taken]))

    def swap_cards(self) -> None:
        if self.plan.cards > 1:
            self.hardware.swap_nodes("card0", "card1")
