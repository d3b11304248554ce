"""A configuration that changes all the time disturbs nobody but the resource that changes."""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.real_kubelet.programs import RELEASES
from tests.scenarios.engines import REAL
from tests.scenarios.gateway import COUNTED, SAME, Gateway
from tests.scenarios.kubelet import RESOURCE, Kubelet
from tests.support.gateway import SLOW
from tests.support.waiting import until

RELOADS = {"simulated": 16, "real": 40, "newest": 200}
"""The changes below, again and again."""
WARM = 8
"""Reloads after which what is made once has been made."""
MOST_GROWTH = 4096
"""KiB of resident memory, which the allocator may keep."""
SETTLING = 60.0
"""Seconds in which what the last reload left behind must be gone."""

OTHERS = [f"example.com/thing-{number}" for number in range(7)]
CHANGING = "example.com/changing"
Keys = Mapping[str, Any]
CHANGES: list[tuple[str, Keys | None]] = [
    ("changed in place", {"env": {"A": "1"}, "timeouts": {"allocate": "5s"}}),
    ("restarted", {"options": {"count": 3}}),
    ("removed", None),
    ("added", {}),
]
"""What the log says of each, and its keys; None: it isn't there."""

pytestmark = pytest.mark.timeout(1200 if REAL else 240)


def resources(keys: Keys | None) -> list[dict[str, Any]]:
    usual: Keys = {"driver": "simulated", "options": {"count": 2}}
    changing = [] if keys is None else [{"name": CHANGING, **usual, **keys}]
    return [*({"name": name, **usual} for name in OTHERS), *changing]


async def offered(kubelet: Kubelet) -> None:
    names = [*OTHERS, CHANGING]
    await kubelet.engine.wait_for(lambda seen: all(seen["allocatable"].get(name) == 2 for name in names), 60)


async def admit(kubelet: Kubelet, enough: asyncio.Event) -> int:
    """Admits pods of the others, one after the other; none may be refused."""
    for number in itertools.count():
        if enough.is_set():
            return number
        pod = f"p{number}"
        reply = await kubelet.admit(pod, {"c": {OTHERS[number % len(OTHERS)]: 1}})
        assert reply["ok"], (number, reply)
        await kubelet.remove(pod)
    raise AssertionError


def of_others(gateway: Gateway, text: str) -> Counter[str]:
    """How many lines of the log have the text, for each of the others."""
    found = (re.search(rf"{text}.* resource=(\S+)", line) for line in gateway.log)
    return Counter(match[1] for match in found if match and match[1] in OTHERS)


# Of a reload a kubelet sees only that a resource registers again: by v1alpha1, and where the end of the old stream ends
# the new one (1.31), and where it doesn't (1.37).
@pytest.mark.parametrize("kubelet", ["1.8", "1.31", "1.37"] if REAL else ["1.37"], indirect=True)
async def test_who_is_as_before_does_not_notice(
    kubelet: Kubelet, gateway: Gateway, record: Callable[..., None]
) -> None:
    gateway.command, gateway.log_level, gateway.resources = COUNTED, "info", resources({})
    await kubelet.start()
    count = RELOADS["simulated" if not REAL else "newest" if kubelet.release == RELEASES[-1] else "real"]
    await gateway.start()
    await offered(kubelet)
    before = await gateway.state()  # while it watches the file, which it doesn't while that changes all the time
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        admitting = group.create_task(admit(kubelet, enough))
        for number in range(count):
            what, keys = CHANGES[number % len(CHANGES)]
            gateway.reload(*resources(keys))
            await gateway.said(f"{what}: {CHANGING}", count=number // len(CHANGES) + 1)
            if number + 1 in (WARM // 2, WARM):
                await offered(kubelet)
                now = await gateway.state()
                before = {key: max(before[key], now[key]) for key in now}
        await offered(kubelet)
        enough.set()
    assert of_others(gateway, "registered") == dict.fromkeys(OTHERS, 1)
    assert of_others(gateway, "last stream ended") == {}
    assert of_others(gateway, f" (?:WARNING|ERROR|CRITICAL) (?!.*(?:{'|'.join(SLOW)}))") == {}
    after: dict[str, int] = {}

    async def as_before() -> bool:
        after.update(await gateway.state())
        return after["KiB"] - before["KiB"] < MOST_GROWTH and all(after[what] <= before[what] for what in SAME)

    await until(as_before, SETTLING, pause=0.1, found=lambda: (before, after, gateway.log[-1]))
    if REAL:
        record("reloads", kubelet.release, reloads=count, pods=admitting.result(), before=before, after=after)


@pytest.mark.parametrize("kubelet", RELEASES if REAL else ["1.37"], indirect=True)
async def test_shares_that_a_container_holds_outlive_their_offer(kubelet: Kubelet, gateway: Gateway) -> None:
    """A kubelet from 1.34 on crashes when an id leaves that a container holds."""
    shared = {"name": RESOURCE, "driver": "simulated", "options": {"count": 2}, "preference": "packed"}
    gateway.resources = [{**shared, "shares": 2, "keep_lost": "0s"}]
    await kubelet.start()
    await gateway.start()
    await kubelet.wait_for_devices(4)
    assert (await kubelet.admit("p", {"c": {RESOURCE: 4}}))["ok"]
    gateway.reload({**shared, "keep_lost": "0s"})
    await gateway.said(f"changed in place: {RESOURCE} (shares)")
    await kubelet.wait_for_devices(2, 2)
    assert (await kubelet.start_container("p"))["ok"]
    replies = await kubelet.restart()
    await kubelet.wait_for_devices(2, 2)
    assert replies["p"]["ok"], replies
    await kubelet.remove("p")
    assert (await kubelet.admit("q", {"c": {RESOURCE: 2}}))["ok"]
    await kubelet.wait_for_devices(2)
