"""What each page says."""

import asyncio
import itertools
import json
import re
import weakref

import pytest

from dpgateway.errors import NoThread
from dpgateway.resource.standing import Standing
from dpgateway.status import ResourceStatus, readiness
from dpgateway.status.values import DriverStatus
from dpgateway.web.answers import Response
from dpgateway.web.pages import Cached, Sources, gathered, pages
from tests.support.time import advance, in_virtual_time
from tests.support.waiting import turns, until
from tests.web.test_statusz import status

AWAY = Standing("deviceplugin", "away")


async def works():
    pass


def table(works=works, found=None, status=None, figures=None):
    return pages(Sources(lambda: status, lambda: found, works, lambda: figures, lambda: False))


async def said(page):
    answer = await page()
    return answer.status, json.loads(answer.body)


async def health(works, *parts):
    """What the page says once these parts are well: a busy machine may have been late before."""

    async def well():
        status, found = await said(table(works)["/healthz"])
        return all(found[part]["ok"] for part in parts) and (status, found)

    return await until(well)


async def test_healthy_while_loop_and_threads_answer():
    status, found = await health(works, "event_loop", "workers")
    assert (status, found["healthy"]) == (200, True)
    for part in ("event_loop", "workers"):
        assert (found[part]["ok"], found[part]["reason"]) == (True, None)
        assert found[part]["seconds"] >= 0


async def never():
    await asyncio.get_running_loop().create_future()


async def refused():
    raise NoThread("the system has no thread left")


@pytest.mark.parametrize(("works", "reason"), [(never, "no answer"), (refused, "the system has no thread left")])
async def test_unhealthy_without_a_working_thread(works, reason):
    status, found = await health(works, "event_loop")
    assert (status, found["healthy"], found["event_loop"]["ok"]) == (503, False, True)
    assert (found["workers"]["ok"], found["workers"]["reason"]) == (False, reason)


@pytest.mark.parametrize(("kubelet", "status"), [(True, 200), (False, 503)])
async def test_whether_the_kubelet_has_everything(kubelet, status):
    found = readiness([], kubelet=kubelet)
    assert await said(table(found=found)["/readyz"]) == (
        status,
        {"ready": kubelet, "kubelet": kubelet, "reason": found.reason, "resources": [], "lingers": None},
    )


async def test_which_resource_it_has_not():
    resource = ResourceStatus("example.com/a", True, (AWAY,), None, DriverStatus("x", "1", None, None, None))
    found = readiness([resource], kubelet=True)
    status, told = await said(table(found=found)["/readyz"])
    assert (status, told["reason"]) == (503, "not ready: example.com/a")
    assert told["resources"] == [{"name": "example.com/a", "ready": False, "reason": "not registered yet"}]


async def test_status_as_json_and_text():
    found = table(status=status())
    answer = await found["/status.json"]()
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert json.loads(answer.body)["gateway"]["node"] == "node-a"
    answer = await found["/statusz"]()
    assert (answer.status, answer.content_type) == (200, "text/plain; charset=utf-8")
    assert f"Paths: {' '.join(sorted(found))}\n".encode() in answer.body


@pytest.mark.parametrize(("path", "kind"), [("/", "html"), ("/page.js", "javascript"), ("/page.css", "css")])
async def test_files_of_the_page(path, kind):
    answer = await table()[path]()
    assert (answer.status, answer.content_type) == (200, f"text/{kind}; charset=utf-8")
    assert len(answer.body) > 1000


async def test_page_links_exist():
    known, html = table(), (await table()["/"]()).body.decode()
    assert set(re.findall(r'(?:href|src)="([^"]+)"', html)) <= known.keys()


async def test_concurrent_requests_share_an_answer():
    numbers = itertools.count(1)

    async def page():
        await asyncio.sleep(0)
        return Response("x", str(next(numbers)).encode())

    one = Cached(page)
    assert [answer.body for answer in await asyncio.gather(one(), one(), one())] == [b"1"] * 3
    always = Cached(page, 0)
    assert (await always()).body == b"2"
    await turns()
    assert (await always()).body == b"3"


async def test_requests_that_are_given_up_make_no_more_answers():
    made, go_on = [], asyncio.Event()

    async def page():
        made.append(1)
        await go_on.wait()
        return Response("x", b"here")

    one = Cached(page)
    for _ in range(10):
        asking = asyncio.ensure_future(one())
        await turns()
        asking.cancel()
        await turns()
    go_on.set()
    assert ((await one()).body, len(made)) == (b"here", 1)


@in_virtual_time
async def test_unasked_answer_is_forgotten():
    made: list[weakref.ref[object]] = []

    async def page():
        await asyncio.sleep(0.01)
        answer = Kept()
        made.append(weakref.ref(answer))
        return answer

    one = Cached(page)
    for _ in range(30):
        await one()
        await advance(1.01)
    assert len(made) == 30
    assert sum(answer() is not None for answer in made) <= 1
    await advance(25)
    assert not any(answer() for answer in made)
    with pytest.raises(LookupError):
        await Cached(fails)()


class Kept(Response):
    """One that can be referred to weakly."""

    __slots__ = ("__weakref__",)

    def __init__(self):
        super().__init__("x", b"")


async def fails():
    raise LookupError


async def test_long_page_lets_others_run():
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    pieces = ("x" * 40_000 if not turns else "y" for _ in range(4))
    assert (await gathered("text/plain", lambda: pieces)).body == b"x" * 80_000 + b"yy"
