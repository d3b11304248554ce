"""The nodes of another plugin's pods, by label, and the resources of one kind of node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpgateway.errors import ConfigurationError
from dpgateway.importing.imported import Imported, ImportedResource

HOST = "kubernetes.io/hostname"
_ALL = {"kubernetes.io/os", "kubernetes.io/arch"}
"""Labels that say nothing of devices."""
_SELECTED = "say `nodes` here, or let the gateway's pods have that selector"


def for_nodes(imported: Imported, labels: Mapping[str, str]) -> Imported:
    """The resources of nodes with these labels; without labels, all. A node's name becomes ``nodes``; other labels that
    aren't given become warnings. Raises ConfigurationError if nothing is for such nodes.
    """
    kept = [one for one in imported.resources if not labels or _needed(one).items() <= labels.items()]
    if imported.resources and not kept:
        others = dict.fromkeys(label for one in imported.resources for label in needed(one))
        told = f"{', '.join(f'{key}={value}' for key, value in labels.items())}"
        raise ConfigurationError(
            f"--node-label: found {told}, expected one of {', '.join(others)}, for which this file has devices"
        )
    not_kept = []
    for lost in imported.not_kept:
        # It is of the resource with its name, of several of the last one above it; without a name it concerns all.
        named = [one for one in imported.resources if one.name == lost.resource]
        above = [one for one in named if one.place.line <= lost.place.line]
        owner = max(above or named, key=lambda one: one.place.line, default=None)
        if owner is None or owner in kept:
            not_kept.append(lost)
    resources = []
    for one in kept:
        more = ", ".join(label for label in _needed(one) if label != HOST and label not in labels)
        warnings = (f"nodeSelector has {more}: {_SELECTED}",) if more else ()
        nodes = {"nodes": [one.selector[HOST]]} if HOST in one.selector else {}
        resources.append(replace(one, more=nodes | dict(one.more), warnings=(*one.warnings, *warnings)))
    return replace(imported, resources=tuple(resources), not_kept=tuple(not_kept))


def needed(one: ImportedResource) -> list[str]:
    """The labels that a node needs to have the resource, as ``KEY=VALUE``."""
    return [f"{key}={value}" for key, value in _needed(one).items()]


def _needed(one: ImportedResource) -> dict[str, str]:
    return {key: value for key, value in one.selector.items() if key not in _ALL}
