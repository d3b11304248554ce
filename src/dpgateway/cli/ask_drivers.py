"""Asks each resource's driver once, without a gateway, for its devices and candidates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dpgateway.config import ResourceConfig, format_duration
from dpgateway.deviceplugin.api import LIST_LIMIT, unfit
from dpgateway.drivers import answers
from dpgateway.drivers.contract import Context, abilities
from dpgateway.drivers.listing import Fitting
from dpgateway.errors import GatewayError
from dpgateway.kit import log
from dpgateway.kit.observable import Observable
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Candidate, Device
from dpgateway.resource.shares import clash

CLOSING = 1.0
"""Seconds for all drivers together to close."""


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """The list of a resource's driver, or the failure that prevents or invalidates it."""

    resource: ResourceConfig
    devices: tuple[Device, ...] = ()
    failure: str | None = None
    candidates: tuple[Candidate, ...] | None = None
    """The result of ``explain``; None if it wasn't called, or the driver has no such method."""
    abilities: frozenset[str] = frozenset()
    """The driver's optional methods."""
    cdi_devices: tuple[str, ...] = ()
    """The CDI names of the healthy devices, if the driver has ``preview``."""


class Question:
    """One driver, asked on a thread of its own, so that a hanging driver blocks nothing else.

    Two tasks start with the question: the call itself, and ``closed``, which closes the driver after the call, even if
    ``answer`` has timed out by then.
    """

    def __init__(self, threads: Threads, resource: ResourceConfig, node_name: str, explain: str | None) -> None:
        self._threads, self._resource, self._node_name, self._explain = threads, resource, node_name, explain
        self._driver: Any = None
        self._cdi_devices: dict[str, None] = {}
        self._asked = threads.call(f"devices of {resource.name}", self._ask)
        self.closed = asyncio.create_task(self._closed(), name=f"close {resource.name}")

    async def answer(self) -> DriverAnswer:
        """The answer; a failure if it takes longer than the resource's list timeout."""
        timeout = self._resource.timeouts.list
        await asyncio.wait([self._asked], timeout=timeout.total_seconds())
        if not self._asked.done():
            return DriverAnswer(self._resource, failure=f"the driver didn't answer within {format_duration(timeout)}")
        try:
            devices, candidates, able = self._asked.result()
        except GatewayError as error:
            return DriverAnswer(self._resource, failure=f"the driver failed: {error}")
        shares = self._resource.shares
        rejected = clash(tuple(device.id for device in devices), shares.count, shares.ids or "")
        rejected = rejected or LIST_LIMIT.too_long(devices, shares.count, shares.ids or "")
        return DriverAnswer(self._resource, devices, rejected or None, candidates, able, tuple(self._cdi_devices))

    @property
    def answered(self) -> bool:
        return self._asked.done()

    async def _closed(self) -> None:
        """Closes the driver once it has answered, however late."""
        await asyncio.wait([self._asked])
        self._asked.exception()  # marks a late error as retrieved, else asyncio warns
        await self._threads.call(f"close {self._resource.name}", self._close)

    def _ask(self) -> tuple[tuple[Device, ...], tuple[Candidate, ...] | None, frozenset[str]]:
        method = "__init__"
        try:
            self._driver = self._resource.driver_class(self._resource.options, self._context())
            method = "devices"
            devices = answers.devices(self._driver.devices())
            devices = Fitting(self._unfit, Observable(self._resource)).judged(self._driver, devices)
            able = abilities(self._driver)
            if self._explain is None or "explain" not in able:
                return devices, None, able
            method = "explain"
            return devices, answers.candidates(self._driver.explain(self._explain or None)), able
        except BaseException as error:  # a driver's SystemExit must not end the command
            fault = answers.fault(method, error)
        raise fault

    def _unfit(self, config: ResourceConfig, id_: str, allocation: Allocation) -> str:
        self._cdi_devices.update(dict.fromkeys(allocation.cdi_devices))
        return unfit(config, id_, allocation)

    def _close(self) -> None:
        try:
            if callable(getattr(self._driver, "close", None)):
                self._driver.close()
        except BaseException as error:
            self._context().log.error("the driver failed: %s", answers.fault("close", error))

    def _context(self) -> Context:
        logger = log.of_driver(self._resource.driver, self._resource.name)
        return Context(self._resource.name, self._node_name, logger, lambda: None)


async def ask_all(
    resources: Iterable[ResourceConfig], node_name: str, explain: str | None = None
) -> list[DriverAnswer]:
    """Asks all drivers concurrently, so it takes as long as the slowest. ``explain``: asks also for the candidates of
    this name, or for all if it is empty.
    """
    threads = Threads()
    questions = {
        resource.name: Question(threads, resource, node_name, explain)
        for resource in resources
        if resource.failure is None
    }
    given = await asyncio.gather(*(question.answer() for question in questions.values()))
    found = dict(zip(questions, given, strict=True))

    # Drivers that answered may close; a hanging one would only hold up the command's end.
    if closing := [question.closed for question in questions.values() if question.answered]:
        await asyncio.wait(closing, timeout=CLOSING)
    return [found.get(resource.name) or DriverAnswer(resource, failure=resource.failure) for resource in resources]
