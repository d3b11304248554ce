"""``dpgateway preflight``: finds obstacles on this node, or predicts the effects of a kubelet upgrade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import click

from dpgateway.cli.facts import NodeFacts, PlannedChange, find
from dpgateway.cli.group import unavailable
from dpgateway.cli.options import CONTROL_SOCKET, POD_UID, Settings, configured, output_option
from dpgateway.cli.output import print_json, print_line, print_table
from dpgateway.errors import ConfigurationError
from dpgateway.node import versions
from dpgateway.preflight import SCHEMA, Facts, Finding, Rehearsal, detect_version, judge, verdict
from dpgateway.preflight.detect_version import Clue
from dpgateway.preflight.front import FrontName, verdicts

STYLES = {"loss": "red", "waits": "red", "unknown": "yellow", "change": ""}
T = TypeVar("T")


def _known(version: str) -> str:
    versions.kubelet_version(version)
    return version


def _version(read: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    def convert(_context: click.Context, _parameter: click.Parameter, value: str | None) -> T | None:
        try:
            return None if value is None else read(value)
        except ConfigurationError as error:
            raise click.BadParameter(str(error)) from error

    return convert


@click.command()
@configured
@click.option(
    "--to",
    metavar="VERSION",
    callback=_version(_known),
    envvar="DPGATEWAY_TO",
    show_envvar=True,
    help=f"The kubelet that this node is to get, such as 1.{versions.NEWEST}; an older one is a downgrade.  [default: "
    "the present one]",
)
@click.option(
    "--from",
    "present",
    metavar="VERSION",
    callback=_version(detect_version.said),
    envvar="DPGATEWAY_FROM",
    show_envvar=True,
    help="The kubelet that it has now.  [default: as far as it can be told from what the kubelet does]",
)
@click.option(
    "--rehearse",
    is_flag=True,
    envvar="DPGATEWAY_REHEARSE",
    show_envvar=True,
    help="Also play the upgrade, with a simulated kubelet and a copy of the checkpoint; needs the simulator.",
)
@click.option(
    "--front",
    type=click.Choice(("dra", "deviceplugin")),
    envvar="DPGATEWAY_FRONT",
    show_envvar=True,
    help="Also say what the change of all resources to this front would do, and what it waits for.  [default: they "
    "stay where they are]",
)
@POD_UID
@CONTROL_SOCKET
@output_option
@click.pass_context
def preflight(  # noqa: PLR0913  one for each option
    context: click.Context,
    settings: Settings,
    *,
    to: str | None,
    present: Clue | None,
    rehearse: bool,
    front: FrontName | None,
    pod_uid: str,
    control_socket: Path,
    output: str,
) -> None:
    """Find obstacles on this node, or predict the effects of a kubelet upgrade.

    Reads the kubelet's checkpoint and the configuration, asks each resource's driver for its devices, and the
    kubelet, the container runtime and the running gateway for their versions. It predicts held devices that would not
    be listed, kubelets that forget the holders, APIs and features that go or come, and parts of this node with which
    the new kubelet does not work. Nothing is changed, nothing has to run, and unavailable sources are named.

    With --rehearse a simulated kubelet of the new version reads a copy of the checkpoint, in a temporary directory,
    and admits its pods again, beside a gateway that serves this node's resources by devices on paper. A pod that is
    refused, or that counts as the holder of something else than before, is a loss.

    With --front it also predicts the change of each resource to DRA, or to the device plugin: it is ready, waits for
    something, changes, or loses something. It asks the API server for the node, the classes, and its own rights.

    Without --to it looks for obstacles to a gateway with the rights of this process: a directory without a kubelet, a
    socket that is elsewhere, a denial by SELinux. Run it where the gateway runs.

    Exits with 0 if nothing is lost, with 1 if something is, or if that can't be told, and with 2 if the configuration
    or the usage is wrong. --from helps where the kubelet's version can't be told.
    """
    if rehearse and to is None:
        raise click.UsageError("--rehearse plays an upgrade: expected --to beside it")
    question = PlannedChange(versions.kubelet_version(to) if to else None, front)
    node = find(settings, control_socket, question, present, pod_uid)
    rehearsal = _rehearsed(to, node) if rehearse and to else None
    findings = judge(node.facts, rehearsal, node.front)
    if output == "json":
        print_json(_as_json(settings, node, findings, rehearsal))
    else:
        _print(node, findings, rehearsal)
    context.exit(0 if verdict(findings) == "safe" else 1)


def _rehearsed(to: str, node: NodeFacts) -> Rehearsal | None:
    """The rehearsal; None if the holders are unknown, which is a finding already."""
    try:
        from dpgateway.cli import rehearsal  # noqa: PLC0415  an installation may lack the simulator
    except ModuleNotFoundError as error:
        raise unavailable("preflight --rehearse", "dpgateway.cli.rehearsal", error) from error
    held = node.facts.held
    return None if held.unread else rehearsal.rehearse(to, node.directory, node.answers, held.notes)


def _as_json(
    settings: Settings, node: NodeFacts, findings: tuple[Finding, ...], rehearsal: Rehearsal | None
) -> dict[str, object]:
    facts = node.facts
    return {
        "schema": SCHEMA,
        "node_name": settings.node_name,
        "config": str(settings.config),
        "device_plugins_dir": str(node.directory),
        "to": str(facts.to) if facts.site is None else None,
        "from": {
            "oldest": str(node.present.oldest),
            "newest": str(node.present.newest),
            "clues": [clue.source for clue in node.clues],
        },
        "verdict": verdict(findings),
        "findings": [asdict(one) for one in findings],
        "resources": [
            {
                "name": one.name,
                "driver": one.driver,
                "offered": None if one.failure else len(one.offered),
                "held": _held(facts, one.name),
            }
            for one in facts.served
        ],
        "checkpoint": {
            "formats": sorted(layout.value for layout in facts.held.layouts),
            "unread": facts.held.unread or None,
        },
        "runtime": facts.runtime and asdict(facts.runtime),
        "cgroups": facts.cgroups,
        "not_asked": list(node.unknown),
        "rehearsal": rehearsal and asdict(rehearsal),
        "front": node.front and {"name": node.front.front, "resources": dict(_fronts(node))},
    }


def _held(facts: Facts, resource: str) -> int:
    """The number of ids that containers hold, by either front."""
    claimed = (one.ids for one in facts.claimed if one.resource == resource)
    return len(set(facts.held.notes.get(resource, {})).union(*claimed))


def _fronts(node: NodeFacts) -> Mapping[str, str]:
    """The verdict on each resource's change of its front."""
    return {} if node.front is None else verdicts(node.facts, node.front)


