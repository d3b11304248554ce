"""Infers the present kubelet's version from what it does, because no kubelet tells it on a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dpgateway.node.versions import ANY, KubeletVersion, Layout, Span, kubelet_version, span


class Clue(NamedTuple):
    """Evidence that fits some versions only."""

    source: str
    span: Span


def said(version: str) -> Clue:
    """The operator's word. Raises ConfigurationError."""
    return _of("--from", lambda one: one is kubelet_version(version))


def registered(api: str) -> Clue:
    return _of(f"it accepted {api}", lambda one: one.api == api)


def lists_pods(version: str) -> Clue:
    return _of(f"it serves PodResources {version}", lambda one: one.pod_resources == version)


def wrote(layouts: frozenset[Layout]) -> Clue:
    return _of("its checkpoint's format", lambda one: one.writes in layouts)


def present(clues: Iterable[Clue]) -> Span:
    """The versions that fit all clues. A clue that contradicts those before it is dropped: a checkpoint, for example,
    may be an earlier kubelet's.
    """
    found = ANY
    for clue in clues:
        found = found.within(clue.span) or found
    return found


def _of(source: str, fits: Callable[[KubeletVersion], bool]) -> Clue:
    return Clue(source, span(fits))
