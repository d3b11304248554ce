"""Each way of breaking the contract is caught by the test meant for it, whose message says what and where."""

import importlib
import inspect
import itertools
import os
import threading
import unittest
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dpgateway import Busy
from dpgateway.testing import ContractBroken, ContractWarning, DriverContract, check_driver
from tests.testing import drivers

DOUBTFUL = {"AsksItself", "GivesAllNames", "GivesAllNodes", "GivesAllNumbers", "Prepair", "Subtle"}
NEVER_DONE = {"DevicesHang", "LeavesThread", "LeavesThreadWithoutClose", "Deadlocks"}


class Contract(DriverContract):
    def __init__(self, kind):
        self.kind = kind

    def make(self, context):
        return self.kind(drivers.GoodOptions(), context)


class Impatient(Contract):
    deadline = 2.0


class OneAtATime(Contract):
    together = 1


BAD = [
    ("WithoutDevices", "has_the_methods", r"^WithoutDevices: expected it to have devices, found none"),
    ("AsyncAllocate", "has_the_methods", r"AsyncAllocate\.allocate: expected a plain method"),
    ("NoOptions", "options_explain", r"NoOptions\.Options: expected a frozen dataclass, found None"),
    ("ThawedOptions", "options_explain", r"expected a frozen dataclass, found <class .*Thawed"),
    ("UnexplainedOptions", "options_explain", r"Unexplained\.count: expected metadata="),
    ("UnexplainedPart", "options_explain", r"Unexplained\.count: expected metadata="),
    ("UnknownType", "options_explain", r"Unknown: expected types .* 'Nowhere' is not defined"),
    ("InvalidDefaults", "options_explain", r"expected the defaults to be valid, .*more than 0"),
    ("DevicesReturnsIds", "devices_keep", r"DevicesReturnsIds\.devices\(\): expected Device values, found 'good-0'"),
    ("DevicesReturnsNone", "devices_keep", r"\.devices\(\): .*'NoneType' object is not iterable"),
    ("DevicesTwice", "devices_keep", r"expected each device once, found 'a' twice"),
    ("DevicesEndless", "devices_keep", r"expected 200000 at most, found more"),
    ("DevicesNoneHealthy", "allocate_gives", r"at least one healthy device"),
    ("DevicesNumbered", "devices_keep", r"when asked again, found \['d0'\], then \['d1'\]"),
    (
        "DevicesAnew",
        "devices_keep",
        r"the same ids from a new driver, found \['life-\d', 'sick'\], then \['life-\d', 'sick'\]",
    ),
    ("DevicesShareName", "devices_keep", r"'a::1' ends in '::' and digits"),
    ("PreviewsAnother", "allocate_gives_the_same", r"preview: expected what allocate answers for it, .*, found Alloc"),
    ("ExplainsNames", "explains_what", r"explain\(None\): expected Candidate values, found 'good-0'"),
    ("ExplainsOthers", "explains_what", r"explain\(None\): slot 1: expected a listed device, found 'good-9'"),
    ("DevicesHang", "devices_keep", r"devices\(\): hasn't returned after 2 s"),
    ("DevicesOnOneThread", "devices_keep", r"devices\(\): RuntimeError: wrong thread\n\(expected DriverError"),
    ("AllocateReturnsDict", "allocate_gives", r"allocate\(\[good-0\]\): expected an Allocation, found \{'env': \{\}\}"),
    ("AllocateOnce", "allocate_gives", r"allocate\(\[good-0\]\): expected it to work, found DeviceUnavailable"),
    ("AllocateCounts", "allocate_gives", r"expected the same answer when asked again"),
    ("AllocateOnlyOne", "allocate_gives", r"allocate\(\[good-0, good-1, good-2\]\): .*'/dev/thing' is used twice"),
    (
        "AllocateKeyError",
        "allocate_refuses",
        r"no-such-device\]\): KeyError: .*\n\(expected DriverError, .* found KeyError\)",
    ),
    (
        "AllocateRelativePath",
        "allocate_gives",
        r"\(\[good-0\]\): DeviceNode\.host_path: expected an absolute path, found 'dev/good-0'\n\(expected DriverError",
    ),
    ("PrepareOnce", "prepare_can", r"prepare\(\[good-0\]\): expected it to work, found DeviceUnavailable"),
    ("PrepareReturnsTrue", "prepare_can", r"prepare\(\[good-0\]\): expected None, found True"),
    ("PrepareValueError", "allocate_refuses", r"prepare\(\[sick\]\): 'sick' is not in list\n.*found ValueError"),
    ("PreferForgets", "prefer_answers", r"expected 1 of .*, all of \['good-2'\] among them, found \['good-0'\]"),
    ("PreferTooFew", "prefer_answers", r"expected 1 of .* found \[\]"),
    ("PreferRepeats", "prefer_answers", r"expected 2 of .* found \['good-0', 'good-0'\]"),
    ("ReleaseOnce", "release_can", r"release\(\[good-0\]\): KeyError: 'good-0'\n"),
    ("CloseOnce", "close_can", r"close\(\): .*closed twice"),
    ("ClosedThenBroken", "close_can", r"allocate\(\[good-0\]\): .*'NoneType' object is not callable"),
    ("LeavesThread", "close_can", r"its thread 'left-over' to end with the driver, found it alive after close\(\)"),
    ("LeavesThreadWithoutClose", "close_can", r"its thread 'left-over' to end .* found no method close\(\)"),
    ("Deadlocks", "methods_run_at_once", r"found \['listing', 'allocating'\] stuck"),
    ("Shares", "methods_run_at_once", r"expected the same answers while other methods run"),
]


