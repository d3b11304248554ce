"""``dpgateway run``: what a node runs. Begins to read the configuration, and imports the gateway meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dpgateway.cli.group import imported
from dpgateway.cli.options import CONTROL_SOCKET, LINGER, POD_UID, Settings, configured
from dpgateway.daemon import guard
from dpgateway.daemon.config_reader import Reading
from dpgateway.daemon.files import FileWatch
from dpgateway.daemon.signals import Signals
from dpgateway.kit import log
from dpgateway.kit.limits import too_few
from dpgateway.kit.memory import share_one_heap

_log = log.bind(__name__)


@click.command()
@configured
@CONTROL_SOCKET
@LINGER
@POD_UID
@click.pass_context
def run(context: click.Context, settings: Settings, control_socket: Path, linger: float, pod_uid: str) -> None:
    """Serve the configured resources to the node's kubelet.

    Runs until SIGTERM or SIGINT; with --linger until another gateway has taken over then. Registers with the node's
    kubelet, in the API that the kubelet speaks, and again with each kubelet that comes after it. When a driver fails,
    only its resource is tried again; the others don't notice.
    """
    share_one_heap()
    signals = context.find_object(Signals)  # the process has one, see Group; a test that calls this has none
    if signals is not None:
        # a descriptor of its own, because a driver may close standard error
        log.setup(settings.log_format, settings.log_level, open(os.dup(2), "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    if few := too_few(0):
        _log.error("%s", few)
        context.exit(1)
    with log.kept():
        if signals is not None:
            _guard(signals, settings.log_format)
        files = FileWatch(settings.config.absolute())
        reading = Reading(settings.config)
        agent = imported("dpgateway.cli.agent")
        context.exit(agent.serve(settings, control_socket.absolute(), signals, reading, files, linger, pod_uid))


def _guard(signals: Signals, log_format: str) -> None:
    try:
        guard.start(signals.inbox, log_format)
    except OSError as error:
        _log.warning("nothing ends the gateway if a driver hangs in C code: its guard can't be started: %s", error)
