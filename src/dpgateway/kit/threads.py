"""A pool of daemon threads for blocking calls: small while calls return, growing while calls hang.

``asyncio.to_thread`` won't do, because the interpreter joins its executor's threads at exit, and a driver, or a lock,
may hang for ever.

Theory of operation. A job goes to an idle thread; if there is none, to a new thread, up to the usual number. A thread
whose job has lasted longer than the patience doesn't count there, because that job may hang. Otherwise the job waits
until a thread is free, or its own patience is over: then a thread is started for it. So calls that return share a few
threads, and a hanging call costs one thread and nothing else. No job waits while a thread is free.

If the system refuses a thread, the job waits for one of the existing threads, and asks for a new one each time its
patience is over. It fails if there is no thread, or after MOST_REFUSED refusals.

There is no polling: a caller's event loop has a timer while its job waits, and a caller without a loop blocks anyway. A
caller that can do neither begins a job that doesn't wait (:meth:`Threads.begin`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from dpgateway.errors import NoThread, describe
from dpgateway.kit.limits import on_threads
from dpgateway.kit.tasks import wait_for

T = TypeVar("T")
_Inbox = queue.SimpleQueue["_Job"]

IDLE = "idle"
"""The name of an idle thread."""

MOST_REFUSED = 20
"""Refusals of a thread by the system after which a job fails; until then it waits for an existing thread."""


@dataclass(eq=False, repr=False, slots=True)
class _Job:
    """A function, and the future of its outcome, which an event loop awaits, or without one a thread.

    Neither the job nor an error keeps references longer than needed: a driver's object, or a traceback, can be large.
    """

    name: str
    function: Callable[[], Any]
    future: asyncio.Future[Any] | Future[Any]
    loop: asyncio.AbstractEventLoop | None = None
    refused: int = 0
    """The number of times that the system had no thread for it."""
    result: Any = None
    error: BaseException | None = None

    def run(self) -> None:
        """Runs the function once, unless the future was cancelled, and drops it."""
        function = self.function
        del self.function
        try:
            if not self.future.cancelled():
                self.result = function()
        except BaseException as error:
            self.error = error
        finally:
            del function  # a kept error keeps this frame

    def settle(self) -> None:
        """Moves the outcome into the future: a thread or a timer may hold this job longer."""
        future, result, error = self.future, self.result, self.error
        del self.future, self.result, self.error
        if future.done():  # cancelled
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            future.set_exception(error)
        else:  # it would steer the event loop, or pass every ``except Exception``
            tamed = RuntimeError(describe(error))
            tamed.__cause__ = error
            future.set_exception(tamed)


class Threads:
    """Runs blocking calls. All methods may be called from any thread. A thread is named after its job."""

    def __init__(self, usual: int = 8, patience: float = 0.05, idle: float = 10.0) -> None:
        """``usual``: most threads while calls return quickly. ``patience``: seconds that a job waits for one of them,
        or a tenth of its caller's timeout if that is less, so that a hanging call costs no other one its deadline.
        ``idle``: seconds without a job after which a thread ends.
        """
        self._usual, self._patience, self._idle = usual, patience, idle
        self._lock = threading.Lock()  # guards the fields below
        self._count = 0
        self._began: dict[_Inbox, float] = {}
        """Start times of the running jobs, by thread."""
        self._free: list[_Inbox] = []  # a stack, so that surplus threads stay idle, and end
        self._waiting: OrderedDict[_Job, None] = OrderedDict()

    # for callers

    def call(self, name: str, function: Callable[[], T], seconds: float = math.inf) -> asyncio.Future[T]:
        """Runs ``function`` on a thread, for the running event loop. Never blocks.

        ``seconds``: the caller's timeout, which only affects the patience.

        The future gets the function's result or exception; SystemExit and others that would steer the event loop come
        as the cause of a RuntimeError. It gets a NoThread if the system has no thread left and none of ours could run
        the function. Cancelling the future abandons the result: a running function runs to its end, a waiting one is
        dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(name, function, future, loop)
        if self._place(job):
            patience = min(self._patience, seconds / 10)
            loop.call_later(patience, self._start_later, job, loop, patience)
        return future

    async def call_within(self, name: str, function: Callable[[], T], seconds: float) -> T:
        """Runs ``function``, which waits for a disk. Raises its exception, or TimeoutError after ``seconds``."""
        return await wait_for(self.call(name, function, seconds), seconds, "the disk")

    def run(self, name: str, function: Callable[[], T], seconds: float) -> T:
        """Runs ``function`` on a thread and waits for it, ``seconds`` at most. Not for an event loop's own thread.

        Raises TimeoutError when the time is over; the call goes on, and its result is dropped. Raises the function's
        exception, which may be a TimeoutError, too; for other errors see ``call``.
        """
        future: Future[T] = Future()
        job = _Job(name, function, future)
        end, patience = time.monotonic() + seconds, min(self._patience, seconds / 10)
        waits = self._place(job)
        while waits:
            left = end - time.monotonic()
            _done(future, min(left, patience))
            waits = self._start_waiting(job) and left > 0
        if not _done(future, end - time.monotonic()):
            raise TimeoutError(f"{name} hasn't returned after {seconds:g} s")
        try:
            return future.result()
        finally:
            del future, job  # an error that was raised holds this frame, which would hold the error

    def begin(self, name: str, function: Callable[[], T]) -> Future[T]:
        """Runs ``function`` at once, on one more thread if none is free. Never blocks.

        The future gets the function's result or exception; for other errors see ``call``.
        """
        future: Future[T] = Future()
        job = _Job(name, function, future)
        if self._place(job):
            self._start_waiting(job)
        return future

    # a thread for a job

    def _place(self, job: _Job) -> bool:
        """Gives the job to a thread. Returns whether the job must wait for one."""
        with self._lock:
            if self._gave(job):
                return False
            now = time.monotonic()
            if sum(now - began < self._patience for began in self._began.values()) >= self._usual:
                self._waiting[job] = None
                return True
            inbox = self._counted()
        return self._start(job, inbox)

    def _gave(self, job: _Job) -> bool:
        """Gives the job to a free thread, if there is one."""
        if self._free:
            self._began[inbox := self._free.pop()] = time.monotonic()
            inbox.put(job)
            return True
        return False

    def _counted(self) -> _Inbox:
        """Counts one more thread, from before it begins: two callers at once don't start two for one place."""
        inbox: _Inbox = queue.SimpleQueue()
        self._count += 1
        self._began[inbox] = time.monotonic()
        return inbox

    def _start_later(self, job: _Job, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        """Starts another thread for a job that still waits, now or, if the system refuses one, later."""
        if self._start_waiting(job):
            loop.call_later(patience, self._start_later, job, loop, patience)

    def _start_waiting(self, job: _Job) -> bool:
        """Starts another thread for a job that still waits. Returns whether it must wait even so."""
        with self._lock:
            if job not in self._waiting:
                return False
            del self._waiting[job]
            inbox = self._counted()
        return self._start(job, inbox)

    def _start(self, job: _Job, inbox: _Inbox) -> bool:
        """Starts an already counted thread for the job. Returns whether the job must wait."""
        inbox.put(job)
        try:
            threading.Thread(target=self._serve, args=(inbox,), name=job.name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # the system is out of threads
            with self._lock:
                del self._began[inbox]
                self._count -= 1
                if self._gave(job):
                    return False
                job.refused += 1
                if self._count and job.refused < MOST_REFUSED:
                    self._waiting[job] = None
                    self._waiting.move_to_end(job, last=False)
                    return True
            job.error = NoThread(f"the system has no thread left for {job.name}: {on_threads()}")
            job.error.__cause__ = error
            job.settle()
        return False

    # the life of a thread

    def _serve(self, inbox: _Inbox) -> None:
        """The thread's main function. While it waits, it holds no reference to an earlier job."""
        thread, job = threading.current_thread(), inbox.get()
        while True:
            thread.name = job.name
            job.run()  # also drops the function, while this thread counts as busy: a driver's finalizer may hang
            following: _Job | None = None
            with self._lock:
                if self._waiting:
                    following, _ = self._waiting.popitem(last=False)
                    self._began[inbox] = time.monotonic()
                else:
                    del self._began[inbox]
                    self._free.append(inbox)
                    thread.name = IDLE

            # The outcome comes last, so that a caller that has it finds this thread free.
            if job.loop is None:
                job.settle()
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                    job.loop.call_soon_threadsafe(job.settle)
            del job

            # If no job comes in time, the thread ends.
            if following is not None:
                job = following
                continue
            try:
                job = inbox.get(timeout=self._idle)
            except queue.Empty:
                with self._lock:
                    if inbox in self._free:
                        self._free.remove(inbox)
                        self._count -= 1
                        return
                job = inbox.get()  # a job came at the last moment


def _done(future: Future[Any], seconds: float) -> bool:
    """Waits for an outcome, ``seconds`` at most. Returns whether there is one."""
    try:
        future.exception(min(max(seconds, 0), threading.TIMEOUT_MAX))
    except TimeoutError:
        return False
    return True
