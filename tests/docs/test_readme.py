"""What the README shows a newcomer: driver, configuration, demo and status."""

import asyncio
import importlib
import re
import subprocess

import pytest

from benchmarks.report import Report
from dpgateway.cli import demo
from dpgateway.testing import check_driver
from tests.browser.node import CAMERA, SERIAL, node
from tests.docs.examples import installed
from tests.docs.pages import DOCS, check_output
from tests.support.configurations import complete, load
from tests.support.drivers import find
from tests.support.gateway import COMMAND
from tests.support.waiting import until

README = (DOCS.parent / "README.md").read_text()


def block(kind, index=0):
    """Of its kind, by default the first."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[index]


@pytest.fixture
def driver(tmp_path):
    with installed(tmp_path, {"readme_dongle": block("python")}):
        yield importlib.import_module("readme_dongle").dpgateway_driver()


def test_the_driver_keeps_the_contract(driver, tmp_path):
    links = tmp_path / "by-id"
    links.mkdir()
    for name in ("usb-A1", "usb-B2", "usb-C3"):
        (links / name).touch()
    check_driver(
        lambda context: driver(driver.Options(links), context), remove=lambda device: (links / device.id).unlink()
    )


def test_the_demo_prints_what_is_shown():
    result = subprocess.run([*COMMAND, "demo"], capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    check_output(block("text"), result.stdout)


async def test_the_status_says_what_is_shown(tmp_path):
    command = [*COMMAND, "status", f"--control-socket={tmp_path / 'control.sock'}"]
    async with node(tmp_path) as one:
        await one.start()
        await one.admit("modem", serial=2)
        await one.admit("vision", fpga=1, camera=1)
        one.fail(CAMERA, absent=True, indexes=[0])
        one.fail(SERIAL, unhealthy="no carrier for 30 s", indexes=[5])

        async def said():
            status = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
            expected = "lost  ", "no carrier", "default/vision"
            return status.stdout if all(word in status.stdout for word in expected) else None

        check_output(block("text", 1), await until(said, pause=0.1))


def test_restart_time_as_measured():
    figures = Report.read(DOCS.parent / "benchmarks/results.json").figures
    assert f"{figures['restart.gateway.ms@1']:.0f} ms after its restart" in README.replace("\n", " ")


def test_same_duration_of_the_demo_everywhere():
    """It is about programming a board and starting two Python processes, so a test can't measure it well."""
    for text in (README, (DOCS.parent / "Makefile").read_text(), str(demo.__doc__), str(demo.demo.help)):
        assert len(re.findall(r"about five seconds", text)) == 1


def test_the_configuration_is_valid(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(block("yaml"))
    document = load(file)
    assert [one.name for one in complete(document, find(document.drivers)).resources] == [
        "example.com/serial",
        "example.com/fuse",
    ]
