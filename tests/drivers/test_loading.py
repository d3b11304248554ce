"""Drivers are loaded, and options checked, each on a thread of its own: what hangs holds up nothing else."""

import logging
import re
import threading
import time
from collections.abc import Sequence

import pytest

from dpgateway.config import InvalidConfiguration
from dpgateway.drivers import discovery
from dpgateway.drivers.loading import Loading
from tests.support.configurations import load
from tests.support.drivers import GOOD, HOLDS
from tests.support.waiting import until

SOURCE = GOOD.replace(
    "    count: int = 1\n",
    """
    count: int = 1
    hangs: bool = False

    def __post_init__(self):
        if WHERE == "__post_init__" and self.hangs:
            hold(__name__)
        if self.count > 3:
            raise ValueError(f"count: expected 3 or less, found {self.count}")

    def claims(self):
        if WHERE == "claims" and self.hangs:
            hold(__name__)
        return "a name" if self.count == 3 else ()
""",
)


@pytest.fixture
def hanging(install, gate):
    """Installs a driver that hangs where ``where`` says, until the gate that is returned is opened."""

    def put(module, where="import"):
        HOLDS[module] = held = gate()
        first = f"from tests.support.drivers import hold\nWHERE = {where!r}\n"
        install(first + ("hold(__name__)\n" if where == "import" else "") + SOURCE, module=module)
        return held

    return put


class Loaded:
    """A configuration's resources, by the last part of their names."""

    def __init__(self, folder, resources: Sequence[tuple[str, str, str]], words: Sequence[float] = ()):
        file = folder / "config.yaml"
        lines = (f"- {{name: e.com/{n}, driver: {driver}, options: {{{more}}}}}\n" for n, driver, more in resources)
        file.write_text("resources:\n" + "".join(lines))
        document = load(file)
        self.loading = Loading(discovery.named(document.drivers), document, words)

    def when_ready(self, *names):
        """Its resources once these are ready, whatever hangs."""
        for tenths in range(1, 200):
            self.loading.wait(tenths / 10)
            configuration = self.loading.complete((), {})
            resources = {one.name.removeprefix("e.com/"): one for one in configuration.resources}
            if all(resources[name].load is None for name in names):
                return resources
        raise AssertionError(f"they are never ready: {names}")


def test_a_hung_import_is_loaded_later(tmp_path, install, hanging):
    install(GOOD, module="l1_good")
    held = hanging("l1_hangs")
    resources = Loaded(tmp_path, [("a", "l1_hangs", ""), ("b", "l1_good", "")]).when_ready("b")
    assert (resources["b"].failure, resources["b"].options.count, resources["b"].load) == (None, 1, None)
    assert re.fullmatch(r"it hasn't been imported within \d+ s", resources["a"].failure)
    held.open()
    late = resources["a"].load()
    assert (late.name, late.failure, late.options.count, late.driver_class.__name__) == ("e.com/a", None, 1, "Good")


def test_drivers_that_hang_are_awaited_together(tmp_path, hanging):
    names = [f"l2_{number}" for number in range(40)]
    for name in names:
        hanging(name)
    loading = Loaded(tmp_path, [(name, name, "") for name in names]).loading
    began = time.monotonic()
    loading.wait(1.0)
    assert time.monotonic() - began < 35  # one after another they would take 40 s
    assert all(one.load is not None for one in loading.complete((), {}).resources)


@pytest.mark.parametrize("where", ["__post_init__", "claims"])
def test_hung_options_delay_one_resource(tmp_path, hanging, where):
    held = hanging(f"l3_{where}", where)
    loaded = Loaded(tmp_path, [("a", f"l3_{where}", "hangs: true"), ("b", f"l3_{where}", "")])
    resources = loaded.when_ready("b")
    assert resources["b"].failure is None
    assert re.fullmatch(r"it hasn't checked its options within \d+ s", resources["a"].failure)
    held.open()
    assert resources["a"].load().options.hangs


