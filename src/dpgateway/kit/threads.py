"""Daemon threads that run blocking calls: as few as do the work, and as many as it takes when calls hang.

They are threads of our own, not those of ``asyncio.to_thread``, because the interpreter waits for the threads of its
executor when it exits, and a driver, or a lock, may hang for ever.

An idle thread takes a job at once. If none is idle, a thread is started for the job, up to the usual number of threads.
Beyond that number the job waits, but not for long: when its patience is over, one more thread is started for it. So
calls that return share a few threads, and a call that hangs takes one thread away from the others, and nothing else.

Nobody polls: the caller's event loop has a timer while a job waits, and a caller without a loop waits anyway. A caller
that can do neither begins a job that doesn't wait (``begin``).
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from dpgateway.errors import NoThread
from dpgateway.kit.jobs import Job
from dpgateway.kit.limits import on_threads

T = TypeVar("T")
_Inbox = queue.SimpleQueue[Job]

IDLE = "idle"
"""The name of a thread that has nothing to do."""

MOST_REFUSED = 20
"""How often the system may refuse a thread for a job, which meanwhile waits for one of those that there are."""


class Threads:
    """A set of daemon threads that run blocking calls.

    ``usual``: how many threads there are at most while calls return quickly. ``patience``: seconds that a job waits
    for one of them before another thread is started for it; less if its caller waits for less than ten times as long,
    because a call that hangs mustn't cost another one its deadline. ``idle``: seconds after which a thread without work
    ends.

    A thread has the name of the job that it runs. All methods may be called from any thread.
    """

    def __init__(self, usual: int = 8, patience: float = 0.05, idle: float = 10.0) -> None:
        self._usual, self._patience, self._idle = usual, patience, idle
        self._lock = threading.Lock()  # guards the fields below; while a thread is free, no job waits
        self._count = 0
        self._began: dict[_Inbox, float] = {}
        """When each thread that has a job began with it."""
        self._free: list[_Inbox] = []  # taken from the end, so that threads that aren't needed stay idle, and end
        self._waiting: OrderedDict[Job, None] = OrderedDict()

    def call(self, name: str, function: Callable[[], T], seconds: float = math.inf) -> asyncio.Future[T]:
        """Runs ``function`` on a thread, for the event loop that runs now. Never blocks.

        ``seconds``: how long the caller is going to wait. Nothing ends then.

        The future gets what the function returns or raises; SystemExit and others that would steer the event loop come
        as the cause of a RuntimeError. The future also gets a NoThread when the system has no thread left and none
        of ours could run the function. Cancelling the future abandons the result: a function that has
        begun runs to its end, and one that hasn't is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = Job(name, function, future, loop)
        if self._place(job):
            self._hurry_later(job, loop, self._patience_of(seconds))
        return future

    def run(self, name: str, function: Callable[[], T], seconds: float) -> T:
        """Runs ``function`` on a thread and waits for it, ``seconds`` at most. Not for an event loop's own thread.

        Raises TimeoutError when the time is over, and the call goes on; nobody gets its result. Raises what the
        function raises, which may be a TimeoutError of its own; for other errors see ``call``.
        """
        future: Future[T] = Future()
        job = Job(name, function, future, None)
        end, patience = time.monotonic() + seconds, self._patience_of(seconds)
        waits = self._place(job)
        while waits:
            left = end - time.monotonic()
            _done(future, min(left, patience))
            waits = self._hurry(job) and left > 0
        if not _done(future, end - time.monotonic()):
            raise TimeoutError(f"{name} hasn't returned after {seconds:g} s")
        try:
            return future.result()
        finally:
            del future, job  # an error that was raised holds this frame, which would hold the error

    def begin(self, name: str, function: Callable[[], T]) -> Future[T]:
        """Runs ``function`` at once, on one more thread if none is free. Never blocks.

        The future gets what the function returns or raises; for other errors see ``call``.
        """
        future: Future[T] = Future()
        job = Job(name, function, future, None)
        if self._place(job):
            self._hurry(job)
        return future

    def _place(self, job: Job) -> bool:
        """Gives the job to a thread. Returns whether it has to wait for one."""
        with self._lock:
            if self._free:
                self._free.pop().put(job)
                return False
            if self._quick() >= self._usual:
                self._waiting[job] = None
                return True
            self._count += 1
        return self._start(job)

    def _quick(self) -> int:
        """How many threads are at a job that may end soon. A job that has lasted long may hang, so it doesn't count."""
        now = time.monotonic()
        return sum(now - began < self._patience for began in list(self._began.values()))

    def _hurry(self, job: Job) -> bool:
        """Starts one more thread for a job that still waits. Returns whether it has to wait even so."""
        with self._lock:
            if job not in self._waiting:
                return False
            del self._waiting[job]
            self._count += 1
        return self._start(job)

    def _hurry_later(self, job: Job, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        def hurry() -> None:
            if self._hurry(job):
                self._hurry_later(job, loop, patience)

        loop.call_later(patience, hurry)

    def _patience_of(self, seconds: float) -> float:
        """Seconds that a job waits for a thread if its caller waits for it so long."""
        return min(self._patience, seconds / 10)

    def _start(self, job: Job) -> bool:
        """Starts a thread, which is counted already, for the job. Returns whether the job has to wait."""
        inbox: _Inbox = queue.SimpleQueue()
        inbox.put(job)
        self._began[inbox] = time.monotonic()
        try:
            threading.Thread(target=self._serve, args=(inbox,), name=job.name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # the system is out of threads
            del self._began[inbox]
            with self._lock:
                self._count -= 1
                if self._free:
                    self._free.pop().put(job)
                    return False
                job.refused += 1
                if self._count and job.refused < MOST_REFUSED:
                    self._waiting[job] = None
                    self._waiting.move_to_end(job, last=False)
                    return True
            job.fail(NoThread(f"the system has no thread left for {job.name}: {on_threads()}"), error)
        return False

    def _serve(self, inbox: _Inbox) -> None:
        """The life of a thread. While the thread waits, it holds nothing of an earlier job."""
        thread = threading.current_thread()
        job: Job | None = inbox.get()
        while job is not None:
            thread.name = job.name
            self._began[inbox] = time.monotonic()
            job.run()  # and drops the function: the last reference to a driver may run code that hangs when it goes
            self._began.pop(inbox)
            following = self._following(inbox)
            if following is None:
                thread.name = IDLE
            job.deliver()  # last, so that whoever has the result finds this thread free
            job = None
            job = following or self._rest(inbox)

    def _following(self, inbox: _Inbox) -> Job | None:
        """The job that has waited longest. If none waits, the thread is noted as free."""
        with self._lock:
            if self._waiting:
                return self._waiting.popitem(last=False)[0]
            self._free.append(inbox)
            return None

    def _rest(self, inbox: _Inbox) -> Job | None:
        """The next job that comes; None if none came for so long that the thread ends."""
        try:
            return inbox.get(timeout=self._idle)
        except queue.Empty:
            with self._lock:
                if inbox in self._free:
                    self._free.remove(inbox)
                    self._count -= 1
                    return None
            return inbox.get()  # a job came at the last moment


def _done(future: Future[Any], seconds: float) -> bool:
    """Waits until there is an outcome, ``seconds`` at most. Returns whether there is one."""
    try:
        future.exception(min(max(seconds, 0), threading.TIMEOUT_MAX))
    except TimeoutError:
        return False
    return True
