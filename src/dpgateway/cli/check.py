"""``dpgateway check``: reports all problems of a configuration at once."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import click

from dpgateway.cli import compare, dra_fit, pools, unfit
from dpgateway.cli.ask_drivers import ask_all
from dpgateway.cli.compare import WORDS, Comparison
from dpgateway.cli.options import CONTROL_SOCKET, Settings, configured, output_option
from dpgateway.cli.output import apart, print_json, print_line, print_table
from dpgateway.config import Configuration, Document, Place, Problem, in_lines, in_order, read
from dpgateway.config.warnings import advise
from dpgateway.deviceplugin.server.sockets import too_deep
from dpgateway.drivers import discovery
from dpgateway.drivers.discovery import Found
from dpgateway.drivers.loading import PATIENCE, Loading
from dpgateway.drivers.options import preferring, warned
from dpgateway.kit.threads import Threads
from dpgateway.node.directory import is_there, misplaced, why_none


@dataclass(frozen=True, slots=True)
class Verdict:
    """The problems and warnings of a configuration."""

    document: Document
    configuration: Configuration
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


@click.command()
@configured
@click.option(
    "--against-running",
    is_flag=True,
    envvar="DPGATEWAY_AGAINST_RUNNING",
    show_envvar=True,
    help="Also predict the effect of a reload on each resource of the gateway that runs on this node.",
)
@click.option(
    "--devices",
    is_flag=True,
    envvar="DPGATEWAY_DEVICES",
    show_envvar=True,
    help="Also ask the drivers for their devices, and say which no container could get, which would be Unhealthy and "
    "why, and which resources offer the same hardware.",
)
@click.option(
    "--all-nodes",
    is_flag=True,
    envvar="DPGATEWAY_ALL_NODES",
    show_envvar=True,
    help="Check the resources of all nodes, regardless of their `nodes` patterns, instead of one node's.",
)
@CONTROL_SOCKET
@output_option
@click.pass_context
def check(  # noqa: PLR0913  one for each option
    context: click.Context,
    settings: Settings,
    *,
    against_running: bool,
    devices: bool,
    all_nodes: bool,
    control_socket: Path,
    output: str,
) -> None:
    """Check the configuration, and name all of its problems.

    Prints file, line and key of each problem, the value found and the value expected. Loads every installed driver to
    check the options of this node's resources; --node-name checks for another node. Exits with 2 if there is a
    problem, and with 0 if there are only warnings.

    With --devices each driver is asked once, as `dpgateway devices` does. A device that no container could get, because
    of the driver's answer or the configuration's additions, is a problem. And check warns of devices that would be
    Unhealthy now, with the reason, of resources that offer the same hardware without a common pool, and of those of one
    pool that can never be in use at the same time, or have no hardware in common.

    Of resources with `front: dra` it names keys without effect there; with --devices also devices and attributes that
    slices can't have. If there are such resources, or events, it names an API server that can't be asked from here.

    With --all-nodes resources are checked against each other if a node may have both by the patterns in `nodes`.
    Drivers' warnings are left out, because they are about the hardware of the node where this runs.

    With --against-running the node's name is the running gateway's. Only root may ask it; the exit code is 1 if none is
    running.
    """
    if all_nodes and (against_running or devices):
        raise click.UsageError("--devices and --against-running are about this node; found --all-nodes beside them")
    # The running gateway's node name decides which resources of the file are for this node.
    running = compare.running(control_socket) if against_running else None
    if running is not None:
        settings = replace(settings, node_name=running.node_name)
    comparison = None
    with apart():
        verdict = _judge(settings, all_nodes=all_nodes)
        if running is not None and not verdict.problems:
            comparison = compare.compare(running, verdict.configuration, settings)
        if devices:
            answers = asyncio.run(ask_all(verdict.configuration.resources, settings.node_name))
            problems = in_order((*verdict.problems, *unfit.problems(answers, verdict.document)))
            by_dra = dra_fit.of_devices(answers, settings.node_name, verdict.configuration.dra.driver or "")
            by_cdi = unfit.without_spec(answers, verdict.configuration.runtime.cdi_dirs)
            some = (*verdict.warnings, *pools.warnings(answers), *unfit.warnings(answers), *by_cdi, *by_dra)
            warnings = in_order(some)
            verdict = replace(verdict, problems=problems, warnings=warnings)
    if output == "json":
        told = {"against_running": comparison and comparison.as_json()} if running is not None else {}
        node_name = {"node_name": None} if all_nodes else {}
        print_json(_as_json(settings, verdict) | told | node_name)
    else:
        _print(settings, verdict, comparison, "all nodes" if all_nodes else f"node {settings.node_name}")
    context.exit(2 if verdict.problems else 0)


def _judge(settings: Settings, *, all_nodes: bool) -> Verdict:
    document, problems = read(settings.config)
    documents = document.for_all_nodes() if all_nodes else (document.for_node(settings.node_name),)
    configurations: list[Configuration] = []
    warnings: list[Problem] = []
    drivers: dict[str, Found] = {}
    for one in documents:
        loading = Loading(discovery.named(), one)
        loading.wait()
        drivers = loading.found()
        configuration, more = loading.resolve()
        configurations.append(configuration)
        problems += more
        if one.entries or not problems:
            warnings += advise(one, preferring(drivers))
        if not all_nodes:
            warnings += _warned(one, configuration)

    # A resource of several of these documents is the same in each of them.
    resources = {resource.where: resource for one in configurations for resource in one.resources}
    configuration = replace(configurations[0], resources=tuple(resources[where] for where in sorted(resources)))
    # `run` serves without a driver that can't be used; here it is a problem.
    problems += tuple(
        _problem(resource.where, f"{resource.name}: driver {resource.driver}: {resource.failure}")
        for resource in configuration.resources
        if resource.failure is not None
    )
    by_dra = [(tuple(dra_fit.problems(one)), tuple(dra_fit.warnings(one))) for one in documents]
    problems += tuple(dict.fromkeys(problem for found, _ in by_dra for problem in found))
    warnings += dict.fromkeys(warning for _, found in by_dra for warning in found)
    if not all_nodes:
        warnings += tuple(dra_fit.of_account(documents[0]))

    # An option for the directory may be misspelt; the default directory may just have no kubelet yet.
    directory, place = settings.device_plugins_dir(configuration), Place(str(settings.config))
    named = settings.flag_device_plugins_dir is not None
    if wrong := misplaced(directory):
        problems += (_problem(place, wrong),)
    elif doubt := too_deep(directory) or (why_none(directory) if named and not is_there(directory) else ""):
        warnings.append(_problem(place, doubt))
    warnings += (  # broken drivers that no resource uses
        _problem(Place(f"{found.distribution} {found.version}"), f"driver {name}: {found.failure}")
        for name, found in drivers.items()
        if found.failure is not None and name not in document.drivers
    )
    return Verdict(documents[0], configuration, in_order(problems), in_order(warnings))


def _warned(document: Document, configuration: Configuration) -> tuple[Problem, ...]:
    """The warnings of the drivers' options. Each runs on a thread with a timeout, because it is driver code."""
    threads = Threads(idle=0)
    warnings: list[Problem] = []
    before: dict[str, dict[str, tuple[str | None, object]]] = {}
    entries = {entry.written.place: entry for entry in document.entries}
    for resource in configuration.resources:
        if resource.failure is None:
            others = before.setdefault(resource.driver, {})
            apart = {  # without resources of the same pool, which may offer the same devices
                name: options
                for name, (pool, options) in others.items()
                if name != resource.name and (pool is None or pool != resource.pool)
            }
            ask = partial(warned, entries[resource.where], resource, apart)
            try:
                warnings += threads.run(f"warnings of {resource.name}", ask, PATIENCE)
            except TimeoutError:
                text = f"its driver's Options.warnings hasn't returned within {PATIENCE:g} s"
                warnings.append(_problem(resource.where, f"{resource.name}: {text}"))
            others[resource.name] = resource.pool, resource.options
    return in_order(warnings)


