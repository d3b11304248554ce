"""Collects the facts about a node for ``preflight``. It changes nothing, and any source may be missing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dpgateway.cli import front_facts
from dpgateway.cli.ask_drivers import DriverAnswer, ask_all
from dpgateway.cli.control_client import asked, understood
from dpgateway.cli.dra_fit import joint
from dpgateway.cli.options import Settings
from dpgateway.cli.output import apart
from dpgateway.cli.reading import read_whole
from dpgateway.cli.site import look
from dpgateway.config import Configuration
from dpgateway.deviceplugin.api import only
from dpgateway.errors import ConfigurationError, GatewayError, KubeletError
from dpgateway.kit.files import read
from dpgateway.kit.threads import Threads
from dpgateway.node import checkpoint
from dpgateway.node.directory import Places, is_there, read_checkpoint, why_none
from dpgateway.node.podresources import PodResources
from dpgateway.node.runtime import SOCKETS, Runtime
from dpgateway.node.versions import ALL, KubeletVersion, Span
from dpgateway.preflight import Facts, Held, OfferedResource, RuntimeFacts, detect_version
from dpgateway.preflight.detect_version import Clue
from dpgateway.preflight.front import FrontFacts, FrontName
from dpgateway.resource.journal import entries_of_others
from dpgateway.resource.shares import share_ids

CGROUPS = Path("/sys/fs/cgroup")
KUBELET_CONFIG = "config.yaml"
"""kubeadm's name for the kubelet's configuration, in the kubelet's directory. Without kubeadm only the kubelet's
command line names it.
"""
LARGEST_FILE = 1024 * 1024
"""Bytes of it that are read."""


class PlannedChange(NamedTuple):
    """The planned change."""

    to: KubeletVersion | None = None
    """The next kubelet; None if there is no upgrade."""
    front: FrontName | None = None
    """The next front of the resources; None if it stays."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts about the node, and their sources."""

    facts: Facts
    answers: tuple[DriverAnswer, ...]
    """The drivers' answers."""
    clues: tuple[Clue, ...]
    """The evidence for the present kubelet's version."""
    present: Span
    """The possible versions of the present kubelet."""
    unknown: tuple[str, ...]
    """Why sources couldn't be asked, one text each."""
    directory: Path
    """The kubelet's device-plugins directory."""
    front: FrontFacts | None = None
    """None if the front stays as it is."""


def find(settings: Settings, control: Path, question: PlannedChange, present: Clue | None, pod_uid: str) -> NodeFacts:
    """Collects the facts. ``present``: the operator's ``--from``. ``pod_uid``: of the pod in which this runs, if any.
    Raises ConfigurationError.
    """
    to = question.to
    with apart():
        _, configuration = read_whole(settings)
        front = None
        if question.front is not None:
            front = asyncio.run(front_facts.look(configuration, settings.node_name, question.front))
            if present is None and front.kubelet:
                with contextlib.suppress(ConfigurationError):
                    present = detect_version.node_says(front.kubelet)
        node = replace(asyncio.run(_asked(settings, configuration, control, to, present)), front=front)
        if to is not None:
            return node
        places = Places.of(node.directory, configuration.kubelet.pod_resources_socket)
        site = look(places, configuration.state_dir, configuration.runtime.socket, pod_uid)
        return replace(node, facts=replace(node.facts, site=site))


async def _asked(
    settings: Settings, configuration: Configuration, control: Path, to: KubeletVersion | None, present: Clue | None
) -> NodeFacts:
    directory = settings.device_plugins_dir(configuration)
    places = Places.of(directory, configuration.kubelet.pod_resources_socket)

    # The checkpoint's answers are decoded in the API that the clues imply. Its format is the last clue, because an
    # earlier kubelet may have written it.
    # On a thread that nobody joins: Ctrl-C doesn't wait for a gateway that hangs.
    (api, serves), no_gateway = await Threads(idle=0).call("ask the gateway", partial(_gateway, control))
    pods, no_pods = await _pod_resources(places)
    clues = [present] if present else []
    if not present and api:
        clues.append(detect_version.registered(api))
    if not present and pods is not None:
        clues.append(detect_version.lists_pods(pods))
    held = _held(directory, clues)
    found = tuple(clues) if present or not held.layouts else (*clues, detect_version.wrote(held.layouts))
    runtime, no_runtime = await _runtime(configuration.runtime.socket, configuration.runtime.cdi_dirs)
    claimed, unread_claims = front_facts.claimed(configuration.state_dir)
    answers = await ask_all(configuration.resources, settings.node_name)
    span = detect_version.present(found)
    # The resources that a gateway serves now, or has granted according to its journals.
    journals, _ = entries_of_others(configuration.state_dir, directory, {one.name for one in configuration.resources})
    facts = Facts(
        span if to is not None else Span(span.newest, span.newest),  # without an upgrade nothing comes or goes
        to or span.newest,
        held,
        tuple(map(_served, answers)),
        frozenset(serves | journals.keys()),
        configuration.kubelet.apis,
        runtime,
        no_runtime,
        cgroups(CGROUPS),
        allows_cgroup_v1(directory.parent / KUBELET_CONFIG),
        claimed=claimed,
        unread_claims=unread_claims,
    )
    unknown = tuple(filter(None, (no_gateway, no_pods, no_runtime)))
    return NodeFacts(facts, tuple(answers), found, span, unknown, directory)


