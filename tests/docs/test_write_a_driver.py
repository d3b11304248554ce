"""The tutorial's driver: its very text is written, tested, packaged and run as the page says, in a new environment."""

import ast
import re
import sys
import types

import pytest

from dpgateway.testing import Recorder
from tests.docs.conftest import Place
from tests.docs.pages import Page, check_output

pytestmark = pytest.mark.xdist_group("place")

PAGE = Page("tutorial/write-a-driver.md")
DRIVER = "src/dpgateway_gpio/__init__.py"


@pytest.fixture(scope="module")
def results(place: Place):
    """Of each block; the files are written after the first, as the page has it."""
    first, *rest = [block.text for block in PAGE.commands]
    made = place.run([first], "work")
    PAGE.write_files(place.directory / "work/dpgateway-gpio")
    return made + place.run(rest, "work/dpgateway-gpio")


def test_every_command_works(results):
    assert [result.status for result in results] == [0] * len(results), results


@pytest.mark.parametrize(
    ("index", "shown"), [(index, block.output) for index, block in enumerate(PAGE.commands) if block.output]
)
def test_the_page_shows_the_true_output(results, index, shown):
    check_output(shown, results[index].output)


def test_driver_is_a_page_of_code():
    code = PAGE.files[DRIVER]
    ast.parse(code)
    assert len(code.splitlines()) <= 60


def test_three_lines_notice_a_chip(tmp_path):
    made, watching, closing = [
        line.partition("  #")[0] for line in re.findall(r"^self\._watcher.*$", PAGE.text, re.MULTILINE)
    ]
    (imports,) = re.findall(r"`(from dpgateway\.sysfs import .*?)`", PAGE.text)
    code = PAGE.files[DRIVER].replace("@dataclass", f"{imports}\n\n@dataclass", 1)
    for before, line in (
        ("        self._options = options\n", made),
        ("    def devices(self) -> list[Device]:\n", watching),
    ):
        assert before in code
        code = code.replace(before, f"{before}        {line}\n")
    code = code.replace("    def _health(", f"    def close(self):\n        {closing}\n\n    def _health(", 1)
    module = types.ModuleType("gpio_with_hotplug")
    sys.modules[module.__name__] = module
    exec(compile(code, "the tutorial", "exec"), module.__dict__)  # noqa: S102  that is what the page says
    recorder, chip = Recorder(), tmp_path / "gpiochip0"
    driver = module.GpioDriver(module.GpioOptions({"relay": 17}, chip), recorder.context())
    try:
        assert not driver.devices()[0].health.ok
        for change, healthy in ((lambda: chip.symlink_to("/dev/null"), True), (chip.unlink, False)):
            recorder.changed.clear()
            change()
            assert recorder.changed.wait(20)
            assert driver.devices()[0].health.ok == healthy
    finally:
        driver.close()
        del sys.modules[module.__name__]


def test_same_entry_point_as_the_skeleton(results, place: Place):
    pyproject = (place.directory / "work/dpgateway-gpio/pyproject.toml").read_text()
    assert '[project.entry-points.dpgateway]\ngpio = "dpgateway_gpio"\n' in pyproject
    assert '[project.entry-points.dpgateway]\ngpio = "dpgateway_gpio"\n' in PAGE.text
