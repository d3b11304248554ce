"""Loads drivers and checks the options of their resources, each on a thread of its own, because any of it may hang.

Theory of operation. One thread imports each driver (``_found``); then one thread per resource checks that resource's
options (``_checked``). Callers wait with a deadline: :meth:`Loading.wait` returns at it, and unfinished work counts as
a failure. A gateway serves that resource nevertheless: its configuration has ``load``, with which its running driver
waits for the rest on a thread of its own (drivers/running.py). Meanwhile one more thread logs the drivers still
awaited, and where in their code they are.

A hung import holds the import locks of its modules, so other imports of these modules wait with it; and Python searches
for modules one at a time, so nothing can be imported while a directory of ``sys.path`` doesn't answer. A probe in a
child process could detect that. It isn't made: each start of the gateway would cost one more interpreter per driver,
and an import that works in a child may still hang here.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from dpgateway.config import Configuration, Document, InvalidConfiguration, Place, Problem, ResourceConfig
from dpgateway.config.document import Entry
from dpgateway.drivers.discovery import LOADING, Found, Installed
from dpgateway.drivers.options import Claims, Completed, completed, resolve, unusable
from dpgateway.errors import describe
from dpgateway.kit.log import bind
from dpgateway.kit.threads import Threads

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds after which a gateway serves the resources with loaded drivers, without the others. Wrong options found by
then are an error of the configuration; later they fail the resource alone."""
WORDS = (PATIENCE, 10.0, 20.0, LOADING)
"""Seconds after which the drivers still awaited are logged."""

_PIECE = 0.1
"""The longest single wait, in seconds: a signal that arrives just before the main thread begins to wait for a lock
isn't handled until that wait is over."""

