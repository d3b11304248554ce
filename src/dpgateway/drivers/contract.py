"""The contract of a driver.

A driver is a class with ``Options`` and the methods below. ``preview``, ``prefer``, ``prepare``, ``release``,
``with_options``, ``explain`` and ``close`` are optional: a driver has an ability by having the method. The gateway
calls the methods on its own threads, and different methods of one driver may run concurrently. So a driver keeps its
state in the values that it returns, or locks it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from dpgateway.model import Allocation, Device


@dataclass(frozen=True, slots=True)
class Context:
    """The gateway's services for a driver. Later versions may add fields, and never remove one."""

    resource: str
    """The extended resource that this driver serves, ``vendor.example/thing``."""
    node_name: str
    log: logging.LoggerAdapter[logging.Logger]
    """A logger whose records have the resource's name."""
    changed: Callable[[], None]
    """Announces a change: the gateway calls ``devices`` soon, once for any number of announcements.

    Callable from any thread, at any time.
    """
    held: Callable[[], Collection[str]] = frozenset
    """Returns the known ids of the devices that containers hold as this resource, including devices that the driver
    doesn't list. Empty with ``shares.ids``, and for commands such as ``dpgateway devices``. The first call may take a
    second. Callable from the driver's own calls and threads, at any time.
    """


@runtime_checkable
class Driver(Protocol):
    """One kind of hardware, for one resource. Nothing may happen at import; nothing slow in ``__init__``."""

    @property  # so that a type checker takes any class variable, and a nested class, for it
    def Options(self) -> type[Any]:  # noqa: N802  a class
        """A frozen dataclass: validated from the resource's ``options``, printed by ``dpgateway drivers``.

        Each field has a type, a default unless it must be given, and ``metadata={"help": "one line"}``. A duration is a
        ``datetime.timedelta``. A claim may choose the value of a field with ``"per_claim": True`` in its metadata, for
        the devices that it gets (see ``with_options``). ``__post_init__`` raises ValueError for constraints beyond
        types. An optional method ``claims(self)`` returns names of things that only one resource of the driver, or the
        resources of one ``pool``, can have; a name with ``*``, ``?`` or ``[`` is a glob, and claims every name that it
        matches. An optional method ``warnings(self, others)`` returns texts for ``dpgateway check``; ``others`` has the
        options of the driver's earlier resources, by name.
        """

    def __init__(self, options: Any, context: Context) -> None:  # noqa: ANN401  each driver has Options of its own
        """Raises DriverError when the options can't be honoured."""

    def devices(self) -> Iterable[Device]:
        """The complete present list: every device there is, with its health. May block.

        Called at the start, after ``Context.changed``, and every ``refresh``; never twice at once.
        """

    def allocate(self, devices: Sequence[Any]) -> Allocation:  # of the driver's own kind of Device
        """Returns the environment, device nodes etc. for a container that gets ``devices``: the objects of the last
        list, so a subclass of Device may carry the driver's own data.

        May be called again for allocated devices: it returns the same answer, and takes nothing away. Raises
        DeviceUnavailable, DriverError, or Busy (then it is called again until the deadline).
        """

    # Optional, and therefore not members of the protocol:
    #
    # def preview(self, device: Device) -> Allocation:
    #     """Returns the answer that ``allocate`` would give for this device alone, without side effects. Called for
    #     each healthy device that is listed as another object than before, or has CDI devices. If it raises, or no
    #     container can get the device, the device is Unhealthy, and ``preview`` is called again with each list."""
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
    # def with_options(self, options: Any) -> object:
    #     """The driver as it is with other options, for a claim with parameters: those of the resource, except for the
    #     fields with ``metadata={"per_claim": True}``, which the claim may choose. Its ``allocate``, and ``prepare`` if
    #     the driver has that, are called with the driver's devices. ``release`` is the driver's own. Called anew for
    #     each call of these, perhaps on two threads at once. Raises DriverError."""
    #
    # def explain(self, about: str | None) -> Iterable[Candidate]:
    #     """The objects that the driver examined in search of devices, each with its device or its failed test: all, or
    #     the ones that ``about`` (a path, a name) means. For ``dpgateway devices --explain``; a running gateway never
    #     calls it."""
    #
    # def close(self) -> None:
    #     """The gateway ends, or makes the driver again."""


DriverClass = Callable[..., Driver]

REQUIRED = ("Options", "devices", "allocate")
ABILITIES = ("preview", "prefer", "prepare", "release", "with_options", "explain", "close")


def abilities(driver: object) -> frozenset[str]:
    """The optional methods of a driver, or of its class."""
    return frozenset(name for name in ABILITIES if callable(getattr(driver, name, None)))
