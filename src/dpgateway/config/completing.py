"""From a document and the drivers that were found to a :class:`Configuration`: every key typed, options included.

:func:`advise` names what is allowed, but may not do what its author wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar

from dpgateway.config.document import Document, Entry
from dpgateway.config.problems import InvalidConfiguration, Place, Problem, did_you_mean, in_order, shortened, shown
from dpgateway.config.strict import told, typed
from dpgateway.config.values import NO_WEB, STATE_DIR, Kubelet, ResourceConfig, ResourceKeys, Runtime, Web
from dpgateway.errors import describe
from dpgateway.model import Mount, place

T = TypeVar("T")

_HOSTS_OWN = tuple(map(PurePosixPath, ("/boot", "/etc", "/root", "/usr", "/var/lib/kubelet")))
"""Directories of the host, in which whoever writes can become root there."""
_ITS_OWN = "something that no other resource of this driver has, or the same pool for both resources"
_GLOB = frozenset("*?[")
_VARIABLE = re.compile(r"\$(?:\{\w+\}|\(\w+\))")


class FoundDriver(Protocol):
    """What has to be known of a driver here; `dpgateway.drivers.discovery` has more."""

    @property
    def driver(self) -> Any: ...  # noqa: ANN401  the class, or None
    @property
    def version(self) -> str: ...  # of its distribution
    @property
    def failure(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the gateway is to do on this node."""

    resources: tuple[ResourceConfig, ...]
    kubelet: Kubelet
    state_dir: Path = STATE_DIR
    web: Web = NO_WEB
    runtime: Runtime = Runtime()  # noqa: RUF009  it is frozen


@dataclass(frozen=True, slots=True)
class Completed:
    """One entry of a document with its options typed, and what is wrong with them."""

    resource: ResourceConfig | None
    """None if it can't be used."""
    problems: tuple[Problem, ...] = ()
    claims: tuple[str, ...] = ()
    """Names that the options claim for this resource alone, or for those of its pool."""


Completing = Callable[[Entry, FoundDriver], Completed]


def completed(entry: Entry, found: FoundDriver) -> Completed:
    """The entry with its options typed. Runs the driver's code, which may hang; what that code raises is a failure."""
    wrong: list[Problem] = []
    options, failure = None, found.failure
    claims: tuple[str, ...] | None = None
    if failure is None:
        written = entry.written.part("options")
        options, failure = _tried("Options", lambda: typed(written, found.driver.Options, wrong))
    if wrong or entry.resource is None:
        return Completed(None, tuple(wrong))
    if failure is None:
        claims, failure = _tried("Options.claims", lambda: _claims(options))
    if failure is not None:
        return Completed(_resource(entry, failure=failure))
    ready = _resource(entry, options=options, driver_class=found.driver, driver_version=found.version)
    return Completed(ready, claims=claims or ())


def unusable(entry: Entry, failure: str, later: Future[ResourceConfig] | None = None) -> ResourceConfig:
    """The resource of an entry whose driver can't be used; or not yet, if there is ``later``."""
    return _resource(entry, failure=failure, later=later)


def _resource(entry: Entry, **more: Any) -> ResourceConfig:  # noqa: ANN401
    keys = {field.name: getattr(entry.resource, field.name) for field in fields(ResourceKeys)}
    return ResourceConfig(**(keys | {"options": None} | more), where=entry.written.place, written=entry.written.plain())


def _tried(what: str, call: Callable[[], T]) -> tuple[T | None, str | None]:
    """What ``call`` returns, or how it failed. It runs the driver's code, whose failure touches only its resource."""
    try:
        return call(), None
    except BaseException as error:
        return None, f"its {what} failed: {describe(error)}"


def _claims(options: Any) -> tuple[str, ...]:  # noqa: ANN401  the driver's own
    claims: Any = getattr(options, "claims", tuple)()
    names = (claims,) if isinstance(claims, str) else tuple(claims)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"expected names, which are strings, found {name!r:.200}")
    return tuple(map(str.__str__, names))  # also of a subclass, whose hash may be slow


class Claims:
    """Who has claimed what: options may name what only one resource of their driver can have, or those of one pool,
    which give it to one container at a time. A glob claims every name that it matches.
    """

    def __init__(self) -> None:
        self._first: dict[str, dict[str, tuple[Place, str | None]]] = {}
        """By driver and name: who claimed it first, and the pool of that one."""

    def checked(self, entry: Entry, done: Completed) -> Completed:
        """Notes what the entry claims; a second claim of a name is a problem."""
        again = []
        here, pool = entry.written.place, entry.resource.pool if entry.resource is not None else None
        known = self._first.setdefault(entry.driver, {})
        for name in done.claims:
            known.setdefault(name, (here, pool))
        globs = [name for name in known if _is_glob(name)]
        for name in done.claims:
            by_whom = {known[other]: other for other in reversed(_overlapping(name, known, globs))}
            for (first, whose), other in by_whom.items():
                if first != here and (pool is None or pool != whose):
                    found = f"{shown(name)}, which the resource at {first} claims too"
                    found += "" if other == name else f", as {shown(other)}"
                    again.append(Problem(entry.written.at("options"), found, _ITS_OWN))
        return replace(done, problems=(*done.problems, *again))


