"""Another process reads what the gateway is configured with; if it can't, the gateway does."""

import logging
import os
import signal
import subprocess
import sys

import pytest

from dpgateway.config.files import read_all
from dpgateway.drivers.points import look
from dpgateway.process.apart import Reading, Seen
from tests.support.drivers import GOOD, Site

CONFIG = "resources:\n  - name: example.com/a\n    driver: simulated\n    options: {count: 010}\n  - name: [}\n"


@pytest.fixture
def config(tmp_path):
    directory = tmp_path / "config"
    directory.mkdir()
    (directory / "right.yaml").write_text(CONFIG.rpartition("  -")[0])
    (directory / "wrong.yaml").write_text(CONFIG)
    (directory / "ignored.yml").write_text(CONFIG)
    return directory


def test_it_sees_what_this_process_would_see(config, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)  # only this process has it in its path
    Site(tmp_path)(GOOD, module="apart_good")
    seen = Reading(config).result()
    assert seen == Seen(read_all(config), look())
    assert (len(seen.files.written), len(seen.files.problems), len(seen.files.ignored)) == (1, 1, 1)
    assert "apart_good" in seen.installed.names


@pytest.mark.parametrize("executable", ["/nowhere/python", "/bin/false", "/bin/true"])
def test_what_the_other_process_cannot_do_this_one_does(config, monkeypatch, caplog, executable):
    monkeypatch.setattr(sys, "executable", executable)
    assert Reading(config).result() == Seen(read_all(config), look())
    (record,) = caplog.records
    assert record.getMessage().startswith("the configuration is read by the gateway itself, because a process for it")


def test_a_process_that_is_killed_is_not_waited_for(config, caplog):
    before = children()
    reading = Reading(config)
    (process,) = children() - before
    os.kill(process, signal.SIGKILL)
    assert reading.result() == Seen(read_all(config), look())
    assert "ended with -9" in caplog.text
    assert children() == before


def test_who_waits_for_a_slow_disk_says_so(config):
    class Going(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())
            os.kill(process, signal.SIGCONT)

    said: list[str] = []
    before = children()
    reading = Reading(config, slow=0.1)
    (process,) = children() - before
    os.kill(process, signal.SIGSTOP)
    log, handler = logging.getLogger("dpgateway.process.apart"), Going()
    log.addHandler(handler)
    try:
        assert reading.result() == Seen(read_all(config), look())
    finally:
        log.removeHandler(handler)
    assert said == [f"{config}, or what is installed, hasn't been read for 0.1 s"]


def test_a_file_of_the_working_directory_is_not_imported(config, tmp_path):
    """`dpgateway` may be started anywhere."""
    for name in ("pickle.py", "dpgateway.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit(3)")
    code = (
        "import logging, pathlib; from dpgateway.process.apart import Reading; logging.disable(0); "
        f"print(len(Reading(pathlib.Path({str(config)!r})).result().files.written))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def children():
    """Of this thread, by their process ids."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:  # noqa: PTH123
        return set(map(int, listed.read().split()))
