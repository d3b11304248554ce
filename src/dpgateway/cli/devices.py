"""``dpgateway devices``: asks each resource's driver once, and prints its list."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

import click

from dpgateway.cli import dra_fit
from dpgateway.cli.ask_drivers import DriverAnswer, ask_all
from dpgateway.cli.options import Settings, configured, output_option
from dpgateway.cli.output import apart, print_json, print_line, print_table
from dpgateway.cli.reading import read_whole
from dpgateway.config.warnings import nothing_served
from dpgateway.model import Candidate, Device
from dpgateway.resource.shares import share_ids

COLUMNS = ("resource", "id", "health", "reason", "numa", "shares", "attributes")
SPARE = ("shares", "numa", "attributes", "reason", "resource")
EXPLAINED = ("resource", "object", "device", "failed test", "found", "expected")
LONGEST = 40
"""Characters of an attribute in the table; longer ones, such as paths in sysfs, are in the JSON only."""


@click.command()
@configured
@click.option(
    "--explain",
    is_flag=False,
    flag_value="",
    metavar="[OBJECT]",
    envvar="DPGATEWAY_EXPLAIN",
    show_envvar=True,
    help="Say of everything that a driver looked at which device it is, or which test it failed first; or only of "
    "OBJECT (a path below /dev or /sys, or a name).",
)
@output_option
@click.pass_context
def devices(context: click.Context, settings: Settings, explain: str | None, output: str) -> None:
    """List the devices that each resource would offer now.

    Asks the drivers themselves, not a running gateway, and lists id, health (with the reason if a device is
    Unhealthy), NUMA nodes, attributes, and the number of ids under which each device would be offered. A driver that
    fails, or doesn't answer within the resource's list timeout, is named, as is a list that no kubelet takes; the exit
    code is then 1.

    With --explain it lists the objects that the drivers examined: the device of each, or the first failed test, with
    the value found and the value expected. The exit code is 1, too, if no driver knows OBJECT.
    """
    with apart():
        document, configuration = read_whole(settings)
        found = asyncio.run(ask_all(configuration.resources, settings.node_name, explain))
    if output == "json":
        driver = configuration.dra.driver or ""
        print_json([_as_json(answer, driver, explained=explain is not None) for answer in found])
    elif explain is not None:
        _print_explained(found, explain)
    else:
        _print(found)
    if not found:  # beside JSON on standard error, because a parser reads standard output
        click.echo(nothing_served(document), err=output == "json")
    failed = any(answer.failure is not None for answer in found)
    unknown = bool(explain) and not any(answer.candidates for answer in found)
    context.exit(1 if failed or unknown else 0)


def _as_json(answer: DriverAnswer, driver: str, *, explained: bool) -> dict[str, object]:
    """``driver``: that of DRA."""
    count, form = answer.resource.shares.count, answer.resource.shares.ids or ""
    told: dict[str, object] = {
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
                "joint": device.joint,
                "offered": list(share_ids(device.id, count, form)),
            }
            for device in answer.devices
        ],
    }
    if answer.resource.front != "deviceplugin":
        made = dra_fit.content(answer, driver)
        told["slices"] = {"names": dict(made.names), "left_out": list(made.left_out), "unsaid": list(made.unsaid)}
    if explained:  # null if the driver has no ``explain``
        told["candidates"] = None if answer.candidates is None else [asdict(one) for one in answer.candidates]
    return told


def _health(device: Device) -> str:
    return "Healthy" if device.health.ok else "Unhealthy"


def _print(found: list[DriverAnswer]) -> None:
    listed = [(answer.resource, device) for answer in found for device in answer.devices]
    if listed:
        styles = ["" if device.health.ok else "yellow" for _, device in listed]
        columns = COLUMNS if any(device.attributes for _, device in listed) else COLUMNS[:-1]
        rows = []
        for resource, device in listed:
            numa, shares = ",".join(map(str, device.numa_nodes)) or "-", str(resource.shares.count)
            # Values as in JSON: ``true``, not ``True``.
            texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in device.attributes.items()}
            attributes = " ".join(f"{name}={text}" for name, text in texts.items() if len(text) <= LONGEST) or "-"
            row = (resource.name, device.id, _health(device), device.health.reason or "-", numa, shares, attributes)
            rows.append(row[: len(columns)])
        print_table(columns, rows, styles, [name for name in SPARE if name in columns])
    for answer in found:
        name, driver = answer.resource.name, answer.resource.driver
        if answer.failure is not None:
            print_line(f"{name}: {answer.failure} (driver {driver})", "red")
        elif not answer.devices:
            source = f"driver {driver} finds none for the options at {answer.resource.where}"
            print_line(f"{name}: no devices: {source}", "yellow")


def _print_explained(found: list[DriverAnswer], about: str) -> None:
    rows = [_why(answer, one) for answer in found for one in answer.candidates or ()]
    if rows:
        print_table(EXPLAINED, rows, ["" if row[3] == "-" else "yellow" for row in rows], ("resource", "device"))
    for answer in found:
        name, driver = answer.resource.name, answer.resource.driver
        if answer.failure is not None:
            print_line(f"{name}: {answer.failure} (driver {driver})", "red")
        elif answer.candidates is None:
            print_line(f"{name}: driver {driver} can't explain its search", "yellow")
        elif not answer.candidates and about:
            print_line(f"{name}: driver {driver} knows no {about}", "yellow")
        elif not answer.candidates:
            where = answer.resource.where
            print_line(f"{name}: driver {driver} found nothing to look at for the options at {where}", "yellow")


def _why(answer: DriverAnswer, one: Candidate) -> tuple[str, ...]:
    """A row of the table. An Unhealthy device has passed all tests, so its health is shown as the failed one."""
    if one.test is not None:
        return (answer.resource.name, one.name, "-", one.test, one.found or "-", one.expected or "-")
    reason = next((device.health.reason for device in answer.devices if device.id == one.device), None)
    failed = ("-", "-", "-") if reason is None else ("health", reason, "Healthy")
    return (answer.resource.name, one.name, str(one.device), *failed)
