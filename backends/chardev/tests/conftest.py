"""A directory with real device nodes in it, which the driver takes for the host's /dev."""

import json
import os
import resource
import stat
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest
from dpgateway_chardev import CharDevices
from dpgateway_chardev.options import CharDeviceOptions

from dpgateway import from_plain
from dpgateway.testing import FakeTree, Recorder

MAJOR = 240  # LOCAL/EXPERIMENTAL USE (Documentation/admin-guide/devices.txt); the nodes are never opened

PRELUDE = """
    import json, os, sys
    sys.path[:] = json.loads(sys.argv[2])
    from pathlib import Path
    from dpgateway import from_plain
    from dpgateway.testing import Recorder
    from dpgateway_chardev import CharDevices

    dev, recorder = Path(sys.argv[1]), Recorder()
    def drive(*paths):
        return CharDevices(CharDevices.Options(paths=paths, dev=str(dev)), recorder.context())
    def listed(driver):
        return {device.id: device.health.reason for device in driver.devices()}
    def limit(what, number):
        Path(f"/proc/sys/user/max_inotify_{what}").write_text(str(number))
"""


class Dev:
    """Makes nodes and links; ``drive`` makes drivers that look at them, and ``close`` closes those."""

    def __init__(self, path):
        self.path = path
        self.recorder = Recorder()
        self._drivers = []

    def node(self, name, minor=0, kind=stat.S_IFCHR):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mknod(path, kind | 0o600, os.makedev(MAJOR, minor))
        except PermissionError:
            pytest.fail(f"mknod {path} isn't permitted: this test needs to run as root (CAP_MKNOD)")
        return path

    def link(self, name, target):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        return path

    def drive(self, *paths, **options):
        options.setdefault("dev", str(self.path))
        driver = CharDevices(
            CharDevices.Options(paths=tuple(f"/dev/{path}" for path in paths), **options), self.context
        )
        self._drivers.append(driver)
        return driver

    @property
    def context(self):
        return self.recorder.context("example.com/node")

    def close(self):
        for driver in self._drivers:
            driver.close()


@pytest.fixture
def dev(tmp_path):
    dev = Dev(Path(tmp_path, "dev"))
    dev.path.mkdir()
    yield dev
    dev.close()


@pytest.fixture
def child(dev):
    """Runs a script in a process of its own, with what ``PRELUDE`` has, in whatever namespaces a command makes."""

    def child(script, *command):
        code = textwrap.dedent(PRELUDE) + textwrap.dedent(script)
        words = [*command, sys.executable, "-W", "error", "-c", code, str(dev.path), json.dumps(sys.path)]
        ran = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stdout

    return child


@pytest.fixture
def tree(tmp_path):
    """The host's files."""
    return FakeTree(tmp_path)


@pytest.fixture
def drive(tree):
    """Makes drivers of devices that match in the tree."""
    made = []

    def drive(match, recorder=None, **options):
        wanted = from_plain({"match": match, **tree.roots, **options}, CharDeviceOptions)
        made.append(CharDevices(wanted, (recorder or Recorder()).context("example.com/stick")))
        return made[-1]

    yield drive
    for driver in made:
        driver.close()


@pytest.fixture
def no_files():
    """A context in which this process can open no file."""

    @contextmanager
    def no_files():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return no_files


@pytest.fixture
def recorder():
    return Recorder()
