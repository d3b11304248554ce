"""``dpgateway run``: serves a node. It imports the gateway while a child process reads the configuration."""

from __future__ import annotations

from pathlib import Path

import click

from dpgateway.cli.group import imported
from dpgateway.cli.options import CONTROL_SOCKET, LINGER, POD_UID, STRICT_CONFIG, Settings, configured
from dpgateway.daemon.config_reader import ConfigReader
from dpgateway.daemon.files import FileWatch
from dpgateway.kit import log
from dpgateway.kit.limits import too_few
from dpgateway.kit.memory import share_one_heap

_log = log.bind(__name__)


@click.command()
@configured
@CONTROL_SOCKET
@LINGER
@POD_UID
@STRICT_CONFIG
@click.pass_context
def run(  # noqa: PLR0913  one per option
    context: click.Context,
    settings: Settings,
    control_socket: Path,
    linger: float,
    pod_uid: str,
    *,
    strict_config: bool,
) -> None:
    """Serve the configured resources to the node's kubelet.

    Runs until SIGTERM or SIGINT; with --linger until another gateway has taken over then. Registers with the node's
    kubelet, in the API that the kubelet speaks, and again with each kubelet that comes after it. When a driver fails,
    only its resource is tried again; the others don't notice.
    """
    share_one_heap()
    if few := too_few(0):
        _log.error("%s", few)
        context.exit(1)
    with log.captured():
        files = FileWatch(settings.config.absolute())
        reader = ConfigReader(settings.config)
        agent = imported("dpgateway.cli.agent")
        options = agent.RunOptions(control_socket.absolute(), linger, pod_uid, strict_config)
        context.exit(agent.serve(settings, options, reader, files))
