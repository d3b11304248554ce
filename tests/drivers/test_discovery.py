"""Drivers are found through entry points, and a broken package is a text, not an accident."""

import re

import pytest

from dpgateway.drivers import discovery
from dpgateway.drivers.loading import Loading
from tests.support.drivers import GOOD, HOLDS, find


def failure_of(name):
    found = find([name])[name]
    assert found.driver is None
    return found.failure


def test_the_entry_point_names_the_driver(install):
    install(GOOD, module="t1_good", drivers={"t1": "t1_good"}, distribution="t1-driver")
    found = find(["t1"])["t1"]
    assert (found.name, found.distribution, found.version, found.failure) == ("t1", "t1-driver", "1.2", None)
    assert found.driver.__name__ == "Good"
    assert "t1" in discovery.installed()
    assert find(["no such driver"]) == {}


def test_the_version_is_that_at_import(install, tmp_path):
    install(GOOD, module="t1_old", drivers={"t1": "t1_old"}, distribution="t1-driver")
    assert find(["t1"])["t1"].version == "1.2"
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("1.2", "1.3"))
    assert find(["t1"])["t1"].version == "1.2"


def test_an_object_with_the_hook_will_do(install):
    install(
        GOOD.replace("@hookimpl\ndef", "def")
        + """
        class Plugin:
            @hookimpl
            def dpgateway_driver(self):
                return Good
        plugin = Plugin()
        """.replace("\n        ", "\n"),
        module="t2_object",
        drivers={"t2": "t2_object:plugin"},
    )
    assert find(["t2"])["t2"].failure is None


def test_one_distribution_may_have_several_drivers(install):
    second = GOOD.replace("class Good", "class Better").replace("return Good", "return Better")
    install(second, module="t3_b", drivers={"t3-b": "t3_b"}, distribution="t3-more")
    install(GOOD, module="t3_a", drivers={"t3-a": "t3_a", "t3-c": "t3_a"})
    found = find(["t3-a", "t3-b", "t3-c"])
    assert {name: one.driver.__name__ for name, one in found.items()} == {
        "t3-a": "Good",
        "t3-b": "Better",
        "t3-c": "Good",
    }


@pytest.mark.parametrize(
    ("statement", "failure"),
    [
        ("import no_such_module_anywhere", "it can't be loaded: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "it can't be loaded: SystemExit: 3"),
        ("raise BaseException('worse')", "it can't be loaded: BaseException: worse"),
        ("raise TimeoutError('later')", "it can't be loaded: TimeoutError: later"),
        ("1 +", "it can't be loaded: SyntaxError"),
    ],
)
def test_a_failing_import_harms_no_other(install, request, statement, failure):
    module = f"t4_{abs(hash(request.node.name))}"
    install(statement, module=module)
    install(GOOD, module=f"{module}_good")
    assert failure in failure_of(module)
    assert find([f"{module}_good"])[f"{module}_good"].failure is None


def test_a_hung_import_harms_no_other(install, gate):
    HOLDS["t_hangs"] = gate()
    install("from tests.support.drivers import hold\nhold(__name__)\n" + GOOD, module="t_hangs")
    install(GOOD, module="t_beside")
    loading = Loading(discovery.named(["t_hangs", "t_beside"]))
    found = next(found for seconds in range(1, 20) if (found := _after(loading, seconds))["t_beside"].driver)
    assert re.fullmatch(r"it hasn't been imported within [1-9]\d* s", found["t_hangs"].failure or "")
    assert found["t_beside"].failure is None


def _after(loading, seconds):
    loading.wait(seconds)
    return loading.found()


def test_an_import_error_with_a_broken_str(install):
    source = "class Shy(Exception):\n    def __str__(self): raise LookupError\nraise Shy"
    install(source, module="t_shy")
    assert failure_of("t_shy").endswith("Shy, whose text can't be had: __str__ raised LookupError")


def test_a_keyboard_interrupt_fails_one_package(install):
    """It is imported on a thread of its own, so it isn't Ctrl-C."""
    install("raise KeyboardInterrupt", module="t5_interrupt")
    failure = find(["t5_interrupt"])["t5_interrupt"].failure
    assert failure is not None
    assert "KeyboardInterrupt" in failure


@pytest.mark.parametrize("content", [b"[console_scripts]\nfo", b"\xff\xfe"])
def test_broken_entry_points_harm_no_driver(tmp_path, monkeypatch, caplog, content):
    broken = tmp_path / "broken-1.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Name: broken\nVersion: 1\n")
    (broken / "entry_points.txt").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "simulated" in discovery.installed()
    assert find(["simulated"])["simulated"].failure is None
    (record,) = caplog.records
    assert record.getMessage().startswith(f"a package at {tmp_path} has broken entry points: ")


