"""Drivers as the pages and `dpgateway new-driver` write them pass mypy in strict mode, and are checked as drivers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpgateway.cli.new_driver import skeleton
from tests.docs.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = [Page("how-to/drivers.md"), Page("tutorial/write-a-driver.md")]
WRONG = """
from dpgateway import Allocation, Driver


class Wrong:
    Options = int

    def __init__(self, options: object, context: object) -> None:
        pass

    def devices(self) -> list[str]:
        return ["a"]

    def allocate(self, devices: object) -> Allocation:
        return Allocation()


def dpgateway_driver() -> type[Driver]:
    return Wrong
"""


def mypy(directory, *files):
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", *files]
    paths = {"MYPYPATH": f"{ROOT / 'src'}:{directory}/src", "PYTHONPATH": ""}
    return subprocess.run(command, cwd=directory, env=os.environ | paths, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """All drivers' modules beside each other, and the tests of the one that `new-driver` writes."""
    made = tmp_path_factory.mktemp("types")
    texts = {path: text for path, (text, _) in skeleton("thing").items()}
    for page in PAGES:
        texts |= {path: text for path, text in page.files.items() if not path.startswith("tests/")}
    for path, text in texts.items():
        if path.endswith((".py", ".typed")):
            file = made / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    # A class that is said to be a driver has to be one: a list of its own devices, and answers to them.
    drivers = {"interfaces": "InterfaceDriver", "cards": "CardDriver", "dpgateway_gpio": "GpioDriver"}
    imports = "".join(f"from {module} import {name}\n" for module, name in drivers.items())
    said = f"DRIVERS: list[type[Driver]] = [{', '.join(drivers.values())}]\n"
    (made / "said.py").write_text(f"{imports}from dpgateway import Driver\n\n{said}")
    (made / "wrong.py").write_text(WRONG)
    return made


def test_drivers_of_the_pages_are_typed(directory):
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*.py") if path.name != "wrong.py")
    result = mypy(directory, *names)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"no issues found in {len(names)} source files" in result.stdout


def test_a_class_that_is_no_driver(directory):
    result = mypy(directory, "wrong.py")
    assert 'got "type[Wrong]", expected "type[Driver]"' in result.stdout, result.stdout + result.stderr
    assert result.returncode == 1
