"""Errors, named by whose fault they are.

A driver raises :class:`DriverError`, :class:`DeviceUnavailable` or :class:`Busy`; the gateway reports any other
exception as a bug of the driver. The gateway itself raises the other errors of this module.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_WORDS = 4000
"""Characters of an error or a reason that are kept."""


class GatewayError(Exception):
    """The base of every error that dpgateway raises on purpose."""

    trace: str | None = None
    """The traceback of a driver's bug, as text."""


class DriverError(GatewayError):
    """The driver can't do what was asked, and trying again at once won't help. The text reaches the pod's events."""


class DeviceUnavailable(DriverError):
    """A requested device is gone, broken or taken; the others may be fine."""


class Busy(DriverError):
    """The driver can't do what was asked right now, and trying again helps.

    In ``allocate`` the gateway tries again until the deadline, because the kubelet doesn't. In ``prepare`` the gateway
    answers at once, because the kubelet tries again (pkg/kubelet/cm/devicemanager, every release).
    """


class DriverTimeout(GatewayError):
    """A driver's method didn't return before its deadline."""


class DriverFault(GatewayError):
    """A driver broke its contract: it raised an exception that isn't a DriverError, or returned a wrong value."""


class NoThread(GatewayError):
    """The system has no thread left for a call."""


class RequestError(GatewayError):
    """The kubelet (or another client) asked for something that can't be given."""


class CdiError(GatewayError):
    """A CDI name stands for nothing, or for what can't be given; or a spec of these names is wrong."""


class ConfigurationError(GatewayError):
    """The configuration, or the command line, is wrong."""


class KubeletError(GatewayError):
    """The kubelet's side failed: its directory, its socket or its answers."""


def describe(error: BaseException) -> str:
    """An exception's kind and text, legible; also of an exception whose own ``__str__`` fails."""
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
        if error.errno is not None and error.filename is None:  # else it has a text of ours
            error.filename = str(path)
        raise


def cut(text: str, most: int = LONGEST_WORDS) -> str:
    """The beginning of a text: nobody reads more of it, and each copy costs memory and time."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def legible(text: str) -> str:
    """What a driver says, as it can be sent and shown: cut short, with escapes for NUL and for halves of characters."""
    return encodable(cut(text)).replace("\0", "\\x00")


def encodable(text: str) -> str:
    """``text`` with an escape for each half of a character, which can't be sent. File names that aren't UTF-8 have such
    halves.
    """
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def printable(text: str) -> str:
    """``text`` on one line, with escapes for what would move a terminal's cursor: ids and reasons may have any
    character.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def refuse(problems: Iterable[str]) -> None:
    """For the ``__post_init__`` of a driver's ``Options``: raises ValueError with what is wrong, if anything is.

    Each of ``problems`` begins with a field's name and a colon; several are raised as one ExceptionGroup, and the
    operator is told all of them at once.
    """
    errors = [ValueError(problem) for problem in problems]
    if len(errors) > 1:
        raise ExceptionGroup("wrong options", errors)
    if errors:
        raise errors[0]
