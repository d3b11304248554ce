"""The probes of one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dpgateway.sysfs import HOST_DEV, DevNode
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.probing import Check, opening


def checks(
    options: CharDeviceOptions, nodes: Iterable[tuple[DevNode, str]], fill: Callable[[str], str]
) -> Iterator[Check]:
    """A device's probes. ``nodes``: its own nodes with their permissions; ``fill`` fills a template."""
    if options.health is None:
        return
    own = tuple(nodes)
    for node, permissions in own if options.health.open else ():
        yield opening(f"{HOST_DEV}/{node.real}", f"{options.dev}/{node.real}", node, write="w" in permissions)
    if options.health.command:
        command = tuple(fill(text) for text in options.health.command)
        yield Check(" ".join(command), command, " ".join(str(node) for node, _ in own))