@pytest.mark.parametrize(
    ("old", "new", "failure"),
    [
        ("@hookimpl\ndef", "def", "has no dpgateway_driver marked with @dpgateway.hookimpl"),
        ("def dpgateway_driver", "def dpgateway_drivers", "unknown hook 'dpgateway_drivers'"),
        ("return Good", "return None", "dpgateway_driver returned None, expected a class"),
        ("return Good", "return Good(None, None)", "expected a class"),
        ("return Good", "raise ValueError('no')", "it can't be loaded: ValueError: no"),
        ("def allocate", "def alocate", "Good has no allocate"),
        ("    Options = Options\n", "", "Good has no Options"),
        ("def devices(self): return []", "devices = []", "Good.devices isn't a method"),
        (
            "def devices(self): return []",
            "async def devices(self): yield",
            "Good.devices is async, expected a plain method",
        ),
        ("def devices(self)", "async def prepare(self, devices): ...\n    def devices(self)", "Good.prepare is async"),
        ("@dataclass(frozen=True)", "@dataclass", "expected a frozen dataclass"),
        ("@dataclass(frozen=True)", "", "expected a frozen dataclass"),
        ("count: int = 1", "count: set[int] = None", "Good.Options.count: set isn't a type"),
        ("count: int = 1", "count: tuple[int, int] = None", "Good.Options.count: tuple isn't a type"),
        ("count: int = 1", "count: complex = 1j", "Good.Options.count: complex isn't a type"),
        ("count: int = 1", "count: 'Nowhere' = 1", "it can't be loaded: NameError"),
    ],
)
def test_what_is_no_driver_says_why(install, old, new, failure):
    module = f"t6_{abs(hash((old, new)))}"
    assert old in GOOD
    install(GOOD.replace(old, new), module=module)
    assert failure in failure_of(module)


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("    Options = Options\n", "Options"),
        ("    def devices(self): return []\n", "devices"),
        ("    def allocate(self, devices): return Allocation()\n", "allocate"),
    ],
)
def test_the_interface_alone_gives_a_driver_nothing(install, line, missing):
    module = f"t7_{missing.lower()}"
    inherits = GOOD.replace("import Allocation", "import Allocation, Driver").replace(
        "class Good:", "class Good(Driver):"
    )
    assert line in inherits
    install(inherits.replace(line, ""), module=module)
    assert failure_of(module) == f"Good has no {missing}"


INNER = """
@dataclass(frozen=True)
class Inner:
    each: KIND = None

@dataclass(frozen=True)
class Options:
    named: NAMED = field(default_factory=DEFAULT)
"""


@pytest.mark.parametrize(
    ("kind", "named", "default", "failure"),
    [
        ("tuple['Inner', ...]", "tuple[Inner, ...]", "tuple", None),
        (
            "set[int]",
            "dict[str, tuple[Inner, ...]]",
            "dict",
            "Good.Options.named.each: set isn't a type that a configuration can have",
        ),
        (
            "int",
            "Any",
            "lambda: 1 / 0",
            "Good.Options.named: its default can't be made: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_options_within_options(install, kind, named, default, failure):
    head, _, tail = GOOD.partition("@dataclass")
    tail = tail[tail.index("class Good") :]
    inner = INNER.replace("KIND", kind).replace("NAMED", named).replace("DEFAULT", default)
    module = f"t9_{abs(hash(kind))}"
    install(f"{head}from dataclasses import field\nfrom typing import Any\n{inner}\n{tail}", module=module)
    assert find([module])[module].failure == failure


def test_one_name_in_two_distributions_names_both(install):
    install(GOOD, module="t7_a", drivers={"t7": "t7_a"}, distribution="t7-first")
    install("raise SystemExit", module="t7_b", drivers={"t7": "t7_b"}, distribution="t7-second")
    assert failure_of("t7") == "t7-first 1.2 and t7-second 1.2 both have a driver of this name"


def test_only_the_named_drivers_are_loaded(install, tmp_path):
    mark = tmp_path / "loaded"
    install(f"open({str(mark)!r}, 'w').close()", module="t8_marks")
    install(GOOD, module="t8_good")
    assert list(find(["t8_good"])) == ["t8_good"]
    assert "t8_marks" in discovery.installed()
    assert not mark.exists()
    assert {"t8_good", "t8_marks"} <= set(find())
    assert mark.exists()
