"""The contract test: one test for each property of drivers on which the gateway relies."""

from __future__ import annotations

import inspect
import itertools
import threading
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from dpgateway.drivers.contract import REQUIRED, Context, abilities
from dpgateway.drivers.parameters import per_claim
from dpgateway.model import Candidate, Device, Health
from dpgateway.testing import doubts, package
from dpgateway.testing.calls import Caller, ContractBroken, broken, doubt
from dpgateway.testing.concurrency import check_concurrency
from dpgateway.testing.recorder import Recorder

_PREFER_AMONG = 8  # the sizes and choices grow with the square
_STRANGER = "dpgateway-contract-no-such-device"


class DriverContract:
    """Subclass it as ``Test...`` and override ``make``; pytest runs the tests.

    ``make`` must return drivers with the same devices each time, at least one of them healthy; two or more are tested
    more thoroughly. Each test makes its own drivers and closes them.

    The optional ``remove`` removes a device for good, as if it were unplugged. Only its test detects ids that are
    consecutive numbers. It runs last, so ``make`` needn't restore the device.
    """

    deadline: ClassVar[float] = 10.0
    """Seconds for each call of a method."""
    together: ClassVar[int | None] = None
    """The number of devices that one container can get; None: all."""

    def make(self, context: Context) -> Any:  # noqa: ANN401  the tests check that it is a driver
        raise NotImplementedError(f"{type(self).__name__}.make(context) returns the driver to test")

    remove: Callable[[Any], object] | None = None  # takes the driver's own kind of Device
    """Optional, a method ``remove(device)``: unplugs the device, deletes its file, drops it from the options ..."""

    def test_has_the_methods_of_a_driver(self) -> None:
        with self._driver() as caller:
            driver = caller.driver
            for name in REQUIRED:
                if not callable(getattr(driver, name, None)):
                    raise broken(driver, f": expected it to have {name}, found none")
            for name in ("devices", "allocate", *abilities(driver)):
                if inspect.iscoroutinefunction(getattr(driver, name)):
                    expected = "expected a plain method, because it runs on a thread"
                    raise caller.broken(name, f"{expected}, found an async one")
            doubts.check_names(driver)

    def test_is_found_through_its_entry_point(self) -> None:
        with self._driver() as caller:
            package.entry_point(type(caller.driver))

    def test_options_explain_themselves(self) -> None:
        with self._driver() as caller:
            driver = type(caller.driver)
            package.check_options(driver)
            # options that a claim may choose are of no use without the method that takes them
            if (chosen := per_claim(driver.Options)) and not callable(getattr(driver, "with_options", None)):
                expected = "expected a method with_options(), because a claim may choose"
                raise broken(driver, f": {expected} {', '.join(chosen)}")

    def test_nothing_happens_at_import(self) -> None:
        with self._driver() as caller:
            package.check_import(type(caller.driver), self.deadline)

    def test_devices_keep_their_ids(self) -> None:
        with self._driver() as caller:
            first = _ids(caller)
            again = _ids(caller)
        with self._driver() as caller:
            # A new driver stands for a restart of the gateway.
            later = _ids(caller)
        if first != again:
            raise caller.broken("devices()", f"expected the same ids when asked again, found {first}, then {again}")
        if first != later:
            raise caller.broken("devices()", f"expected the same ids from a new driver, found {first}, then {later}")

    def test_devices_does_not_ask_to_be_asked_again(self) -> None:
        callers: list[str] = []
        context = replace(Recorder().context(), changed=lambda: callers.append(threading.current_thread().name))
        with self._driver(context) as caller:
            caller.devices()
            callers.clear()  # a driver may announce its own first list
            caller.devices()
            if "devices()" in callers:  # the call's thread
                what = ".devices(): it calls changed() within each call, so the gateway asks without end; expected "
                doubt(caller.driver, f"{what}changed() only where the driver learns of a change by itself")

    def test_allocate_gives_the_same_answer_again(self) -> None:
        with self._driver() as caller:
            alone = {}
            for devices in self._portions(caller.healthy()):
                first, again = caller.allocate(devices), caller.allocate(devices)
                if first != again:
                    raise caller.broken(
                        "allocate", f"expected the same answer when asked again, found {first}, then {again}"
                    )
                if len(devices) == 1:
                    alone[devices[0].id] = first
            for device in caller.healthy() if "preview" in abilities(caller.driver) else ():
                if (said := caller.result("preview", device)) != (answer := alone[device.id]):
                    raise caller.broken("preview", f"expected what allocate answers for it, {answer}, found {said}")
            doubts.check_grants(caller.driver, alone)

    def test_allocate_refuses_with_an_error_of_its_own(self) -> None:
        """The gateway refuses Unhealthy devices, but a device may fail between the list and the call."""
        with self._driver() as caller:
            healthy = caller.healthy()[0]
            sick = replace(healthy, health=Health.unhealthy("the contract test says so"))
            gone = replace(healthy, id=_STRANGER)
            for device in [*(d for d in caller.devices() if not d.health.ok), sick, gone]:
                for method in {"allocate", "prepare", "release"} & ({"allocate"} | abilities(caller.driver)):
                    caller.outcome(method, [device])

    def test_prepare_can_be_repeated(self) -> None:
        with self._driver() as caller:
            for devices in self._portions(caller.healthy()) if "prepare" in abilities(caller.driver) else ():
                caller.allocate(devices)
                caller.nothing("prepare", devices)
                caller.nothing("prepare", devices)

    def test_prefer_answers_exactly_what_was_asked(self) -> None:
        with self._driver() as caller:
            available = caller.healthy()[:_PREFER_AMONG] if "prefer" in abilities(caller.driver) else []
            offered = {device.id for device in available}
            for size in range(1, len(available) + 1):
                for must_include in (available[:0], available[-1:], available[-size:]):
                    required = {device.id for device in must_include}
                    ids = [device.id for device in caller.result("prefer", available, must_include, size)]
                    if len(ids) != size or len(set(ids)) != size or not required <= set(ids) <= offered:
                        expected = f"expected {size} of {sorted(offered)}, all of {sorted(required)} among them"
                        raise caller.broken("prefer", f"{expected}, found {ids}")

    def test_release_can_be_repeated(self) -> None:
        with self._driver() as caller:
            for devices in self._portions(caller.healthy()) if "release" in abilities(caller.driver) else ():
                first = caller.allocate(devices)
                caller.nothing("release", devices)
                caller.nothing("release", devices)
                if (again := caller.allocate(devices)) != first:
                    raise caller.broken(
                        "release", f"expected the same allocation after it, found {first}, then {again}"
                    )

    def test_explains_what_it_lists(self) -> None:
        with self._driver() as caller:
            listed = {device.id for device in caller.devices()}
            for one in caller.result("explain", None) if "explain" in abilities(caller.driver) else ():
                if not isinstance(one, Candidate):
                    raise caller.broken("explain(None)", f"expected Candidate values, found {one!r}")
                if one.device is not None and one.device not in listed:
                    raise caller.broken("explain(None)", f"{one.name}: expected a listed device, found {one.device!r}")

    def test_close_can_be_repeated_and_ends_all_threads(self) -> None:
        before = set(threading.enumerate())
        with self._driver() as caller:
            devices = caller.healthy()
            has = abilities(caller.driver)
            for _ in range(2 if "close" in has else 0):
                caller.nothing("close")
            caller.outcome("devices")
            caller.outcome("allocate", devices[:1])
        for thread in set(threading.enumerate()) - before:
            thread.join(self.deadline)
            if thread.is_alive():
                found = "found it alive after close()" if "close" in has else "found no method close()"
                raise broken(caller.driver, f": expected its thread {thread.name!r} to end with the driver, {found}")

    def test_methods_run_at_once(self) -> None:
        with self._driver() as caller:
            check_concurrency(caller, caller.healthy()[: self.together])

    def test_devices_keep_their_ids_when_one_is_removed(self) -> None:
        """Runs last, because the device doesn't come back."""
        if self.remove is None:
            raise unittest.SkipTest("the contract has no method remove(device), so nothing is unplugged")
        with self._driver() as caller:
            gone, *stay = caller.healthy()
            if not stay:
                raise caller.broken("devices()", f"expected two healthy devices, to remove one, found {gone.id} alone")
            self.remove(gone)
        with self._driver() as caller:
            healthy = [device.id for device in caller.healthy()]
            if sorted(healthy) != sorted(device.id for device in stay):
                raise caller.broken(
                    "devices()",
                    f"expected {[device.id for device in stay]} to be healthy after {gone.id!r} was removed, found "
                    f"{healthy}; an id names one device for ever, so it isn't made of an order or a number",
                )

    @contextmanager
    def _driver(self, context: Context | None = None) -> Iterator[Caller]:
        caller = Caller(self.make(context or Recorder().context()), self.deadline)
        try:
            yield caller
        finally:
            if "close" in abilities(caller.driver):
                caller.outcome("close")

    def _portions(self, devices: list[Device]) -> list[list[Device]]:
        """Each device alone, and as many as a container can get."""
        many = devices[: self.together]
        return [[device] for device in devices] + ([many] if len(many) > 1 else [])


def check_driver(make: Callable[[Context], Any], remove: Callable[[Any], object] | None = None) -> None:
    """Runs the whole contract without pytest. Raises one ContractBroken with all failures.

    ``remove``: see DriverContract; None: no device is removed.
    """
    contract = DriverContract()
    contract.make, contract.remove = make, remove  # type: ignore[assignment, method-assign]
    found: list[str] = []
    for name in [name for name in vars(DriverContract) if name.startswith("test_")]:
        try:
            getattr(contract, name)()
        except unittest.SkipTest:
            continue
        except ContractBroken as error:
            found.append(f"{name}: {error}")
    if found:
        raise ContractBroken("\n".join(found))


def _ids(caller: Caller) -> list[str]:
    ids = sorted(device.id for device in caller.devices())
    for first, second in itertools.pairwise(ids):
        if first == second:
            raise caller.broken("devices()", f"expected each device once, found {first!r} twice")
    return ids
