"""Whether the templates of a configuration can be understood, and be filled for what its match finds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from dpgateway.sysfs import Match, Template, TemplateError
from dpgateway_chardev.given import ID, MountOption, NodeOption
from dpgateway_chardev.grouping import Group

NAME = {**ID, "name": "the last part of the host's path"}
_INDEX = "{index}"


class Templated(Protocol):
    """The options that have templates."""

    @property
    def match(self) -> Sequence[Match]: ...
    @property
    def id(self) -> str | None: ...
    @property
    def group(self) -> Group | None: ...
    @property
    def nodes(self) -> Sequence[NodeOption]: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def mounts(self) -> Sequence[MountOption]: ...
    @property
    def container_path(self) -> str | None: ...


def wrong_templates(options: Templated) -> Iterator[str]:
    for key, text, others in _templates(options):
        yield from (f"{key}: {why}" for why in _wrong(text, others, options.match))
        if "{each:" in text and not (key.startswith("nodes") and others == {}):
            yield f"{key}: expected {{each:...}} in the host's path of nodes only, found {text!r}"
    if options.id is not None and "{" not in options.id and options.group is None:
        yield f"id: expected a template with a field, such as {{attrs:serial}}, found {options.id!r}, one id for all"
    if options.container_path is not None and len(options.nodes) != 1:
        yield "container_path: expected it with one node; else say container_path of each of nodes"
    for name in options.env:
        if not re.fullmatch(r"[^={}\s]+", name.replace(_INDEX, "")):
            yield f"env: expected names of variables, of which a part may be {_INDEX}, found {name!r}"


def _wrong(text: str, others: Mapping[str, str], matches: Sequence[Match]) -> Iterator[str]:
    try:
        template = Template.parse(text, others)
    except TemplateError as error:
        yield str(error)
    else:
        reasons = [why for match in matches if (why := template.never(match))]
        yield from reasons[:1] if len(reasons) == len(matches) else ()


def _templates(options: Templated) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    by = None if options.group is None else options.group.by
    if options.id is not None:
        yield "id", options.id, {} if by is None else {"group": "what group.by says"}
    if by is not None:
        yield "group", by, {}
    for number, node in enumerate(options.nodes):
        yield f"nodes[{number}]", node.host_path, {}
        if node.container_path is not None:
            yield f"nodes[{number}]", node.container_path, NAME
    if options.container_path is not None:
        yield "container_path", options.container_path, NAME
    for key, texts in (("env", options.env), ("annotations", options.annotations)):
        yield from ((key, text, ID) for text in texts.values())
    for number, mount in enumerate(options.mounts):
        yield from ((f"mounts[{number}]", text, ID) for text in (mount.host_path, mount.container_path))
