"""What the README shows a newcomer: its driver keeps the contract, its configuration is valid."""

import importlib
import re

import pytest

from dpgateway.config import complete, load
from dpgateway.testing import check_driver
from tests.docs.examples import installed
from tests.docs.pages import DOCS
from tests.support.drivers import find

README = (DOCS.parent / "README.md").read_text()


def block(kind):
    """The first of its kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[0]


@pytest.fixture
def driver(tmp_path):
    with installed(tmp_path, {"readme_tpm": block("python")}):
        yield importlib.import_module("readme_tpm").dpgateway_driver()


def test_the_driver_keeps_the_contract(driver):
    check_driver(lambda context: driver(driver.Options(chips=2), context))


def test_the_configuration_is_valid(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(block("yaml"))
    document = load(file)
    assert [one.name for one in complete(document, find(document.drivers)).resources] == [
        "example.com/serial",
        "example.com/fuse",
    ]