def _test(kind, words):
    name = next(name for name in dir(Contract) if name.startswith("test_") and words in name)
    contract = Impatient if kind.__name__ in NEVER_DONE else Contract
    return getattr(contract(kind), name)


@pytest.mark.parametrize(("name", "words", "message"), BAD, ids=[f"{name}" for name, _, _ in BAD])
def test_a_bad_driver_is_caught(name, words, message):
    with pytest.raises(ContractBroken, match=f"(?s){message}"):
        _test(getattr(drivers, name), words)()


def test_one_of_several_required_options():
    @dataclass(frozen=True)
    class OneOfTwo:
        here: str = field(default="", metadata={"help": "where it is"})
        there: str = field(default="", metadata={"help": "or there"})

        def __post_init__(self):
            if not self.here and not self.there:
                raise ValueError("expected here or there, found neither")

    class NeedsOne(drivers.Good):
        Options = OneOfTwo

    _test(NeedsOne, "options_explain")()


def test_every_bad_driver_is_named_above():
    kinds = {name for name, kind in vars(drivers).items() if inspect.isclass(kind) and issubclass(kind, drivers.Good)}
    assert kinds - {"Good"} - DOUBTFUL == {name for name, _, _ in BAD}


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (drivers.Prepair, "has_the_methods", r"^Prepair\.prepair: .* never calls .*; did you mean prepare\?$"),
        (
            drivers.GivesAllNodes,
            "allocate_gives",
            r"allocate\(\[good-0\]\): it gives good-1, which wasn't asked for: device node '/dev/good-1'$",
        ),
        (
            drivers.GivesAllNames,
            "allocate_gives",
            r"allocate\(\[good-0\]\): it gives good-1, which wasn't asked for: env GOOD 'good-0,good-1,good-2'$",
        ),
        (
            drivers.GivesAllNumbers,
            "allocate_gives",
            r"allocate: each of good-0, good-1, good-2 alone is given all of /dev/vfio/7, /dev/vfio/8, /dev/vfio/9; ",
        ),
        (drivers.AsksItself, "ask_to_be_asked", r"^AsksItself\.devices\(\): it calls changed\(\) within each call"),
    ],
)
def test_what_is_hardly_meant_is_a_warning(kind, words, message):
    with pytest.warns(ContractWarning, match=message) as caught:
        _test(kind, words)()
    assert len(caught) == 1


def test_what_may_be_meant_is_no_warning():
    """Warnings are errors here."""
    for words in ("has_the_methods", "allocate_gives", "ask_to_be_asked"):
        _test(drivers.Subtle, words)()


class Numbered(DriverContract):
    """Boards, numbered in the order of their slots."""

    def __init__(self):
        self.slots = ["A", "B", "C"]

    def make(self, context):
        return drivers.Good(drivers.GoodOptions(count=len(self.slots)))

    def remove(self, device):
        self.slots.pop(int(device.id.removeprefix("good-")))


def test_removal_detects_enumerated_ids():
    with pytest.raises(
        ContractBroken,
        match=r"\['good-1', 'good-2'\] to be healthy after 'good-0' was removed, found \['good-0', 'good-1'\]",
    ):
        Numbered().test_devices_keep_their_ids_when_one_is_removed()


def test_ids_that_stay_when_a_device_is_removed():
    class ByName(Numbered):
        def make(self, context):
            driver = drivers.Good()
            driver.ids = list(self.slots)
            return driver

        def remove(self, device):
            self.slots.remove(device.id)

    ByName().test_devices_keep_their_ids_when_one_is_removed()


def test_one_device_is_too_few_to_remove_it():
    contract = Numbered()
    contract.slots = ["A"]
    with pytest.raises(ContractBroken, match=r"two healthy devices, to remove one, found good-0 alone"):
        contract.test_devices_keep_their_ids_when_one_is_removed()


def test_removal_is_skipped_without_remove():
    with pytest.raises(unittest.SkipTest, match=r"no method remove\(device\)"):
        _test(drivers.Good, "one_is_removed")()


def test_removing_comes_last_without_pytest_too(packaged):
    good = packaged("kit_removing")
    ids = ["first", "second"]

    def make(context):
        driver = good(good.Options(), context)
        driver.ids = list(ids)
        return driver

    check_driver(make, remove=lambda device: ids.remove(device.id))
    assert ids == ["second"]
    with pytest.raises(ContractBroken, match=r"^test_devices_keep_their_ids_when_one_is_removed: Good") as caught:
        check_driver(lambda context: good(good.Options(), context), remove=lambda device: None)
    assert caught.value.args[0].count("test_") == 1