def _gateway(control: Path) -> tuple[tuple[str, frozenset[str]], str]:
    """The API that the kubelet speaks with the running gateway, if it is known here, and the resources that it serves;
    or the reason why they aren't known.
    """
    nothing = "", frozenset[str]()
    try:
        with understood(control), asked(control, "status") as answers:
            if (status := next(answers, None)) is None:
                return nothing, ""
            kubelet, serves = status["kubelet"], frozenset(one["name"] for one in status["resources"])
            known = kubelet["there"] and kubelet["api"] in {one.api for one in ALL}
            return (kubelet["api"] if known else "", serves), ""
    except GatewayError as error:
        return nothing, str(error)


async def _pod_resources(places: Places) -> tuple[str | None, str]:
    """The newest version of PodResources that the kubelet serves, or None and the reason."""
    try:
        places.pod_resources.stat()
    except (FileNotFoundError, NotADirectoryError):
        return (
            None,
            f"the kubelet can't be asked: there is no {places.pod_resources}, which kubelets from 1.15 on serve",
        )
    except OSError as error:  # nobody but root may look there
        return None, f"the kubelet can't be asked: {places.pod_resources}: {error.strerror}"
    kubelet = PodResources(places.pod_resources, Threads(idle=0))
    try:
        await kubelet.list(())
    except (GatewayError, OSError) as error:
        return None, f"the kubelet can't be asked: {error}"
    return kubelet.api, ""


def _held(directory: Path, clues: Iterable[Clue]) -> Held:
    """The contents of the checkpoint. A kubelet that never allocated a device has none, but it has the directory.

    ``clues``: further evidence for the version of the kubelet that wrote it.
    """
    try:
        raw, _ = read_checkpoint(directory)
        layouts = checkpoint.layouts(raw)
        # An answer's bytes don't tell its API; the newest possible kubelet's is the likeliest.
        known = (*clues, detect_version.wrote(layouts)) if layouts else clues
        (api,) = only([detect_version.present(known).newest.api])
        given = {name: [api.from_answer(one) for one in some] for name, some in checkpoint.answers(raw).items()}
        return Held(
            checkpoint.parse(raw).notes,
            layouts,
            frozenset(name for name, some in given.items() if any(one.annotations for one in some)),
            frozenset(name for name, some in given.items() if any(one.cdi_devices for one in some)),
        )
    except FileNotFoundError:
        return Held() if is_there(directory) else Held(unread=why_none(directory))
    except DecodeError as error:
        return Held(unread=f"{directory / checkpoint.NAME}: a container's stored answer can't be read: {error}")
    except (OSError, KubeletError) as error:
        return Held(unread=str(error))


async def _runtime(socket: Path | None, cdi_dirs: Iterable[Path]) -> tuple[RuntimeFacts | None, str]:
    said = await Runtime(socket).said()
    if said is None:
        where = ", ".join(map(str, SOCKETS if socket is None else [socket]))
        return None, f"the container runtime can't be asked: expected one that answers CRI v1, at {where}"
    unread = tuple(map(str, said.cdi.unread(*cdi_dirs)))
    return RuntimeFacts(said.name, said.version, said.cdi.by_name, unread), ""


def _served(answer: DriverAnswer) -> OfferedResource:
    resource, shares = answer.resource, answer.resource.shares
    offered = {
        id_: device.health.reason or ("" if device.health.ok else "no reason")
        for device in answer.devices
        for id_ in share_ids(device.id, shares.count, shares.ids or "")
    }
    return OfferedResource(
        resource.name,
        resource.driver,
        answer.failure,
        offered,
        numa=any(device.numa_nodes for device in answer.devices),
        prepares="prepare" in answer.abilities,
        prefers=resource.preference != "none" or "prefer" in answer.abilities,
        annotates=bool(resource.annotations),
        joint=tuple(joint(answer.devices)),
    )


def cgroups(root: Path) -> int | None:
    """The version of cgroups; None if unknown. Only version 2 has this file at its root: cgroups(7)."""
    if (root / "cgroup.controllers").exists():
        return 2
    return 1 if root.is_dir() else None


def allows_cgroup_v1(config: Path) -> bool:
    """Whether the kubelet's configuration has ``failCgroupV1: false``."""
    try:
        content = YAML(typ="safe", pure=True).load(read(config, LARGEST_FILE, follow=True).content)
    except (OSError, ValueError, YAMLError, AssertionError, LookupError, RecursionError):  # three are ruamel.yaml's
        return False
    return isinstance(content, dict) and content.get("failCgroupV1") is False
