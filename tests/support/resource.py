"""One resource without a socket: a driver's lanes that a test plays, a kubelet's notes, and what a kubelet may ask."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dpgateway import Allocation, Device
from dpgateway.config import ResourceConfig
from dpgateway.deviceplugin.api import APIS
from dpgateway.deviceplugin.calls import KubeletCalls
from dpgateway.deviceplugin.cdi import CdiDelivery
from dpgateway.deviceplugin.holdings.observed import ResourceHoldings, follow
from dpgateway.deviceplugin.holdings.values import Holdings
from dpgateway.drivers.running import DriverState
from dpgateway.errors import RequestError
from dpgateway.kit.observable import Observable
from dpgateway.node.holders import Container, Noted
from dpgateway.resource.freeing import Releases
from dpgateway.resource.granting import Granting
from dpgateway.resource.inventory import Inventory
from tests.support.specs import cdi
from tests.support.time import Clock
from tests.support.waiting import turns

LOG = logging.LoggerAdapter(logging.getLogger("resource"), {})


class FakeLanes:
    """What the lanes of a running driver answer. They note what they were asked: ids of devices, by method."""

    def __init__(
        self,
        *abilities: str,
        allocation: Allocation | Callable[[Sequence[Device]], Allocation] = Allocation(),  # noqa: B008  it is frozen
        preferred: Sequence[Device] = (),
        error: Exception | None = None,
        waits: bool = False,
    ) -> None:
        """``waits``: an Allocate is answered when the test says so (:meth:`answer`); else at once."""
        self.abilities, self.busy = frozenset(abilities), frozenset[str]()
        self.allocation, self.preferred, self.error = allocation, preferred, error
        self.waiting: dict[str, asyncio.Future[None]] | None = {} if waits else None
        self.go_on = asyncio.Event()
        """While it is clear, no call is answered."""
        self.go_on.set()
        self.meanwhile: Callable[[], None] = lambda: None
        """Called within each call, before it is answered."""
        self.asked: list[tuple[str, Any]] = []
        self.allocated: list[tuple[str, ...]] = []
        self.prepared: list[str] = []
        self.options: list[object] = []
        """Of each allocate and prepare."""
        self.released: list[str] = []

    async def allocate(self, devices: Sequence[Device], late: object, options: object = None) -> Allocation:
        self.allocated.append(_ids(devices))
        self.options.append(options)
        if self.waiting is not None:
            self.waiting[devices[0].id] = answer = asyncio.get_running_loop().create_future()
            await answer
        given = self.allocation
        await self._answered("allocate", devices)
        return given if isinstance(given, Allocation) else given(devices)

    async def show(self, devices: Sequence[Device]) -> Allocation:
        given = self.allocation
        await self._answered("show", _ids(devices))
        return given if isinstance(given, Allocation) else given(devices)

    async def prefer(self, available: Sequence[Device], must: Sequence[Device], size: int) -> Sequence[Device]:
        await self._answered("prefer", (list(available), list(must), size))
        return self.preferred

    async def prepare(self, devices: Sequence[Device], *, once: bool = True, options: object = None) -> None:
        self.prepared += _ids(devices)
        self.options.append(options)
        await self._answered("prepare", devices)

    def release(
        self, devices: Sequence[Device], free: Callable[[Sequence[Device]], list[Device]], told: Callable[[], None]
    ) -> None:
        self.released += _ids(free(devices))
        told()

    def answer(self, device: str, error: Exception | None = None) -> None:
        """The Allocate whose first device this is."""
        assert self.waiting is not None
        answer = self.waiting.pop(device)
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    async def _answered(self, method: str, arguments: Any) -> None:
        self.asked.append((method, arguments))
        self.meanwhile()
        await self.go_on.wait()
        if self.error:
            raise self.error


def _ids(devices: Sequence[Device]) -> tuple[str, ...]:
    return tuple(device.id for device in devices)


def running(lanes: Any) -> Any:
    """A driver that runs and has these lanes; with None it doesn't run."""
    return SimpleNamespace(lanes=lanes, state=Observable(DriverState(devices=())))


class FakeResource:
    """The parts of one resource, made as the gateway makes them."""

    def __init__(
        self,
        config: ResourceConfig,
        lanes: Any,
        clock: Any = None,
        *,
        devices: Sequence[Device] = (),
        holdings: ResourceHoldings | None = None,
        delivery: CdiDelivery | None = None,
        log: logging.LoggerAdapter[logging.Logger] = LOG,
    ) -> None:
        """``devices``: its driver's; ``holdings``: those that a test changes itself, else nothing is known yet."""
        self.devices = devices
        self.config, self.clock = Observable(config), clock or Clock()
        self.holdings = holdings or ResourceHoldings(Holdings(), self.note_again)
        self.lanes = lanes
        self.driver = running(self.lanes)
        self.inventory = Inventory(self.config, self.holdings, log, self.clock)
        self.releases = Releases(self.config, self.inventory, self.driver, log)
        granting = Granting(self.config, self.inventory, self.driver, self.releases, log)
        self.calls = KubeletCalls(granting, self.holdings, delivery or cdi(), APIS[0])
        self._following: asyncio.Future[None] | None = None

    def follow(self) -> None:
        """The list follows what containers hold from now on, and the driver is told what is free."""
        self._following = asyncio.ensure_future(follow(self.holdings, self.inventory, self.releases))

    def end(self) -> None:
        if self._following is not None:
            self._following.cancel()
        self.inventory.list.close()

    # what driver, journal and kubelet say

    def list(self) -> None:
        """The driver lists its devices."""
        self.inventory.take(tuple(self.devices))
        self.releases.release_due()

    def remember(self, unreleased: Any = ()) -> None:
        """The journal was read."""
        self.holdings.set(self.holdings.value.remembered(dict(unreleased)))

    def note(self, *ids: str, pod: str = "1a") -> None:
        """The kubelet wrote down that a container of the pod has these ids, and nobody has any other."""
        now, noted = self.clock.monotonic(), Noted((), frozenset([Container(pod, "c")]))
        self.holdings.set(self.holdings.value.noted(dict.fromkeys(ids, noted), now, now))

    def note_again(self) -> None:
        """What the kubelet wrote down is read once more."""
        holdings = self.holdings.value
        note = None if holdings.note is None else dict(holdings.note)
        self.holdings.set(holdings.noted(note, holdings.written, self.clock.monotonic()))

    # what a kubelet asks

    def allocate(self, *ids: str) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.calls.allocate([ids], APIS[0]))

    async def give(self, *ids: str) -> None:
        """An Allocate from its beginning to its end."""
        given = self.allocate(*ids)
        await turns()
        self.lanes.answer(ids[0].partition("::")[0])
        await given

    async def refusal(self, *ids: str) -> str:
        with pytest.raises(RequestError) as caught:
            async with asyncio.timeout(60):
                await self.allocate(*ids)
        return str(caught.value)

    @property
    def reasons(self) -> dict[str, str]:
        """Why what is offered can't be given away, by id; the kubelet hears of it a little later."""
        offers = self.inventory.ledger.offers()
        return {id_: offer.health.reason or "" for id_, offer in offers.items() if not offer.health.ok}


def nobody_holds_anything(now: float = 0.0) -> ResourceHoldings:
    return ResourceHoldings(Holdings().noted({}, 0.0, now))
