"""Another process reads what the gateway is configured with; if it can't, the gateway does."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from asyncinotify import Mask

from dpgateway.config import InvalidConfiguration
from dpgateway.config.files import read_all
from dpgateway.daemon.config_child import ConfigInputs
from dpgateway.daemon.config_reader import ConfigReader
from dpgateway.drivers.points import look
from dpgateway.kit.inotify import Subscription
from tests.support.drivers import GOOD, Site
from tests.support.waiting import until

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
    seen = ConfigReader(config).result()
    assert seen == ConfigInputs(read_all(config), look())
    assert (len(seen.files.written), len(seen.files.problems), len(seen.files.ignored)) == (1, 1, 1)
    assert "apart_good" in seen.installed.names


@pytest.mark.parametrize("executable", ["/nowhere/python", "/bin/false", "/bin/true"])
def test_what_the_other_process_cannot_do_this_one_does(config, monkeypatch, caplog, executable):
    monkeypatch.setattr(sys, "executable", executable)
    assert ConfigReader(config).result() == ConfigInputs(read_all(config), look())
    (record,) = caplog.records
    assert record.getMessage().startswith("the configuration is read by the gateway itself, because a process for it")


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The other process does this first, before it is a Python."""

    def make(line):
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\n{line}\nexec {sys.executable} "$@"\n')
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    return make


def test_a_process_that_is_killed_is_not_waited_for(config, program, caplog):
    program("exec sleep 1000")
    before = children()
    reading = ConfigReader(config)
    (process,) = children() - before
    os.kill(process, signal.SIGKILL)
    assert reading.result() == ConfigInputs(read_all(config), look())
    assert "ended with -9" in caplog.text
    assert children() <= before  # what an earlier test left may end meanwhile


def test_who_waits_for_a_slow_disk_says_so(config, program, tmp_path):
    class Going(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())
            (tmp_path / "disk").write_text("\n")  # waits for who reads

    said: list[str] = []
    os.mkfifo(tmp_path / "disk")
    program(f"read line < {tmp_path}/disk")
    reading = ConfigReader(config, slow=0.1)
    log, handler = logging.getLogger("dpgateway.daemon.config_reader"), Going()
    log.addHandler(handler)
    try:
        assert reading.result() == ConfigInputs(read_all(config), look())
    finally:
        log.removeHandler(handler)
    assert said == [f"{config}, or what is installed, hasn't been read for 0.1 s"]


def test_a_file_of_the_working_directory_is_not_imported(config, tmp_path):
    """`dpgateway` may be started anywhere."""
    for name in ("pickle.py", "dpgateway.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit(3)")
    code = (
        "import logging, pathlib; from dpgateway.daemon.config_reader import ConfigReader; logging.disable(0); "
        f"print(len(ConfigReader(pathlib.Path({str(config)!r})).result().files.written))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_what_never_answers_is_refused_and_not_read_by_this_process(config, program):
    program("exec sleep 1000")
    before = children()
    reading = ConfigReader(config, slow=0.1, patience=0.1)
    with pytest.raises(InvalidConfiguration, match="found what hasn't been read"):
        reading.result()
    assert children() <= before


async def test_the_other_process_ends_with_this_one(config):
    """Also while it parses, which takes minutes for these files."""
    for number in range(100):
        (config / f"{number}.yaml").write_text(f"[{'1, ' * 19_000}]")
    code = "import pathlib, signal, sys; from dpgateway.daemon.config_reader import ConfigReader; "
    code += "ConfigReader(pathlib.Path(sys.argv[1])); signal.pause()"
    with await until(subscribed) as events:
        events.add(config, Mask.OPEN)
        ours = subprocess.Popen([sys.executable, "-c", code, str(config)])  # noqa: ASYNC220  it returns at once
        while not (await events.get()).name:  # a file is opened, not the directory
            pass
        (theirs,) = children(ours.pid)
    ours.kill()
    ours.wait()
    await until(lambda: not Path(f"/proc/{theirs}").exists() or "State:\tZ" in status(theirs))


def subscribed():
    """None as long as other programs have all inotify instances of the machine."""
    with contextlib.suppress(OSError):
        return Subscription()
    return None


def status(process):
    try:
        return Path(f"/proc/{process}/status").read_text()
    except OSError:
        return "State:\tZ"


def children(process=None):
    """Of the first thread of a process, by their process ids."""
    process = process or os.getpid()
    return set(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))
