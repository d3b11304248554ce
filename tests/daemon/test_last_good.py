"""The file of the last good configuration."""

import asyncio
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpgateway.config import InvalidConfiguration
from dpgateway.daemon.last_good import VERSION, Keeping, LastGoodFile
from dpgateway.kit.observable import Signal
from tests.support.waiting import until

CONFIG = Path("/etc/dpgateway/config.yaml")
RESOURCE = {"name": "example.com/a", "driver": "fake", "options": {"paths": ["/dev/a"]}, "shares": 2}
SERVED = {"node": "n", "configuration": {"resources": [RESOURCE], "state_dir": "/elsewhere"}}


@pytest.fixture
def file(tmp_path):
    return LastGoodFile(tmp_path / "state", CONFIG, "n")


def test_what_is_saved_is_loaded(file):
    assert file.load() is None
    file.save(SERVED)
    file.save(SERVED)
    last = file.load()
    (entry,) = last.document.entries
    assert entry.written.plain() == RESOURCE
    assert entry.resource.shares.count == 2
    assert last.document.state_dir == Path("/elsewhere")
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert list(file.path.parent.iterdir()) == [file.path]


def test_a_pool_of_which_one_goes_on_as_before_is_loaded(file):
    """Its new configuration couldn't be used, and the others of the pool have a new front by now."""
    fronts = {"example.com/a": "deviceplugin", "example.com/b": "auto"}
    served = [RESOURCE | {"name": name, "pool": "p", "front": front} for name, front in fronts.items()]
    file.save({"node": "n", "configuration": {"resources": served, "dra": {"driver": "dra.example.com"}}})
    assert {one.name: one.resource.front for one in file.load().document.entries} == fronts


def test_what_killed_gateways_left_is_removed(file):
    """A new file of now may have a writer."""
    directory = file.path.parent
    file.save(SERVED)
    left, link = [directory / f".{name}.config.abcd_{number:03}" for number, name in enumerate("ab")]
    left.touch()
    link.symlink_to(file.path)
    names = [f".{file.path.name}.0a1b2c3d", ".0123456789abcdef.json.zzzzzzzz", ".hidden", "a.json", ".a.json.Damaged1"]
    for name in names:
        (directory / name).touch()
        os.utime(directory / name, (0, 0))
    file.save(SERVED)
    assert {one.name for one in directory.iterdir()} == {file.path.name, left.name, link.name, *names[2:]}


def test_each_node_and_configuration_its_own(tmp_path):
    """Also where a path isn't UTF-8."""
    configs = (CONFIG, CONFIG.parent, *map(Path, ("/etc/\udcfe.yaml", "/etc/\udcff.yaml")))
    paths = {LastGoodFile(tmp_path, config, node).path for config in configs for node in "ab"}
    assert len(paths) == 8


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "found JSONDecodeError"),
        (b"\xff", "found UnicodeDecodeError"),
        (b"[]", "found TypeError"),
        (b"[" * 100_000, "found RecursionError"),
        (json.dumps({"version": VERSION}).encode(), "found KeyError('kept')"),
        (json.dumps({"version": 9, "kept": "t", "configuration": {}}).encode(), "version: found 9, expected 1"),
        (json.dumps({"version": VERSION, "kept": "t", "configuration": "x"}).encode(), "found ValueError"),
        (
            json.dumps({"version": VERSION, "kept": "t", "configuration": {"resources": [{"gone": 1}]}}).encode(),
            "resources[0].gone: found an unknown key",
        ),
    ],
)
def test_another_content_is_refused(file, content, text):
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    with pytest.raises(InvalidConfiguration) as raised:
        file.load()
    assert str(file.path) in str(raised.value)
    assert text in str(raised.value)


def test_unsafe_directory_keeps_nothing(file):
    file.path.parent.mkdir()
    file.path.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        file.save(SERVED)
    assert list(file.path.parent.iterdir()) == []


@pytest.mark.parametrize("unsafe", ["directory", "file", "owner"])
def test_what_another_user_may_have_written_is_not_served(file, unsafe):
    file.save(SERVED)
    if unsafe == "owner":
        os.chown(file.path, 1000, -1)
    else:
        (file.path if unsafe == "file" else file.path.parent).chmod(0o777)
    with pytest.raises(PermissionError, match="must belong to uid 0, and nobody else may write there"):
        file.load()


async def test_a_write_that_hung_is_not_the_last_one(file, gate):
    """A disk that stalls, for longer than the patience, while a reload changes the configuration."""
    disk, attempts, saved = gate(), [], []

    def configuration(_):
        attempts.append(reloading.applied.version)
        return {"reload": reloading.applied.version}

    def save(served):
        disk()
        saved.append(served["reload"])

    reloading: Any = SimpleNamespace(applied=Signal(), fallback=None, wanted=None)
    overview = SimpleNamespace(report=lambda: SimpleNamespace(ready=True))
    gateway: Any = SimpleNamespace(overview=overview, configuration=configuration)
    slow: Any = SimpleNamespace(path=file.path, save=save)
    keeping = Keeping(slow, patience=0.02, again=0.02)
    running = asyncio.create_task(keeping.run(gateway, reloading))
    await disk.entered()
    reloading.applied.notify()
    await until(lambda: attempts.count(1) >= 3)
    assert disk.most_running == 1
    disk.open()
    await until(lambda: saved[-1:] == [1])
    assert saved[0] == 0
    running.cancel()
    await asyncio.wait([running])
