"""Random lives of a node, against a plain model of what must hold after each step.

Replay one with `DPGATEWAY_SEED=n`; without it the sequences are always the same. `DPGATEWAY_SEQUENCES` says how many.
Hypothesis shrinks what fails. The model knows what the driver lists and, from the kubelet's own file, who holds what:

- what is healthy at the kubelet is exactly what the driver has, in all its shares;
- what is present or held is listed, and nothing is listed that never was;
- a container that asks for what is free gets it, and gets the devices of its ids;
- the kubelet never crashes.
"""

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.real_kubelet.programs import RELEASES
from tests.scenarios.engines import REAL, Make, Real
from tests.scenarios.gateway import Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet, devices
from tests.scenarios.observer import Observer

DEVICES = 3
PLACE = st.integers(0, 5)
LOSSY = {("1.9", "1.8"), ("1.8", "1.9"), ("1.10", "1.12"), ("1.12", "1.10"), ("1.24", "1.12")}
"""Releases between which the kubelet forgets who holds what: each step of the ways between those where files differ."""


def written(path: Path, seconds: float = 0.3) -> dict[str, Any]:
    """What the file says. 1.8 and 1.9 write it in place: it may be empty for a moment, or stay so if killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            document: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return {}
        except json.JSONDecodeError:
            continue
        return document
    return {}


def held(directory: Path) -> dict[str, set[str]]:
    """Pod -> the ids it holds, as the kubelet wrote it down."""
    document = written(directory / "kubelet_internal_checkpoint")
    data = document.get("Data", document)
    found: dict[str, set[str]] = {}
    for entry in data.get("PodDeviceEntries") or data.get("Entries") or ():
        ids = entry["DeviceIDs"] if "DeviceIDs" in entry else [entry["DeviceID"]]
        flat = [i for some in ids.values() for i in some] if isinstance(ids, dict) else ids
        found.setdefault(entry["PodUID"], set()).update(flat)
    return found


class Node(RuleBasedStateMachine):
    make: Make

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="random-"))
        self.absent: frozenset[int] = frozenset()
        self.unhealthy: frozenset[int] = frozenset()
        self.shares = 1
        self.names = 0
        self.asked: dict[str, int] = {}
        self.once: set[str] = set()
        self.observer: Observer | None = None
        self.forgot = False
        """Whether a kubelet could not read what an earlier one wrote down."""

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    @initialize(release=st.sampled_from(RELEASES), shares=st.integers(1, 3))
    def begin(self, release: str, shares: int) -> None:
        self.kubelet = Kubelet(self.make, release, self.folder / "dp")
        self.kubelet.policy, self.kubelet.numa = "best-effort", 2
        (self.folder / "dp").mkdir()
        self.gateway = self.made_gateway()
        self.do(self.kubelet.start())
        self.do(self.start_gateway(shares))
        self.do(self.settle())

    def made_gateway(self) -> Gateway:
        gateway = Gateway(self.folder, self.folder / "dp")
        gateway.options |= {"count": DEVICES, "numa": [0, 1, 0]}
        self.kubelet.plugin_paused = gateway.paused
        return gateway

    # what the driver has

    def ids(self, index: int) -> set[str]:
        return {f"node-{index}", *(f"node-{index}::{n}" for n in range(1, self.shares))}

    @property
    def offered(self) -> set[str]:
        return {i for index in set(range(DEVICES)) - self.absent for i in self.ids(index)}

    @property
    def healthy(self) -> set[str]:
        return {i for index in set(range(DEVICES)) - self.absent - self.unhealthy for i in self.ids(index)}

    def noted(self, index: int) -> set[str]:
        """The ids of a device that the kubelet wrote down, also for pods that are gone: the gateway knows no more."""
        noted = {i for ids in held(self.kubelet.directory).values() for i in ids}
        return {i for i in noted if i.partition("::")[0] == f"node-{index}"}

    def right_shares(self, index: int, ok: set[str]) -> bool:
        """Shares that are held under ids which aren't offered any more keep as many free ones from being given."""
        ids, noted = self.ids(index), self.noted(index)
        if not ids & noted <= ok:
            return False
        crowd = min(len(ids - noted), len(noted - ids))
        return len(ok & ids) == len(ids) - crowd or self.forgot

    @property
    def held(self) -> set[str]:
        return {i for pod, ids in held(self.kubelet.directory).items() if pod in self.kubelet.pods for i in ids}

    def pod(self, place: int) -> str | None:
        pods = sorted(self.kubelet.pods)
        return pods[place % len(pods)] if pods else None

    # what happens: what is drawn never depends on what a kubelet did, or hypothesis couldn't replay it

    @rule(graceful=st.booleans(), plugin_first=st.booleans())
    def restart_kubelet(self, graceful: bool, plugin_first: bool) -> None:
        self.do(self.restart(self.kubelet.release, graceful, plugin_first))

    @rule(graceful=st.booleans(), up=st.booleans())
    def change_kubelet(self, graceful: bool, up: bool) -> None:
        place = RELEASES.index(self.kubelet.release) + (1 if up else -1)
        if 0 <= place < len(RELEASES):
            self.do(self.restart(RELEASES[place], graceful, False))

    async def restart(self, release: str, graceful: bool, plugin_first: bool) -> None:
        kept = (self.kubelet.release, release) not in LOSSY
        self.forgot |= not kept
        calm = self.healthy and self.held <= self.healthy and plugin_first and self.observer
        known = held(self.kubelet.directory)  # whom a kubelet forgot competes with what it remembers of a refused pod
        replies = await self.kubelet.restart(release, graceful=graceful, first="plugin" if calm else None)
        if calm and kept:
            assert all(reply["ok"] for pod, reply in replies.items() if pod in known), replies
        await self.settle()

    @rule(count=st.integers(1, 4))
    @precondition(lambda self: self.observer is not None)
    def admit(self, count: int) -> None:
        self.do(self.admit_pod(count))

    async def admit_pod(self, count: int) -> None:
        free = self.healthy - self.held
        # what a kubelet forgot in an upgrade is still counted as used by its pods
        room = len(self.healthy) - sum(self.asked[pod] for pod in self.kubelet.pods)
        crowded = not self.held <= self.offered
        self.names += 1
        name = f"p{self.names}"
        reply = await self.kubelet.admit(name, {"c": {RESOURCE: count}})
        self.asked[name] = count
        # a kubelet may choose a share of a device of which all are held, under ids that aren't offered any more
        if count <= min(len(free), room) and not crowded:
            assert reply["ok"], (free, reply)
        if reply["ok"] and self.kubelet.minor > 8:
            got = held(self.kubelet.directory).get(name)
            if got is None:
                # real ones of these releases may write a list's older note after the admission's
                assert isinstance(self.kubelet.engine, Real)
                assert self.kubelet.minor in (9, 10)
            else:
                assert len(got) == count
                assert got <= self.healthy
                assert devices(reply) == {i.partition("::")[0] for i in got}
        if not reply["ok"] and name in self.kubelet.pods:
            await self.kubelet.remove(name)
        await self.settle()

    @rule(place=PLACE)
    def delete(self, place: int) -> None:
        if pod := self.pod(place):
            self.do(self.kubelet.remove(pod))
            self.do(self.settle())

    @rule(place=PLACE)
    @precondition(lambda self: self.observer is not None)
    def restart_container(self, place: int) -> None:
        pod = self.pod(place)
        if pod is None:
            return
        ids = held(self.kubelet.directory).get(pod)
        reply = self.do(self.kubelet.start_container(pod))
        if ids and ids <= self.healthy:
            assert reply["ok"], reply
        if ids and self.kubelet.minor >= 10 and any(int(i[5]) in self.absent for i in ids):
            assert not reply["ok"], "started without its device"

    @rule(absent=st.frozensets(st.integers(0, DEVICES - 1)), unhealthy=st.frozensets(st.integers(0, DEVICES - 1)))
    def hotplug(self, absent: frozenset[int], unhealthy: frozenset[int]) -> None:
        self.absent, self.unhealthy = absent, unhealthy
        faults = [{"indexes": sorted(absent), "absent": True}] if absent else []
        faults += [{"indexes": sorted(unhealthy), "unhealthy": "worn out"}] if unhealthy else []
        self.gateway.suffer(*faults)
        self.do(self.settle())

    @rule(number=st.sampled_from([signal.SIGTERM, signal.SIGKILL]), shares=st.integers(1, 3))
    def restart_gateway(self, number: signal.Signals, shares: int) -> None:
        self.do(self.stop_gateway(number))
        self.do(self.start_gateway(shares))
        self.do(self.settle())

    @rule(number=st.sampled_from([signal.SIGTERM, signal.SIGKILL]))
    @precondition(lambda self: self.observer is not None)
    def gateway_away(self, number: signal.Signals) -> None:
        self.do(self.stop_gateway(number))

    @rule(shares=st.integers(1, 3))
    @precondition(lambda self: self.observer is None)
    def gateway_back(self, shares: int) -> None:
        self.do(self.start_gateway(shares))
        self.do(self.settle())

    @rule(number=st.sampled_from([signal.SIGTERM, signal.SIGKILL]), handed=st.booleans())
    @precondition(lambda self: self.observer is not None)
    def upgrade_gateway(self, number: signal.Signals, handed: bool) -> None:
        self.do(self.follow_gateway(number, handed))
        self.do(self.settle())

    async def follow_gateway(self, number: signal.Signals, handed: bool) -> None:
        """``handed``: the older one ends once another one has taken over; else it may have done so, or be about to."""
        older, self.gateway = self.gateway, self.made_gateway()
        self.gateway.resource |= {"shares": self.shares, "preference": "packed"}
        await self.gateway.start()
        await self.gateway.said("took over from another gateway" if handed else "another gateway serves")
        assert await older.end(number) == (0 if number == signal.SIGTERM else -number)
        self.observer = await self.gateway.observe()

    async def start_gateway(self, shares: int) -> None:
        self.shares = self.gateway.resource["shares"] = shares
        self.gateway.resource["preference"] = "packed"
        await self.gateway.start()
        self.observer = await self.gateway.observe()

    async def stop_gateway(self, number: signal.Signals) -> None:
        if self.observer is not None:
            assert await self.gateway.end(number) == (0 if number == signal.SIGTERM else -number)
        self.observer = None

    # what must hold

    async def settle(self) -> None:
        """Until the gateway lists what it must, and the kubelet counts what the gateway lists."""
        self.once |= self.offered
        if self.observer is None:
            return
        try:
            listed = await self.observer.wait_for(self.right)
        except TimeoutError:
            raise AssertionError(f"listed {self.observer.listed}: {self}") from None
        assert set(listed) <= self.once, (listed, self.once)
        counts = (len(listed), sum(listed.values()))
        if self.kubelet.minor < 10:
            counts = (counts[1], counts[1])
        hidden = [(None, None)] if self.kubelet.minor == 8 and not self.healthy else []
        try:
            await self.kubelet.wait_for(counts, *hidden)
        except TimeoutError:
            raise AssertionError(f"counted {await self.kubelet.counts()}, listed {listed}: {self}") from None

    def right(self, listed: dict[str, bool]) -> bool:
        ok = {i for i, well in listed.items() if well}
        well = set(range(DEVICES)) - self.absent - self.unhealthy
        return (
            ok <= self.healthy <= set(listed)
            and set(listed) >= self.offered | self.held
            and all(self.right_shares(index, ok) for index in well)
        )

    def __repr__(self) -> str:
        state = {"healthy": self.healthy, "offered": self.offered, "held": self.held}
        log = "\n".join(self.gateway.log[-30:])
        return f"{self.kubelet.release} {state}\n{log}\n{self.kubelet.engine.story()[-3000:]}"

    def teardown(self) -> None:
        try:
            if hasattr(self, "kubelet"):
                self.do(self.stop_gateway(signal.SIGTERM))
                self.do(self.kubelet.close())
        finally:
            self.runner.close()
            shutil.rmtree(self.folder)


async def settle(node: Node) -> None:
    """After a kubelet that forgot, a list from before the last change may be right, too, while the kubelet counts the
    next one already: then both are looked at again. Not in the class, from whose source the lives are drawn.
    """
    while True:
        before = node.observer.listed if node.observer is not None else None
        try:
            return await Node.settle(node)
        except AssertionError:
            if node.observer is None or node.observer.listed == before:
                raise


@pytest.mark.timeout(1500 if REAL else 240)  # two hundred lives of some seconds each, on a busy machine
def test_a_node_lives_at_random(make: Make) -> None:
    lives = 200 if REAL else 4
    number = os.environ.get("DPGATEWAY_SEED")
    machine = type("Node", (Node,), {"make": staticmethod(make), "settle": settle})
    chosen = settings(
        max_examples=int(os.environ.get("DPGATEWAY_SEQUENCES", lives)),
        stateful_step_count=12,
        deadline=None,
        derandomize=number is None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    run = seed(int(number))(run_state_machine_as_test) if number else run_state_machine_as_test
    try:
        run(machine, settings=chosen)
    except TimeoutError as error:
        pytest.fail(f"timed out: {error}")
