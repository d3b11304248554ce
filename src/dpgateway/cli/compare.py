"""Compares a configuration with the running gateway's, for ``check --against-running``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dpgateway.cli.control_client import NoGateway, asked, understood
from dpgateway.cli.options import Settings
from dpgateway.config import (
    DEVICE_PLUGINS_DIR,
    Configuration,
    Document,
    InvalidConfiguration,
    from_json,
    in_lines,
    reload_keys,
    restart_keys,
)
from dpgateway.config.changes import changes
from dpgateway.drivers import discovery
from dpgateway.drivers.loading import PATIENCE, Loading
from dpgateway.errors import GatewayError
from dpgateway.kit.threads import Threads

WORDS = {
    "untouched": "untouched",
    "changed": "changed in place",
    "restarted": "restarted",
    "added": "added",
    "removed": "removed",
}
"""The effects of a reload on a resource: the word in JSON, and the text for people."""


@dataclass(frozen=True, slots=True)
class Running:
    """The configuration that the running gateway serves."""

    node_name: str
    document: Document


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """The effect of a reload on one resource, and the keys that cause it."""

    resource: str
    change: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The effect of a reload."""

    resources: tuple[ResourceChange, ...]
    next_start: tuple[str, ...]
    """The keys that take effect at the next start of the gateway only."""
    taken_over: tuple[str, ...]
    """The keys outside of resources that take effect at once."""

    def as_json(self) -> dict[str, object]:
        resources = [{"name": one.resource, "change": one.change, "keys": list(one.keys)} for one in self.resources]
        return {"resources": resources, "next_start": list(self.next_start), "taken_over": list(self.taken_over)}


def running(control: Path) -> Running:
    """Asks the running gateway for its configuration. Raises NoGateway, or GatewayError if drivers can't read it."""
    with asked(control, "configuration") as answers:
        answer: Any = next(answers, None)
    if answer is None:
        raise NoGateway(f"the gateway at {control} doesn't say which configuration it serves: it is an older one")
    with understood(control):
        node, configuration = answer["node"], answer["configuration"]
    try:
        return Running(node, from_json(configuration, "the running gateway's configuration").for_node(node))
    except InvalidConfiguration as error:
        raise _unlike(error) from error


def compare(running: Running, new: Configuration, settings: Settings) -> Comparison:
    """The effect of a reload. Both configurations' options are parsed by the drivers installed now."""
    loading = Loading(discovery.named(running.document.drivers), running.document)
    loading.wait()
    old, problems = loading.resolve()
    if problems:
        raise _unlike(InvalidConfiguration(problems))

    # The gateway's --device-plugins-dir survives a reload and isn't known here. So the default directory in the file
    # counts as no change.
    directory = settings.device_plugins_dir(new)
    if settings.flag_device_plugins_dir is None and directory == DEVICE_PLUGINS_DIR:
        directory = old.kubelet.device_plugins_dir
    new = replace(new, kubelet=replace(new.kubelet, device_plugins_dir=directory))

    # On a thread with a timeout, because comparing options runs driver code.
    try:
        compared = partial(changes, old.resources, new.resources)
        found = Threads(idle=0).run("compare configurations", compared, PATIENCE)
    except TimeoutError as error:
        raise GatewayError(f"a driver's options can't be compared within {PATIENCE:g} s") from error

    which = {"untouched": found.same, "changed": found.amended, "restarted": found.restarted, "added": found.added}
    change = {one.name: what for what, resources in which.items() for one in resources}
    kept = [ResourceChange(one.name, change[one.name], found.keys.get(one.name, ())) for one in new.resources]
    removed = [ResourceChange(one.name, "removed") for one in found.removed]
    return Comparison((*kept, *removed), restart_keys(old, new), reload_keys(old, new))


def _unlike(error: InvalidConfiguration) -> GatewayError:
    """The error if the installed drivers refuse the running configuration: they have changed since its start."""
    return GatewayError(
        "the running gateway's configuration can't be read with the drivers installed now, so only a restart of it "
        f"tells: {'; '.join(in_lines(error.problems))}"
    )
