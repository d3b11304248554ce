"""The contract of a driver.

A driver is a class with ``Options`` and the methods below. ``preview``, ``prefer``, ``prepare``, ``release``,
``explain`` and ``close`` are optional: a driver has an ability by having the method. The gateway calls the methods on
its own threads, and different methods of one driver may run concurrently. So a driver keeps its state in the values
that it returns, or locks it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from dpgateway.model import Allocation, Device


@dataclass(frozen=True, slots=True)
class Context:
    """What a driver gets from the gateway. Later versions may add fields, and never remove one."""

    resource: str
    """The extended resource that this driver serves, ``vendor.example/thing``."""
    node_name: str
    log: logging.LoggerAdapter[logging.Logger]
    """Its records have the resource's name."""
    changed: Callable[[], None]
    """Says "ask me again": ``devices`` is then called soon, once for any number of calls.

    From any thread, at any time.
    """
    held: Callable[[], Collection[str]] = frozenset
    """The ids of the devices that containers hold as this resource, as far as that is known; also of devices that the
    driver doesn't list. Empty with ``shares.ids``, and for commands such as ``dpgateway devices``. The first call may
    take a second. From the driver's own calls and threads, at any time.
    """


@runtime_checkable
class Driver(Protocol):
    """One kind of hardware, for one resource. Nothing may happen at import; nothing slow in ``__init__``."""

    Options: ClassVar[type]
    """A frozen dataclass: validated from the resource's ``options``, printed by ``dpgateway drivers``.

    Each field has a type, a default unless it must be given, and ``metadata={"help": "one line"}``. A duration is a
    ``datetime.timedelta``. ``__post_init__`` raises ValueError for what types can't say. A method ``claims(self)``, if
    there is one, returns names of things that only one resource of the driver can have, or those of one ``pool``;
    one with ``*``, ``?`` or ``[`` is a glob, and claims all that it matches. A method ``warnings(self, others)``,
    if there is one, returns texts for ``dpgateway check``; ``others`` has the options of the driver's resources before
    this one, by their names.
    """

    def __init__(self, options: Any, context: Context) -> None:  # noqa: ANN401  each driver has Options of its own
        """Raises DriverError when the options can't be honoured."""

    def devices(self) -> Iterable[Device]:
        """The whole truth now: every device there is, with its health. May block.

        Called at the start, after ``Context.changed``, and every ``refresh``; never twice at once.
        """

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        """What a container that gets ``devices`` needs. The values are the very objects of the last list: a subclass
        of Device may carry what the driver has to know of them.

        May be called again for devices that were allocated before: gives the same answer, and takes nothing away.
        Raises DeviceUnavailable, DriverError, or Busy (then it is called again until the deadline).
        """

    # Optional, and therefore not members of the protocol:
    #
    # def preview(self, device: Device) -> Allocation:
    #     """What ``allocate`` would answer for this device alone, without doing anything. Asked of each healthy device
    #     when it is listed as another object than before: one of which it raises, or that no container can get, is
    #     Unhealthy, and asked of again with each list."""
    #
    # def prefer(self, available: Sequence[Device], must_include: Sequence[Device], size: int) -> Iterable[Device]:
    #     """The best ``size`` devices; asked only when the resource says ``preference: none``."""
    #
    # def prepare(self, devices: Sequence[Device]) -> None:
    #     """Makes the devices ready; called before each start and restart of the container. Idempotent."""
    #
    # def release(self, devices: Sequence[Device]) -> None:
    #     """The devices are free again."""
    #
    # def explain(self, about: str | None) -> Iterable[Candidate]:
    #     """What it looked at for its devices, and why it isn't one: all there is, or what ``about`` (a path, a name)
    #     means. For ``dpgateway devices --explain``; the gateway itself never asks."""
    #
    # def close(self) -> None:
    #     """The gateway ends, or makes the driver again."""


DriverClass = Callable[..., Driver]

REQUIRED = ("Options", "devices", "allocate")
ABILITIES = ("preview", "prefer", "prepare", "release", "explain", "close")


def abilities(driver: object) -> frozenset[str]:
    """The optional methods of a driver, or of its class."""
    return frozenset(name for name in ABILITIES if callable(getattr(driver, name, None)))
