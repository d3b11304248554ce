"""From a document and the drivers that were found to a :class:`Configuration`: every key typed, options included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

from dpgateway.config.loading import Document, Entry
from dpgateway.config.located import Mapped, locate
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, Wrong, describe, did_you_mean, in_order
from dpgateway.config.structure import structure
from dpgateway.config.values import Kubelet, Resource, ResourceConfig
from dpgateway.errors import describe as describe_error

T = TypeVar("T")


class FoundDriver(Protocol):
    """What has to be known of a driver here; `dpgateway.drivers.discovery` has more."""

    @property
    def driver(self) -> Any: ...  # noqa: ANN401  the class, or None
    @property
    def failure(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the gateway is to do on this node."""

    resources: tuple[ResourceConfig, ...]
    kubelet: Kubelet


def complete(document: Document, drivers: Mapping[str, FoundDriver], installed: Iterable[str] = ()) -> Configuration:
    """``document`` with its options typed. Raises InvalidConfiguration with all that is wrong.

    A driver that is installed but can't be loaded is no error of the configuration: its resources come back with
    ``failure`` set. ``installed`` has the names of further drivers, to be suggested for one that isn't installed.
    """
    configuration, problems = resolve(document, drivers, installed)
    if problems:
        raise InvalidConfiguration(problems)
    return configuration


def resolve(
    document: Document, drivers: Mapping[str, FoundDriver], installed: Iterable[str] = ()
) -> tuple[Configuration, tuple[Problem, ...]]:
    """Like :func:`complete`, but returns what can be used together with what is wrong."""
    problems: list[Problem] = []
    resources = []
    names = sorted({*drivers, *installed})
    claimed: dict[object, Place] = {}
    for entry in document.entries:
        ready = _resource(entry, drivers, names, problems)
        if ready is not None:
            resources.append(_claim(ready, entry, claimed, problems))
    return Configuration(tuple(resources), document.kubelet), in_order(problems)


def resolve_options(tree: Mapped, kind: type[T], problems: list[Problem]) -> T | None:
    """The ``options`` of a resource as a ``kind``; or None, with what is wrong appended to ``problems``."""
    place = locate(tree, ("options",))
    options = tree.get("options")
    if options is None:
        options = Mapped(place)
    if not isinstance(options, Mapped):
        problems.append(Wrong(describe(options), "a mapping of the driver's options").at(place))
        return None
    return structure(options, kind, problems)


def _resource(
    entry: Entry, drivers: Mapping[str, FoundDriver], names: list[str], problems: list[Problem]
) -> ResourceConfig | None:
    found = drivers.get(entry.driver)
    if found is None:
        if entry.tree.get("driver"):
            expected = f"an installed driver: {', '.join(names)}" if names else "an installed driver; there is none"
            hint = did_you_mean(entry.driver, names)
            problems.append(Wrong(describe(entry.driver), expected, hint).at(locate(entry.tree, ("driver",))))
        return None
    if found.failure is not None:
        return _ready(entry, failure=found.failure)
    wrong: list[Problem] = []
    try:
        options = resolve_options(entry.tree, found.driver.Options, wrong)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the driver's code ran, and its failure is its resource's alone
        return _ready(entry, failure=f"its Options failed: {describe_error(error)}")
    problems.extend(wrong)
    return None if wrong else _ready(entry, options=options, driver_class=found.driver)


def _ready(entry: Entry, **outcome: Any) -> ResourceConfig | None:  # noqa: ANN401  fields of ResourceConfig
    if entry.resource is None:
        return None
    keys = {field.name: getattr(entry.resource, field.name) for field in fields(Resource)}
    return ResourceConfig(**(keys | {"options": None} | outcome), where=str(entry.tree.place))


def _claim(
    resource: ResourceConfig, entry: Entry, claimed: dict[object, Place], problems: list[Problem]
) -> ResourceConfig:
    """Notes what the resource's options claim for it alone; a second claim of the same is an error."""
    place = locate(entry.tree, ("options",))
    try:
        claims: Any = getattr(resource.options, "claims", tuple)()
        for claim in (claims,) if isinstance(claims, str) else tuple(claims):
            first = claimed.setdefault((resource.driver, claim), place)
            if first is not place:
                found = f"{describe(claim)}, which the resource at {first} claims too"
                problems.append(Wrong(found, "something that no other resource of this driver has").at(place))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as above
        failure = f"its Options.claims failed: {describe_error(error)}"
        return replace(resource, options=None, driver_class=None, failure=failure)
    return resource