_log = bind(__name__)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The work of one thread, and its effect on others, for the log."""

    driver: Installed
    doing: str
    meanwhile: str


class Loading:
    """Begins at once. Used from the thread that made it, except for the ``load`` of a configuration."""

    def __init__(
        self, drivers: Mapping[str, Installed], document: Document | None = None, words: Sequence[float] = WORDS
    ) -> None:
        """Loads all of ``drivers``, and checks the document's options for them."""
        self._drivers, self._document = drivers, document
        self._threads = Threads(idle=0)  # each is needed once
        self._began = time.monotonic()
        self._awaited: dict[int, _Piece] = {}
        """`_awaited` contains the work under way, keyed by thread."""
        self._claims, self._claiming = Claims(), threading.Lock()
        meanwhile = "what imports the same modules waits with it, and no other resource"
        self._found = {
            name: self._begin(_Piece(driver, "is being imported", meanwhile), driver.load)
            for name, driver in drivers.items()
        }
        self._checked: dict[Place, Future[Completed]] = {}
        for entry in document.entries if document else ():
            if entry.driver in drivers:
                checked = self._checked[entry.written.place] = Future()
                self._found[entry.driver].add_done_callback(partial(self._check, entry, checked))
        self._threads.begin("say which drivers are awaited", lambda: self._say(words))

    def _check(self, entry: Entry, checked: Future[Completed], _: object) -> None:
        driver, found = self._drivers[entry.driver], self.found()[entry.driver]
        doing = f"is checking the options of {entry.name} at {entry.written.at('options')}"
        piece = _Piece(driver, doing, "no other resource waits with it")

        def failed(failure: str) -> Completed:
            return Completed(None if entry.resource is None else unusable(entry, failure))

        done = self._begin(piece, lambda: completed(entry, found))
        done.add_done_callback(lambda done: checked.set_result(_result(done, failed)))

    def _begin(self, piece: _Piece, function: Callable[[], T]) -> Future[T]:
        def work() -> T:
            thread = threading.get_ident()
            self._awaited[thread] = piece
            try:
                return function()
            finally:
                del self._awaited[thread]

        return self._threads.begin(f"load {piece.driver.name}", work)

    def wait(self, seconds: float = LOADING) -> None:
        """Returns when all is done, at the latest ``seconds`` after the beginning."""
        futures: list[Future[Any]] = [*self._found.values(), *self._checked.values()]
        while (left := self._began + seconds - time.monotonic()) > 0 and wait(futures, min(left, _PIECE)).not_done:
            pass

    def _say(self, words: Sequence[float]) -> None:
        for seconds in words:
            self.wait(seconds)
            for thread, piece in sorted(self._awaited.items(), key=lambda one: one[1].driver.name):
                age = time.monotonic() - self._began
                # The line at which the thread is, outside the standard library.
                frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001  it is documented
                while frame and str(frame.f_globals.get("__name__")).partition(".")[0] in sys.stdlib_module_names:
                    frame = frame.f_back
                where = f", at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
                del frame  # it has the driver's objects, whose finalizers mustn't run here
                text = "waiting for the driver %s, which %s, for %.0f s now%s; %s"
                _log.warning(text, piece.driver, piece.doing, age, where, piece.meanwhile)

    def found(self) -> dict[str, Found]:
        """All drivers; one that isn't loaded yet has a failure that says so."""
        return {
            name: _result(future, driver.failed) if future.done() else driver.failed(self._late("been imported"))
            for name, future in self._found.items()
            for driver in [self._drivers[name]]
        }

    def complete(
        self, installed: Sequence[str], missing: Mapping[str, Found], wrong: Sequence[Problem] = ()
    ) -> Configuration:
        """The document with its options typed, as far as they are checked by now.

        Raises InvalidConfiguration with all problems, including those of the document itself (``wrong``). ``installed``
        and ``missing``: see :meth:`resolve`.
        """
        configuration, problems = self.resolve(installed, missing)
        if problems := (*wrong, *problems):
            raise InvalidConfiguration(problems)
        return configuration

    def usable(self, missing: Mapping[str, Found]) -> Configuration:
        """Like :meth:`complete`, but wrong options fail their resource alone."""
        assert self._document is not None  # noqa: S101  only callers with a document ask

        def checked(entry: Entry, found: Found) -> Completed:
            future = self._checked.get(entry.written.place)
            done = future is not None and future.done()
            return Completed(self._load(entry, future)) if future and done else self._completed(entry, found)

        return resolve(self._document, {**missing, **self.found()}, (), checked)[0]

    def resolve(
        self, installed: Sequence[str] = (), missing: Mapping[str, Found] | None = None
    ) -> tuple[Configuration, tuple[Problem, ...]]:
        """Like :meth:`complete`, but returns the usable part together with the problems.

        ``missing`` replaces drivers that aren't installed; ``installed``: see ``dpgateway.drivers.options``.
        """
        assert self._document is not None  # noqa: S101  only callers with a document ask
        return resolve(self._document, {**(missing or {}), **self.found()}, installed, self._completed)

    def _completed(self, entry: Entry, found: Found) -> Completed:
        """The entry, if its options are checked; else without its driver, which then loads when it is served."""
        checked = self._checked.get(entry.written.place)
        if checked is None:
            return completed(entry, found)
        if checked.done():
            return self._claimed(entry, checked.result())
        if entry.resource is None:
            return Completed(None)
        failure = found.failure or self._late("checked its options")
        return Completed(unusable(entry, failure, partial(self._load, entry, checked)))

    def _load(self, entry: Entry, checked: Future[Completed]) -> ResourceConfig:
        """Waits without a deadline. The other resources are served by now, so a problem fails only this one."""
        done = self._claimed(entry, checked.result())
        if done.problems or done.resource is None:
            return unusable(entry, f"its options are wrong: {'; '.join(map(str, done.problems))}")
        return done.resource

    def _claimed(self, entry: Entry, done: Completed) -> Completed:
        with self._claiming:
            return self._claims.checked(entry, done)

    def _late(self, done: str) -> str:
        return f"it hasn't {done} within {time.monotonic() - self._began:.0f} s"


def _result(future: Future[T], failed: Callable[[str], T]) -> T:
    """The future's result; for an error, such as for want of a thread, ``failed`` of its text."""
    error = future.exception()
    return future.result() if error is None else failed(describe(error))
