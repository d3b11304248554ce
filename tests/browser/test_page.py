"""The page for people, as a person sees it."""

import json

import pytest

from tests.browser.chromium import Chromium
from tests.browser.node import BOARD, SERIAL, node
from tests.support.waiting import until

WIDE, PHONE = (1000, 900), (360, 740)
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
async def shown(short_path):
    """A node, and a browser that shows its page."""
    async with node(short_path) as one, Chromium() as browser:
        await browser.open(await one.start())
        await until(lambda: reads(browser, "#verdict", "Nothing is wrong with 3 resources"), pause=0.05)
        yield one, browser


async def reads(browser, selector, text):
    return text in await browser.text(selector)


def resource(name):
    return f'[data-resource="{name}"]'


async def device(browser, id_):
    return await browser.text(f'[data-device="{id_}"]')


async def test_a_device_that_turns_unhealthy_is_on_top_with_its_reason_and_in_its_resource(shown):
    node, browser = shown
    node.fail(SERIAL, unhealthy="no carrier", indexes=[2])
    await until(lambda: reads(browser, "#verdict", "1 thing is wrong"), pause=0.05)
    assert "no carrier" in await browser.text("#troubles")
    assert "7 free, 0 held, 1 unhealthy" in await browser.text(resource(SERIAL))
    assert (await device(browser, "serial-node-2")).split("\t")[1::3] == ["Unhealthy", "no carrier"]
    assert "no carrier" in await browser.text("#events")
    assert await browser.run("document.title") == "! dpgateway node"
    node.fail(SERIAL)
    await until(lambda: reads(browser, "#verdict", "Nothing is wrong"), pause=0.05)
    assert browser.complaints == []


async def test_who_holds_a_device_is_named_once_its_resource_is_open(shown):
    node, browser = shown
    await node.admit("video", fpga=1)
    await until(lambda: reads(browser, resource(BOARD), "3 free, 1 held, 0 unhealthy"), pause=0.05)
    await browser.run(f"document.querySelector({json.dumps(resource(BOARD))}).querySelector('summary').click()")
    await until(lambda: reads(browser, resource(BOARD), "default/video (main)"), pause=0.05)
    wide = [f"document.querySelector('{resource(BOARD)} .bar .{kind}').clientWidth" for kind in ("free", "held")]
    free, held = [await browser.run(script) for script in wide]
    assert free == pytest.approx(3 * held, abs=3)


async def test_a_device_that_fails_is_still_held(shown):
    node, browser = shown
    await node.admit("video", serial=1)
    await until(lambda: reads(browser, resource(SERIAL), "7 free, 1 held, 0 unhealthy"), pause=0.05)
    node.fail(SERIAL, unhealthy="no carrier", indexes=[*range(8)])
    await until(lambda: reads(browser, resource(SERIAL), "0 free, 0 held, 8 unhealthy, 1 of them held"), pause=0.05)


async def test_what_drivers_say_is_shown_as_text_whatever_it_is(shown):
    node, browser = shown
    node.fail(SERIAL, unhealthy=HOSTILE, indexes=[0])
    await until(lambda: reads(browser, "#troubles", HOSTILE), pause=0.05)
    assert HOSTILE in await device(browser, "serial-node-0")
    assert await browser.run("document.images.length") == 0
    assert browser.complaints == []


async def test_nothing_foreign_can_run_in_it(shown):
    _, browser = shown
    await browser.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'let x = 1'}))"
    )
    await until(lambda: any("Content Security Policy" in one for one in browser.complaints), pause=0.05)


async def test_a_kubelet_and_a_gateway_that_have_gone_are_told_first(shown):
    node, browser = shown
    await node.kubelet.kill()
    (node.kubelet.directory / "kubelet.sock").unlink()
    await until(lambda: reads(browser, "#troubles", "there is no kubelet"), pause=0.05)
    assert "systemctl status kubelet" in await browser.text("#troubles .advice")
    await node.gateway.end()
    await until(lambda: reads(browser, "#verdict", "The gateway doesn't answer"), pause=0.05)
    assert "below is how it was" in await browser.text("#verdict")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_it_fits_a_phone_and_a_screen_and_is_light_or_dark(shown, dark):
    node, browser = shown
    node.fail(SERIAL, unhealthy="x" * 300, indexes=[0])
    await until(lambda: reads(browser, "#troubles", "xxx"), pause=0.05)
    for width, height in (PHONE, WIDE):
        await browser.look(width=width, height=height, dark=dark)
        assert await browser.run("document.documentElement.scrollWidth") <= width
        back = await browser.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, back[4:-1].split(","))) < 384) == dark
