"""Infers the present kubelet's version from its behaviour: no kubelet reports it on a socket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dpgateway.node.versions import ANY, Layout, Span, kubelet_version, span


class Clue(NamedTuple):
    """Evidence that only some versions fit."""

    source: str
    span: Span


def said(version: str) -> Clue:
    """The operator's ``--from``. Raises ConfigurationError for an unknown version."""
    return Clue("--from", span(lambda one: one is kubelet_version(version)))


def node_says(version: str) -> Clue:
    """The kubelet's version in its Node. Raises ConfigurationError for an unknown version."""
    return Clue("its Node", span(lambda one: one is kubelet_version(version)))


def registered(api: str) -> Clue:
    return Clue(f"it accepted {api}", span(lambda one: one.api == api))


def lists_pods(version: str) -> Clue:
    return Clue(f"it serves PodResources {version}", span(lambda one: one.pod_resources == version))


def wrote(layouts: frozenset[Layout]) -> Clue:
    return Clue("its checkpoint's format", span(lambda one: one.writes in layouts))


def present(clues: Iterable[Clue]) -> Span:
    """The versions that fit all clues. A clue that contradicts earlier clues is dropped: a checkpoint, for example, may
    come from an earlier kubelet.
    """
    found = ANY
    for clue in clues:
        found = found.within(clue.span) or found
    return found
