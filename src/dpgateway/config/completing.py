"""From a document and the drivers that were found to a :class:`Configuration`: every key typed, options included.

:func:`advise` names what is allowed, but may not do what its author wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

from dpgateway.config.document import Document, Entry
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, Steps, did_you_mean, in_order, shown
from dpgateway.config.strict import typed
from dpgateway.config.values import Kubelet, ResourceConfig, ResourceKeys
from dpgateway.errors import describe

T = TypeVar("T")

_VARIABLE = re.compile(r"\$(?:\{\w+\}|\(\w+\))")


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
    claimed: dict[object, ResourceConfig] = {}
    for entry in document.entries:
        found = drivers.get(entry.driver)
        if found is None:
            problems.extend(_not_installed(entry, names))
        elif (ready := _ready(entry, found, problems)) is not None:
            resources.append(_claim(ready, entry, claimed, problems))
    return Configuration(tuple(resources), document.kubelet), in_order(problems)


def _not_installed(entry: Entry, names: list[str]) -> Iterator[Problem]:
    if entry.written.value.get("driver"):
        expected = f"an installed driver: {', '.join(names)}" if names else "an installed driver; there is none"
        place = entry.written.place("driver")
        yield Problem(place, shown(entry.driver), expected, did_you_mean(entry.driver, names))


def _ready(entry: Entry, found: FoundDriver, problems: list[Problem]) -> ResourceConfig | None:
    """The resource with its options typed; or None, with what is wrong appended to ``problems``."""
    wrong: list[Problem] = []
    options, failure = None, found.failure
    if failure is None:
        written = entry.written.below("options")
        options, failure = _tried("Options", lambda: typed(written, found.driver.Options, wrong))
    problems.extend(wrong)
    if wrong or entry.resource is None:
        return None
    keys = {field.name: getattr(entry.resource, field.name) for field in fields(ResourceKeys)} | {"options": options}
    driver = None if failure else found.driver
    return ResourceConfig(**keys, where=entry.written.place(), failure=failure, driver_class=driver)


def _tried(what: str, call: Callable[[], T]) -> tuple[T | None, str | None]:
    """What ``call`` returns, or how it failed. It runs the driver's code, whose failure touches only its resource."""
    try:
        return call(), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, f"its {what} failed: {describe(error)}"


def _claim(
    resource: ResourceConfig, entry: Entry, claimed: dict[object, ResourceConfig], problems: list[Problem]
) -> ResourceConfig:
    """Notes what the resource's options claim for this resource alone; a second claim of the same thing is an error."""
    again, failure = _tried("Options.claims", lambda: _claimed_again(resource, claimed))
    if failure:
        return replace(resource, options=None, driver_class=None, failure=failure)
    expected = "something that no other resource of this driver has"
    problems.extend(Problem(entry.written.place("options"), found, expected) for found in again or ())
    return resource


def _claimed_again(resource: ResourceConfig, claimed: dict[object, ResourceConfig]) -> list[str]:
    claims: Any = getattr(resource.options, "claims", tuple)()
    again = []
    for claim in (claims,) if isinstance(claims, str) else claims:
        first = claimed.setdefault((resource.driver, claim), resource)
        if first is not resource:
            again.append(f"{shown(claim)}, which the resource at {first.where} claims too")
    return again


def advise(document: Document, drivers: Mapping[str, FoundDriver]) -> tuple[Problem, ...]:
    """Warnings, each with the place that it is about; all their text is in ``hint``."""
    unread = "it isn't read: only names that end in .yaml are"
    found = [Problem(Place(str(file)), hint=unread) for file in document.ignored]
    for entry in document.entries:
        if entry.resource is not None:
            found.extend(_about(entry, entry.resource, drivers.get(entry.driver)))
    if not document.entries:
        found.append(Problem(Place(str(document.path)), hint=nothing_served(document)))
    if document.kubelet.apis != Kubelet().apis:
        text = "this is for diagnosis only: kubelets that speak none of these APIs get no resource"
        found.append(Problem(Place(str(document.path), key="kubelet.apis"), hint=text))
    return in_order(found)


def nothing_served(document: Document) -> str:
    """Why a valid configuration has nothing for this node to do."""
    if not document.elsewhere:
        return "resources is empty, so nothing is served"
    patterns = sorted({pattern for entry in document.elsewhere if entry.resource for pattern in entry.resource.nodes})
    whose = f"those named {' or '.join(patterns)}" if patterns else "none"
    return f"no resource is for node {document.node_name}, only for {whose}, so nothing is served"


def _about(entry: Entry, resource: ResourceKeys, driver: FoundDriver | None) -> Iterator[Problem]:
    if resource.shares.distinct == "require" and resource.shares.count > 1:
        # GetPreferredAllocation came with 1.19
        text = "kubelets before 1.19 pick shares blindly: a container that wants two may be refused for ever"
        yield Problem(entry.written.place("shares"), hint=text)
    if resource.preference != "none" and driver and callable(getattr(driver.driver, "prefer", None)):
        text = f"the driver's own prefer isn't asked with {resource.preference}"
        yield Problem(entry.written.place("preference"), hint=text)
    for steps, text in _texts(entry.written.value):
        if found := _VARIABLE.search(text):  # whoever writes ${HOME} may expect that it is replaced
            yield Problem(entry.written.place(*steps), hint=f"values are literal, so {found[0]} stays as it is")


def _texts(value: object, steps: Steps = ()) -> Iterator[tuple[Steps, str]]:
    """Each text that is in ``value``, with the way to it."""
    if isinstance(value, str):
        yield steps, value
    elif isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(inner, (*steps, step))
