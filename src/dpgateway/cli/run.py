"""``dpgateway run``: what a node runs. Reads the configuration and starts the gateway with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from dpgateway.cli.options import CONTROL_SOCKET, Settings, configured
from dpgateway.config import Configuration, InvalidConfiguration, Place, Problem, advise, did_you_mean, in_lines, read
from dpgateway.deviceplugin.server.sockets import too_deep
from dpgateway.drivers import discovery
from dpgateway.drivers.loading import PATIENCE, Loading
from dpgateway.node.directory import forbidden, misplaced
from dpgateway.process import guard, log
from dpgateway.process import main as process
from dpgateway.process.files import FileWatch
from dpgateway.process.limits import too_few_descriptors
from dpgateway.process.memory import share_one_heap
from dpgateway.process.reloading import Source
from dpgateway.process.signals import Signals

_log = log.bind(__name__)


@click.command()
@configured
@CONTROL_SOCKET
@click.pass_context
def run(context: click.Context, settings: Settings, control_socket: Path) -> None:
    """Serve the configured resources to the node's kubelet.

    Runs until SIGTERM or SIGINT. Registers with the node's kubelet, in the API that the kubelet speaks, and again with
    each kubelet that comes after it. When a driver fails, only its resource is tried again; the others don't notice.
    """
    share_one_heap()
    signals = context.find_object(Signals)  # the process has one, see Group; a test that calls this has none
    if signals is not None:
        # a descriptor of its own, because a driver may close standard error
        log.setup(settings.log_format, settings.log_level, open(os.dup(2), "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    if few := too_few_descriptors(0):
        _log.error("%s", few)
        context.exit(1)
    with log.kept():
        if signals is not None:
            _guard(signals, settings.log_format)
        context.exit(_run(settings, control_socket.absolute(), signals))


def _guard(signals: Signals, log_format: str) -> None:
    try:
        guard.start(signals.inbox, log_format)
    except OSError as error:
        _log.warning("nothing ends the gateway if a driver hangs in C code: its guard can't be started: %s", error)


def _run(settings: Settings, control: Path, signals: Signals | None) -> int:
    """The exit code."""
    absolute = replace(settings, config=settings.config.absolute())  # a driver may change the working directory
    files = FileWatch(absolute.config)
    try:
        configuration = _configuration(settings)
    except InvalidConfiguration as error:
        for line in in_lines(error.problems):
            _log.error("%s", line)
        return 2
    directory = configuration.kubelet.device_plugins_dir
    if unfit := misplaced(directory) or forbidden(directory):
        _log.error("%s", unfit)
        return 2
    if few := too_few_descriptors(len(configuration.resources)):
        _log.error("%s", few)
        return 1
    if doubtful := too_deep(directory):
        _log.warning("%s", doubtful)
    source = Source(lambda: _again(absolute), files)
    return process.run(configuration, settings.node_name, signals or Signals(), source, control)


def _again(settings: Settings) -> Configuration:
    """Raises InvalidConfiguration."""
    configuration = _configuration(settings)
    if few := too_few_descriptors(len(configuration.resources)):
        raise InvalidConfiguration([Problem(Place(str(settings.config)), hint=few)])
    return configuration


def _configuration(settings: Settings) -> Configuration:
    document, wrong = read(settings.config)
    document = document.for_node(settings.node_name)
    installed = discovery.installed()
    missing = {name: _missing(name, installed) for name in document.drivers if name not in installed}
    loading = Loading(discovery.named(document.drivers), document)
    loading.wait(PATIENCE)
    configuration = loading.complete(installed, missing, wrong)
    for warning in advise(document, loading.found()):
        _log.warning("%s", warning)
    kubelet = replace(configuration.kubelet, device_plugins_dir=settings.device_plugins_dir(configuration))
    return replace(configuration, kubelet=kubelet)


def _missing(name: str, installed: Sequence[str]) -> discovery.Found:
    """A driver that isn't installed fails its resource, not the node's others; only `check` is strict."""
    hint = did_you_mean(name, installed)
    failure = f"it isn't installed; installed drivers: {', '.join(installed) or 'none'}{hint and '; '}{hint}"
    return discovery.Found(name, "", "", failure=failure)
