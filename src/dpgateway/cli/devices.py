"""``dpgateway devices``: asks each resource's driver once, and prints what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

from dpgateway.cli.options import Settings, configured, output_option
from dpgateway.cli.output import apart, print_json, print_line, print_table
from dpgateway.config import ResourceConfig, format_duration, load, nothing_served
from dpgateway.deviceplugin.offer.shares import share_ids
from dpgateway.deviceplugin.offer.size import too_long
from dpgateway.drivers import answers, discovery
from dpgateway.drivers.contract import Context
from dpgateway.drivers.loading import Loading
from dpgateway.errors import GatewayError
from dpgateway.model import Device
from dpgateway.process import log
from dpgateway.process.threads import Threads

CLOSING = 1.0
"""Seconds that drivers get to close, all together."""

COLUMNS = ("resource", "id", "health", "reason", "numa", "shares")
SPARE = ("shares", "numa", "reason", "resource")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a resource's driver said; or why it said nothing, or why that can't be offered."""

    resource: ResourceConfig
    devices: tuple[Device, ...] = ()
    failure: str | None = None


class Question:
    """One driver, asked for its devices at once, on a thread that nobody has to wait for."""

    def __init__(self, threads: Threads, resource: ResourceConfig, node_name: str) -> None:
        self._threads, self._resource, self._node_name = threads, resource, node_name
        self._driver: Any = None
        self._asked = threads.call(f"devices of {resource.name}", self._ask)
        self.closed = asyncio.create_task(self._closed(), name=f"close {resource.name}")

    async def answer(self) -> Answer:
        """Waits until the driver has answered, or the resource's list timeout is over."""
        timeout = self._resource.timeouts.list
        await asyncio.wait([self._asked], timeout=timeout.total_seconds())
        if not self._asked.done():
            return Answer(self._resource, failure=f"the driver didn't answer within {format_duration(timeout)}")
        try:
            devices = self._asked.result()
        except GatewayError as error:
            return Answer(self._resource, failure=f"the driver failed: {error}")
        return Answer(self._resource, devices, too_long(devices, self._resource.shares.count) or None)

    @property
    def answered(self) -> bool:
        return self._asked.done()

    async def _closed(self) -> None:
        """Closes the driver, whatever it answers, and however late."""
        await asyncio.wait([self._asked])
        self._asked.exception()  # nobody else asks for one that comes late
        await self._threads.call(f"close {self._resource.name}", self._close)

    def _ask(self) -> tuple[Device, ...]:
        try:
            self._driver = self._resource.driver_class(self._resource.options, self._context())
            return answers.devices(self._driver.devices())
        except BaseException as error:  # SystemExit, too, must not pass for silence
            fault = answers.fault("__init__" if self._driver is None else "devices", error)
        raise fault

    def _close(self) -> None:
        try:
            if callable(getattr(self._driver, "close", None)):
                self._driver.close()
        except BaseException as error:
            self._context().log.error("the driver failed: %s", answers.fault("close", error))

    def _context(self) -> Context:
        logger = log.of_driver(self._resource.driver, self._resource.name)
        return Context(self._resource.name, self._node_name, logger, lambda: None)


@click.command()
@configured
@output_option
@click.pass_context
def devices(context: click.Context, settings: Settings, output: str) -> None:
    """List the devices that each resource would offer now.

    Asks the drivers themselves, not a running gateway, and lists id, health (with the reason if a device is
    Unhealthy), NUMA nodes, and under how many ids each device would be offered. A driver that fails, or doesn't
    answer within the resource's list timeout, is named, as is a list that no kubelet takes; the exit code is then 1.
    """
    document = load(settings.config).for_node(settings.node_name)
    with apart():
        loading = Loading(discovery.named(document.drivers), document)
        loading.wait()
        configuration = loading.complete(discovery.installed(), {})
        found = asyncio.run(ask_all(configuration.resources, settings.node_name))
    if output == "json":
        print_json([_as_json(answer) for answer in found])
    else:
        _print(found)
    if not found:
        click.echo(nothing_served(document), err=output == "json")
    context.exit(1 if any(answer.failure is not None for answer in found) else 0)


async def ask_all(resources: Iterable[ResourceConfig], node_name: str) -> list[Answer]:
    """All drivers are asked at once, so the slowest one alone decides how long it takes."""
    threads = Threads()
    questions = {
        resource.name: Question(threads, resource, node_name) for resource in resources if resource.failure is None
    }
    given = await asyncio.gather(*(question.answer() for question in questions.values()))
    found = dict(zip(questions, given, strict=True))
    if closing := [question.closed for question in questions.values() if question.answered]:
        await asyncio.wait(closing, timeout=CLOSING)
    return [found.get(resource.name) or Answer(resource, failure=resource.failure) for resource in resources]


def _as_json(answer: Answer) -> dict[str, object]:
    count = answer.resource.shares.count
    return {
        "resource": answer.resource.name,
        "driver": answer.resource.driver,
        "failure": answer.failure,
        "devices": [
            {
                "id": device.id,
                "health": _health(device),
                "reason": device.health.reason,
                "numa_nodes": list(device.numa_nodes),
                "attributes": dict(device.attributes),
                "hardware": None if device.hardware is None else list(device.hardware),
                "offered": list(share_ids(device.id, count)),
            }
            for device in answer.devices
        ],
    }


def _health(device: Device) -> str:
    return "Healthy" if device.health.ok else "Unhealthy"


def _row(resource: ResourceConfig, device: Device) -> tuple[str, ...]:
    numa = ",".join(map(str, device.numa_nodes)) or "-"
    reason = device.health.reason or "-"
    return (resource.name, device.id, _health(device), reason, numa, str(resource.shares.count))


def _source(resource: ResourceConfig) -> str:
    return f"driver {resource.driver} finds none for the options at {resource.where}"


def _print(found: list[Answer]) -> None:
    listed = [(answer.resource, device) for answer in found for device in answer.devices]
    if listed:
        styles = ["" if device.health.ok else "yellow" for _, device in listed]
        print_table(COLUMNS, [_row(resource, device) for resource, device in listed], styles, SPARE)
    for answer in found:
        if answer.failure is not None:
            print_line(f"{answer.resource.name}: {answer.failure} (driver {answer.resource.driver})", "red")
        elif not answer.devices:
            print_line(f"{answer.resource.name}: no devices: {_source(answer.resource)}", "yellow")
