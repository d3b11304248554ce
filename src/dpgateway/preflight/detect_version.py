"""Infers the present kubelet's version from its behaviour: no kubelet reports it on a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dpgateway.node.versions import ANY, KubeletVersion, Layout, Span, kubelet_version, span


class Clue(NamedTuple):
    """Evidence that only some versions fit."""

    source: str
    span: Span


def said(version: str) -> Clue:
    """The operator's ``--from``. Raises ConfigurationError for an unknown version."""
    return _of("--from", lambda one: one is kubelet_version(version))


def node_says(version: str) -> Clue:
    """The kubelet's version in its Node. Raises ConfigurationError for an unknown version."""
    return _of("its Node", lambda one: one is kubelet_version(version))


def registered(api: str) -> Clue:
    return _of(f"it accepted {api}", lambda one: one.api == api)


def lists_pods(version: str) -> Clue:
    return _of(f"it serves PodResources {version}", lambda one: one.pod_resources == version)


def wrote(layouts: frozenset[Layout]) -> Clue:
    return _of("its checkpoint's format", lambda one: one.writes in layouts)


def present(clues: Iterable[Clue]) -> Span:
    """The versions that fit all clues. A clue that contradicts earlier clues is dropped: a checkpoint, for example, may
    come from an earlier kubelet.
    """
    found = ANY
    for clue in clues:
        found = found.within(clue.span) or found
    return found


def _of(source: str, fits: Callable[[KubeletVersion], bool]) -> Clue:
    return Clue(source, span(fits))
