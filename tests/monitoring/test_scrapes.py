"""What scrapes cost a gateway that is a process of its own."""

from tests.support.http import ask
from tests.support.waiting import until


async def scraped(node, count):
    for _ in range(count):
        assert (await ask(node.port, "/metrics")).status == 200
    return node.gateway.used()


async def test_a_thousand_scrapes_leave_memory_threads_and_descriptors_as_they_were(node):
    before = await scraped(node, 100)
    await scraped(node, 1000)
    await until(lambda: node.gateway.used()["threads"] <= before["threads"])  # once those that were needed are idle
    await until(lambda: node.gateway.used()["descriptors"] <= before["descriptors"])  # once connections have ended
    assert node.gateway.used()["KiB"] - before["KiB"] < 1024