def test_wrong_options_are_an_error_although_others_hang(tmp_path, hanging):
    hanging("l4_hangs")
    hanging("l4", "__post_init__")
    with pytest.raises(InvalidConfiguration, match=r"^[^:]*:3: .*count: found 4, expected 3 or less$"):
        Loaded(tmp_path, [("a", "l4_hangs", ""), ("b", "l4", "count: 4")]).when_ready("b")


def test_late_wrong_options_fail_one_resource(tmp_path, hanging):
    held = hanging("l5")
    resources = Loaded(tmp_path, [("a", "l5", "count: 4"), ("b", "l5", "")]).when_ready()
    held.open()
    assert re.fullmatch(
        r"its options are wrong: .*config.yaml:2: resources\[0\].options.count: found 4, expected 3 or less",
        resources["a"].load().failure,
    )
    assert resources["b"].load().failure is None


def test_a_late_claim_fails_its_resource(tmp_path, hanging):
    """Because the other one is served by then."""
    held = hanging("l6", "__post_init__")
    resources = Loaded(tmp_path, [("a", "l6", "count: 3, hangs: true"), ("b", "l6", "count: 3")]).when_ready("b")
    held.open()
    assert resources["b"].failure is None
    assert re.fullmatch(
        r"its options are wrong: .*config.yaml:2: resources\[0\].options: found \"a name\", which the resource at "
        r".*config.yaml:3 claims too, expected something that no other resource of this driver has, .*",
        resources["a"].load().failure,
    )


def test_a_late_import_error(tmp_path, hanging):
    held = hanging("l7")
    held.answer = OSError("no such bus")
    resources = Loaded(tmp_path, [("a", "l7", "")]).when_ready()
    held.open()
    assert resources["a"].load().failure == "it can't be loaded: OSError: no such bus"


async def test_the_log_names_awaited_drivers_and_their_line(tmp_path, hanging, caplog):
    imports, checks = hanging("l8"), hanging("l9", "claims")
    loaded = Loaded(tmp_path, [("a", "l8", ""), ("b", "l9", "hangs: true"), ("c", "l9", "")], words=[2.5, 2.51])
    loaded.when_ready("c")
    await until(lambda: len(caplog.messages) == 4)
    imports.open()
    checks.open()
    waiting = [
        (
            r"waiting for the driver l8 \(l8 1.2\), which is being imported, for \d+ s now, at .*/waiting.py:\d+; what "
            "imports the same modules waits with it, and no other resource"
        ),
        (
            r"waiting for the driver l9 \(l9 1.2\), which is checking the options of e.com/b at "
            r".*config.yaml:3, for \d+ s now, at .*/waiting.py:\d+; no other resource waits with it"
        ),
    ]
    assert all(map(re.fullmatch, [*waiting, *waiting], caplog.messages))


CLOSES = """
from tests.support.drivers import hold

class Bus:
    def __del__(self):
        hold("closes")

def look():
    bus = Bus()
    hold(__name__)

look()
"""


class Opens(logging.Handler):
    """Has the driver go on while a line is logged, and waits until its object was closed."""

    def __init__(self, gate, closed):
        super().__init__()
        self.gate, self.closed = gate, closed

    def emit(self, record):
        self.gate.open()
        self.closed.wait(5)


def test_the_log_of_an_awaited_driver_keeps_none_of_its_objects(tmp_path, install, gate):
    """Else the object would be closed on another thread than the driver's, which may hang."""
    HOLDS["l10"] = held = gate()
    closed, threads = threading.Event(), []

    def closes():
        threads.append(threading.current_thread().name)
        closed.set()

    HOLDS["closes"] = closes
    install(f"WHERE = None\n{CLOSES}{SOURCE}", module="l10")
    handler, log = Opens(held, closed), logging.getLogger("dpgateway.drivers.loading")
    log.addHandler(handler)
    try:
        Loaded(tmp_path, [("a", "l10", "")], words=[0.2]).when_ready("a")
        assert closed.wait(20)
    finally:
        log.removeHandler(handler)
    assert threads == ["load l10"]
