"""What makes a device unhealthy that is there: an attribute, or what a probe said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dpgateway.sysfs import HOST_DEV, Look, Mismatch, Node, Object
from dpgateway_chardev.options import CharDeviceOptions
from dpgateway_chardev.probing import Check, opening


def wrong_attribute(options: CharDeviceOptions, look: Look, thing: Object) -> str | None:
    """Why an object isn't healthy, if an attribute says so."""
    for path, test in options.health.attr.items() if options.health else ():
        value = look.value(thing, path)
        if not test.passes(value):
            return str(Mismatch(f"health.attr.{path}", value, test))
    return None


def checks(
    options: CharDeviceOptions, nodes: Iterable[tuple[Node, str]], fill: Callable[[str], str]
) -> Iterator[Check]:
    """What has to be asked of a device. ``nodes``: its own, with what a container may do; ``fill``: fills templates."""
    if options.health is None:
        return
    own = tuple(nodes)
    for node, permissions in own if options.health.open else ():
        yield opening(f"{HOST_DEV}/{node.real}", f"{options.dev}/{node.real}", node, write="w" in permissions)
    if options.health.command:
        command = tuple(fill(text) for text in options.health.command)
        yield Check(" ".join(command), command, " ".join(str(node) for node, _ in own))
