"""Checks a driver's package: its entry point, the help of its options, and an import without side effects."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterator

from dpgateway.drivers import discovery
from dpgateway.drivers.points import GROUP, Point, look
from dpgateway.testing.calls import broken


def entry_point(driver: type) -> Point:
    """The entry point of the class ``driver``. Raises ContractBroken if there is none."""
    leads: list[str] = []
    for found in look().points:
        try:
            leads_to = discovery.load(found)
        except discovery.Unusable as error:
            leads.append(f"{found.name} = {found.value} leads to no driver: {error}")
            continue
        if leads_to is driver:
            return found
        leads.append(f"{found.name} = {found.value} leads to {leads_to!r}")
    raise broken(
        driver,
        f": expected an entry point of the group {GROUP!r} whose hook dpgateway_driver() returns this "
        f"class (is its package installed?), found {'; '.join(leads) or 'no entry point at all'}",
    )


def check_options(driver: type) -> None:
    """Options, and each dataclass in it, must be frozen and have a help text for each field."""
    options = getattr(driver, "Options", None)
    if not isinstance(options, type):
        raise broken(driver, f".Options: expected a frozen dataclass, found {options!r}")
    for kind in _dataclasses(driver, options, set()):
        for field in dataclasses.fields(kind):
            text = field.metadata.get("help")
            if not (isinstance(text, str) and text.strip()) or "\n" in text:
                where = f".Options: {kind.__name__}.{field.name}"
                raise broken(
                    driver, f'{where}: expected metadata={{"help": "one line"}}, found {dict(field.metadata)!r}'
                )
    fields = dataclasses.fields(options)
    if any(field.default is field.default_factory is dataclasses.MISSING for field in fields):
        return
    try:
        options()
    except Exception as error:
        named = {field.name for field in fields} & set(re.findall(r"\w+", str(error)))
        if isinstance(error, ValueError) and len(named) > 1:
            return  # one of several is required, and none has a sensible default
        raise broken(driver, f".Options(): expected the defaults to be valid, found {error!r}") from error


def _dataclasses(driver: type, kind: type, seen: set[type]) -> Iterator[type]:
    if kind in seen:
        return
    seen.add(kind)
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise broken(driver, f".Options: expected a frozen dataclass, found {kind!r}")
    yield kind
    try:
        hints = typing.get_type_hints(kind)
    except Exception as error:
        what = f".Options: {kind.__name__}: expected types that can be looked up at run time, found {error!r}"
        raise broken(driver, what) from error
    for field in dataclasses.fields(kind):
        for part in _parts(hints[field.name]):
            if isinstance(part, type) and dataclasses.is_dataclass(part):
                yield from _dataclasses(driver, part, seen)


def _parts(hint: object) -> Iterator[object]:
    yield hint
    for argument in typing.get_args(hint):
        yield from _parts(argument)


# Runs in a new interpreter. A side effect that ends with the import is allowed: importing ctypes runs ldconfig, for
# example. One that stays, or writes files, isn't.
_PROBE = """
import os, signal, sys, threading, importlib, logging
found, watching = [], True
def audit(event, args):
    if not watching:
        return
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        if not str(args[0]).startswith("/dev/"):
            found.append(f"opens {args[0]!r} for writing")
    elif event in ("socket.connect", "socket.bind", "os.mkdir", "os.remove", "os.rename", "os.chdir", "os.fork"):
        found.append(f"{event} {args[-1] if event.startswith('socket') else args!r}")
def state():
    children = open(f"/proc/self/task/{os.getpid()}/children").read()
    return {
        "open files": set(os.listdir("/proc/self/fd")),
        "threads": {thread.name for thread in threading.enumerate()},
        "child processes": set(children.split()),
        "signal handlers": {(n, signal.getsignal(n)) for n in signal.valid_signals()},
        "log handlers": set(logging.getLogger().handlers),
    }
import dpgateway
before = state()
sys.addaudithook(audit)
importlib.import_module(sys.argv[1])
watching = False
found += [f"leaves {what}: {sorted(map(str, new))}" for what, now in state().items() if (new := now - before[what])]
for stream in (sys.stdout, sys.stderr):
    stream.flush()
os.write(2, "; ".join(found).encode())
os._exit(1 if found else 0)
"""


def check_import(driver: type, seconds: float) -> None:
    """Importing the entry point's module must have no side effects."""
    module = entry_point(driver).module
    command = [sys.executable, "-B", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{_PROBE}", module]
    expected = f": expected nothing to happen at the import of {module}, found"
    with tempfile.TemporaryFile() as output:  # a child that the import leaves behind would keep a pipe open
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        try:
            run.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise broken(driver, f"{expected} that it takes over {seconds:g} s") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        output.seek(0)
        if said := output.read().decode(errors="replace").strip():
            raise broken(driver, f"{expected}: {said}")
