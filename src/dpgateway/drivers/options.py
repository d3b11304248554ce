"""From a document and the installed drivers to a :class:`Configuration`: options are typed by their driver's class.

The options' claims and warnings are collected here, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from dpgateway.config.document import Document, Entry
from dpgateway.config.problems import Place, Problem, did_you_mean, in_order, shown
from dpgateway.config.source import refusal
from dpgateway.config.strict import typed
from dpgateway.config.values import Configuration, ResourceConfig, ResourceKeys
from dpgateway.drivers.discovery import Found
from dpgateway.errors import describe
from dpgateway.model.checks import sequence

T = TypeVar("T")

MOST_WARNINGS = 1000
"""The most warnings of one resource; a generator may have no end."""
_ITS_OWN = "something that no other resource of this driver has, or the same pool for both resources"
_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Completed:
    """One entry of a document with its options typed, and their problems."""

    resource: ResourceConfig | None
    """None if the entry can't be used."""
    problems: tuple[Problem, ...] = ()
    claims: tuple[str, ...] = ()
    """Names that only this resource and its pool can have."""


def resolve(
    document: Document,
    drivers: Mapping[str, Found],
    installed: Iterable[str],
    completing: Callable[[Entry, Found], Completed],
) -> tuple[Configuration, tuple[Problem, ...]]:
    """``document`` with its options typed, as far as it is valid, and its problems.

    An installed driver that can't be loaded is no problem of the configuration: its resources have a ``failure``.
    ``installed``: further drivers, for hints. ``completing`` does what :func:`completed` does, and checks claims.
    """
    problems: list[Problem] = []
    resources = []
    names = sorted({*drivers, *installed})
    for entry in document.entries:
        found = drivers.get(entry.driver)
        if found is None:
            # An absent driver is a problem of the document already.
            if entry.driver:
                expected = f"an installed driver: {', '.join(names)}" if names else "an installed driver; there is none"
                hint = did_you_mean(entry.driver, names)
                problems.append(Problem(entry.written.at("driver"), shown(entry.driver), expected, hint))
            continue
        done = completing(entry, found)
        problems.extend(done.problems)
        if done.resource is not None:
            resources.append(done.resource)
    shared = document.kubelet, document.state_dir, document.web, document.runtime, document.dra, document.cluster
    ready = Configuration(tuple(resources), *shared)
    return ready, in_order(problems)


def completed(entry: Entry, found: Found) -> Completed:
    """The entry with its options typed. Runs the driver's code, which may hang; its exceptions are a failure."""
    wrong: list[Problem] = []
    options, claims, failure = None, None, found.failure
    if failure is None:
        written = entry.written.part("options")
        options, failure = _tried("Options", lambda: typed(written, found.driver.Options, wrong))

    # Wrong options are the operator's to correct; a driver's failure leaves a resource that says so.
    if wrong or entry.resource is None:
        return Completed(None, tuple(wrong))
    if failure is None:
        claims, failure = _tried("Options.claims", lambda: _claims(options))
    if failure is not None:
        return Completed(unusable(entry, failure))
    ready = _resource(entry, options=options, driver_class=found.driver, driver_version=found.version)
    return Completed(ready, claims=claims or ())


def unusable(entry: Entry, failure: str, load: Callable[[], ResourceConfig] | None = None) -> ResourceConfig:
    """The resource of an entry whose driver can't be used; with ``load``: not yet."""
    return _resource(entry, options=None, failure=failure, load=load)


def _resource(entry: Entry, **more: Any) -> ResourceConfig:  # noqa: ANN401
    keys = {field.name: getattr(entry.resource, field.name) for field in fields(ResourceKeys)}
    return ResourceConfig(**(keys | more), where=entry.written.place, written=entry.written.plain())


def preferring(drivers: Mapping[str, Found]) -> frozenset[str]:
    """The drivers with a method ``prefer``."""
    return frozenset(name for name, found in drivers.items() if callable(getattr(found.driver, "prefer", None)))


def warned(entry: Entry, resource: ResourceConfig, others: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The warnings of the resource's options. Runs the driver's code, which may hang; an exception is a warning, too.

    ``others``: the options of the driver's earlier resources, by name.
    """
    options, warnings = entry.written.part("options"), getattr(resource.options, "warnings", None)

    def ask() -> tuple[str, ...]:
        # All of the driver's code runs within _tried(), also what makes each text.
        answer = warnings(others) if warnings else ()
        texts = tuple(map(str, itertools.islice((answer,) if isinstance(answer, str) else answer, MOST_WARNINGS + 1)))
        more = [f"warnings() returned more than {MOST_WARNINGS} texts"] if len(texts) > MOST_WARNINGS else []
        return *texts[:MOST_WARNINGS], *more

    texts, failure = _tried("Options.warnings", ask)
    told_at = [(refusal(text, options), text) for text in texts or ([failure] if failure else [])]
    return tuple(Problem(problem.place, hint=problem.hint or text) for problem, text in told_at)


def _tried(what: str, call: Callable[[], T]) -> tuple[T | None, str | None]:
    """The result of the driver's code, or its failure."""
    try:
        return call(), None
    except BaseException as error:
        return None, f"its {what} failed: {describe(error)}"


def _claims(options: Any) -> tuple[str, ...]:  # noqa: ANN401  the driver's own
    claims: Any = getattr(options, "claims", tuple)()
    return sequence("claims()", (claims,) if isinstance(claims, str) else claims, str)


class Claims:
    """Detects names that are claimed twice. Resources of one pool may claim the same name, because a pool gives it to
    one container at a time. A glob claims every name that it matches.
    """

    def __init__(self) -> None:
        self._first: dict[str, dict[str, tuple[Place, str | None]]] = {}
        """`_first` contains the place and the pool of the first claim, keyed by driver and name."""

    def checked(self, entry: Entry, done: Completed) -> Completed:
        """Adds the entry's claims; a second claim of a name is a problem."""
        again = []
        here, pool = entry.written.place, entry.resource.pool if entry.resource is not None else None
        known = self._first.setdefault(entry.driver, {})
        for name in done.claims:
            known.setdefault(name, (here, pool))
        globs = [name for name in known if not _GLOB.isdisjoint(name)]
        for name in done.claims:
            if _GLOB.isdisjoint(name):
                others = [glob for glob in globs if fnmatchcase(name, glob)]
            else:
                others = [other for other in known if fnmatchcase(other, name) or fnmatchcase(name, other)]
            # One problem for each place; of several matches at a place, the equal name is reported.
            by_whom = {known[other]: other for other in reversed([name, *others])}
            for (first, whose), other in by_whom.items():
                if first != here and (pool is None or pool != whose):
                    found = f"{shown(name)}, which the resource at {first} claims too"
                    found += "" if other == name else f", as {shown(other)}"
                    again.append(Problem(entry.written.at("options"), found, _ITS_OWN))
        return replace(done, problems=(*done.problems, *again))
