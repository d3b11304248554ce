"""``dpgateway run``: what a node runs. Reads the configuration and hands it to the gateway."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import click

from dpgateway.cli.options import Settings, configured
from dpgateway.config import Configuration, InvalidConfiguration, advise, complete, did_you_mean, load
from dpgateway.deviceplugin.server.sockets import too_deep
from dpgateway.drivers import discovery
from dpgateway.node.directory import fault, forbidden
from dpgateway.process import main as process
from dpgateway.process.memory import share_one_heap

_log = logging.getLogger(__name__)


@click.command()
@configured
@click.pass_context
def run(context: click.Context, settings: Settings) -> None:
    """Serve the configured resources to the node's kubelet.

    Runs until SIGTERM or SIGINT. Registers with the kubelet that is there, in the API that it speaks, and again with
    each one that comes after it. A resource whose driver fails is tried again on its own; the others don't notice.
    """
    share_one_heap()
    try:
        configuration = _configuration(settings)
    except InvalidConfiguration as error:
        for problem in error.problems:
            _log.error("%s", problem)
        context.exit(2)
    directory = settings.device_plugins_dir(configuration)
    if unfit := fault(directory) or forbidden(directory):
        _log.error("%s", unfit)
        context.exit(2)
    if doubtful := too_deep(directory):
        _log.warning("%s", doubtful)
    context.exit(process.run(configuration, directory, settings.node_name))


def _configuration(settings: Settings) -> Configuration:
    document = load(settings.config).for_node(settings.node_name)
    installed = discovery.installed()
    drivers = {name: _missing(name, installed) for name in document.drivers} | discovery.find(document.drivers)
    configuration = complete(document, drivers, installed)
    for warning in advise(document, drivers):
        _log.warning("%s", warning)
    return configuration


def _missing(name: str, installed: Sequence[str]) -> discovery.Found:
    """A driver that isn't there fails its resource, not the node's others; `check` is the one that is strict."""
    hint = did_you_mean(name, installed)
    failure = f"it isn't installed; installed are: {', '.join(installed) or 'none'}{hint and '; '}{hint}"
    return discovery.Found(name, "", "", failure=failure)
