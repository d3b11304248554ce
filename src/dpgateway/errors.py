"""Errors, named by whose fault they are.

A driver raises :class:`DriverError`, :class:`DeviceUnavailable` or :class:`Busy`; anything else that it raises is taken
for a bug of the driver and reported as such. The gateway itself raises the rest.
"""

from collections.abc import Iterable


class GatewayError(Exception):
    """The base of every error that dpgateway raises on purpose."""


class DriverError(GatewayError):
    """The driver can't do what was asked, and trying again at once won't help. The text reaches the pod's events."""


class DeviceUnavailable(DriverError):
    """A device that was asked for is gone, broken or taken; the others may be fine."""


class Busy(DriverError):
    """The driver can't do it right now, and trying again helps.

    In ``allocate`` the gateway tries again until the deadline, for the kubelet doesn't; in ``prepare`` it answers at
    once, for the kubelet does (pkg/kubelet/cm/devicemanager, every release).
    """


class DriverTimeout(GatewayError):
    """A driver's method didn't return before its deadline."""


class DriverFault(GatewayError):
    """A driver broke its contract: it raised something else, or returned something that isn't what it should be."""


class RequestError(GatewayError):
    """The kubelet (or another client) asked for something that can't be given."""


class ConfigurationError(GatewayError):
    """The configuration, or the command line, is wrong."""


class KubeletError(GatewayError):
    """The kubelet's side failed: its directory, its socket or its answers."""


def describe(error: BaseException) -> str:
    """An exception's kind and text; also of one whose own ``__str__`` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException as raised:
        return f"{type(error).__name__}, whose text can't be had: __str__ raised {type(raised).__name__}"


def encodable(text: str) -> str:
    """``text`` with an escape for each half of a character, as in file names that aren't UTF-8: nothing can send it."""
    return text.encode(errors="backslashreplace").decode()


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
