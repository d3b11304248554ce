"""The command `simulate`: its options and help, and the checks before a kubelet starts."""

import asyncio
import os
import socket
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from dpgateway_simulator.cluster import KubeletPauses, SimulatedCluster
from dpgateway_simulator.kubelet import store
from dpgateway_simulator.kubelet.kubelet import Kubelet
from dpgateway_simulator.kubelet.releases import NEWEST, UnknownVersionError, behaviour
from dpgateway_simulator.kubelet.topology import POLICIES
from dpgateway_simulator.prompt import foreground, script, verbs
from dpgateway_simulator.prompt.printing import Printer
from dpgateway_simulator.wire import sockets

F = TypeVar("F", bound=Callable[..., Any])

_HELP = f"""Run a simulated kubelet, of any version, in any directory, without a cluster.

It behaves as that version's device manager does: it cleans the directory, serves kubelet.sock, calls the device
plugins that register, keeps the checkpoint, and prints all that it sees until it gets SIGINT or SIGTERM.

At a terminal it offers a prompt for the steps below, with completion; `watch`, `help` and `quit` are there, too.

With --api-port it is the node of a cluster with an API server and a scheduler. Pods are scheduled, and get devices by
DRA where the gateway publishes them: its configuration needs `cluster: {{server: http://127.0.0.1:PORT, token: FILE}}`
and `runtime: {{cdi_dirs: [DIR/../cdi]}}`. The kubelet's pauses have their real lengths; `clock` shortens them.

With --script it does the steps of a file and ends: with 1 if a step fails, with 2 if the script makes no sense.

\b
  dpgateway simulate --kubelet 1.24 --device-plugins-dir /tmp/plugins --script rehearsal
\b
  # rehearsal
  wait example.com/x=2              # a plugin has registered two healthy devices
  pod p1 example.com/x=1            # a pod takes one
  upgrade 1.37                      # the node's kubelet is upgraded under it
  wait example.com/x=2 within 10    # the plugin is back
  expect pod p1
  print capacity

Steps:

\b
{verbs.table()}

A script named *.yaml is a YAML list of such lines. Every option can be set as DPGATEWAY_<OPTION>, too.
"""


def _version(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return behaviour(value).version
    except UnknownVersionError as error:
        raise click.BadParameter(str(error)) from error


def _option(name: str, parameter: str, *variables: str, **how: Any) -> Callable[[F], F]:  # noqa: ANN401  click's own
    """An option that can be set as an environment variable, too. ``variables``: further ones."""
    own = f"DPGATEWAY_{name.upper().replace('-', '_')}"
    return click.option(f"--{name}", parameter, envvar=[own, *variables], **how)


_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_SCRIPT = click.Path(dir_okay=False, path_type=Path)
_OUTPUT = click.Choice(["table", "json"])
_DIRECTORY_HELP = "Stands for /var/lib/kubelet/device-plugins. Files in it are deleted, as a kubelet does."
_PORT_HELP = "Run an API server and a scheduler, too, on this port of 127.0.0.1 (0: any): for DRA."
_NODE_HELP = "Of the kubelet's node at the API server."
_VERSION_HELP = "Version, such as 1.24 or 1.10.2."


@click.command(help=_HELP)
@_option("kubelet", "version", default=f"1.{NEWEST}", show_default=True, callback=_version, help=_VERSION_HELP)
@_option("device-plugins-dir", "directory", required=True, type=_DIRECTORY, help=_DIRECTORY_HELP)
@_option("script", "script_file", type=_SCRIPT, help="Steps to do.")
@_option("output", "output", type=_OUTPUT, default="table", show_default=True, help="Text, or one JSON object a line.")
@_option(
    "topology-policy",
    "policy",
    type=click.Choice(POLICIES),
    default="none",
    show_default=True,
    help="The topology manager's.",
)
@_option("numa-nodes", "numa", type=click.IntRange(1, 8), default=1, show_default=True, help="Of the machine.")
@_option(
    "patience", "patience", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds that a step waits."
)
@_option("api-port", "port", type=click.IntRange(0, 65535), help=_PORT_HELP)
@_option(
    "node-name",
    "node",
    "NODE_NAME",
    default=socket.gethostname().lower(),
    show_default="the host's name",
    help=_NODE_HELP,
)
def simulate(  # noqa: PLR0913, PLR0917  one per option
    version: str,
    directory: Path,
    script_file: Path | None,
    output: str,
    policy: str,
    numa: int,
    patience: float,
    port: int | None,
    node: str,
) -> None:
    """Runs what the options say, and exits."""
    if port is not None and directory.absolute().name != "device-plugins":
        raise click.UsageError(f"--api-port: found the directory {directory}, expected one named device-plugins")
    try:
        todo = script.read(script_file) if script_file else None
    except script.ScriptError as error:
        raise click.UsageError(str(error)) from error
    _check(directory.absolute())
    if port is None:
        stand = foreground.Stand(Kubelet(version, directory, policy=policy, numa=numa))
    else:
        cluster, root = SimulatedCluster(pauses=KubeletPauses(), port=port), directory.absolute().parent
        stand = foreground.Stand(cluster.node(version, root=root, name=node, policy=policy, numa=numa), cluster)
    terminal = todo is None and sys.stdin.isatty() and sys.stdout.isatty()
    if terminal and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp():  # else it runs in the background
        from dpgateway_simulator.prompt import prompt  # noqa: PLC0415  it takes a tenth of a second

        sys.exit(asyncio.run(prompt.run(stand, patience, output)))
    work = foreground.forever if todo is None else partial(script.do, todo=todo)
    sys.exit(asyncio.run(foreground.run(stand, patience, Printer(output), work)))


def _check(directory: Path) -> None:
    """Refuses a directory with a live kubelet.sock, or with files that a kubelet would delete."""
    try:
        sockets.connected(directory / store.SOCKET, store.SOCKET).close()
    except OSError:
        pass
    else:
        raise click.UsageError(f"a kubelet serves {directory / store.SOCKET}, expected a directory of our own")
    try:
        found = list(directory.iterdir())
    except OSError:
        return  # there is none, or the start will say why
    for path in found:
        ours = path.name in {store.CHECKPOINT, "DEPRECATION"} or stat.S_ISSOCK(path.lstat().st_mode)
        if not ours and not path.is_dir() and not path.name.startswith("."):
            raise click.UsageError(f"found {path}, which a kubelet would delete; expected an empty directory")