def _overlapping(name: str, names: Iterable[str], globs: Iterable[str]) -> list[str]:
    """The name, and those of the others that are a glob which matches it, or that it matches. ``globs``: of these."""
    if _is_glob(name):
        return [name, *(other for other in names if fnmatchcase(other, name) or fnmatchcase(name, other))]
    return [name, *(glob for glob in globs if fnmatchcase(name, glob))]


def _is_glob(name: str) -> bool:
    return not _GLOB.isdisjoint(name)


def complete(
    document: Document,
    drivers: Mapping[str, FoundDriver],
    installed: Iterable[str] = (),
    completing: Completing | None = None,
    wrong: Iterable[Problem] = (),
) -> Configuration:
    """``document`` with its options typed. Raises InvalidConfiguration with all that is wrong.

    A driver that is installed but can't be loaded is no error of the configuration: its resources come back with
    ``failure`` set. ``installed`` has the names of further drivers, to be suggested for one that isn't installed.
    ``completing`` does what :func:`completed` does, and checks claims; for callers that run drivers' code elsewhere.
    ``wrong``: what is wrong with the document itself, to be told together with the rest.
    """
    configuration, problems = resolve(document, drivers, installed, completing)
    if problems := (*wrong, *problems):
        raise InvalidConfiguration(problems)
    return configuration


def resolve(
    document: Document,
    drivers: Mapping[str, FoundDriver],
    installed: Iterable[str] = (),
    completing: Completing | None = None,
) -> tuple[Configuration, tuple[Problem, ...]]:
    """Like :func:`complete`, but returns what can be used together with what is wrong."""
    problems: list[Problem] = []
    resources = []
    names, claims = sorted({*drivers, *installed}), Claims()
    for entry in document.entries:
        found = drivers.get(entry.driver)
        if found is None:
            problems.extend(_not_installed(entry, names))
            continue
        done = completing(entry, found) if completing else claims.checked(entry, completed(entry, found))
        problems.extend(done.problems)
        if done.resource is not None:
            resources.append(done.resource)
    ready = Configuration(tuple(resources), document.kubelet, document.state_dir, document.web, document.runtime)
    return ready, in_order(problems)


def _not_installed(entry: Entry, names: list[str]) -> Iterator[Problem]:
    if entry.driver:
        expected = f"an installed driver: {', '.join(names)}" if names else "an installed driver; there is none"
        yield Problem(entry.written.at("driver"), shown(entry.driver), expected, did_you_mean(entry.driver, names))


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
    if (address := document.web.address) and not address[0].is_loopback:
        text = "whoever reaches this address can read which pods have which devices; nothing asks for a password there"
        found.append(Problem(Place(str(document.path), key="web.listen"), hint=text))
    return in_order(found)


def warned(entry: Entry, resource: ResourceConfig, others: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What the resource's options warn of. Runs the driver's code, which may hang; what it raises is a warning too.

    ``others``: the options of the driver's resources that come before this one, by their names.
    """
    options, warnings = entry.written.part("options"), getattr(resource.options, "warnings", None)
    texts, failure = _tried("Options.warnings", lambda: [str(text) for text in warnings(others)] if warnings else [])
    told_at = [(told(text, options), text) for text in texts or ([failure] if failure else [])]
    return tuple(Problem(problem.place, hint=problem.hint or text) for problem, text in told_at)


def nothing_served(document: Document) -> str:
    """Why a valid configuration has nothing for this node to do."""
    if not document.elsewhere:
        return "resources is empty, so nothing is served"
    patterns = sorted({pattern for entry in document.elsewhere if entry.resource for pattern in entry.resource.nodes})
    whose = f"those named {' or '.join(patterns)}" if patterns else "none"
    return f"no resource is for node {document.node_name}, only for {whose}, so nothing is served"


def _doubt_of(mount: Mount) -> str:
    inside, host = place(mount.container_path), PurePosixPath(place(mount.host_path))
    if inside == "/":
        return "container_path is /, so the mount hides all of the container's own files"
    if not mount.read_only and any(host in (path, *path.parents) or path in host.parents for path in _HOSTS_OWN):
        return f"the container can write {host}, and so change what the node runs as root; is read_only: true enough?"
    return ""


def _about(entry: Entry, resource: ResourceKeys, driver: FoundDriver | None) -> Iterator[Problem]:
    if resource.shares.distinct == "require" and resource.shares.count > 1:
        # GetPreferredAllocation came with 1.19
        text = "kubelets before 1.19 pick shares blindly: a container that wants two may be refused for ever"
        yield Problem(entry.written.at("shares"), hint=text)
    if resource.preference != "none" and driver and callable(getattr(driver.driver, "prefer", None)):
        text = f"the driver's own prefer isn't asked with {resource.preference}"
        yield Problem(entry.written.at("preference"), hint=text)
    for index, mount in enumerate(resource.mounts):
        if text := _doubt_of(mount):
            yield Problem(entry.written.at("mounts", index), hint=text)
    for part in entry.written.parts():
        found = _VARIABLE.search(part.value) if isinstance(part.value, str) else None
        if found:  # whoever writes ${HOME} may expect that it is replaced
            yield Problem(part.place, hint=f"values are literal, so {shortened(found[0])} stays as it is")
