"""What each page says."""

import asyncio
import json

import pytest

from dpgateway.errors import NoThread
from dpgateway.status import Standing, readiness
from dpgateway.status.values import Registration
from dpgateway.web.pages import Sources, pages

AWAY = Registration("away", None, registered=False, streaming=False, listed=False, api=None, failure=None)


async def works():
    pass


def table(works=works, found=None):
    return pages(Sources(lambda: found, works))


async def said(page):
    answer = await page()
    return answer.status, json.loads(answer.body)


async def test_the_process_is_healthy_when_its_loop_and_its_threads_answer():
    status, found = await said(table()["/healthz"])
    assert (status, found["healthy"]) == (200, True)
    for part in ("event_loop", "workers"):
        assert (found[part]["ok"], found[part]["reason"]) == (True, None)
        assert 0 <= found[part]["seconds"] < 0.5


async def never():
    await asyncio.get_running_loop().create_future()


async def refused():
    raise NoThread("the system has no thread left")


@pytest.mark.parametrize(("works", "reason"), [(never, "no answer"), (refused, "the system has no thread left")])
async def test_without_a_thread_that_works_the_process_is_not_healthy(works, reason):
    status, found = await said(table(works)["/healthz"])
    assert (status, found["healthy"], found["event_loop"]["ok"]) == (503, False, True)
    assert (found["workers"]["ok"], found["workers"]["reason"]) == (False, reason)


@pytest.mark.parametrize(("kubelet", "status"), [(True, 200), (False, 503)])
async def test_whether_the_kubelet_has_everything(kubelet, status):
    found = readiness([], kubelet=kubelet)
    assert await said(table(found=found)["/readyz"]) == (
        status,
        {"ready": kubelet, "kubelet": kubelet, "reason": found.reason, "resources": []},
    )


async def test_which_resource_it_has_not():
    found = readiness([Standing("example.com/a", started=True, registration=AWAY, failure=None)], kubelet=True)
    status, told = await said(table(found=found)["/readyz"])
    assert (status, told["reason"]) == (503, "not ready: example.com/a")
    assert told["resources"] == [{"name": "example.com/a", "ready": False, "reason": "not registered yet"}]
