import asyncio
import resource

import pytest
from asyncinotify import Mask

from dpgateway.kit.watch import Watch
from tests.support.time import in_virtual_time


@pytest.fixture
def watch():
    with Watch() as one:
        yield one


async def test_an_event_of_what_was_added_comes_at_once(watch, tmp_path):
    number = watch.add(tmp_path, Mask.CREATE)
    (tmp_path / "x").touch()
    event = await watch.next(20)
    assert (event.watch, event.name, watch.failure) == (number, "x", None)


@in_virtual_time
@pytest.mark.parametrize("path", ["", "missing"])
async def test_without_an_event_it_is_looked_at_from_time_to_time(tmp_path, path):
    loop = asyncio.get_running_loop()
    with Watch() as watch:
        assert (watch.add(tmp_path / path, Mask.CREATE) is None) == bool(path)
        assert isinstance(watch.failure, FileNotFoundError) == bool(path)
        began = loop.time()
        assert await watch.next(3) is None
        assert await watch.next(-1) is None
        assert loop.time() - began == pytest.approx(3)


async def test_what_could_not_be_watched_can_be_tried_again(watch, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert watch.add(tmp_path, Mask.CREATE) is None
        assert await watch.next(0.001) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert watch.add(tmp_path / "later", Mask.CREATE) is None
    (tmp_path / "later").mkdir()
    assert watch.add(tmp_path / "later", Mask.CREATE) is not None
    (tmp_path / "later" / "x").touch()
    assert (await watch.next(20)).name == "x"
