"""Checks of the templates in a configuration: syntax, known fields, and whether a matched object can fill them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from dpgateway.sysfs import PART, Template, TemplateError
from dpgateway_chardev.jsons import texts_of
from dpgateway_chardev.keys import CharDeviceKeys
from dpgateway_chardev.settings import ID, NodeOption

NAME = {
    **ID,
    "name": "the last part of the host's path",
    "major": "the major number of the node that is given",
    "minor": "its minor number",
}


_UDEV = {
    "%k": "{kernel}",
    "$kernel": "{kernel}",
    "%n": "{number}",
    "$number": "{number}",
    "%N": "{devnode}",
    "$devnode": "{devnode}",
    "%M": "{major}",
    "$major": "{major}",
    "%m": "{minor}",
    "$minor": "{minor}",
    "%b": "{kernels}",
    "$id": "{kernels}",
    "$driver": "{drivers}",
}
"""The substitutions of udev's rules (udev(7), SYMLINK and others), a likely mistake in a path or an id."""
_ANY_OF_UDEV = re.compile("|".join(rf"{re.escape(one)}\b" for one in _UDEV))

_PLACES = {"id", "nodes", "match", "container_path", "mounts"}


def wrong_templates(options: CharDeviceKeys) -> Iterator[str]:
    part = {} if options.parts is None else PART
    for key, text, others in _templates(options):
        try:
            parsed = Template.parse(text, {**others, **part})
        except TemplateError as error:
            yield f"{key}: {error}"
        else:
            # one alternative that can fill it is enough; objects of the others report the reason when they are found
            reasons = [why for match in options.match if (why := match.never(parsed))]
            if reasons and len(reasons) == len(options.match):
                yield f"{key}: {reasons[0]}"
        if key.partition("[")[0] in _PLACES and (found := _ANY_OF_UDEV.search(text)):
            yield f"{key}: expected {_UDEV[found[0]]} in place of {found[0]}, found {text!r}"
        if "{each:" in text and not (others == {} and key.partition("[")[0] in {"nodes", "match"}):
            yield f"{key}: expected {{each:...}} in the host's path of nodes only, found {text!r}"
    if options.id is not None and "{" not in options.id and options.group is None:
        yield f"id: expected a template with a field, such as {{attrs:serial}}, found {options.id!r}, one id for all"
    if options.container_path is not None and len(options.nodes) != 1:
        yield "container_path: expected it with one node; else say container_path of each of nodes"
    if options.parts is not None and options.id is not None and "{part}" not in options.id:
        yield f"id: expected a template with {{part}}, because one object is several devices, found {options.id!r}"
    yield from _wrong_names(options)
    yield from _both_at_one_path(options)


def _wrong_names(options: CharDeviceKeys) -> Iterator[str]:
    for name, value in options.env.items():
        plain = name.replace("{index}", "").replace("{resource}", "")
        if not re.fullmatch(r"[^={}\s]+", plain) and not (plain == "" and name):
            yield f"env: expected names of variables, with or without {{index}} and {{resource}}, found {name!r}"
        if not isinstance(value, str | Mapping):
            expected = f"expected a text, or a mapping for JSON, in {name}"
            yield f'env: {expected}, found {value!r}; put texts in quotes: "{value}"'
    if "" in options.annotations:
        yield "annotations: expected names that aren't empty, found one that is"


def _both_at_one_path(options: CharDeviceKeys) -> Iterator[str]:
    """Errors about two things at one path in the container, which no object could give."""
    mounts = {f"mounts[{number}]": (one.host_path, one.container_path) for number, one in enumerate(options.mounts)}
    kinds = [("nodes", options.nodes)]
    kinds += [(f"match[{number}].nodes", kind.nodes) for number, kind in enumerate(options.match) if kind.nodes]
    told = set()
    for key, nodes in kinds:
        things: dict[str, tuple[str, ...]] = {}
        for number, one in enumerate(nodes):
            if not one.optional:
                host, inside = one.host_path[0], one.container_path or options.container_path
                things[f"{key}[{number}]"] = (host, one.permissions or "", host if inside is None else inside)
        first: dict[str, tuple[str, object]] = {}
        for where, thing in {**mounts, **things}.items():
            path = thing[-1]
            other, before = first.setdefault(path, (where, thing))
            if before != thing and (where, other) not in told:
                told.add((where, other))
                yield f"{where}: expected another path in the container than that of {other}, found {path!r} for both"


def _templates(options: CharDeviceKeys) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Each template's key, its text, and the fields that the driver fills itself."""
    by = None if options.group is None else options.group.by
    parts = None if options.parts is None else options.parts.entries or options.parts.count
    group = {} if by is None else {"group": "what group.by says"}
    rows: tuple[tuple[str, str | None, Mapping[str, str]], ...] = (
        ("id", options.id, group),
        ("group", by, {}),
        ("parts", parts, {}),
        ("numa", options.numa, {}),
        ("container_path", options.container_path, NAME),
    )
    yield from ((key, text, others) for key, text, others in rows if text is not None)
    yield from _of_nodes("nodes", options.nodes)
    for number, kind in enumerate(options.match):
        yield from _of_nodes(f"match[{number}].nodes", kind.nodes or ())
    yield from (("env", text, ID) for value in options.env.values() for text in texts_of(value))
    yield from (("annotations", text, ID) for text in options.annotations.values())
    yield from (("device_info", text, ID) for text in texts_of(options.device_info))
    yield from (("health", text, ID) for text in (options.health.command if options.health else ()))
    for number, mount in enumerate(options.mounts):
        yield from ((f"mounts[{number}]", text, ID) for text in (mount.host_path, mount.container_path))
    yield from ((f"access[{number}]", file.host_path, ID) for number, file in enumerate(options.access))
    yield from ((f"requires[{number}]", file.host_path, ID) for number, file in enumerate(options.requires))


def _of_nodes(key: str, nodes: Sequence[NodeOption]) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    for number, node in enumerate(nodes):
        yield from ((f"{key}[{number}]", path, {}) for path in node.host_path)
        if node.container_path is not None:
            yield f"{key}[{number}]", node.container_path, NAME