def test_busy_is_asked_again_and_is_an_answer():
    class BusyTwice(drivers.Good):
        calls = itertools.count()

        def allocate(self, devices):
            if next(self.calls) < 2:
                raise Busy("not yet")
            return super().allocate(devices)

    _test(BusyTwice, "allocate_gives")()


def test_together_limits_an_allocation():
    OneAtATime(drivers.AllocateOnlyOne).test_allocate_gives_the_same_answer_again()


def _package(directory, name, body, value=None):
    (directory / f"{name}.py").write_text(body)
    info = directory / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[dpgateway]\n{name} = {value or name}\n")


_HOOK = "\nfrom dpgateway import hookimpl\n@hookimpl\ndef dpgateway_driver():\n    return Good\n"


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """Makes the good driver a package of its own, with some more code in its module; returns its class."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, more=_HOOK):
        _package(tmp_path, name, Path(drivers.__file__).read_text() + more)
        return importlib.import_module(name).Good

    return make


def test_a_good_driver_passes_without_pytest(packaged):
    good = packaged("kit_good")
    check_driver(lambda context: good(good.Options(), context))


def test_all_that_is_wrong_is_told_at_once(packaged):
    with pytest.raises(ContractBroken) as caught:
        check_driver(lambda context: drivers.AllocateReturnsDict(drivers.GoodOptions(), context))
    assert "test_is_found_through_its_entry_point: AllocateReturnsDict: expected an entry point" in str(caught.value)
    assert "test_allocate_gives_the_same_answer_again: AllocateReturnsDict.allocate(" in str(caught.value)


def test_wrong_entry_points_are_named(packaged, tmp_path):
    packaged("kit_elsewhere")
    _package(tmp_path, "kit_missing", "", value="kit_nowhere")
    _package(tmp_path, "kit_unmarked", _HOOK.replace("@hookimpl", ""))
    _package(tmp_path, "kit_exits", "raise SystemExit(3)")
    with pytest.raises(ContractBroken) as caught:
        _test(drivers.Good, "entry_point")()
    assert "kit_elsewhere = kit_elsewhere leads to <class 'kit_elsewhere.Good'>" in str(caught.value)
    assert (
        "kit_missing = kit_nowhere leads to no driver: it can't be loaded: ModuleNotFoundError: No module named"
        in str(caught.value)
    )
    assert "kit_unmarked has no dpgateway_driver marked with @dpgateway.hookimpl" in str(caught.value)
    assert "kit_exits leads to no driver: it can't be loaded: SystemExit: 3" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("threading.Thread(target=threading.Event().wait, name='early', daemon=True).start()", r"threads: \['early'\]"),
        ("import os; open(os.devnull); kept = open('/proc/self/status')", r"open files"),
        ("open(__file__ + '.lock', 'w').close()", r"opens '.*\.lock' for writing"),
        ("import socket; socket.socket().bind(('127.0.0.1', 0))", r"socket\.bind"),
        ("import signal; signal.signal(signal.SIGUSR1, lambda *_: None)", r"signal handlers"),
        ("import logging; logging.basicConfig()", r"log handlers"),
        ("import subprocess; child = subprocess.Popen(['sleep', '1'])", r"child processes"),
        ("print('hello')", "hello"),
        ("import os\nif 'probe' not in os.environ: raise ImportError('no luck')", "no luck"),
    ],
)
def test_what_happens_at_import_is_caught(packaged, more, found):
    name = f"kit_import_{abs(hash(more))}"
    guard = f"\nimport os\nif os.getpid() != {os.getpid()}:\n" + "".join(f"    {line}\n" for line in more.splitlines())
    good = packaged(name, _HOOK + guard)
    with pytest.raises(ContractBroken, match=rf"(?s)nothing to happen at the import of {name}, found.*{found}"):
        _test(good, "nothing_happens")()


def test_an_import_that_hangs_is_ended(packaged):
    guard = f"\nimport os\nif os.getpid() != {os.getpid()}:\n    threading.Event().wait()\n"
    good = packaged("kit_import_hangs", _HOOK + guard)
    before = _children()
    contract = Impatient(good)
    with pytest.raises(ContractBroken, match=r"import of kit_import_hangs, found that it takes over 2 s$"):
        contract.test_nothing_happens_at_import()
    assert _children() <= before  # what an earlier test left may end meanwhile


def _children():
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def test_each_driver_that_the_contract_makes_is_closed():
    made, closed = [], []

    class Closed(drivers.Good):
        def __init__(self, options, context):
            super().__init__(options, context)
            made.append(self)

        def close(self):
            closed.append(self)

    for words in ("allocate_gives", "prefer_answers"):
        _test(Closed, words)()
    assert made
    assert closed == made
