"""``dpgateway status``: prints the running gateway's status; without one, the holders in the checkpoint, and claims."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpgateway.cli.control_client import NoGateway, asked, understood
from dpgateway.cli.options import CONFIG, CONTROL_SOCKET, DEVICE_PLUGINS_DIR, logged, output_option
from dpgateway.cli.output import print_json, print_line, print_table
from dpgateway.cli.picture import draw
from dpgateway.cli.plain_status import StatusRequest, show, tell_none

if TYPE_CHECKING:
    from dpgateway.node.holders import Note

_ELSEWHERE = ("resources", "defaults", "runtime", "web", "dra", "cluster")
"""The keys whose mistakes leave `state_dir` and `kubelet` as they are."""


@click.command()
@click.argument("resource", default="")
@click.option("--watch", is_flag=True, envvar="DPGATEWAY_WATCH", show_envvar=True, help="Print again at each change.")
@CONTROL_SOCKET
@CONFIG
@DEVICE_PLUGINS_DIR
@logged
@output_option
@click.pass_context
def status(  # noqa: PLR0913  one per option
    context: click.Context,
    *,
    resource: str,
    watch: bool,
    control_socket: Path,
    config: Path,
    device_plugins_dir: Path | None,
    output: str,
) -> None:
    """Show the status of the running gateway: the kubelet, each resource, its devices and their holders.

    Without RESOURCE the devices that are Unhealthy are named, and the others counted. Only root may ask. If no gateway
    is running, the exit code is 1, and the kubelet's checkpoint and the records of claims tell who holds what.
    """
    try:
        if not watch:
            context.exit(show(StatusRequest(resource, control_socket, output)))
        with understood(control_socket), asked(control_socket, f"watch {resource}") as answers:
            for answer in answers:
                if resource and not answer["resources"]:
                    context.exit(tell_none(resource, output))
                _print(answer, resource, output)
    except NoGateway as error:
        from dpgateway.config import in_lines, read  # noqa: PLC0415  20 MB, where there is no gateway to starve

        settings, problems = read(config)
        directory = device_plugins_dir or settings.kubelet.device_plugins_dir
        wrong = in_lines([one for one in problems if not one.place.key.startswith(_ELSEWHERE)])
        unsure = [f"{one}; {directory} and {settings.state_dir} are looked at" for one in wrong]
        _print_holders(directory, settings.state_dir, resource, str(error), output, unsure=unsure)
        context.exit(1)
    except KeyboardInterrupt:
        if not watch:  # nothing was said
            raise
        context.exit(0)
    click.echo("the gateway has ended", err=True)
    context.exit(1)


def _print(answer: Any, resource: str, output: str) -> None:  # noqa: ANN401  JSON
    if output == "json":
        click.echo(json.dumps(answer))
        return
    if sys.stdout.isatty():
        click.clear()
    draw(answer, whole=bool(resource))


# without a gateway


def _print_holders(  # noqa: PLR0913  one caller
    directory: Path, state_dir: Path, resource: str, failure: str, output: str, *, unsure: Sequence[str]
) -> None:
    """``unsure``: why the directories may be others."""
    from dpgateway.dra.claims.files import ClaimFiles  # noqa: PLC0415
    from dpgateway.dra.claims.records import ClaimRecord  # noqa: PLC0415
    from dpgateway.errors import KubeletError  # noqa: PLC0415
    from dpgateway.node import checkpoint  # noqa: PLC0415
    from dpgateway.node.directory import read_checkpoint  # noqa: PLC0415
    from dpgateway.status import SCHEMA  # noqa: PLC0415

    notes: dict[str, Note] = {}
    unread = None
    try:
        notes |= checkpoint.parse(read_checkpoint(directory).content).notes
    except OSError as error:
        unread = f"{directory / checkpoint.NAME}: {error.strerror or error}"
    except KubeletError as error:
        unread = str(error)
    notes = {name: note for name, note in sorted(notes.items()) if resource in ("", name)}
    records, found = ClaimFiles(state_dir), tuple[ClaimRecord, ...]()
    try:
        found, damaged = records.look()
        unknown = [*unsure, *(f"{records.folder / one.file}: {one.why}" for one in damaged)]
    except OSError as error:  # nobody but root may look there
        unknown = [*unsure, f"{records.folder}: {error.strerror or error}"]
    claims = [asdict(it.status) for it in found if any(resource in ("", part.resource) for part in it.given)]
    if output == "json":
        held = [{"name": name, "devices": [*_held(note)]} for name, note in notes.items()]
        said = {"schema": SCHEMA, "gateway": None, "failure": failure}
        print_json({**said, "checkpoint": held, "unread": unread, "claims": claims, "unread_claims": unknown})
        return
    print_line(failure, "red")
    _print_claims(claims)
    for why in unknown:
        print_line(f"whether a claim has devices isn't known: {why}", "yellow")
    if unread:
        print_line(f"the holders aren't known: {unread}", "yellow")
        return
    rows = [
        (name, id_, ", ".join(f"{one.pod_uid} ({one.name})" for one in sorted(noted.containers)) or "-")
        for name, note in notes.items()
        for id_, noted in sorted(note.items())
    ]
    print_line(f"what the kubelet wrote down when it last gave a device away, in {directory / checkpoint.NAME}:")
    if rows:
        print_table(("resource", "device", "pod uid (container)"), rows)
    else:
        print_line("no container holds a device")


def _print_claims(claims: Sequence[Mapping[str, Any]]) -> None:
    """The claims with devices by DRA. Without a gateway they don't end."""
    rows = []
    for one in claims:
        name, pods = f"{one['namespace']}/{one['name']}", ", ".join(one["pods"])
        rows += [
            (name, one["phase"], it["resource"], ", ".join(it["ids"] or it["devices"]), pods) for it in one["given"]
        ]
    if rows:
        print_line("claims that have devices, until a gateway ends them:")
        print_table(("claim", "phase", "resource", "devices", "pods"), rows)


def _held(note: Note) -> Iterator[dict[str, object]]:
    for id_, noted in sorted(note.items()):
        holders = [{"pod_uid": one.pod_uid, "container": one.name} for one in sorted(noted.containers)]
        yield {"id": id_, "holders": holders}