def _print(node: NodeFacts, findings: tuple[Finding, ...], rehearsal: Rehearsal | None) -> None:
    facts = node.facts
    known = ", ".join(clue.source for clue in node.clues) or "nothing tells it"
    upgrade = f"kubelet {facts.to} in place of" if facts.site is None else "this node's kubelet:"
    print_line(f"{upgrade} {node.present} ({known})")
    if facts.runtime is not None:
        word = {True: "knows CDI", False: "doesn't know CDI", None: "may know CDI"}[facts.runtime.cdi]
        print_line(f"container runtime: {facts.runtime.name} {facts.runtime.version}, {word}")
    for text in node.unknown:
        print_line(f"not known: {text}", "yellow")
    if facts.served:
        rows = [
            (one.name, one.driver, "?" if one.failure else str(len(one.offered)), str(_held(facts, one.name)))
            for one in facts.served
        ]
        print_table(("resource", "driver", "offered", "held"), rows)
    if rehearsal is not None:
        kept = sum(one.admitted for one in rehearsal.pods)
        print_line(f"rehearsal: kubelet {rehearsal.kubelet} admitted {kept} of {len(rehearsal.pods)} pods again")
        if rehearsal.ids:
            rows = [(one.resource, one.id, _who(one.before), _who(one.after)) for one in rehearsal.ids]
            print_table(("resource", "id", "held before", "held after"), rows)
    if node.front is not None and facts.served:
        print_table(("resource", f"by {node.front.front}"), list(_fronts(node).items()))
    for finding in findings:
        about = f"{finding.resource}: " if finding.resource else ""
        print_line(f"{finding.level}: {about}{finding.text}", STYLES[finding.level])
        if finding.advice:
            print_line(f"    what to do: {finding.advice}")
    _print_verdict(node, findings)


def _who(holders: tuple[str, ...]) -> str:
    return ", ".join(holders) or "-"


def _print_verdict(node: NodeFacts, findings: tuple[Finding, ...]) -> None:
    count = Counter(one.level for one in findings)
    here = {
        "loss": f"findings that must be mended: {count['loss']} of {len(findings)}",
        "waits": f"findings that the change of the front waits for: {count['waits']} of {len(findings)}",
        "unknown": f"whether the gateway can do its work can't be told: {count['unknown']} unknown",
        "safe": "nothing is in the gateway's way on this node",
    }
    end = {
        "loss": f"findings that would be a loss: {count['loss']} of {len(findings)}",
        "waits": f"findings that the change of the front waits for: {count['waits']} of {len(findings)}",
        "unknown": f"whether something would be lost can't be told: {count['unknown']} unknown",
        "safe": f"nothing would be lost with kubelet {node.facts.to}",
    }
    which = verdict(findings)
    print_line((end if node.facts.site is None else here)[which], "green" if which == "safe" else STYLES[which])
