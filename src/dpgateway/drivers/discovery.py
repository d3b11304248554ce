"""Finds and imports drivers: entry points of the group ``dpgateway``, whose names are the drivers' names.

Each package has a plugin manager of its own, and its failure at import is a text in its :class:`Found`, so that no
package harms another one. An import may hang, so it runs on a thread (drivers/loading.py). The ``options`` of a
configuration are checked in drivers/options.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, cast, get_args, get_type_hints
from weakref import WeakKeyDictionary

import pluggy

from dpgateway.config.scalars import frozen, name_kind
from dpgateway.drivers import hookspecs
from dpgateway.drivers.contract import REQUIRED, Driver, abilities
from dpgateway.drivers.points import Point, Points, look
from dpgateway.errors import describe
from dpgateway.kit.log import bind
from dpgateway.kit.threads import Threads

LOADING = 30.0
"""Seconds for the import of a package."""

_log = bind(__name__)
_threads = Threads(idle=0)  # a package is imported once
_loaded: WeakKeyDictionary[Any, tuple[str, str]] = WeakKeyDictionary()
"""The distribution, and its version, of each driver class at its import; a later version on disk isn't loaded."""


class Unusable(Exception):
    """An entry point has no usable driver. The text says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """An installed driver: its class, or a failure."""

    name: str
    distribution: str
    version: str
    driver: Any = None
    """The class; None if it can't be used."""
    failure: str | None = None


def installed() -> tuple[str, ...]:
    """The names of all installed drivers, none of which is imported."""
    return look().names


@dataclass(frozen=True, slots=True)
class Installed:
    """A driver's name and its entry points; more than one is a failure."""

    name: str
    points: tuple[Point, ...]

    def __str__(self) -> str:
        return f"{self.name} ({self.points[0].distribution} {self.points[0].version})"

    def load(self) -> Found:
        """Imports the package, which may hang."""
        if len(self.points) > 1:
            names = " and ".join(sorted(f"{point.distribution} {point.version}" for point in self.points))
            return self.failed(f"{names} both have a driver of this name")
        point = self.points[0]
        driver, error = _outcome(point, _check)
        if error is not None:
            _log.debug("driver %s can't be used", self.name, exc_info=error)
            return self.failed(str(_unusable(error)))
        return Found(self.name, *_loaded.setdefault(driver, (point.distribution, point.version)), driver)

    def failed(self, failure: str) -> Found:
        return Found(self.name, self.points[0].distribution, self.points[0].version, failure=failure)


def named(names: Iterable[str] | None = None, there: Points | None = None) -> dict[str, Installed]:
    """The installed drivers among ``names`` (None: all), by name. Imports none; logs broken packages.

    ``there``: the entry points, if they are known.
    """
    wanted = None if names is None else frozenset(names)
    points: dict[str, list[Point]] = {}
    there = there or look()
    for text in there.broken:
        _log.warning("%s", text)
    for point in there.points:
        if wanted is None or point.name in wanted:
            points.setdefault(point.name, []).append(point)
    return {name: Installed(name, tuple(points[name])) for name in sorted(points)}


def load(point: Point) -> Any:  # noqa: ANN401  the hook's result
    """Imports the package of ``point``, and returns the result of its hook.

    Raises Unusable if the package raises, or takes longer than ``LOADING``.
    """
    try:
        driver, error = _threads.run(f"load {point.name}", lambda: _outcome(point, None), LOADING)
    except TimeoutError as late:
        raise Unusable(f"it hasn't been imported within {LOADING:g} s") from late
    if error is not None:
        raise _unusable(error)
    return driver


def _unusable(error: BaseException) -> Unusable:
    if isinstance(error, Unusable):
        return error
    unusable = Unusable(f"it can't be loaded: {describe(error)}")
    unusable.__cause__ = error
    return unusable


def _outcome(point: Point, check: Callable[[Any], None] | None) -> tuple[Any, BaseException | None]:
    """The hook's result, or the exception: a package may raise anything, also SystemExit or a TimeoutError."""
    try:
        plugin = point.load()
        # A manager of its own, so that a package with wrong hooks harms no other one.
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        manager.register(plugin, point.name)
        try:
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise Unusable(f"{point.value}: {error}") from error
        if not manager.hook.dpgateway_driver.get_hookimpls():
            raise Unusable(f"{point.value} has no dpgateway_driver marked with @dpgateway.hookimpl")
        driver = manager.hook.dpgateway_driver()
        if check is not None:
            check(driver)
    except BaseException as error:
        return None, error
    return driver, None


def _check(driver: Any) -> None:  # noqa: ANN401  the hook's result
    """Raises Unusable if the class breaks the contract."""
    if not inspect.isclass(cast("object", driver)):
        raise Unusable(f"dpgateway_driver returned {driver!r}, expected a class")
    own = {name: getattr(Driver, name) for name in REQUIRED}  # of the interface, which a driver may inherit
    missing = [name for name in REQUIRED if getattr(driver, name, own[name]) is own[name]]
    if missing:
        raise Unusable(f"{driver.__name__} has no {', '.join(missing)}")
    for method in REQUIRED[1:]:
        if not callable(getattr(driver, method)):
            raise Unusable(f"{driver.__name__}.{method} isn't a method")
    for method in (*REQUIRED[1:], *sorted(abilities(driver))):
        member = getattr(driver, method)
        if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):  # nobody would await its result
            raise Unusable(f"{driver.__name__}.{method} is async, expected a plain method, because it runs on a thread")
    options = driver.Options
    if not (isinstance(options, type) and is_dataclass(options) and frozen(options)):
        raise Unusable(f"{driver.__name__}.Options is {options!r}, expected a frozen dataclass")
    _check_options(options, f"{driver.__name__}.Options")


def _check_options(options: Any, what: str, seen: frozenset[Any] = frozenset()) -> None:  # noqa: ANN401  a dataclass
    """Raises Unusable for a type that a configuration can't have, and a default that can't be made. ``seen``: the
    dataclasses around this one; one of them may be an inner type again.
    """
    kinds = get_type_hints(options)
    for field in fields(options):
        kind, where = kinds[field.name], f"{what}.{field.name}"
        try:
            name_kind(kind)
        except TypeError as error:
            raise Unusable(f"{where}: {error}") from error
        if field.default_factory is not MISSING:
            try:
                field.default_factory()
            except Exception as error:
                raise Unusable(f"{where}: its default can't be made: {describe(error)}") from error
        for inner in _dataclasses(kind):
            if inner not in (around := seen | {options}):
                _check_options(inner, where, around)


def _dataclasses(kind: Any) -> Iterator[Any]:  # noqa: ANN401  a type, or a typing form
    """The dataclasses that a type has in it, at any depth."""
    if is_dataclass(kind):
        yield kind
    for inner in get_args(kind):
        yield from _dataclasses(inner)
