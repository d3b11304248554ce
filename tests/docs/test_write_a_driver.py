"""The tutorial's driver: its very text is written, tested, packaged and run as the page says, in a new environment."""

import ast

import pytest

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


def test_the_driver_is_a_page_of_code():
    code = PAGE.files[DRIVER]
    ast.parse(code)
    assert len(code.splitlines()) <= 60


def test_the_tutorial_and_the_skeleton_have_the_same_entry_point(results, place: Place):
    pyproject = (place.directory / "work/dpgateway-gpio/pyproject.toml").read_text()
    assert '[project.entry-points.dpgateway]\ngpio = "dpgateway_gpio"\n' in pyproject
    assert '[project.entry-points.dpgateway]\ngpio = "dpgateway_gpio"\n' in PAGE.text
