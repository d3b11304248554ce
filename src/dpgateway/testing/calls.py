"""Calls a driver's methods as the gateway does: on other threads, with a deadline."""

from __future__ import annotations

import itertools
import threading
import traceback
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dpgateway.drivers.answers import MOST_DEVICES
from dpgateway.errors import Busy, DriverError, describe
from dpgateway.kit.threads import Threads
from dpgateway.model import Allocation, Device

Outcome = Any
"""A method's result, or the DriverError that it raised."""


class ContractBroken(AssertionError):
    """A driver breaks the contract. The message names the driver and the method, and says what was found."""


class ContractWarning(UserWarning):
    """A driver keeps the contract, but there is probably a mistake."""


def broken(driver: object, what: str) -> ContractBroken:
    return ContractBroken(f"{_name(driver)}{what}")


def doubt(driver: object, what: str) -> None:
    """A ContractWarning."""
    warnings.warn(f"{_name(driver)}{what}", ContractWarning, stacklevel=3)


def _name(driver: object) -> str:
    return driver.__name__ if isinstance(driver, type) else type(driver).__name__


def shown(arguments: Iterable[object]) -> str:
    return ", ".join(
        f"[{', '.join(device.id for device in argument)}]" if isinstance(argument, (list, tuple)) else repr(argument)
        for argument in arguments
    )


class Caller:
    """Calls one driver, each method with the same deadline."""

    def __init__(self, driver: Any, seconds: float, *, direct: bool = False) -> None:  # noqa: ANN401  perhaps no driver
        """``direct``: calls on the current thread, without the deadline, for tests with threads of their own."""
        self.driver, self.seconds = driver, seconds
        # idle=0, because the contract looks for threads that outlive the driver
        self._threads = None if direct else Threads(idle=0)

    def broken(self, call: str, what: str) -> ContractBroken:
        return broken(self.driver, f".{call}: {what}")

    def outcome(self, method: str, *arguments: object) -> Outcome:
        """The method's result, or the DriverError that it raises. Any other exception breaks the contract."""
        call = f"{method}({shown(arguments)})"
        if self._threads is None:
            found = _run(self.driver, method, arguments)
        else:
            try:
                found = self._threads.run(call, lambda: _run(self.driver, method, arguments), self.seconds)
            except TimeoutError:  # the driver's own would be returned
                raise self.broken(call, f"hasn't returned after {self.seconds:g} s") from None
        if isinstance(found, BaseException) and not isinstance(found, DriverError):
            where = "".join(traceback.format_exception(found))
            # The text of a ValueError or TypeError of our values is enough: "DeviceNode.host_path: expected ..."
            said = str(found) if isinstance(found, ValueError | TypeError) else describe(found)
            kind = type(found).__name__
            raise self.broken(call, f"{said}\n(expected DriverError, DeviceUnavailable or Busy, found {kind})\n{where}")
        return found

    def result(self, method: str, *arguments: object) -> Any:  # noqa: ANN401  the caller looks at it
        """The method's result. Retries a Busy driver until the deadline; any other error breaks the contract."""
        pause, waited = threading.Event(), 0.0
        while isinstance(outcome := self.outcome(method, *arguments), Busy) and waited < self.seconds:
            pause.wait(0.05)
            waited += 0.05
        if isinstance(outcome, DriverError):
            raise self.broken(f"{method}({shown(arguments)})", f"expected it to work, found {outcome!r}")
        return outcome

    def devices(self) -> list[Device]:
        devices: list[Device] = self.result("devices")
        for device in devices:
            if not isinstance(device, Device):
                raise self.broken("devices()", f"expected Device values, found {device!r}")
            try:
                replace(device)
            except (TypeError, ValueError) as error:
                raise self.broken("devices()", f"expected sound Device values, found {device!r}: {error}") from error
        return devices

    def healthy(self) -> list[Device]:
        devices = self.devices()
        if not (healthy := [device for device in devices if device.health.ok]):
            raise self.broken(
                "devices()", f"the contract needs at least one healthy device to allocate, found {devices}"
            )
        return healthy

    def allocate(self, devices: Sequence[Device]) -> Allocation:
        allocation = self.result("allocate", list(devices))
        if not isinstance(allocation, Allocation):
            raise self.broken(f"allocate({shown([list(devices)])})", f"expected an Allocation, found {allocation!r}")
        return allocation

    def nothing(self, method: str, *arguments: object) -> None:
        """Calls a method that must succeed and return None."""
        if (found := self.result(method, *arguments)) is not None:
            raise self.broken(f"{method}({shown(arguments)})", f"expected None, found {found!r}")


def _run(driver: object, method: str, arguments: tuple[object, ...]) -> Any:  # noqa: ANN401  or an exception
    try:
        result = getattr(driver, method)(*arguments)
        # A generator is consumed on the same thread, as in the gateway.
        if method in ("devices", "prefer", "explain"):
            result = list(itertools.islice(result, MOST_DEVICES + 1))
            if len(result) > MOST_DEVICES:
                return ValueError(f"expected {MOST_DEVICES} at most, found more; a generator needs an end")
    except BaseException as error:
        return error
    return result
