"""The warnings of ``dpgateway check`` about a match on this node: likely mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpgateway.sysfs import HOST_DEV, PART, DevTree, Look, NoNode, Object, Template, find, is_glob
from dpgateway_chardev.hostfiles import HostFiles
from dpgateway_chardev.keys import CharDeviceKeys

POOL = "in one pool they exclude each other, and no container can have both"


def doubts(options: CharDeviceKeys, others: Mapping[str, CharDeviceKeys]) -> Iterator[str]:
    """The warnings. ``others``: the options of earlier resources outside this one's pool, keyed by resource name."""
    try:
        taken = _taken(options)
        sysfs = options.roots.sysfs
        theirs = {name: _taken(other).keys() for name, other in others.items() if other.roots.sysfs == sysfs}
    except OSError as error:
        yield f"match: {error.filename} can't be listed: {error.strerror}"
        return
    for number, match in enumerate(options.match):
        if not match.optional and number not in taken.values():
            look, subsystem = Look(options.roots), match.subsystem
            known = any(look.exists(Object(f"{kind}/{subsystem}")) for kind in ("bus", "class"))
            why = f", because neither /sys/bus nor /sys/class has {subsystem}"
            if known or is_glob(subsystem) or "|" in subsystem:
                why = "; `dpgateway devices --explain` says why"
            yield f"match[{number}]: nothing on this node matches it{why}"
    if taken:
        yield from _absent(options)
        yield from _ids_of_a_group(options)
        yield from _iommu_groups(options, taken)
    for name, objects in theirs.items():
        if both := sorted(f"/sys/{thing.path}" for thing in taken.keys() & objects):
            more = f" and {len(both) - 1} more" if len(both) > 1 else ""
            text = f"{name} takes {both[0]}{more}, too, so that two containers can get it"
            yield f"match[{taken[Object(both[0].removeprefix('/sys/'))]}]: {text}; {POOL}"


def _taken(options: CharDeviceKeys) -> dict[Object, int]:
    """The number of the matching alternative, keyed by object. Raises OSError."""
    return {found.thing: number for number, found in find(Look(options.roots), options.match)}


def _ids_of_a_group(options: CharDeviceKeys) -> Iterator[str]:
    """Warns of a group whose objects fill ``id`` differently: without its first object the device gets another id."""
    if options.id is None or options.group is None or options.group.by is None:
        return
    look = Look(options.roots)
    # a device's id is that of its first required object, so all of them should give the same one
    by, id_ = Template.parse(options.group.by, PART), Template.parse(options.id, {"group": "", **PART})
    ids: dict[str, dict[str, None]] = {}
    for number, found in find(look, options.match):
        group = by.fill(look, found, {"part": ""})
        if isinstance(group, str) and not options.match[number].optional:
            text = id_.fill(look, found, {"group": group, "part": ""})
            ids.setdefault(group, {})[str(text)] = None
    if several := next((list(one) for one in ids.values() if len(one) > 1), None):
        yield (
            f"id: found {' and '.join(several[:2])} for objects of one device, which gets another id when the first is "
            "missing at a start; expected one text for all of them, such as {group}"
        )


def _iommu_groups(options: CharDeviceKeys, taken: Mapping[Object, int]) -> Iterator[str]:
    """Warns of devices that share an IOMMU group's node, because no two containers can have that at once."""
    paths = [path for node in options.nodes for path in node.host_path]
    paths += [path for match in options.match for node in match.nodes or () for path in node.host_path]
    if options.group is not None or not any("{attr:iommu_group}" in path for path in paths):
        return
    look = Look(options.roots)
    groups: dict[str, list[str]] = {}
    for thing in sorted(taken, key=lambda one: one.kernel):
        if isinstance(group := look.value(thing, "iommu_group"), str):
            groups.setdefault(group, []).append(thing.kernel)
    if several := next(((group, them) for group, them in groups.items() if len(them) > 1), None):
        group, them = several
        yield (
            f"nodes: {them[0]} and {them[1]} have IOMMU group {group} in common, so while a container has one of them, "
            'no other container gets the other; `group: "{attr:iommu_group}"` makes them one device'
        )


def _absent(options: CharDeviceKeys) -> Iterator[str]:
    """Warns of missing nodes and mounts whose paths have no field, because they affect every device."""
    dev, files = DevTree(options.roots.dev), HostFiles(options.roots, options.host)
    for number, node in enumerate(options.nodes):
        if not node.optional and not any("{" in path for path in node.host_path):
            found = [dev.look(path.removeprefix(f"{HOST_DEV}/"), node.type or options.type) for path in node.host_path]
            lacks = [one.reason for one in found if isinstance(one, NoNode)]
            if len(lacks) == len(found):
                yield f"nodes[{number}]: {lacks[0]}, so all devices are Unhealthy"
    for number, mount in enumerate(options.mounts):
        path = mount.host_path
        if "{" not in path and files.sees(path) and (lack := files.lacks(path, None)):
            yield f"mounts[{number}]: {lack}, so all devices are Unhealthy"
