"""The result of an importer: resources, parts without an equivalent, and the configuration's text with both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from dpgateway.config.problems import Place
from dpgateway.errors import printable

_WIDTH = 110
"""Letters in a line of a comment."""


@dataclass(frozen=True, slots=True, order=True)
class NotKept:
    """A part of the other plugin's configuration that has no equivalent in ours."""

    place: Place
    """Its place in the other configuration."""
    what: str
    why: str
    resource: str = ""
    """The resource that lacks it; empty for all."""

    def __str__(self) -> str:
        parts = (str(self.place), self.place.key, self.resource, f"{self.what}: {self.why}")
        return printable(": ".join(part for part in parts if part))


@dataclass(frozen=True, slots=True)
class ImportedResource:
    """A resource of the new configuration."""

    name: str
    place: Place
    """Its place in the other configuration."""
    driver: str
    options: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the resource: ``shares``, ``env``, ..."""
    warnings: Sequence[str] = ()
    """Advice for the user: comments in the configuration, and lines on standard error."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """The labels of the nodes that have it; empty for all nodes."""

    def plain(self) -> dict[str, Any]:
        """The entry of the list ``resources``."""
        options = {"options": dict(self.options)} if self.options else {}
        return {"name": self.name, "driver": self.driver, **options, **self.more}


@dataclass(frozen=True, slots=True)
class Imported:
    """A plugin's whole configuration."""

    resources: tuple[ImportedResource, ...]
    not_kept: tuple[NotKept, ...] = ()

    def text(self, title: str) -> str:
        """The configuration in YAML, with comments; ``title``: the comment on top."""
        whole = CommentedMap({"resources": CommentedSeq(_short(one.plain()) for one in self.resources)})
        told = defaultdict[str, list[str]](list)
        names = {one.name for one in self.resources}
        for one in self.not_kept:
            # a resource that isn't there can't have the comment
            what, name = (one.what, one.resource) if one.resource in names else (f"{one.resource} {one.what}", "")
            told[name].append(f"Not kept: {what.strip()}: {one.why}.")
        whole.yaml_set_start_comment("\n".join(_paragraphs([title, *told[""]])))
        for number, resource in enumerate(self.resources):
            origin = f"From {Path(resource.place.file).name}:{resource.place.line}."
            warnings = [f"{one[:1].upper()}{one[1:]}." for one in resource.warnings]
            comment = "\n".join(_paragraphs([origin, *warnings, *told[resource.name]]))
            whole["resources"].yaml_set_comment_before_after_key(number, before="\n" + comment, indent=2)
        out = StringIO()
        yaml = YAML()
        yaml.width = 4096  # a wrapped line is harder to read than a long one
        yaml.indent(mapping=2, sequence=4, offset=2)
        yaml.dump(whole, out)
        return out.getvalue()


def _short(value: Any) -> Any:  # noqa: ANN401  plain values
    """``value`` for ruamel.yaml; a list of scalars is on one line if it fits."""
    if isinstance(value, Mapping):
        return CommentedMap({key: _short(inner) for key, inner in value.items()})
    if not isinstance(value, list | tuple):
        return value
    items = CommentedSeq(map(_short, value))
    scalars = all(not isinstance(one, Mapping | list | tuple) for one in value)
    if scalars and len(str(list(value))) < _WIDTH - 20:
        items.fa.set_flow_style()
    return items


def _paragraphs(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in wrap(printable(text), _WIDTH)]
