"""Errors, named by whose fault they are.

A driver raises :class:`DriverError`, :class:`DeviceUnavailable` or :class:`Busy`; the gateway reports any other
exception as a bug of the driver. The gateway itself raises the other errors of this module.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_WORDS = 4000
"""Characters kept of an error or a reason."""


class GatewayError(Exception):
    """The base of every error that dpgateway raises on purpose."""

    trace: str | None = None
    """The traceback of a driver's bug, as text."""


class DriverError(GatewayError):
    """The driver can't do this, and an immediate retry won't help. The text reaches the pod's events."""


class DeviceUnavailable(DriverError):
    """A requested device is gone, broken or taken; the others may be fine."""


class Busy(DriverError):
    """The driver can't do this right now, and a retry may help.

    In ``allocate`` the gateway retries until the deadline, because the kubelet doesn't. In ``prepare`` the gateway
    answers at once, because the kubelet retries (pkg/kubelet/cm/devicemanager, every release).
    """


class DriverTimeout(GatewayError):
    """A driver's method didn't return before its deadline."""


class DriverFault(GatewayError):
    """A driver broke its contract: it raised an exception that isn't a DriverError, or returned a wrong value."""


class NoThread(GatewayError):
    """The system has no thread left for a call."""


class RequestError(GatewayError):
    """The kubelet (or another client) made a request that can't be granted."""


class OnOtherFront(GatewayError):
    """Another gateway has moved the resource to another front meanwhile, so it begins again there."""


class CdiError(GatewayError):
    """A CDI name is unknown, or its edits can't be given to a container; or its spec is wrong."""


class ConfigurationError(GatewayError):
    """The configuration, or the command line, is wrong."""


class KubeletError(GatewayError):
    """The kubelet's side failed: its directory, its socket or its answers."""


def describe(error: BaseException) -> str:
    """An exception's kind and text, legible; works for an exception with a broken ``__str__``, too."""
    try:
        return legible(f"{type(error).__name__}: {error}")
    except BaseException as raised:
        return f"{type(error).__name__}, whose text can't be had: __str__ raised {type(raised).__name__}"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds ``path`` to an OSError that names no file, because calls on a descriptor know none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:  # without an errno it has our own text
            error.filename = str(path)
        raise


def cut(text: str, most: int = LONGEST_WORDS) -> str:
    """Shortens a text to ``most`` characters: readers stop there, and each copy costs memory and time."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def legible(text: str) -> str:
    """A driver's text, fit to be sent and shown: cut short, with escapes for NUL and for lone surrogates."""
    return encodable(cut(text)).replace("\0", "\\x00")


def encodable(text: str) -> str:
    """``text`` with an escape for each lone surrogate, which can't be sent. File names that aren't UTF-8 have such."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def printable(text: str) -> str:
    """``text`` on one line, with escapes for control characters: ids and reasons may have any character."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def refuse(problems: Iterable[str]) -> None:
    """For the ``__post_init__`` of a driver's ``Options``: raises ValueError if there are problems.

    Each of ``problems`` begins with a field's name and a colon; several are raised as one ExceptionGroup, so that the
    operator sees all of them at once.
    """
    errors = [ValueError(problem) for problem in problems]
    if len(errors) > 1:
        raise ExceptionGroup("wrong options", errors)
    if errors:
        raise errors[0]