def _problem(place: Place, text: str) -> Problem:
    """A problem with file and line; the text says the rest."""
    return Problem(Place(place.file, place.line), hint=text)


def _as_json(settings: Settings, verdict: Verdict) -> dict[str, object]:
    resources = verdict.configuration.resources
    return {
        "config": str(settings.config),
        "node_name": settings.node_name,
        "device_plugins_dir": str(settings.device_plugins_dir(verdict.configuration)),
        "valid": not verdict.problems,
        "problems": [_spread(problem) for problem in verdict.problems],
        "warnings": [_spread(warning) for warning in verdict.warnings],
        "resources": [{"name": one.name, "driver": one.driver, "where": str(one.where)} for one in resources],
    }


def _spread(problem: Problem) -> dict[str, object]:
    parts = asdict(problem)
    return {**parts.pop("place"), **parts}


def _print(settings: Settings, verdict: Verdict, comparison: Comparison | None, where: str) -> None:
    for line in in_lines(verdict.problems):
        print_line(line, "red")
    for warning in verdict.warnings:
        print_line(f"warning: {warning}", "yellow")
    if verdict.problems:
        number = len(verdict.problems)
        print_line(f"{number} problem{'s' if number != 1 else ''} in {settings.config}")
        return
    resources = verdict.configuration.resources
    if resources:
        print_table(("resource", "driver", "where"), [(one.name, one.driver, str(one.where)) for one in resources])
    print_line(f"{settings.config} is valid on {where}", "green")
    if comparison is None:
        return
    print_line("effects of a reload on the running gateway:")
    rows = [(one.resource, WORDS[one.change], ", ".join(one.keys) or "-") for one in comparison.resources]
    print_table(("resource", "change", "keys"), rows)
    for key in comparison.taken_over:
        print_line(f"{key} is taken over")
    for key in comparison.next_start:
        print_line(f"{key} changes with the next start of the gateway only", "yellow")
